//! What is told.

use serde_json::Value;
use uuid::{NoContext, Timestamp, Uuid};

use crate::guard::caps::Cap;
use crate::text::prefix;
use crate::trace::{EventKind, EventRecord};
use crate::usage::usd;

/// Longest name (run, model, path ...) in an alert, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// Longest title, in bytes.
const MAX_TITLE_BYTES: usize = 600;

/// What kind of alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A share of a cap was used.
    CapLevel,
    /// A cap refuses requests.
    CapRefused,
    /// A cap on money cannot be enforced.
    CapUnenforced,
    /// A loop was found, or came to the next step of its ladder.
    Loop,
    /// The spend of the last hour reached its threshold.
    CostRate,
    /// The cache-hit ratio fell.
    HitRatio,
    /// One path has broken the cache for more than a threshold.
    Culprit,
    /// A model has no price.
    Unpriced,
    /// Records were dropped.
    Store,
    /// A remote store takes nothing, or its spool is filling up.
    Spool,
    /// Somebody wants to see whether the webhook works.
    Test,
}

impl Kind {
    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CapLevel => "cap_level",
            Self::CapRefused => "cap_refused",
            Self::CapUnenforced => "cap_unenforced",
            Self::Loop => "loop",
            Self::CostRate => "cost_rate",
            Self::HitRatio => "hit_ratio",
            Self::Culprit => "culprit",
            Self::Unpriced => "unpriced",
            Self::Store => "store",
            Self::Spool => "spool",
            Self::Test => "test",
        }
    }
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Somebody should look.
    Warning,
    /// Work has stopped, or is about to.
    Critical,
}

impl Severity {
    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What an amount counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Kept as pico-USD, told in USD.
    Usd,
    /// Kept as milliseconds, told in seconds.
    Seconds,
    /// Kept as hundredths, told in percentage points.
    Points,
    /// Tokens.
    Tokens,
    /// Answered turns.
    Turns,
    /// Levels of sub-agents.
    Depth,
    /// Agents at work.
    Agents,
    /// Requests within a minute.
    RequestsPerMinute,
    /// Requests at a time.
    Requests,
    /// Records.
    Records,
    /// Bytes.
    Bytes,
    /// Anything else that is counted.
    Count,
}

impl Unit {
    /// The unit of a cap by its stable word.
    #[must_use]
    pub fn of_cap(word: &str) -> Self {
        match Cap::ALL.into_iter().find(|cap| cap.as_str() == word) {
            Some(Cap::Turns) => Self::Turns,
            Some(Cap::InputTokens | Cap::OutputTokens | Cap::Tokens) => Self::Tokens,
            Some(Cap::Usd) => Self::Usd,
            Some(Cap::WallTime) => Self::Seconds,
            Some(Cap::Depth) => Self::Depth,
            Some(Cap::Agents) => Self::Agents,
            Some(Cap::RequestsPerMinute) => Self::RequestsPerMinute,
            Some(Cap::Concurrency) => Self::Requests,
            None => Self::Count,
        }
    }

    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usd => "usd",
            Self::Seconds => "seconds",
            Self::Points => "percentage_points",
            Self::Tokens => "tokens",
            Self::Turns => "turns",
            Self::Depth => "depth",
            Self::Agents => "agents",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::Requests => "requests",
            Self::Records => "records",
            Self::Bytes => "bytes",
            Self::Count => "count",
        }
    }

    /// As people read it, behind a number.
    const fn behind(self) -> &'static str {
        match self {
            Self::Usd => " USD",
            Self::Seconds => " s",
            Self::Points => " percentage points",
            Self::Tokens => " tokens",
            Self::Turns => " turns",
            Self::Depth => " levels",
            Self::Agents => " agents",
            Self::RequestsPerMinute => " requests a minute",
            Self::Requests => " requests at a time",
            Self::Records => " records",
            Self::Bytes => " bytes",
            Self::Count => "",
        }
    }

    /// An amount as an exact decimal, without the unit.
    #[must_use]
    pub fn decimal(self, amount: u64) -> String {
        match self {
            Self::Usd => usd(amount),
            Self::Seconds => shifted(amount, 3),
            Self::Points => shifted(amount, 2),
            _ => amount.to_string(),
        }
    }
}

/// `value` divided by 10^`places`, exactly.
fn shifted(value: u64, places: u32) -> String {
    let scale = 10_u64.pow(places);
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = format!("{rest:0width$}", width = places as usize);
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// An amount and the threshold it is held against, as records keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// The amount.
    pub value: Option<u64>,
    /// The threshold or limit.
    pub limit: Option<u64>,
    /// Of both.
    pub unit: Unit,
}

impl Amount {
    /// `4 of 5 USD`; nothing where the value is unknown.
    pub(super) fn text(&self) -> Option<String> {
        let value = self.unit.decimal(self.value?);
        let unit = self.unit.behind();
        Some(self.limit.map_or_else(
            || format!("{value}{unit}"),
            |limit| format!("{value} of {}{unit}", self.unit.decimal(limit)),
        ))
    }
}

/// One alert.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// UUIDv7: that of the event it tells of, else its own.
    pub id: Uuid,
    /// What kind.
    pub kind: Kind,
    /// How much it matters.
    pub severity: Severity,
    /// UTC milliseconds.
    pub at_ms: i64,
    /// One sentence.
    pub title: String,
    /// The run, where it concerns one.
    pub run: Option<String>,
    /// The thread, where it concerns one.
    pub thread: Option<String>,
    /// The application.
    pub app: Option<String>,
    /// Value and limit.
    pub amount: Option<Amount>,
    /// Pico-USD: what it has cost.
    pub pico: Option<u64>,
    /// Everything else, by the names of the JSON form.
    pub facts: Vec<(&'static str, Value)>,
}

impl Alert {
    /// One that tells of an event.
    pub(super) fn of(event: &EventRecord, kind: Kind, severity: Severity, title: &str) -> Self {
        let known = |text: &String| (!text.is_empty()).then(|| name(text));
        Self {
            id: event.id,
            run: known(&event.run_id),
            thread: known(&event.thread_id),
            app: event.app.as_ref().and_then(known),
            ..Self::own(kind, severity, event.at_ms, title)
        }
    }

    /// One of its own.
    pub(super) fn own(kind: Kind, severity: Severity, at_ms: i64, title: &str) -> Self {
        let ms = u64::try_from(at_ms).unwrap_or(0);
        let nanos = u32::try_from(ms % 1000).unwrap_or(0) * 1_000_000;
        Self {
            id: Uuid::new_v7(Timestamp::from_unix(NoContext, ms / 1000, nanos)),
            kind,
            severity,
            at_ms,
            title: prefix(title, MAX_TITLE_BYTES).to_owned(),
            run: None,
            thread: None,
            app: None,
            amount: None,
            pico: None,
            facts: Vec::new(),
        }
    }

    /// The one by which a webhook is tried.
    #[must_use]
    pub fn test(now_ms: i64) -> Self {
        let title = "Test alert from prefixgate: this webhook works";
        Self::own(Kind::Test, Severity::Info, now_ms, title)
    }

    pub(super) fn with(mut self, fact: &'static str, value: impl Into<Value>) -> Self {
        self.facts.push((fact, value.into()));
        self
    }

    /// The record of an alert that no event stands behind; `None` for the others, which are
    /// recorded already, and for tests.
    #[must_use]
    pub fn record(&self) -> Option<EventRecord> {
        match self.kind {
            Kind::CostRate
            | Kind::HitRatio
            | Kind::Culprit
            | Kind::Unpriced
            | Kind::Store
            | Kind::Spool => {}
            Kind::CapLevel | Kind::CapRefused | Kind::CapUnenforced | Kind::Loop | Kind::Test => {
                return None;
            }
        }
        Some(EventRecord {
            id: self.id,
            at_ms: self.at_ms,
            kind: EventKind::Alert,
            name: self.kind.as_str().to_owned(),
            run_id: self.run.clone().unwrap_or_default(),
            thread_id: self.thread.clone().unwrap_or_default(),
            turn_id: None,
            app: self.app.clone(),
            scope: String::new(),
            action: String::new(),
            value: self.amount.and_then(|amount| amount.value),
            limit: self.amount.and_then(|amount| amount.limit),
            level: None,
            pico: self.pico,
            tools: Vec::new(),
        })
    }
}

/// A name as alerts have it: cut, and on one line.
pub(super) fn name(text: &str) -> String {
    prefix(text, MAX_NAME_BYTES).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_decimals() {
        for (unit, value, text) in [
            (Unit::Usd, 2_500_000_000_000, "2.5"),
            (Unit::Usd, 1, "0.000000000001"),
            (Unit::Seconds, 3_600_000, "3600"),
            (Unit::Seconds, 1_050, "1.05"),
            (Unit::Points, 2_345, "23.45"),
            (Unit::Tokens, u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(unit.decimal(value), text);
        }
        let amount = Amount {
            value: Some(4_000_000_000_000),
            limit: Some(5_000_000_000_000),
            unit: Unit::of_cap("usd"),
        };
        assert_eq!(amount.text().unwrap(), "4 of 5 USD");
    }

    #[test]
    fn every_cap_has_a_unit_of_its_own_kind() {
        for cap in Cap::ALL {
            assert_ne!(Unit::of_cap(cap.as_str()), Unit::Count, "{cap:?}");
        }
        assert_eq!(Unit::of_cap("something"), Unit::Count);
    }

    #[test]
    fn an_id_has_the_time_of_its_alert() {
        let alert = Alert::test(1_796_083_200_123);
        assert_eq!(alert.id.get_version_num(), 7);
        let (seconds, nanos) = alert.id.get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos), (1_796_083_200, 123_000_000));
    }
}
