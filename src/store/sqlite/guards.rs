//! The answers about loops, caps and tools. SQL does the grouping, so that no more groups are held
//! than are asked for.

use super::Sqlite;
use super::ask::{Where, limit};
use crate::store::guards::{CapSeen, LoopSeen, ToolSeen};
use crate::store::{Filter, StoreError};

/// Where an event has its time and its application.
const AT: &str = "t.at_ms";
const APP: &str = "t.app = ?";

impl Sqlite {
    pub(super) fn ask_loops(&self, filter: &Filter) -> Result<Vec<LoopSeen>, StoreError> {
        let wanted = Where::of("t.kind = 'loop'").within(filter, AT, APP);
        let sql = format!(
            "SELECT run_id, thread_id, app, name, tools, highest, limit_value, steps, first_ms, \
                at_ms, action, pico \
            FROM (SELECT t.*, MAX(t.value) OVER found AS highest, COUNT(*) OVER found AS steps, \
                    MIN(t.at_ms) OVER found AS first_ms, \
                    ROW_NUMBER() OVER ( \
                        PARTITION BY t.run_id, t.thread_id, t.name, t.tools \
                        ORDER BY t.at_ms DESC, t.id DESC) AS place \
                FROM events t WHERE {} \
                WINDOW found AS (PARTITION BY t.run_id, t.thread_id, t.name, t.tools)) \
            WHERE place = 1 ORDER BY at_ms DESC, id DESC LIMIT {}",
            wanted.sql,
            limit(filter)
        );
        let mut loops = Vec::new();
        self.each(&sql, wanted, |from| {
            loops.push(LoopSeen {
                run_id: from.take()?,
                thread_id: from.take()?,
                app: from.take()?,
                detector: from.take()?,
                tools: from.json("tools")?,
                count: from.known()?,
                threshold: from.known()?,
                steps: from.number()?,
                first_ms: from.take()?,
                last_ms: from.take()?,
                action: from.take()?,
                pico: from.known()?,
            });
            Ok(())
        })?;
        Ok(loops)
    }

    pub(super) fn ask_caps(&self, filter: &Filter) -> Result<Vec<CapSeen>, StoreError> {
        let kinds = "t.kind IN ('cap_level', 'cap_refused', 'cap_unenforced')";
        let wanted = Where::of(kinds).within(filter, AT, APP);
        // What was used stands for its cap together with the limit of that time: one that cannot
        // be enforced tells neither.
        let sql = format!(
            "SELECT scope, run_id, app, name, highest, value, limit_value, crossings, refusals, \
                unenforced, first_ms, last_ms \
            FROM (SELECT t.*, MAX(t.level) OVER cap AS highest, \
                    SUM(t.kind = 'cap_level') OVER cap AS crossings, \
                    SUM(t.kind = 'cap_refused' AND t.action <> 'warn' \
                        OR t.kind = 'cap_unenforced' AND t.action = 'refused') OVER cap AS refusals, \
                    SUM(t.kind = 'cap_unenforced' AND t.action <> 'refused') OVER cap AS unenforced, \
                    MIN(t.at_ms) OVER cap AS first_ms, MAX(t.at_ms) OVER cap AS last_ms, \
                    ROW_NUMBER() OVER ( \
                        PARTITION BY t.scope, t.run_id, t.name \
                        ORDER BY t.limit_value IS NOT NULL DESC, t.at_ms DESC, t.id DESC) AS place \
                FROM events t WHERE {} \
                WINDOW cap AS (PARTITION BY t.scope, t.run_id, t.name)) \
            WHERE place = 1 ORDER BY last_ms DESC, id DESC LIMIT {}",
            wanted.sql,
            limit(filter)
        );
        let mut caps = Vec::new();
        self.each(&sql, wanted, |from| {
            caps.push(CapSeen {
                scope: from.take()?,
                run_id: from.take()?,
                app: from.take()?,
                cap: from.take()?,
                level: from.take()?,
                value: from.known()?,
                limit: from.known()?,
                crossings: from.number()?,
                refusals: from.number()?,
                unenforced: from.number()?,
                first_ms: from.take()?,
                last_ms: from.take()?,
            });
            Ok(())
        })?;
        Ok(caps)
    }

    pub(super) fn ask_tools(&self, filter: &Filter) -> Result<Vec<ToolSeen>, StoreError> {
        let of_app = "EXISTS (SELECT 1 FROM turns u WHERE u.id = t.turn_id AND u.app = ?)";
        let wanted = Where::of("1").within(filter, "t.asked_ms", of_app);
        let sql = format!(
            "WITH calls AS ( \
                SELECT t.name, t.status, t.wrong, t.retries, t.latency_ms \
                FROM tool_calls t WHERE {}), \
            ranked AS ( \
                SELECT name, latency_ms, \
                    ROW_NUMBER() OVER (PARTITION BY name ORDER BY latency_ms) AS place, \
                    COUNT(*) OVER (PARTITION BY name) AS n \
                FROM calls WHERE latency_ms IS NOT NULL), \
            latencies AS ( \
                SELECT name, MAX(CASE WHEN place = (n * 50 + 99) / 100 THEN latency_ms END) AS p50, \
                    MAX(CASE WHEN place = (n * 95 + 99) / 100 THEN latency_ms END) AS p95 \
                FROM ranked GROUP BY name), \
            sums AS ( \
                SELECT name, COUNT(*) AS asked, SUM(status = 'ok') AS ok, \
                    SUM(status = 'failed') AS failed, SUM(status = 'incomplete') AS incomplete, \
                    SUM(status = 'unanswered') AS unanswered, SUM(status = 'pending') AS pending, \
                    SUM(wrong IS 'undeclared') AS undeclared, \
                    SUM(wrong IS 'invalid_input') AS invalid, SUM(retries > 0) AS retried \
                FROM calls GROUP BY name) \
            SELECT s.name, s.asked, s.ok, s.failed, s.incomplete, s.unanswered, s.pending, \
                s.undeclared, s.invalid, s.retried, l.p50, l.p95 \
            FROM sums s LEFT JOIN latencies l ON l.name = s.name \
            ORDER BY s.failed DESC, s.unanswered + s.incomplete DESC, s.asked DESC, s.name LIMIT {}",
            wanted.sql,
            limit(filter)
        );
        let mut tools = Vec::new();
        self.each(&sql, wanted, |from| {
            tools.push(ToolSeen {
                name: from.take()?,
                calls: from.number()?,
                ok: from.number()?,
                failed: from.number()?,
                incomplete: from.number()?,
                unanswered: from.number()?,
                pending: from.number()?,
                undeclared: from.number()?,
                invalid_input: from.number()?,
                retried: from.number()?,
                p50_ms: from.known()?,
                p95_ms: from.known()?,
            });
            Ok(())
        })?;
        Ok(tools)
    }
}
