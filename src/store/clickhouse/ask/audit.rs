//! The other answers about the prompt cache.

use clickhouse::Row;
use serde::Deserialize;

use super::wanted::Where;
use super::{ClickHouseAnswers, id, limit};
use crate::prompt_cache::verdict::{Reason, Status};
use crate::store::audit::{
    Agreement, DIAGNOSED, Disagreement, Duplicate, Duplicates, Duplicating, Place, Unreading,
    Unreads, Verdicts, WRITES, Written, lifetime, wrote,
};
use crate::store::clickhouse::row::word_or_none;
use crate::store::{Filter, StoreError};

/// What [`place`] reads.
pub(super) type PlaceTold = (
    String,
    String,
    String,
    u32,
    i64,
    Option<String>,
    Option<String>,
);

/// The same in SQL.
pub(super) const PLACE: &str =
    "(toString(t.id), t.run_id, t.thread_id, t.turn, t.started_ms, t.app, t.client)";

/// Where a turn stands.
pub(super) fn place(told: PlaceTold) -> Result<Place, StoreError> {
    let (turn_id, run_id, thread_id, turn, started_ms, app, client) = told;
    Ok(Place {
        id: id("id", &turn_id)?,
        run_id,
        thread_id,
        turn,
        started_ms,
        app,
        client,
    })
}

#[derive(Row, Deserialize)]
struct UnreadRow {
    place: PlaceTold,
    model: Option<String>,
    tokens: Vec<Option<u64>>,
    premium_pico: Option<u64>,
    ttl: i64,
    alive: i64,
    perhaps_read: bool,
}

#[derive(Row, Deserialize)]
struct DuplicateRow {
    place: PlaceTold,
    of: Option<String>,
    tokens: Option<u64>,
    pico: Option<u64>,
}

#[derive(Row, Deserialize)]
struct AgreesRow {
    agrees: Option<bool>,
    count: u64,
}

#[derive(Row, Deserialize)]
struct DisagreementRow {
    place: PlaceTold,
    status: Option<String>,
    reason: Option<String>,
    native: Option<String>,
}

#[derive(Row, Deserialize)]
struct VerdictRow {
    status: Option<String>,
    unjudged: Option<String>,
    count: u64,
}

fn status(told: Option<&str>) -> Result<Option<Status>, StoreError> {
    word_or_none("verdict", told, Status::from_word)
}

impl ClickHouseAnswers {
    pub(super) fn ask_unread(&self, filter: &Filter, now_ms: i64) -> Result<Unreads, StoreError> {
        let longest_ms = WRITES.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
        // Nothing is read before it is written; the life of an entry is more than clocks differ.
        let since_ms = filter.since_ms.map(|ms| ms.saturating_sub(longest_ms));
        let turns = self.rows_of("turns");
        let readers = |kind: &str| {
            Where::everything()
                .and(format!("t.kind = '{kind}' AND t.read_of IS NOT NULL"))
                .since("t.started", since_ms)
        };
        let perhaps = Where::turns()
            .and("t.read > 0 AND t.read_of IS NULL")
            .of_run(filter.run.as_deref())
            .since("t.started", since_ms);
        const ALIVE: &str = "greatest(w.started_ms, ifNull(k.kept, w.started_ms))";
        // A request of our own that kept the entry alive has moved the end of its life, and is not
        // the read it is for.
        let sql = format!(
            "SELECT any(w.place) AS place, any(w.model) AS model, any(w.tokens) AS tokens, \
                any(w.premium_pico) AS premium_pico, any(w.ttl) AS ttl, \
                any({ALIVE}) AS alive, \
                toBool(max(u.found AND u.id != w.id \
                    AND u.started_ms BETWEEN w.started_ms AND {ALIVE} + w.ttl)) AS perhaps_read \
            FROM (SELECT {PLACE} AS place, t.id AS id, t.run_id AS run_id, \
                    t.thread_id AS thread_id, t.started_ms AS started_ms, \
                    coalesce(t.model_served, t.model_requested) AS model, [{tokens}] AS tokens, \
                    t.premium_pico AS premium_pico, toInt64({ttl}) AS ttl \
                FROM {turns} WHERE {wanted} AND {wrote} AND t.id GLOBAL NOT IN ( \
                    SELECT assumeNotNull(t.read_of) FROM {turns} WHERE {read})) AS w \
            GLOBAL LEFT JOIN (SELECT assumeNotNull(t.read_of) AS of, \
                    toNullable(max(t.started_ms)) AS kept \
                FROM {turns} WHERE {kept} GROUP BY of) AS k ON k.of = w.id \
            GLOBAL LEFT JOIN (SELECT t.run_id AS run_id, t.thread_id AS thread_id, t.id AS id, \
                    t.started_ms AS started_ms, 1 AS found \
                FROM {turns} WHERE {perhaps}) AS u \
                ON u.run_id = w.run_id AND u.thread_id = w.thread_id \
            GROUP BY w.id",
            tokens = WRITES.map(|(column, _)| format!("t.{column}")).join(", "),
            ttl = lifetime(),
            wanted = Where::turns().range(filter),
            wrote = wrote(),
            read = readers("turn"),
            kept = readers("keep_warm"),
        );
        let mut unread = Unreading::at(now_ms, filter.limit);
        self.each(&sql, |row: UnreadRow| {
            let mut tokens = row.tokens.into_iter();
            unread.add(Written {
                place: place(row.place)?,
                model: row.model,
                tokens: std::array::from_fn(|_| tokens.next().flatten()),
                premium_pico: row.premium_pico,
                ttl_ms: row.ttl,
                alive_ms: row.alive,
                perhaps_read: row.perhaps_read,
            });
            Ok(())
        })?;
        Ok(unread.finish())
    }

    pub(super) fn ask_duplicates(&self, filter: &Filter) -> Result<Duplicates, StoreError> {
        let sql = format!(
            "SELECT {PLACE} AS place, toString(t.duplicate_of) AS of, \
                t.duplicate_tokens AS tokens, t.duplicate_pico AS pico \
            FROM {} WHERE {} AND t.duplicate_of IS NOT NULL",
            self.rows_of("turns"),
            Where::turns().range(filter)
        );
        let mut duplicates = Duplicating::with_limit(filter.limit);
        self.each(&sql, |row: DuplicateRow| {
            duplicates.add(Duplicate {
                place: place(row.place)?,
                of: id("duplicate_of", &row.of.unwrap_or_default())?,
                tokens: row.tokens,
                pico: row.pico,
            });
            Ok(())
        })?;
        Ok(duplicates.finish())
    }

    pub(super) fn ask_agreement(&self, filter: &Filter) -> Result<Agreement, StoreError> {
        let wanted = Where::turns().range(filter).and(DIAGNOSED);
        let turns = self.rows_of("turns");
        let sql = format!(
            "SELECT t.native_agrees AS agrees, count() AS count FROM {turns} WHERE {wanted} \
            GROUP BY t.native_agrees"
        );
        let mut agreement = Agreement::default();
        self.each(&sql, |row: AgreesRow| {
            agreement.add(row.agrees, row.count);
            Ok(())
        })?;
        let sql = format!(
            "SELECT {PLACE} AS place, t.verdict AS status, t.verdict_reason AS reason, \
                t.native_diagnosis AS native \
            FROM {turns} WHERE {wanted} AND t.native_agrees = false \
            ORDER BY t.started DESC, UUIDToNum(t.id) DESC {}",
            limit(filter)
        );
        self.each(&sql, |row: DisagreementRow| {
            let reason = row.reason.as_deref();
            agreement.rows.push(Disagreement {
                place: place(row.place)?,
                status: status(row.status.as_deref())?,
                reason: word_or_none("verdict_reason", reason, Reason::from_word)?,
                native: row.native,
            });
            Ok(())
        })?;
        Ok(agreement)
    }

    pub(super) fn ask_verdicts(&self, filter: &Filter) -> Result<Verdicts, StoreError> {
        let sql = format!(
            "SELECT t.verdict AS status, t.unjudged AS unjudged, count() AS count FROM {} WHERE {} \
            GROUP BY t.verdict, t.unjudged",
            self.rows_of("turns"),
            Where::turns().range(filter)
        );
        let mut verdicts = Verdicts::default();
        self.each(&sql, |row: VerdictRow| {
            verdicts.add(status(row.status.as_deref())?, row.unjudged, row.count);
            Ok(())
        })?;
        Ok(verdicts)
    }
}
