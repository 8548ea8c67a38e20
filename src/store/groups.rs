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

    /// The sums of the day or hour of a moment, in milliseconds of the zone's own clock since the
    /// beginning of its 1970.
    pub(super) fn at_local(&mut self, ms: i64) -> &mut Totals {
        let begin = local(ms).map(|there| rounded(self.by, there));
        self.times.entry(begin).or_default()
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
    Some(rounded(by, zone.to_datetime(start)))
}

fn rounded(by: By, there: DateTime) -> DateTime {
    let hour = if by == By::Hour { there.hour() } else { 0 };
    there.date().at(hour, 0, 0, 0)
}

fn local(ms: i64) -> Option<DateTime> {
    let zero = Timestamp::from_millisecond(ms).ok()?;
    Some(TimeZone::UTC.to_datetime(zero))
}

/// The day of a moment, as `YYYY-MM-DD`.
pub(super) fn day(ms: i64, zone: &TimeZone) -> Option<String> {
    begin(By::Day, ms, zone).map(|day| day.date().to_string())
}

/// The same of a moment by the zone's own clock, see [`Groups::at_local`].
pub(super) fn local_day(ms: i64) -> Option<String> {
    local(ms).map(|there| there.date().to_string())
}

/// How far a zone's clock is ahead of UTC between two moments, in milliseconds: at first, and from
/// each change on (UTC milliseconds).
pub(super) fn offsets(zone: &TimeZone, from_ms: i64, to_ms: i64) -> (i64, Vec<(i64, i64)>) {
    let Ok(from) = Timestamp::from_millisecond(from_ms) else {
        return (0, Vec::new());
    };
    let ahead_ms = |offset: jiff::tz::Offset| i64::from(offset.seconds()) * 1_000;
    let changes = zone.following(from).map(|change| {
        let at = change.timestamp().as_millisecond();
        (at, ahead_ms(change.offset()))
    });
    let changes = changes.take_while(|(at, _)| *at <= to_ms).collect();
    (ahead_ms(zone.to_offset(from)), changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_changes_give_the_days_and_hours_of_the_zone() {
        let at = |time: &str| time.parse::<Timestamp>().unwrap().as_millisecond();
        let (from, to) = (at("2025-12-30T00:00:00Z"), at("2027-01-02T00:00:00Z"));
        for name in [
            "UTC",
            "Europe/Berlin",
            "Asia/Kathmandu",
            "Australia/Lord_Howe",
        ] {
            let zone = TimeZone::get(name).unwrap();
            let (first, changes) = offsets(&zone, from, to);
            for ms in (from..to).step_by(1_234_567) {
                let passed = changes.iter().rfind(|(at, _)| *at <= ms);
                let there = local(ms + passed.map_or(first, |(_, ahead)| *ahead)).unwrap();
                for by in [By::Day, By::Hour] {
                    assert_eq!(
                        Some(rounded(by, there)),
                        begin(by, ms, &zone),
                        "{name} {ms}"
                    );
                }
            }
        }
    }
}
