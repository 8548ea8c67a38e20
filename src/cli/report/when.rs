//! Moments as a person says them.

use std::str::FromStr;

use anyhow::Context;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A moment before now, a day, or an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// So many milliseconds ago.
    Ago(i64),
    /// The start of a day in the zone of the report.
    Day(Date),
    /// An instant.
    At(Timestamp),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a time: write 90m, 24h, 7d, 2026-03-01 or 2026-03-01T12:00:00Z"
            )
        };
        if let Some(ago) = ago_ms(text) {
            return Ok(Self::Ago(ago));
        }
        // A date parser would also read the date of a time without a zone.
        if text.len() == "2026-03-01".len() {
            return text.parse().map(Self::Day).map_err(|_| wrong());
        }
        text.parse().map(Self::At).map_err(|_| wrong())
    }
}

/// `90m` and the like in milliseconds.
fn ago_ms(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        'w' => 7 * 86_400_000,
        _ => return None,
    };
    let number = text.get(..text.len() - 1)?;
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    number.parse::<i64>().ok()?.checked_mul(unit)
}

impl When {
    /// The moment in UTC milliseconds.
    pub(in crate::cli) fn at_ms(&self, now_ms: i64, zone: &TimeZone) -> anyhow::Result<i64> {
        match self {
            Self::Ago(ms) => Ok(now_ms.saturating_sub(*ms)),
            Self::Day(date) => Ok(date
                .to_zoned(zone.clone())
                .context("that day is out of range")?
                .timestamp()
                .as_millisecond()),
            Self::At(time) => Ok(time.as_millisecond()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_said() {
        let now = 10 * 86_400_000;
        let at = |text: &str| {
            text.parse::<When>()
                .map(|w| w.at_ms(now, &TimeZone::UTC).unwrap())
        };
        assert_eq!(at("90m"), Ok(now - 90 * 60_000));
        assert_eq!(at("24h"), at("1d"));
        assert_eq!(at("7d"), at("1w"));
        assert_eq!(at("1970-01-09"), at("48h"));
        assert_eq!(at("1970-01-09T00:00:00Z"), at("2d"));
        assert_eq!(at("1970-01-09T05:30:00+05:30"), at("2d"));
        let kolkata = TimeZone::get("Asia/Kolkata").unwrap();
        let day: When = "1970-01-09".parse().unwrap();
        assert_eq!(
            day.at_ms(now, &kolkata).unwrap(),
            8 * 86_400_000 - 5 * 3_600_000 - 1_800_000
        );
    }

    #[test]
    fn nonsense_is_refused_with_examples() {
        for text in [
            "",
            "h",
            "-1h",
            "+1h",
            "1.5h",
            "yesterday",
            "2026-13-01",
            "2026-03-01T12:00:00",
            "99999999999999999999d",
            "9223372036854775807w",
            "1\u{e9}",
        ] {
            let error = text.parse::<When>().unwrap_err();
            assert!(error.contains("24h"), "{error}");
        }
    }
}
