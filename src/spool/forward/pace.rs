//! How long to wait before the next attempt.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The first pause, and the least.
const FIRST: Duration = Duration::from_millis(250);
/// The longest of our own.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest that a store can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// Where chance comes from: any number each time.
#[derive(Clone)]
pub struct Jitter(pub Arc<dyn Fn() -> u32 + Send + Sync>);

impl Default for Jitter {
    fn default() -> Self {
        // Without chance several gateways come at the same moment, no more.
        Self(Arc::new(|| getrandom::u32().unwrap_or(u32::MAX)))
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jitter")
    }
}

/// Pauses that double, each of them cut by chance to a half at least.
#[derive(Debug)]
pub(super) struct Pace {
    jitter: Jitter,
    failures: u32,
}

impl Pace {
    pub(super) fn new(jitter: Jitter) -> Self {
        Self {
            jitter,
            failures: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// After a failure. What the store has asked for is kept to, within bounds.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let doubled = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        if let Some(asked) = asked {
            return asked.clamp(FIRST, LONGEST_ASKED);
        }
        let half = doubled / 2;
        let share = u64::from((self.jitter.0)());
        let range = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        // 0 to 1 of the second half; far from an overflow, since a pause is bounded.
        half + Duration::from_micros(range.saturating_mul(share) / u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(chance: u32) -> Pace {
        Pace::new(Jitter(Arc::new(move || chance)))
    }

    #[test]
    fn e03_pauses_double_up_to_thirty_seconds_and_begin_again() {
        let mut longest = pace(u32::MAX);
        let pauses: Vec<u128> = (0..9).map(|_| longest.next(None).as_millis()).collect();
        assert_eq!(
            pauses,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
        );
        for _ in 0..100 {
            assert_eq!(longest.next(None), LONGEST);
        }
        longest.reset();
        assert_eq!(longest.next(None), FIRST);
        let mut shortest = pace(0);
        let pauses: Vec<u128> = (0..3).map(|_| shortest.next(None).as_millis()).collect();
        assert_eq!(pauses, [125, 250, 500]);
    }

    #[test]
    fn e05_a_store_that_asks_for_time_gets_it_within_bounds() {
        let mut pace = pace(0);
        let asked = |pace: &mut Pace, ms| pace.next(Some(Duration::from_millis(ms))).as_millis();
        assert_eq!(asked(&mut pace, 7_000), 7_000);
        assert_eq!(asked(&mut pace, 0), 250);
        assert_eq!(asked(&mut pace, 86_400_000), 60_000);
    }
}
