//! Which of some records the server has, in a range of time. What is asked for is named, so that an
//! answer is never larger than the question, however much other gateways have written.

use std::collections::{HashMap, HashSet};

use clickhouse::{Row, RowOwned, RowRead};
use serde::Deserialize;
use uuid::Uuid;

use super::failure::judge;
use super::{ClickHouseSink, Failure, QUERY_TIMEOUT};

/// Most ids of a question: the server refuses statements above 256 KiB.
pub const MAX_IDS: usize = 4_000;

/// A range of time in UTC milliseconds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First.
    pub from_ms: i64,
    /// Last.
    pub to_ms: i64,
}

#[derive(Row, Deserialize)]
struct Id {
    #[serde(with = "clickhouse::serde::uuid")]
    id: Uuid,
}

#[derive(Row, Deserialize)]
struct Call {
    #[serde(with = "clickhouse::serde::uuid")]
    turn_id: Uuid,
    call_id: String,
    version: u8,
}

impl ClickHouseSink {
    /// Turns among `ids` that are there and started within `range`.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn turns_present(
        &self,
        range: Range,
        ids: &[Uuid],
    ) -> Result<HashSet<Uuid>, Failure> {
        self.ids_present("turns", "started", range, ids).await
    }

    /// Events among `ids` that are there and happened within `range`.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn events_present(
        &self,
        range: Range,
        ids: &[Uuid],
    ) -> Result<HashSet<Uuid>, Failure> {
        self.ids_present("events", "at", range, ids).await
    }

    /// Calls of `turns` that are there and were asked for within `range`, with how far they have
    /// come: 0 pending, 1 incomplete, 2 final.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn calls_present(
        &self,
        range: Range,
        turns: &[Uuid],
    ) -> Result<HashMap<(Uuid, String), u8>, Failure> {
        let mut present = HashMap::new();
        for turns in turns.chunks(MAX_IDS) {
            let sql = format!(
                "SELECT turn_id, call_id, max(version) AS version FROM {} WHERE {} \
                AND turn_id IN ({}) GROUP BY turn_id, call_id",
                self.dialect.written("tool_calls"),
                within("asked", range),
                listed(turns)
            );
            let calls: Vec<Call> = self.ask(&sql).await?;
            let calls = calls.into_iter();
            present.extend(calls.map(|call| ((call.turn_id, call.call_id), call.version)));
        }
        Ok(present)
    }

    async fn ids_present(
        &self,
        view: &str,
        time: &str,
        range: Range,
        ids: &[Uuid],
    ) -> Result<HashSet<Uuid>, Failure> {
        let mut present = HashSet::new();
        for ids in ids.chunks(MAX_IDS) {
            let sql = format!(
                "SELECT DISTINCT id FROM {} WHERE {} AND id IN ({})",
                self.dialect.written(view),
                within(time, range),
                listed(ids)
            );
            let found: Vec<Id> = self.ask(&sql).await?;
            present.extend(found.into_iter().map(|found| found.id));
        }
        Ok(present)
    }

    pub(super) async fn ask<T: RowOwned + RowRead>(&self, sql: &str) -> Result<Vec<T>, Failure> {
        // In the body: the list does not fit a URL.
        let asked = self.client.query_raw(sql).fetch_all();
        match tokio::time::timeout(QUERY_TIMEOUT, asked).await {
            Ok(Ok(rows)) => Ok(rows),
            // What is wrong is not a batch: nothing is ever refused for it.
            Ok(Err(error)) => Err(Failure::later(judge(&error).why)),
            Err(_) => Err(Failure::later("the server does not answer")),
        }
    }
}

fn within(time: &str, range: Range) -> String {
    format!(
        "{time} BETWEEN fromUnixTimestamp64Milli({}, 'UTC') AND fromUnixTimestamp64Milli({}, 'UTC')",
        range.from_ms, range.to_ms
    )
}

fn listed(ids: &[Uuid]) -> String {
    let mut list = String::with_capacity(39 * ids.len());
    for id in ids {
        if !list.is_empty() {
            list.push(',');
        }
        list.push('\'');
        list.push_str(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        list.push('\'');
    }
    list
}
