//! The answer about spend.

use clickhouse::Row;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::ClickHouseAnswers;
use super::facts::{self, Alike, fact};
use super::wanted::Where;
use crate::store::groups::{Groups, offsets};
use crate::store::totals::Fact;
use crate::store::{By, Filter, Spend, StoreError};

/// Lengths of days and hours in milliseconds.
pub(super) const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;

#[derive(Row, Deserialize)]
struct Summed {
    key: Option<String>,
    fact: Alike,
}

#[derive(Row, Deserialize)]
struct Ends {
    first: i64,
    last: i64,
    count: u64,
}

/// A number that the server has told as text.
pub(super) fn number(key: Option<&str>) -> Result<i64, StoreError> {
    let text = key.unwrap_or_default();
    text.parse().map_err(|_| StoreError::Value {
        column: "started",
        value: text.to_owned(),
    })
}

impl ClickHouseAnswers {
    /// Sums of the requests that are wanted, by a text that `key` is in SQL.
    pub(super) fn facts_by(
        &self,
        key: &str,
        wanted: &Where,
        mut each: impl FnMut(Option<String>, Fact) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "WITH {names} SELECT CAST({key} AS Nullable(String)) AS key, {alike} AS fact \
            FROM {turns} WHERE {wanted} GROUP BY key, {grouped}",
            names = facts::names(),
            alike = facts::alike(),
            turns = self.rows_of("turns"),
            grouped = facts::grouped(),
        );
        self.each(&sql, |row: Summed| each(row.key, fact(row.fact)?))
    }

    /// In SQL the beginning of the day or hour (of so many milliseconds) in which a request started,
    /// by the zone's own clock; `None` when no request is wanted. The server's knowledge of zones is
    /// not asked for: it may be another than ours.
    pub(super) fn local(
        &self,
        step_ms: i64,
        wanted: &Where,
        zone: &TimeZone,
    ) -> Result<Option<String>, StoreError> {
        let sql = format!(
            "SELECT min(t.started_ms) AS first, max(t.started_ms) AS last, count() AS count \
            FROM {} WHERE {wanted}",
            self.rows_of("turns")
        );
        let ends: Vec<Ends> = self.all(&sql)?;
        let Some(ends) = ends.first().filter(|ends| ends.count > 0) else {
            return Ok(None);
        };
        // More may have come meanwhile.
        let (mut ahead, changes) = offsets(zone, ends.first, ends.last.saturating_add(DAY_MS));
        let mut cases = String::new();
        for (at, then) in changes {
            cases += &format!("t.started_ms < {at}, {ahead}, ");
            ahead = then;
        }
        let there = if cases.is_empty() {
            format!("(t.started_ms + ({ahead}))")
        } else {
            format!("(t.started_ms + multiIf({cases}{ahead}))")
        };
        Ok(Some(format!(
            "toString({there} - positiveModulo({there}, {step_ms}))"
        )))
    }

    pub(super) fn ask_spend(
        &self,
        by: By,
        filter: &Filter,
        zone: &TimeZone,
    ) -> Result<Vec<Spend>, StoreError> {
        let wanted = Where::costly().range(filter);
        let mut groups = Groups::new(by, zone);
        let key = match by {
            By::App => "t.app".to_owned(),
            By::Model => "coalesce(t.model_served, t.model_requested)".to_owned(),
            By::Key => "t.credential".to_owned(),
            By::Upstream => "t.upstream".to_owned(),
            By::Day | By::Hour => {
                let step_ms = if by == By::Day { DAY_MS } else { HOUR_MS };
                match self.local(step_ms, &wanted, zone)? {
                    Some(key) => key,
                    None => return Ok(Vec::new()),
                }
            }
        };
        self.facts_by(&key, &wanted, |key, fact| {
            let totals = if by.is_time() {
                groups.at_local(number(key.as_deref())?)
            } else {
                groups.named(key)
            };
            totals.add_fact(&fact);
            Ok(())
        })?;
        Ok(groups.finish(filter.limit))
    }
}
