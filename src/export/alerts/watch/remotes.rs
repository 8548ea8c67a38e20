//! What is told of remote stores: each outage once, each filling spool once, and what was lost.

use std::collections::BTreeMap;

use super::super::alert::{Alert, Amount, Kind, Severity, Unit};
use super::STORE_MS;
use crate::trace::Standing;

/// A store that takes nothing for less than this is nothing to tell: the spool is there for it.
const DOWN_MS: i64 = 5 * 60_000;
/// A spool that is this full, in percent, is told ...
const FULL_PERCENT: u128 = 80;
/// ... and may be told again when it has come down to this.
const EASED_PERCENT: u128 = 50;

/// By store; there are as many as are configured.
#[derive(Debug, Default)]
pub(super) struct Remotes(BTreeMap<&'static str, Remote>);

#[derive(Debug, Default)]
struct Remote {
    /// The outage that was told, by its beginning.
    outage_ms: Option<i64>,
    /// The filling was told.
    full: bool,
    /// Lost records of which it has been told, and when.
    lost: u64,
    lost_ms: Option<i64>,
}

impl Remotes {
    /// What is to be told after this.
    pub(super) fn hear(&mut self, now: &Standing) -> Vec<Alert> {
        let remote = self.0.entry(now.store).or_default();
        let told = [remote.outage(now), remote.filling(now), remote.losses(now)];
        told.into_iter().flatten().collect()
    }
}

impl Remote {
    fn outage(&mut self, now: &Standing) -> Option<Alert> {
        let since_ms = now.down_since_ms?;
        let down_ms = now.at_ms.saturating_sub(since_ms);
        if down_ms < DOWN_MS || self.outage_ms == Some(since_ms) {
            return None;
        }
        self.outage_ms = Some(since_ms);
        let title = format!(
            "{} has taken no records for {} minutes: {} wait on disk",
            now.store,
            down_ms / 60_000,
            now.waiting
        );
        let alert = Alert::own(Kind::Spool, Severity::Warning, now.at_ms, &title);
        Some(of(now, alert))
    }

    fn filling(&mut self, now: &Standing) -> Option<Alert> {
        let percent = u128::from(now.bytes) * 100 / u128::from(now.limit.max(1));
        if percent < EASED_PERCENT {
            self.full = false;
        }
        if percent < FULL_PERCENT || std::mem::replace(&mut self.full, true) {
            return None;
        }
        let title = format!(
            "the spool for {} is {percent} % full: records will be dropped when it is full",
            now.store
        );
        let alert = Alert {
            amount: Some(Amount {
                value: Some(now.bytes),
                limit: Some(now.limit),
                unit: Unit::Bytes,
            }),
            ..Alert::own(Kind::Spool, Severity::Critical, now.at_ms, &title)
        };
        Some(of(now, alert))
    }

    fn losses(&mut self, now: &Standing) -> Option<Alert> {
        if (self.lost_ms).is_some_and(|told_ms| now.at_ms - told_ms < STORE_MS) {
            return None;
        }
        let new = now.dropped.checked_sub(self.lost).filter(|new| *new > 0)?;
        (self.lost, self.lost_ms) = (now.dropped, Some(now.at_ms));
        let title = format!(
            "{new} records were dropped: {} does not have them",
            now.store
        );
        let alert = Alert {
            amount: Some(Amount {
                value: Some(new),
                limit: None,
                unit: Unit::Records,
            }),
            ..Alert::own(Kind::Store, Severity::Critical, now.at_ms, &title)
        };
        Some(of(now, alert).with("dropped_in_all", now.dropped))
    }
}

fn of(now: &Standing, alert: Alert) -> Alert {
    alert.with("store", now.store).with("waiting", now.waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn standing(at_ms: i64) -> Standing {
        Standing {
            store: "clickhouse",
            at_ms,
            down_since_ms: None,
            waiting: 0,
            bytes: 0,
            limit: 1_000,
            dropped: 0,
        }
    }

    fn kinds(remotes: &mut Remotes, now: Standing) -> Vec<(Kind, Severity)> {
        let told = remotes.hear(&now);
        told.iter()
            .map(|alert| (alert.kind, alert.severity))
            .collect()
    }

    #[test]
    fn an_outage_is_told_once_after_five_minutes_and_the_next_one_again() {
        let mut remotes = Remotes::default();
        let down = |since: i64, minutes: i64| Standing {
            down_since_ms: Some(since),
            waiting: 7,
            ..standing(since + minutes * MINUTE)
        };
        assert_eq!(kinds(&mut remotes, down(0, 4)), []);
        let told = remotes.hear(&down(0, 5));
        assert!(told[0].title.contains("for 5 minutes: 7 wait"), "{told:?}");
        assert_eq!(kinds(&mut remotes, down(0, 600)), []);
        assert_eq!(kinds(&mut remotes, standing(601 * MINUTE)), []);
        let next = down(700 * MINUTE, 6);
        assert_eq!(
            kinds(&mut remotes, next),
            [(Kind::Spool, Severity::Warning)]
        );
        // Another store has outages of its own.
        let other = Standing {
            store: "otlp",
            ..next
        };
        assert_eq!(kinds(&mut remotes, other).len(), 1);
    }

    #[test]
    fn a_filling_spool_is_told_once_until_it_has_eased() {
        let mut remotes = Remotes::default();
        let full = |bytes| Standing {
            bytes,
            ..standing(0)
        };
        assert_eq!(kinds(&mut remotes, full(799)), []);
        assert_eq!(
            kinds(&mut remotes, full(800)),
            [(Kind::Spool, Severity::Critical)]
        );
        assert_eq!(kinds(&mut remotes, full(1_000)), []);
        assert_eq!(kinds(&mut remotes, full(500)), []);
        assert_eq!(kinds(&mut remotes, full(900)), []);
        assert_eq!(kinds(&mut remotes, full(499)), []);
        assert_eq!(kinds(&mut remotes, full(900)).len(), 1);
    }

    #[test]
    fn losses_are_told_with_their_number_at_most_every_ten_minutes() {
        let mut remotes = Remotes::default();
        let lost = |minute: i64, dropped| Standing {
            dropped,
            ..standing(minute * MINUTE)
        };
        assert_eq!(
            kinds(&mut remotes, lost(0, 3)),
            [(Kind::Store, Severity::Critical)]
        );
        assert_eq!(kinds(&mut remotes, lost(9, 8)), []);
        let told = remotes.hear(&lost(10, 8));
        assert!(
            told[0].title.starts_with("5 records were dropped"),
            "{told:?}"
        );
        assert_eq!(kinds(&mut remotes, lost(30, 8)), []);
    }
}
