//! The answer about savings.

use clickhouse::Row;
use serde::Deserialize;

use super::ClickHouseAnswers;
use super::facts::{self, Alike, fact, is_turn};
use super::wanted::{Where, listed};
use crate::store::audit::Sum;
use crate::store::savings::{Collected, HOLDOUT, INSERTING, Of, SavingFact, Savings};
use crate::store::{Filter, StoreError};

/// A part of a sum that may be unknown, by the number of rows and how many of them know it.
fn sum(known: i128, parts: u64, rows: u64) -> Sum {
    Sum::of(known, parts, rows.saturating_sub(parts))
}

#[derive(Row, Deserialize)]
struct SavingRow {
    app: Option<String>,
    model: Option<String>,
    policy: Option<String>,
    helper: Option<String>,
    fact: Alike,
    /// Sum and number of the known ones.
    helper_tokens: (i128, u64),
    helper_pico: (i128, u64),
    planned: u64,
    markers: u64,
}

#[derive(Row, Deserialize)]
struct RunsRow {
    app: Option<String>,
    model: Option<String>,
    side: String,
    runs: u64,
}

impl ClickHouseAnswers {
    pub(super) fn ask_savings(&self, filter: &Filter) -> Result<Savings, StoreError> {
        let wanted = Where::costly().range(filter);
        let turns = self.rows_of("turns");
        let groups = "t.app AS app, coalesce(t.model_served, t.model_requested) AS model";
        let sql = format!(
            "WITH {names}, if(t.dry_run, JSONLength(t.markers_added), 0) AS markers_planned \
            SELECT {groups}, t.policy AS policy, t.helper AS helper, {alike} AS fact, \
                (sum(toInt128(ifNull(t.helper_tokens, 0))), count(t.helper_tokens)) AS helper_tokens, \
                (sum(toInt128(ifNull(t.helper_pico, 0))), count(t.helper_pico)) AS helper_pico, \
                countIf(markers_planned > 0) AS planned, sum(markers_planned) AS markers \
            FROM {turns} WHERE {wanted} GROUP BY app, model, t.policy, t.helper, {grouped}",
            names = facts::names(),
            alike = facts::alike(),
            grouped = facts::grouped(),
        );
        let mut collected = Collected::default();
        self.each(&sql, |row: SavingRow| {
            let fact = fact(row.fact)?;
            let of_helper = |(known, parts)| sum(known, parts, fact.count);
            collected.add(&SavingFact {
                of: Of {
                    app: row.app.as_deref(),
                    model: row.model.as_deref(),
                    policy: row.policy.as_deref(),
                },
                helper: row.helper.as_deref(),
                helper_tokens: of_helper(row.helper_tokens),
                helper_pico: of_helper(row.helper_pico),
                planned: row.planned,
                markers: row.markers,
                fact,
            });
            Ok(())
        })?;
        let sql = format!(
            "SELECT {groups}, if(t.policy = '{HOLDOUT}', '{HOLDOUT}', '{}') AS side, \
                uniqExact(t.run_id) AS runs \
            FROM {turns} WHERE {wanted} AND {} AND t.policy IN ({}) GROUP BY app, model, side",
            INSERTING[0],
            is_turn(),
            listed(std::iter::once(HOLDOUT).chain(INSERTING)),
        );
        self.each(&sql, |row: RunsRow| {
            let of = Of {
                app: row.app.as_deref(),
                model: row.model.as_deref(),
                policy: Some(&row.side),
            };
            collected.add_runs(of, row.runs);
            Ok(())
        })?;
        Ok(collected.finish())
    }
}
