//! Requests within a minute, counted in two buckets.
//!
//! The last minute is the current minute of the clock and as much of the one before as is not over
//! yet, as if its requests had come evenly. So little is kept however many there are, and after a
//! burst the next one passes no later than in the minute after.

/// A minute in milliseconds.
const MINUTE_MS: u64 = 60_000;
const MINUTE: i64 = 60_000;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    /// Which minute `count` is of, since 1970.
    minute: i64,
    /// Requests of the minute before.
    before: u64,
    /// Requests of the minute.
    count: u64,
}

/// One request too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany {
    /// Requests within the last minute.
    pub(super) count: u64,
    /// Milliseconds until there is room, when no other comes first.
    pub(super) after_ms: u64,
}

impl Rate {
    /// Whether one more is too many.
    pub(super) fn ask(&self, limit: u64, now_ms: i64) -> Result<(), TooMany> {
        let (rate, passed) = self.at(now_ms);
        let earlier = rate.before.saturating_mul(MINUTE_MS - passed) / MINUTE_MS;
        let count = rate.count.saturating_add(earlier);
        if count < limit {
            return Ok(());
        }
        let after_ms = if limit == 0 {
            MINUTE_MS
        } else if rate.count < limit {
            // Later in this minute, when less of the one before counts.
            enough(rate.before, limit - rate.count).saturating_sub(passed)
        } else {
            (MINUTE_MS - passed).saturating_add(enough(rate.count, limit))
        };
        Err(TooMany {
            count,
            after_ms: after_ms.max(1),
        })
    }

    /// Counts one.
    pub(super) fn add(&mut self, now_ms: i64) {
        *self = self.at(now_ms).0;
        self.count = self.count.saturating_add(1);
    }

    /// As of a moment, with the milliseconds of the minute that have passed.
    fn at(&self, now_ms: i64) -> (Self, u64) {
        let minute = now_ms.div_euclid(MINUTE);
        let passed = u64::try_from(now_ms.rem_euclid(MINUTE)).unwrap_or(0);
        let ahead = minute.saturating_sub(self.minute);
        let (before, count) = match ahead {
            0 => (self.before, self.count),
            1 => (self.count, 0),
            // Requests do not come in the order of their clock readings: the minute has just begun.
            -1 => return (*self, 0),
            // Long ago, or a clock that was set back.
            _ => (0, 0),
        };
        let now = Self {
            minute,
            before,
            count,
        };
        (now, passed)
    }
}

/// After how many milliseconds of a minute less than `room` of the `before` requests of the minute
/// before count.
fn enough(before: u64, room: u64) -> u64 {
    let share = room
        .saturating_mul(MINUTE_MS)
        .div_ceil(before.max(1))
        .min(MINUTE_MS + 1);
    MINUTE_MS + 1 - share
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_up_to_the_limit_passes_and_the_next_one_a_minute_later() {
        let mut rate = Rate::default();
        for _ in 0..5 {
            assert_eq!(rate.ask(5, 90_000), Ok(()));
            rate.add(90_000);
        }
        let refused = rate.ask(5, 90_000).unwrap_err();
        assert_eq!((refused.count, refused.after_ms), (5, 30_001));
        assert!(rate.ask(5, 120_000).is_err());
        assert_eq!(rate.ask(5, 120_001), Ok(()));
        rate.add(120_001);
        // Room for the next when a fifth of the earlier ones does not count any more.
        assert_eq!(rate.ask(5, 120_002).unwrap_err().after_ms, 11_999);
        assert_eq!(rate.ask(5, 120_002 + 11_999), Ok(()));
    }

    #[test]
    fn steady_requests_at_the_limit_all_pass() {
        let mut rate = Rate::default();
        for n in 0..600 {
            let now = 17 + n * 1_000;
            assert_eq!(rate.ask(60, now), Ok(()), "{n}");
            rate.add(now);
        }
    }

    #[test]
    fn a_limit_of_zero_lets_nothing_pass() {
        assert!(Rate::default().ask(0, 0).is_err());
    }

    #[test]
    fn a_reading_of_the_clock_from_just_before_the_minute_still_counts() {
        let mut rate = Rate::default();
        rate.add(60_000);
        rate.add(59_999);
        assert_eq!(rate.ask(2, 60_000).unwrap_err().count, 2);
        // An hour back: a clock that was set.
        assert_eq!(rate.ask(2, -3_600_000), Ok(()));
    }

    proptest! {
        #[test]
        fn who_waits_as_told_passes_and_who_waits_less_does_not(
            times in proptest::collection::vec(0..180_000_i64, 1..60),
            limit in 1..20_u64,
        ) {
            let mut times = times;
            times.sort_unstable();
            let mut rate = Rate::default();
            for now in times {
                match rate.ask(limit, now) {
                    Ok(()) => rate.add(now),
                    Err(TooMany { count, after_ms }) => {
                        prop_assert!(count >= limit);
                        let after = i64::try_from(after_ms).unwrap();
                        prop_assert_eq!(rate.ask(limit, now + after), Ok(()));
                        prop_assert!(after == 1 || rate.ask(limit, now + after - 1).is_err());
                    }
                }
            }
        }

        #[test]
        fn no_time_and_no_limit_panics(times in proptest::collection::vec(any::<i64>(), 1..9),
            limit in any::<u64>())
        {
            let mut rate = Rate::default();
            for now in times {
                let _ = rate.ask(limit, now);
                rate.add(now);
            }
        }
    }
}
