//! Conditions in SQL.

use crate::store::clickhouse::schema::literal;
use crate::store::questions::Filter;

/// The times that the server's columns can hold, UTC milliseconds: what lies outside is compared with
/// their ends.
const TIMES_MS: (i64, i64) = (-2_208_988_800_000, 10_413_791_999_999);

/// Conditions about rows `t`, all of which hold.
#[derive(Debug, Clone)]
pub(super) struct Where(Vec<String>);

impl Where {
    /// Requests of every kind, calls, events.
    pub(super) fn everything() -> Self {
        Self(Vec::new())
    }

    /// Turns only.
    pub(super) fn turns() -> Self {
        Self::everything().and("t.kind = 'turn'")
    }

    /// The kinds of which [`Totals`](crate::store::Totals) sums up something.
    pub(super) fn costly() -> Self {
        Self::everything().and("t.kind IN ('turn', 'keep_warm')")
    }

    /// Adds a condition.
    pub(super) fn and(mut self, condition: impl Into<String>) -> Self {
        self.0.push(condition.into());
        self
    }

    pub(super) fn of_run(self, run: Option<&str>) -> Self {
        match run {
            Some(run) => self.and(format!("t.run_id = {}", literal(run))),
            None => self,
        }
    }

    pub(super) fn of_app(self, app: Option<&str>) -> Self {
        match app {
            Some(app) => self.and(format!("t.app = {}", literal(app))),
            None => self,
        }
    }

    pub(super) fn since(self, time: &str, since_ms: Option<i64>) -> Self {
        match since_ms {
            Some(ms) => self.and(format!("{time} >= {}", moment(ms))),
            None => self,
        }
    }

    pub(super) fn until(self, time: &str, until_ms: Option<i64>) -> Self {
        match until_ms {
            Some(ms) => self.and(format!("{time} < {}", moment(ms))),
            None => self,
        }
    }

    /// Requests that a filter means.
    pub(super) fn range(self, filter: &Filter) -> Self {
        self.within(filter, "t.started")
            .of_app(filter.app.as_deref())
    }

    /// Rows of its run and time, whatever their application.
    pub(super) fn within(self, filter: &Filter, time: &str) -> Self {
        self.of_run(filter.run.as_deref())
            .since(time, filter.since_ms)
            .until(time, filter.until_ms)
    }
}

impl std::fmt::Display for Where {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("1");
        }
        f.write_str(&self.0.join(" AND "))
    }
}

/// A time of the server.
fn moment(ms: i64) -> String {
    let ms = ms.clamp(TIMES_MS.0, TIMES_MS.1);
    format!("fromUnixTimestamp64Milli({ms}, 'UTC')")
}

/// A list of texts in SQL.
pub(super) fn listed<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<_> = texts.into_iter().map(literal).collect();
    texts.join(", ")
}
