//! The answers about loops, caps and tools.

use clickhouse::Row;
use serde::Deserialize;

use super::wanted::Where;
use super::{ClickHouseAnswers, limit};
use crate::store::guards::{CapSeen, LoopSeen, ToolSeen};
use crate::store::{Filter, StoreError};

/// Longest time between the start of a request and the end of its answer, and more: where a call is
/// in the range, its turn is in this one.
const SLACK_MS: i64 = 86_400_000;

/// Application, threshold, time, action, cost.
type LoopNewest = (Option<String>, Option<u64>, i64, String, Option<u64>);
/// Application, what was used, limit.
type CapNewest = (Option<String>, Option<u64>, Option<u64>);

#[derive(Row, Deserialize)]
struct LoopRow {
    run_id: String,
    thread_id: String,
    name: String,
    tools: Vec<String>,
    highest: Option<u64>,
    steps: u64,
    first_ms: i64,
    newest: LoopNewest,
}

#[derive(Row, Deserialize)]
struct CapRow {
    scope: String,
    run_id: String,
    name: String,
    newest: CapNewest,
    level: Option<u32>,
    crossings: u64,
    refusals: u64,
    unenforced: u64,
    first_ms: i64,
    last_ms: i64,
}

#[derive(Row, Deserialize)]
struct ToolRow {
    name: String,
    calls: u64,
    ok: u64,
    failed: u64,
    incomplete: u64,
    unanswered: u64,
    pending: u64,
    undeclared: u64,
    invalid_input: u64,
    retried: u64,
    p50_ms: Option<u64>,
    p95_ms: Option<u64>,
}

impl ClickHouseAnswers {
    pub(super) fn ask_loops(&self, filter: &Filter) -> Result<Vec<LoopSeen>, StoreError> {
        let wanted = Where::everything()
            .and("t.kind = 'loop'")
            .within(filter, "t.at")
            .of_app(filter.app.as_deref());
        let sql = format!(
            "SELECT t.run_id AS run_id, t.thread_id AS thread_id, t.name AS name, \
                t.tools AS tools, max(t.value) AS highest, count() AS steps, \
                min(t.at_ms) AS first_ms, \
                argMax((t.app, t.limit_value, t.at_ms, t.action, t.pico), \
                    (t.at, UUIDToNum(t.id))) AS newest \
            FROM {} WHERE {wanted} GROUP BY t.run_id, t.thread_id, t.name, t.tools \
            ORDER BY max((t.at, UUIDToNum(t.id))) DESC {}",
            self.rows_of("events"),
            limit(filter)
        );
        let mut loops = Vec::new();
        self.each(&sql, |row: LoopRow| {
            let (app, threshold, last_ms, action, pico) = row.newest;
            loops.push(LoopSeen {
                run_id: row.run_id,
                thread_id: row.thread_id,
                app,
                detector: row.name,
                tools: row.tools,
                count: row.highest,
                threshold,
                steps: row.steps,
                first_ms: row.first_ms,
                last_ms,
                action,
                pico,
            });
            Ok(())
        })?;
        Ok(loops)
    }

    pub(super) fn ask_caps(&self, filter: &Filter) -> Result<Vec<CapSeen>, StoreError> {
        let wanted = Where::everything()
            .and("t.kind IN ('cap_level', 'cap_refused', 'cap_unenforced')")
            .within(filter, "t.at")
            .of_app(filter.app.as_deref());
        // What was used stands for its cap together with the limit of that time: one that cannot
        // be enforced tells neither.
        let sql = format!(
            "WITH (t.limit_value IS NOT NULL, t.at, UUIDToNum(t.id)) AS place \
            SELECT t.scope AS scope, t.run_id AS run_id, t.name AS name, \
                argMax((t.app, t.value, t.limit_value), place) AS newest, max(t.level) AS level, \
                countIf(t.kind = 'cap_level') AS crossings, \
                countIf(t.kind = 'cap_refused' AND t.action != 'warn' \
                    OR t.kind = 'cap_unenforced' AND t.action = 'refused') AS refusals, \
                countIf(t.kind = 'cap_unenforced' AND t.action != 'refused') AS unenforced, \
                min(t.at_ms) AS first_ms, max(t.at_ms) AS last_ms \
            FROM {} WHERE {wanted} GROUP BY t.scope, t.run_id, t.name \
            ORDER BY last_ms DESC, argMax(UUIDToNum(t.id), place) DESC {}",
            self.rows_of("events"),
            limit(filter)
        );
        let mut caps = Vec::new();
        self.each(&sql, |row: CapRow| {
            let (app, value, limit) = row.newest;
            caps.push(CapSeen {
                scope: row.scope,
                run_id: row.run_id,
                app,
                cap: row.name,
                level: row.level,
                value,
                limit,
                crossings: row.crossings,
                refusals: row.refusals,
                unenforced: row.unenforced,
                first_ms: row.first_ms,
                last_ms: row.last_ms,
            });
            Ok(())
        })?;
        Ok(caps)
    }

    pub(super) fn ask_tools(&self, filter: &Filter) -> Result<Vec<ToolSeen>, StoreError> {
        let mut wanted = Where::everything().within(filter, "t.asked");
        if let Some(app) = &filter.app {
            let turns = Where::everything()
                .of_app(Some(app))
                .of_run(filter.run.as_deref())
                .since(
                    "t.started",
                    filter.since_ms.map(|ms| ms.saturating_sub(SLACK_MS)),
                )
                .until(
                    "t.started",
                    filter.until_ms.map(|ms| ms.saturating_add(SLACK_MS)),
                );
            wanted = wanted.and(format!(
                "t.turn_id GLOBAL IN (SELECT t.id FROM {} WHERE {turns})",
                self.rows_of("turns")
            ));
        }
        let calls = format!("FROM {} WHERE {wanted}", self.rows_of("tool_calls"));
        // Latencies by how often each was met: far fewer rows than calls.
        let sql = format!(
            "SELECT s.name AS name, s.calls AS calls, s.ok AS ok, s.failed AS failed, \
                s.incomplete AS incomplete, s.unanswered AS unanswered, s.pending AS pending, \
                s.undeclared AS undeclared, s.invalid_input AS invalid_input, \
                s.retried AS retried, l.p50_ms AS p50_ms, l.p95_ms AS p95_ms \
            FROM (SELECT toString(t.name) AS name, count() AS calls, \
                    countIf(t.status = 'ok') AS ok, countIf(t.status = 'failed') AS failed, \
                    countIf(t.status = 'incomplete') AS incomplete, \
                    countIf(t.status = 'unanswered') AS unanswered, \
                    countIf(t.status = 'pending') AS pending, \
                    countIf(ifNull(t.wrong, '') = 'undeclared') AS undeclared, \
                    countIf(ifNull(t.wrong, '') = 'invalid_input') AS invalid_input, \
                    countIf(t.retries > 0) AS retried \
                {calls} GROUP BY t.name) AS s \
            GLOBAL LEFT JOIN (SELECT name, min(if(reached >= intDiv(n * 50 + 99, 100), ms, NULL)) AS p50_ms, \
                    min(if(reached >= intDiv(n * 95 + 99, 100), ms, NULL)) AS p95_ms \
                FROM (SELECT name, ms, sum(met) OVER (PARTITION BY name) AS n, \
                        sum(met) OVER (PARTITION BY name ORDER BY ms \
                            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS reached \
                    FROM (SELECT toString(t.name) AS name, assumeNotNull(t.latency_ms) AS ms, \
                            count() AS met \
                        {calls} AND t.latency_ms IS NOT NULL GROUP BY t.name, t.latency_ms)) \
                GROUP BY name) AS l ON l.name = s.name \
            ORDER BY failed DESC, unanswered + incomplete DESC, calls DESC, name {}",
            limit(filter)
        );
        let mut tools = Vec::new();
        self.each(&sql, |row: ToolRow| {
            tools.push(ToolSeen {
                name: row.name,
                calls: row.calls,
                ok: row.ok,
                failed: row.failed,
                incomplete: row.incomplete,
                unanswered: row.unanswered,
                pending: row.pending,
                undeclared: row.undeclared,
                invalid_input: row.invalid_input,
                retried: row.retried,
                p50_ms: row.p50_ms,
                p95_ms: row.p95_ms,
            });
            Ok(())
        })?;
        Ok(tools)
    }
}
