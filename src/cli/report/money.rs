//! Money for JSON and for tables.

use crate::usage::usd;

/// Pico-USD in a dollar.
const USD: u128 = 1_000_000_000_000;
/// Digits behind the point in a table: enough for a small request, and the points stand in line.
const TABLE_DIGITS: usize = 4;

/// Pico-USD in the last place of a table.
const UNIT: u128 = USD / 10_u128.pow(TABLE_DIGITS as u32);

/// The amount for a table, rounded half away from zero. What is not nothing does not look like it.
pub(in crate::cli) fn short(pico: i128) -> String {
    let units = (pico.unsigned_abs() + UNIT / 2) / UNIT;
    match (pico, units) {
        (0, _) => "$0".into(),
        (1.., 0) => format!("<{}", digits(1)),
        (_, 0) => format!(">-{}", digits(1)),
        (1.., units) => digits(units),
        (_, units) => format!("-{}", digits(units)),
    }
}

/// An amount that is the least there is to pay, for a table; rounded towards zero.
pub(in crate::cli) fn at_least(pico: i128) -> String {
    let sign = if pico < 0 { "-" } else { "" };
    match pico.unsigned_abs() / UNIT {
        0 => "\u{2265}$0".into(),
        units => format!("\u{2265}{sign}{}", digits(units)),
    }
}

/// An amount of which small parts matter, like that of a few tokens: rounded to a millionth of a
/// dollar.
pub(in crate::cli) fn fine(pico: i128) -> String {
    const MICRO: i128 = 1_000_000;
    format!("${}", usd((pico + MICRO / 2).div_euclid(MICRO) * MICRO))
}

fn digits(units: u128) -> String {
    let per_dollar = USD / UNIT;
    format!(
        "${}.{:0TABLE_DIGITS$}",
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
            (0, "$0"),
            (1, "<$0.0001"),
            (49_999_999, "<$0.0001"),
            (50_000_000, "$0.0001"),
            (36_360_000_000, "$0.0364"),
            (12 * USD as i128, "$12.0000"),
            (-1, ">-$0.0001"),
            (-1_250_000_000_000, "-$1.2500"),
        ] {
            assert_eq!(short(pico), text, "{pico}");
        }
        assert_eq!(fine(312_499_999), "$0.000312");
        assert_eq!(fine(312_500_000), "$0.000313");
        for (pico, text) in [
            (0, "\u{2265}$0"),
            (99_999_999, "\u{2265}$0"),
            (199_999_999, "\u{2265}$0.0001"),
            (3_000_000_000_000, "\u{2265}$3.0000"),
        ] {
            assert_eq!(at_least(pico), text, "{pico}");
        }
    }
}
