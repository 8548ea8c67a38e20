//! Spend in groups, whichever store the rows come from.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::questions::{By, Spend};
use super::totals::Totals;

/// Sums by group.
#[derive(Debug)]
pub(super) struct Groups<'z> {
    by: By,
    zone: &'z TimeZone,
    times: BTreeMap<Option<DateTime>, Totals>,
    others: BTreeMap<Option<String>, Totals>,
}

impl<'z> Groups<'z> {
    pub(super) fn new(by: By, zone: &'z TimeZone) -> Self {
        Self {
            by,
            zone,
            times: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }

    /// The sums of the day or hour of a moment, UTC milliseconds.
    pub(super) fn at(&mut self, ms: i64) -> &mut Totals {
        self.times.entry(begin(self.by, ms, self.zone)).or_default()
    }

    /// The sums of a group that has a name.
    pub(super) fn named(&mut self, key: Option<String>) -> &mut Totals {
        self.others.entry(key).or_default()
    }

    /// Times in their order, everything else by cost; at most `limit` groups.
    pub(super) fn finish(self, limit: usize) -> Vec<Spend> {
        let format = if self.by == By::Hour {
            "%Y-%m-%dT%H"
        } else {
            "%Y-%m-%d"
        };
        let times = self.times.into_iter().map(|(begin, totals)| Spend {
            key: begin.map(|begin| begin.strftime(format).to_string()),
            totals,
        });
        let mut others: Vec<Spend> = (self.others.into_iter())
            .map(|(key, totals)| Spend { key, totals })
            .collect();
        others.sort_by_key(|group| Reverse((group.totals.cost_pico, group.totals.turns)));
        times.chain(others).take(limit).collect()
    }
}

/// Where the day or hour of a moment begins; `None` for a time that is no date.
fn begin(by: By, ms: i64, zone: &TimeZone) -> Option<DateTime> {
    let start = Timestamp::from_millisecond(ms).ok()?;
    let there = zone.to_datetime(start);
    let hour = if by == By::Hour { there.hour() } else { 0 };
    Some(there.date().at(hour, 0, 0, 0))
}

/// The day of a moment, as `YYYY-MM-DD`.
pub(super) fn day(ms: i64, zone: &TimeZone) -> Option<String> {
    begin(By::Day, ms, zone).map(|day| day.date().to_string())
}
