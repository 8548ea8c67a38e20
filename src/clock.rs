//! Where the time comes from: the machine, or in tests a hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the time of cache lifetimes, threads and records comes from. Unix milliseconds.
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

    /// The same as records have it.
    #[must_use]
    pub fn utc_ms(&self) -> i64 {
        i64::try_from(self.now_ms()).unwrap_or(i64::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let (clock, hand) = Clock::manual();
        let start = clock.now_ms();
        hand.advance(61_000);
        assert_eq!(clock.now_ms(), start + 61_000);
    }
}
