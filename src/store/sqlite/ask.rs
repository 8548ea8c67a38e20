//! The answers of SQLite. Rows are summed up here, not in SQL: sums of money outgrow its integers,
//! and it knows no time zones.

use std::collections::{HashMap, HashSet};

use jiff::tz::TimeZone;
use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use super::{Sqlite, row};
use crate::prompt_cache::verdict::Status;
use crate::store::audit::{Agreement, CulpritBy, Culprits, Duplicates, Unreads, Verdicts};
use crate::store::groups::Groups;
use crate::store::guards::{CapSeen, LoopSeen, ToolSeen};
use crate::store::questions::{By, Filter, Questions, RunSummary, Spend, ThreadSummary};
use crate::store::totals::{Fact, Judged, KIND_COLUMNS, KINDS, Totals, usage_of};
use crate::store::{Savings, StoreError};
use crate::trace::{Outcome, RequestKind, TurnRecord};

/// What [`fact`] reads beside the tokens.
const OTHER_FACTS: [&str; 11] = [
    "attempt",
    "outcome",
    "status",
    "kind",
    "usage_complete",
    "usage_estimated",
    "cost_pico",
    "cost_no_cache_pico",
    "verdict",
    "lost_tokens",
    "lost_pico",
];
/// The number of columns in [`facts`].
pub(super) const FACT_COLUMNS: usize = KINDS + OTHER_FACTS.len();

/// The columns that [`fact`] reads, for the start of a selection.
pub(super) fn facts() -> String {
    let columns = KIND_COLUMNS.iter().chain(&OTHER_FACTS);
    let columns: Vec<_> = columns.map(|column| format!("t.{column}")).collect();
    columns.join(", ")
}

/// Conditions with their values.
pub(super) struct Where {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

impl Where {
    /// A condition without values.
    pub(super) fn of(condition: &str) -> Self {
        Self {
            sql: condition.into(),
            values: Vec::new(),
        }
    }

    fn every_kind() -> Self {
        Self::of("1")
    }

    /// Turns only.
    pub(super) fn turns() -> Self {
        Self::of("t.kind = 'turn'")
    }

    /// The kinds of which [`Totals`] sums up something.
    pub(super) fn costly() -> Self {
        Self::of("t.kind IN ('turn', 'keep_warm')")
    }

    /// Adds a condition about one value.
    fn and(mut self, condition: &str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            self.sql.push_str(" AND ");
            self.sql.push_str(condition);
            self.values.push(value.into());
        }
        self
    }

    pub(super) fn range(self, filter: &Filter) -> Self {
        self.within(filter, "t.started_ms", "t.app = ?")
    }

    /// As [`Where::range`], for rows with another time and another way to their application.
    pub(super) fn within(self, filter: &Filter, time: &str, of_app: &str) -> Self {
        self.and("t.run_id = ?", filter.run.clone())
            .and(&format!("{time} >= ?"), filter.since_ms)
            .and(&format!("{time} < ?"), filter.until_ms)
            .and(of_app, filter.app.clone())
    }
}

pub(super) fn limit(filter: &Filter) -> i64 {
    i64::try_from(filter.limit).unwrap_or(i64::MAX)
}

impl Questions for Sqlite {
    fn runs(&self, filter: &Filter) -> Result<Vec<RunSummary>, StoreError> {
        let wanted = Where::costly().range(filter);
        let sql = format!(
            "WITH picked AS ( \
                SELECT t.run_id AS id, MAX(t.started_ms) AS active FROM turns t \
                WHERE {} GROUP BY t.run_id \
                ORDER BY active DESC, id LIMIT {}) \
            SELECT {}, t.run_id, t.run_source, t.app, t.client, t.model_served, \
                t.started_ms, t.duration_us, t.thread_id \
            FROM picked JOIN turns t \
                ON t.run_id = picked.id AND t.kind IN ('turn', 'keep_warm') \
            ORDER BY picked.active DESC, picked.id, t.started_ms, t.id",
            wanted.sql,
            limit(filter),
            facts()
        );
        self.with(|c| {
            let mut statement = c.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(wanted.values))?;
            let mut runs: Vec<RunSummary> = Vec::new();
            let mut threads = HashSet::new();
            while let Some(row) = rows.next()? {
                let id = row.get_ref(FACT_COLUMNS)?.as_str()?;
                if runs.last().is_none_or(|run| run.id != id) {
                    threads.clear();
                    runs.push(opened(row)?);
                }
                if let Some(run) = runs.last_mut() {
                    add_request(run, row, &mut threads)?;
                }
            }
            Ok(runs)
        })
    }

    fn turns(
        &self,
        run: &str,
        filter: &Filter,
        every_kind: bool,
    ) -> Result<Vec<TurnRecord>, StoreError> {
        let kinds = if every_kind {
            Where::every_kind()
        } else {
            Where::turns()
        };
        let wanted = kinds
            .and("t.run_id = ?", Some(run.to_owned()))
            .range(filter);
        let sql = format!(
            "{} t WHERE {} ORDER BY t.started_ms, t.id LIMIT {}",
            row::select(),
            wanted.sql,
            limit(filter)
        );
        self.with(|c| {
            c.prepare(&sql)?
                .query_map(params_from_iter(wanted.values), row::read)?
                .collect()
        })
    }

    fn tree(&self, run: &str, filter: &Filter) -> Result<Vec<ThreadSummary>, StoreError> {
        let wanted = Where::costly()
            .and("t.run_id = ?", Some(run.to_owned()))
            .range(filter);
        let sql = format!(
            "SELECT {}, t.thread_id, t.parent_thread, t.agent, t.started_ms, t.duration_us, \
                (SELECT COUNT(*) FROM tool_calls c WHERE c.turn_id = t.id), \
                (SELECT COUNT(*) FROM tool_calls c WHERE c.turn_id = t.id AND c.status = 'failed') \
            FROM turns t WHERE {} ORDER BY t.started_ms, t.id",
            facts(),
            wanted.sql
        );
        self.with(|c| {
            let mut statement = c.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(wanted.values))?;
            let mut threads: Vec<ThreadSummary> = Vec::new();
            let mut places: HashMap<String, usize> = HashMap::new();
            while let Some(row) = rows.next()? {
                let id: String = row.get(FACT_COLUMNS)?;
                let started_ms: i64 = row.get(FACT_COLUMNS + 3)?;
                let place = *places.entry(id).or_insert_with_key(|id| {
                    threads.push(ThreadSummary::begin(id, started_ms));
                    threads.len() - 1
                });
                if let Some(thread) = threads.get_mut(place) {
                    add_to_thread(thread, row)?;
                }
            }
            threads.truncate(filter.limit);
            Ok(threads)
        })
    }

    fn spend(&self, by: By, filter: &Filter, zone: &TimeZone) -> Result<Vec<Spend>, StoreError> {
        let wanted = Where::costly().range(filter);
        let key = match by {
            By::App => "t.app",
            By::Model => "COALESCE(t.model_served, t.model_requested)",
            By::Key => "t.credential",
            By::Upstream => "t.upstream",
            By::Day | By::Hour => "t.started_ms",
        };
        let sql = format!(
            "SELECT {}, {key} FROM turns t WHERE {}",
            facts(),
            wanted.sql
        );
        let mut groups = Groups::new(by, zone);
        self.with(|c| {
            let mut statement = c.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(wanted.values))?;
            while let Some(row) = rows.next()? {
                let totals = if by.is_time() {
                    groups.at(row.get(FACT_COLUMNS)?)
                } else {
                    groups.named(row.get(FACT_COLUMNS)?)
                };
                totals.add_fact(&fact(row)?);
            }
            Ok(())
        })?;
        Ok(groups.finish(filter.limit))
    }

    fn culprits(
        &self,
        by: CulpritBy,
        filter: &Filter,
        zone: &TimeZone,
    ) -> Result<Culprits, StoreError> {
        self.ask_culprits(by, filter, zone)
    }

    fn unread(&self, filter: &Filter, now_ms: i64) -> Result<Unreads, StoreError> {
        self.ask_unread(filter, now_ms)
    }

    fn duplicates(&self, filter: &Filter) -> Result<Duplicates, StoreError> {
        self.ask_duplicates(filter)
    }

    fn agreement(&self, filter: &Filter) -> Result<Agreement, StoreError> {
        self.ask_agreement(filter)
    }

    fn verdicts(&self, filter: &Filter) -> Result<Verdicts, StoreError> {
        self.ask_verdicts(filter)
    }

    fn savings(&self, filter: &Filter) -> Result<Savings, StoreError> {
        self.ask_savings(filter)
    }

    fn loops(&self, filter: &Filter) -> Result<Vec<LoopSeen>, StoreError> {
        self.ask_loops(filter)
    }

    fn caps(&self, filter: &Filter) -> Result<Vec<CapSeen>, StoreError> {
        self.ask_caps(filter)
    }

    fn tools(&self, filter: &Filter) -> Result<Vec<ToolSeen>, StoreError> {
        self.ask_tools(filter)
    }
}

/// The summary of a run before its first request is added.
fn opened(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    let started_ms = row.get(FACT_COLUMNS + 5)?;
    Ok(RunSummary {
        id: row.get(FACT_COLUMNS)?,
        source: row.get(FACT_COLUMNS + 1)?,
        app: None,
        client: None,
        models: Vec::new(),
        started_ms,
        ended_ms: started_ms,
        threads: 0,
        totals: Totals::default(),
    })
}

fn add_request(
    run: &mut RunSummary,
    row: &Row<'_>,
    threads: &mut HashSet<String>,
) -> rusqlite::Result<()> {
    let fact = fact(row)?;
    run.totals.add_fact(&fact);
    if fact.kind != RequestKind::Turn {
        // A request of our own says nothing about the client, and may come long after its last.
        return Ok(());
    }
    let text = |column: usize| -> rusqlite::Result<Option<&str>> {
        Ok(row.get_ref(FACT_COLUMNS + column)?.as_str_or_null()?)
    };
    let newer = |told: &mut Option<String>, now: Option<&str>| {
        if now.is_some() && told.as_deref() != now {
            *told = now.map(Into::into);
        }
    };
    newer(&mut run.app, text(2)?);
    newer(&mut run.client, text(3)?);
    if let Some(model) = text(4)?
        && run.models.len() < RunSummary::MODELS
        && !run.models.iter().any(|known| known == model)
    {
        run.models.push(model.into());
    }
    let started_ms: i64 = row.get(FACT_COLUMNS + 5)?;
    let duration_us: i64 = row.get(FACT_COLUMNS + 6)?;
    run.ended_ms = run
        .ended_ms
        .max(started_ms.saturating_add(duration_us / 1_000));
    if let Some(thread) = text(7)?
        && !threads.contains(thread)
    {
        threads.insert(thread.into());
        run.threads += 1;
    }
    Ok(())
}

/// Adds a request of a thread.
fn add_to_thread(thread: &mut ThreadSummary, row: &Row<'_>) -> rusqlite::Result<()> {
    let fact = fact(row)?;
    thread.totals.add_fact(&fact);
    let own = |told: Option<String>, known: &mut Option<String>| {
        if known.is_none() {
            *known = told;
        }
    };
    own(row.get(FACT_COLUMNS + 1)?, &mut thread.parent);
    own(row.get(FACT_COLUMNS + 2)?, &mut thread.agent);
    thread.calls += row.get::<_, i64>(FACT_COLUMNS + 5)?.unsigned_abs();
    thread.failed += row.get::<_, i64>(FACT_COLUMNS + 6)?.unsigned_abs();
    if fact.kind == RequestKind::Turn {
        let started_ms: i64 = row.get(FACT_COLUMNS + 3)?;
        let duration_us: i64 = row.get(FACT_COLUMNS + 4)?;
        let ended_ms = started_ms.saturating_add(duration_us / 1_000);
        thread.ended_ms = thread.ended_ms.max(ended_ms);
    }
    Ok(())
}

/// Reads the columns of [`facts`].
pub(super) fn fact(row: &Row<'_>) -> rusqlite::Result<Fact> {
    let known = |column: usize| -> rusqlite::Result<Option<u64>> {
        let value: Option<i64> = row.get(column)?;
        Ok(value.and_then(|v| u64::try_from(v).ok()))
    };
    let mut tokens = [None; KINDS];
    for (column, kind) in tokens.iter_mut().enumerate() {
        *kind = known(column)?;
    }
    let at = |other: usize| KINDS + other;
    let amount = |other| known(at(other)).map(|amount| amount.map(u128::from));
    let outcome = row.get_ref(at(1))?.as_str()?;
    let kind = row.get_ref(at(3))?.as_str()?;
    let status = row.get_ref(at(8))?.as_str_or_null()?;
    let status = status
        .map(|word| Status::from_word(word).ok_or_else(|| row::unknown("verdict", word.into())))
        .transpose()?;
    let (lost_tokens, lost_pico) = (amount(9)?, amount(10)?);
    Ok(Fact {
        usage_complete: row.get(at(4))?,
        usage_estimated: row.get(at(5))?,
        cost_pico: amount(6)?,
        cost_no_cache_pico: amount(7)?,
        judged: status.map(|status| Judged {
            status,
            lost_tokens,
            lost_pico,
        }),
        ..Fact::one(
            RequestKind::from_word(kind).ok_or_else(|| row::unknown("kind", kind.into()))?,
            row.get(at(0))?,
            Outcome::from_word(outcome).ok_or_else(|| row::unknown("outcome", outcome.into()))?,
            row.get(at(2))?,
            &usage_of(tokens),
        )
    })
}
