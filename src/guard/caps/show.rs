//! Amounts of caps, written for people.

use super::Cap;
use crate::usage::usd;

/// Writes an amount of a cap, given in its unit (pico-USD, milliseconds, counts): money exactly and
/// without trailing zeros (`0.036`), time in hours, minutes and seconds (`1h30m`), counts plainly.
/// Parts of a second are left out unless there is nothing else.
#[must_use]
pub fn show(cap: Cap, value: u64) -> String {
    match cap {
        Cap::Usd => usd(value),
        Cap::WallTime => time(value),
        _ => value.to_string(),
    }
}

fn time(ms: u64) -> String {
    if ms > 0 && ms < 1_000 {
        return format!("{ms}ms");
    }
    let seconds = ms / 1_000;
    let parts = [
        (seconds / 3_600, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let text: String = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_time_is_short_and_counts_are_plain() {
        for (cap, value, text) in [
            (Cap::Usd, 36_000_000_000, "0.036"),
            (Cap::Usd, 5_000_000_000_000, "5"),
            (Cap::Usd, 1, "0.000000000001"),
            (Cap::Usd, u64::MAX, "18446744.073709551615"),
            (Cap::WallTime, 0, "0s"),
            (Cap::WallTime, 250, "250ms"),
            (Cap::WallTime, 59_999, "59s"),
            (Cap::WallTime, 3_600_000, "1h"),
            (Cap::WallTime, 5_400_000, "1h30m"),
            (Cap::WallTime, 90_061_000, "25h1m1s"),
            (Cap::Turns, 200, "200"),
            (Cap::Depth, 2, "2"),
            (Cap::Tokens, 1_000_000, "1000000"),
        ] {
            assert_eq!(show(cap, value), text);
        }
    }
}
