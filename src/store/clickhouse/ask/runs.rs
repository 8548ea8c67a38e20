//! The answers about runs, their requests and their threads.

use std::collections::HashMap;

use clickhouse::Row;
use serde::Deserialize;

use super::wanted::{Where, listed};
use super::{ClickHouseAnswers, ORDER, limit};
use crate::store::clickhouse::read::columns;
use crate::store::clickhouse::row::TurnRow;
use crate::store::questions::{Filter, RunSummary, ThreadSummary};
use crate::store::{StoreError, Totals};
use crate::trace::TurnRecord;

/// Runs of one statement, and the bytes of their names there: the server refuses statements above
/// 256 KiB.
const RUNS: usize = 1_000;
const NAME_BYTES: usize = 128 << 10;

#[derive(Row, Deserialize)]
struct Picked {
    run: String,
    #[allow(dead_code, reason = "the order of the rows")]
    active: i64,
}

#[derive(Row, Deserialize)]
struct RunRow {
    run: String,
    source: String,
    app: Option<String>,
    client: Option<String>,
    first_ms: i64,
    last_ms: Option<i64>,
    threads: u64,
}

#[derive(Row, Deserialize)]
struct ModelRow {
    run: String,
    model: Option<String>,
}

#[derive(Row, Deserialize)]
struct ThreadRow {
    thread: String,
    parent: Option<String>,
    agent: Option<String>,
    first_ms: i64,
    last_ms: Option<i64>,
}

#[derive(Row, Deserialize)]
struct CallsRow {
    thread: String,
    calls: u64,
    failed: u64,
}

/// The end of the last turn; a request of our own may come long after it.
const LAST_MS: &str =
    "max(if(t.kind = 'turn', t.started_ms + intDiv(t.duration_us, 1000), NULL)) AS last_ms";

impl ClickHouseAnswers {
    pub(super) fn ask_runs(&self, filter: &Filter) -> Result<Vec<RunSummary>, StoreError> {
        let sql = format!(
            "SELECT t.run_id AS run, max(t.started_ms) AS active FROM {} WHERE {} \
            GROUP BY t.run_id ORDER BY active DESC, run {}",
            self.rows_of("turns"),
            Where::costly().range(filter),
            limit(filter)
        );
        let picked: Vec<Picked> = self.all(&sql)?;
        let mut found = HashMap::new();
        let mut rest = picked.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(RUNS).take_while(|run| {
                bytes += 2 * run.run.len() + 4;
                bytes <= NAME_BYTES
            });
            let (some, others) = rest.split_at(fits.count().max(1));
            self.summed_up(some, &mut found)?;
            rest = others;
        }
        let in_order = picked.iter().filter_map(|run| found.remove(&run.run));
        Ok(in_order.collect())
    }

    /// Whole runs, whatever of them was asked for.
    fn summed_up(
        &self,
        runs: &[Picked],
        found: &mut HashMap<String, RunSummary>,
    ) -> Result<(), StoreError> {
        let names = listed(runs.iter().map(|run| run.run.as_str()));
        let wanted = Where::costly().and(format!("t.run_id IN ({names})"));
        let turns = self.rows_of("turns");
        let sql = format!(
            "SELECT t.run_id AS run, argMin(t.run_source, {ORDER}) AS source, \
                argMaxIf(t.app, {ORDER}, t.kind = 'turn') AS app, \
                argMaxIf(t.client, {ORDER}, t.kind = 'turn') AS client, \
                min(t.started_ms) AS first_ms, {LAST_MS}, \
                uniqExactIf(t.thread_id, t.kind = 'turn') AS threads \
            FROM {turns} WHERE {wanted} GROUP BY t.run_id"
        );
        self.each(&sql, |row: RunRow| {
            let run = RunSummary {
                source: row.source,
                app: row.app,
                client: row.client,
                models: Vec::new(),
                started_ms: row.first_ms,
                ended_ms: row.first_ms.max(row.last_ms.unwrap_or(row.first_ms)),
                threads: u32::try_from(row.threads).unwrap_or(u32::MAX),
                totals: Totals::default(),
                id: row.run,
            };
            found.insert(run.id.clone(), run);
            Ok(())
        })?;
        let sql = format!(
            "SELECT t.run_id AS run, t.model_served AS model FROM {turns} \
            WHERE {wanted} AND t.kind = 'turn' AND t.model_served IS NOT NULL \
            GROUP BY t.run_id, t.model_served ORDER BY run, min({ORDER}) LIMIT {} BY run",
            RunSummary::MODELS
        );
        self.each(&sql, |row: ModelRow| {
            if let Some(run) = found.get_mut(&row.run) {
                run.models.extend(row.model);
            }
            Ok(())
        })?;
        self.facts_by("t.run_id", &wanted, |key, fact| {
            if let Some(run) = found.get_mut(&key.unwrap_or_default()) {
                run.totals.add_fact(&fact);
            }
            Ok(())
        })
    }

    pub(super) fn ask_turns(
        &self,
        run: &str,
        filter: &Filter,
        every_kind: bool,
    ) -> Result<Vec<TurnRecord>, StoreError> {
        let kinds = if every_kind {
            Where::everything()
        } else {
            Where::turns()
        };
        let sql = format!(
            "SELECT {} FROM {} WHERE {} ORDER BY {ORDER} {}",
            columns::<TurnRow>(("batch", "UInt64")),
            self.rows_of("turns"),
            kinds.of_run(Some(run)).range(filter),
            limit(filter)
        );
        let mut turns = Vec::new();
        self.each(&sql, |row: TurnRow| {
            turns.push(row.try_into()?);
            Ok(())
        })?;
        Ok(turns)
    }

    pub(super) fn ask_tree(
        &self,
        run: &str,
        filter: &Filter,
    ) -> Result<Vec<ThreadSummary>, StoreError> {
        let wanted = Where::costly().of_run(Some(run)).range(filter);
        let turns = self.rows_of("turns");
        // The first that tells it: what is NULL is passed over.
        let sql = format!(
            "SELECT t.thread_id AS thread, argMin(t.parent_thread, {ORDER}) AS parent, \
                argMin(t.agent, {ORDER}) AS agent, min(t.started_ms) AS first_ms, {LAST_MS} \
            FROM {turns} WHERE {wanted} GROUP BY t.thread_id ORDER BY min({ORDER}) {}",
            limit(filter)
        );
        let mut threads: Vec<ThreadSummary> = Vec::new();
        let mut places = HashMap::new();
        self.each(&sql, |row: ThreadRow| {
            let begun = ThreadSummary::begin(&row.thread, row.first_ms);
            places.insert(row.thread, threads.len());
            threads.push(ThreadSummary {
                parent: row.parent,
                agent: row.agent,
                ended_ms: row.first_ms.max(row.last_ms.unwrap_or(row.first_ms)),
                ..begun
            });
            Ok(())
        })?;
        let mut each = |id: &str, change: &mut dyn FnMut(&mut ThreadSummary)| {
            let thread = places.get(id).and_then(|place| threads.get_mut(*place));
            thread.into_iter().for_each(change);
        };
        self.facts_by("t.thread_id", &wanted, |key, fact| {
            let id = key.unwrap_or_default();
            each(&id, &mut |thread| thread.totals.add_fact(&fact));
            Ok(())
        })?;
        let sql = format!(
            "SELECT w.thread_id AS thread, count() AS calls, countIf(c.status = 'failed') AS failed \
            FROM (SELECT t.id AS id, t.thread_id AS thread_id FROM {turns} WHERE {wanted}) AS w \
            GLOBAL INNER JOIN (SELECT t.turn_id AS turn_id, t.status AS status FROM {} WHERE {}) AS c \
            ON c.turn_id = w.id GROUP BY w.thread_id",
            self.rows_of("tool_calls"),
            Where::everything().of_run(Some(run))
        );
        self.each(&sql, |row: CallsRow| {
            each(&row.thread, &mut |thread| {
                thread.calls = row.calls;
                thread.failed = row.failed;
            });
            Ok(())
        })?;
        Ok(threads)
    }
}
