//! Money for JSON and for tables.

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
pub(super) fn at_least(pico: i128) -> String {
    let sign = if pico < 0 { "-" } else { "" };
    match pico.unsigned_abs() / UNIT {
        0 => "\u{2265}$0".into(),
        units => format!("\u{2265}{sign}{}", digits(units)),
    }
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
