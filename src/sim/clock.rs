//! Time as the simulated provider sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the time of cache lifetimes, threads and batches comes from. Unix milliseconds.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The machine's.
    #[default]
    Real,
    /// A hand that only a test moves.
    Manual(ManualClock),
}

impl Clock {
    /// A manual clock at a fixed date, and its hand.
    #[must_use]
    pub fn manual() -> (Self, ManualClock) {
        let hand = ManualClock::default();
        (Self::Manual(hand.clone()), hand)
    }

    /// Now, in Unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        match self {
            Self::Real => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |passed| {
                    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
                }),
            Self::Manual(hand) => hand.0.load(Ordering::Relaxed),
        }
    }
}

/// The hand of a manual clock; clones move together.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl Default for ManualClock {
    /// Starts at 2026-12-01T00:00:00Z.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1_796_083_200_000)))
    }
}

impl ManualClock {
    /// Moves the time on.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

/// A Unix time in milliseconds as the API writes times (RFC 3339, UTC, whole seconds).
#[must_use]
pub fn rfc3339(ms: u64) -> String {
    i64::try_from(ms / 1000)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map_or_else(
            || "1970-01-01T00:00:00Z".to_owned(),
            |time| time.to_string(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let (clock, hand) = Clock::manual();
        let start = clock.now_ms();
        assert_eq!(rfc3339(start), "2026-12-01T00:00:00Z");
        hand.advance(61_000);
        assert_eq!(clock.now_ms(), start + 61_000);
        assert_eq!(rfc3339(clock.now_ms()), "2026-12-01T00:01:01Z");
    }
}
