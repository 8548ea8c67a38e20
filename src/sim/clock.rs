//! Times as the API writes them.

pub use crate::clock::{Clock, ManualClock};

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
    fn times_are_written_in_whole_seconds() {
        let (clock, hand) = Clock::manual();
        assert_eq!(rfc3339(clock.now_ms()), "2026-12-01T00:00:00Z");
        hand.advance(61_001);
        assert_eq!(rfc3339(clock.now_ms()), "2026-12-01T00:01:01Z");
    }
}
