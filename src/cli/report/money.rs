//! Money for JSON and for tables.

/// Pico-USD in a dollar.
const USD: u128 = 1_000_000_000_000;
/// Digits behind the point in a table: enough for a small request, and the points stand in line.
const TABLE_DIGITS: usize = 4;

/// The amount for a table, rounded half away from zero.
pub(super) fn short(pico: i128) -> String {
    let unit = USD / 10_u128.pow(TABLE_DIGITS as u32);
    let units = (pico.unsigned_abs() + unit / 2) / unit;
    let per_dollar = USD / unit;
    let sign = if pico < 0 && units > 0 { "-" } else { "" };
    format!(
        "{sign}${}.{:0TABLE_DIGITS$}",
        units / per_dollar,
        units % per_dollar
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_amounts() {
        for (pico, text) in [
            (0, "$0.0000"),
            (49_999_999, "$0.0000"),
            (50_000_000, "$0.0001"),
            (-49_999_999, "$0.0000"),
            (-50_000_000, "-$0.0001"),
            (36_360_000_000, "$0.0364"),
            (999_999_999_999, "$1.0000"),
            (12_345_600_000_000, "$12.3456"),
        ] {
            assert_eq!(short(pico), text);
        }
    }
}
