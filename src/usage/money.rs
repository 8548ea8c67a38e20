//! Exact money: decimal text in, integer picodollars, decimal text out. No float anywhere.

use std::num::NonZeroU64;

use crate::text::{push_digits, push_number};

/// Picodollars in a dollar.
const PICO_PER_USD: i128 = 1_000_000_000_000;
/// Decimal places between "USD per million tokens" and "picodollars per token".
const MTOK_PLACES: u32 = 6;
/// Decimal places between "USD per thousand" and "picodollars each".
const THOUSAND_PLACES: u32 = 9;
/// Decimal places between dollars and picodollars.
const USD_PLACES: u32 = 12;
/// Decimal places of a multiplier such as `1.1`.
const RATIO_PLACES: u32 = 6;

/// Why a decimal was refused. The texts are meant for the person who wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// Not of the form `12` or `12.5`.
    #[error("is not a plain decimal number, write for example 3 or 0.25 (no sign, no exponent)")]
    NotADecimal,
    /// More decimal places than can be kept without loss.
    #[error("has more than {0} decimal places, which cannot be kept exactly")]
    TooFine(u32),
    /// Beyond 64 bits.
    #[error("is too large")]
    TooLarge,
}

/// Reads a price in USD per million tokens as picodollars per token: `"0.30"` is 300,000.
///
/// # Errors
/// When the text is not a plain decimal, has more than six decimal places, or is too large.
pub fn pico_from_decimal_usd_per_mtok(text: &str) -> Result<u64, DecimalError> {
    scaled(text, MTOK_PLACES)
}

/// Reads an amount in USD as picodollars: `"0.5"` is 500,000,000,000.
///
/// # Errors
/// When the text is not a plain decimal, has more than twelve decimal places, or is too large.
pub fn pico_from_decimal_usd(text: &str) -> Result<u64, DecimalError> {
    scaled(text, USD_PLACES)
}

/// Reads a fee in USD per thousand pieces as picodollars each.
pub(super) fn pico_from_decimal_usd_per_thousand(text: &str) -> Result<u64, DecimalError> {
    scaled(text, THOUSAND_PLACES)
}

/// `text` times 10^`places`, if that is a whole number.
fn scaled(text: &str, places: u32) -> Result<u64, DecimalError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(DecimalError::NotADecimal);
    }
    let fraction = fraction.trim_end_matches('0');
    let used = u32::try_from(fraction.len()).map_err(|_| DecimalError::TooFine(places))?;
    let missing = places
        .checked_sub(used)
        .ok_or(DecimalError::TooFine(places))?;
    let value = whole
        .bytes()
        .chain(fraction.bytes())
        .try_fold(0_u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        });
    value
        .and_then(|value| value.checked_mul(10_u64.checked_pow(missing)?))
        .ok_or(DecimalError::TooLarge)
}

/// Writes picodollars as exact dollars without trailing zeros: `0.036`, `-1.5`, `0`.
#[must_use]
pub fn usd(pico: impl Into<i128>) -> String {
    let pico: i128 = pico.into();
    let sign = if pico < 0 { "-" } else { "" };
    let (whole, rest) = split(pico);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let digits = format!("{rest:012}");
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

/// Writes picodollars for people: cents from one dollar on, two significant digits below
/// (`$12.34`, `$0.25`, `$0.0043`), rounded half up. Exact output is [`usd`].
#[must_use]
pub fn usd_short(pico: impl Into<i128>) -> String {
    let pico: i128 = pico.into();
    let sign = if pico < 0 { "-" } else { "" };
    let (mut whole, rest) = split(pico);
    // Below a dollar it is far below 2^64, and there are faster divisions for that.
    let rest = rest as u64;
    if whole == 0 && rest == 0 {
        return "$0".into();
    }
    // The place of the second significant digit; never coarser than cents, never finer than pico.
    let places = match (whole, rest) {
        (0, 1..) => (12 - rest.ilog10() + 1).clamp(2, 12),
        _ => 2,
    };
    let step = 10_u64.pow(12 - places);
    let scale = 10_u64.pow(places);
    let mut units = (rest + step / 2) / step;
    if units == scale {
        (whole, units) = (whole + 1, 0);
    }
    let mut out = String::with_capacity(16);
    out.push_str(sign);
    out.push('$');
    match u64::try_from(whole) {
        Ok(whole) => push_number(&mut out, whole),
        Err(_) => out.push_str(&whole.to_string()),
    }
    out.push('.');
    push_digits(&mut out, units, places);
    let cents = out.len() - places as usize + 2;
    while out.len() > cents && out.ends_with('0') {
        out.pop();
    }
    out
}

/// Whole dollars and the picodollars beyond them, of the absolute value.
fn split(pico: i128) -> (u128, u128) {
    let (abs, one) = (pico.unsigned_abs(), PICO_PER_USD.unsigned_abs());
    if abs < one {
        return (0, abs);
    }
    (abs / one, abs % one)
}

/// An exact multiplier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ratio {
    num: u64,
    den: NonZeroU64,
}

impl Ratio {
    pub(super) const ONE: Self = Self {
        num: 1,
        den: NonZeroU64::MIN,
    };

    /// Reads a decimal such as `1.1`.
    pub(super) fn parse(text: &str) -> Result<Self, DecimalError> {
        let num = scaled(text, RATIO_PLACES)?;
        let den = 10_u64.pow(RATIO_PLACES);
        let common = gcd(u128::from(num), u128::from(den));
        let reduced = |n: u64| u64::try_from(u128::from(n) / common).unwrap_or(n);
        Ok(Self {
            num: reduced(num),
            den: NonZeroU64::new(reduced(den)).ok_or(DecimalError::NotADecimal)?,
        })
    }
}

/// A non-negative amount of picodollars as an exact fraction. `None` of an operation is overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    num: u128,
    den: u128,
}

impl Amount {
    pub(super) const ZERO: Self = Self { num: 0, den: 1 };

    /// `count` pieces at `pico` each; the product of two 64-bit numbers always fits.
    pub(super) fn of(count: u64, pico: u64) -> Self {
        Self {
            num: u128::from(count) * u128::from(pico),
            den: 1,
        }
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let common = gcd(self.den, other.den);
        let (left, right) = (other.den / common, self.den / common);
        let num = self
            .num
            .checked_mul(left)?
            .checked_add(other.num.checked_mul(right)?)?;
        Some(Self {
            num,
            den: self.den.checked_mul(left)?,
        })
    }

    pub(super) fn times(self, ratio: Ratio) -> Option<Self> {
        let num = self.num.checked_mul(u128::from(ratio.num))?;
        let den = self.den.checked_mul(u128::from(ratio.den.get()))?;
        let common = gcd(num, den);
        Some(Self {
            num: num / common,
            den: den / common,
        })
    }

    /// Whole picodollars, rounded up: the one rounding of a price.
    pub(super) fn ceil(self) -> Option<u64> {
        u64::try_from(self.num.div_ceil(self.den)).ok()
    }
}

/// Greatest common divisor; at least 1 as long as one side is not zero.
fn gcd(a: u128, b: u128) -> u128 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// Picodollars of an amount in USD as JSON writes numbers (`0.0042`, `4.2e-3`), a part of a
/// picodollar rounded up. `None` for what is negative, no number, or beyond 64 bits.
#[must_use]
pub fn pico_from_json_usd(text: &str) -> Option<u64> {
    const PICO_PLACES: i64 = 12;
    // Amounts of longer texts are no money.
    const MAX_TEXT: usize = 64;
    if text.len() > MAX_TEXT {
        return None;
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if whole.is_empty() || !digits().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let places = i64::try_from(fraction.len()).ok()?;
    let shift = exponent.checked_add(PICO_PLACES)?.checked_sub(places)?;
    let mut value: u128 = 0;
    for digit in digits() {
        value = value
            .checked_mul(10)?
            .checked_add(u128::from(digit - b'0'))?;
    }
    let power = |n: i64| 10_u128.checked_pow(u32::try_from(n).ok()?);
    let pico = match (value, shift) {
        (0, _) => 0,
        (_, 0..) => value.checked_mul(power(shift)?)?,
        // What is divided by more than it can hold is a part of one picodollar.
        (_, _) => power(-shift).map_or(1, |divisor| value.div_ceil(divisor)),
    };
    u64::try_from(pico).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_read_exactly() {
        for (text, pico) in [
            ("0.01", 10_000),
            ("0.30", 300_000),
            ("15", 15_000_000),
            ("0.000001", 1),
            ("3.7500000000", 3_750_000),
            ("18446744073709.551615", u64::MAX),
        ] {
            assert_eq!(pico_from_decimal_usd_per_mtok(text), Ok(pico), "{text}");
        }
        for text in [
            "", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", " 1", "0x1", "NaN", "1.2.3", "١",
        ] {
            let read = pico_from_decimal_usd_per_mtok(text);
            assert_eq!(read, Err(DecimalError::NotADecimal), "{text}");
        }
        let read = pico_from_decimal_usd_per_mtok;
        assert_eq!(read("0.0000001"), Err(DecimalError::TooFine(6)));
        assert_eq!(read("18446744073709.551616"), Err(DecimalError::TooLarge));
        assert_eq!(read(&"9".repeat(500)), Err(DecimalError::TooLarge));
        assert_eq!(pico_from_decimal_usd_per_thousand("10"), Ok(10_000_000_000));
    }

    #[test]
    fn multipliers_are_reduced_and_exact() {
        assert_eq!(Ratio::parse("0.5"), Ratio::parse("0.500"));
        let eleven_tenths = Ratio::parse("1.1").unwrap();
        let half = Ratio::parse("0.5").unwrap();
        let price = |n| {
            Amount::of(n, 10_000)
                .times(half)?
                .times(eleven_tenths)?
                .ceil()
        };
        assert_eq!(price(1), Some(5_500));
        assert_eq!(price(3), Some(16_500));
        let third = Amount::of(1, 1).times(eleven_tenths).unwrap();
        assert_eq!(third.ceil(), Some(2), "rounded up, once");
        assert_eq!(
            third.add(third).unwrap().ceil(),
            Some(3),
            "1.1 + 1.1 is 2.2, not 2 + 2"
        );
    }

    #[test]
    fn c13_dollars_are_written_without_noise() {
        for (pico, text) in [
            (0_i128, "0"),
            (360_000_000, "0.00036"),
            (36_000_000_000, "0.036"),
            (1_000_000_000_000, "1"),
            (-1_500_000_000_000, "-1.5"),
            (1, "0.000000000001"),
        ] {
            assert_eq!(usd(pico), text);
        }
        assert_eq!(usd(u64::MAX), "18446744.073709551615");
        assert_eq!(
            usd(i128::MIN).len(),
            41,
            "the extreme neither panics nor loses digits"
        );
    }

    #[test]
    fn short_dollars_are_for_people() {
        for (pico, text) in [
            (0_i128, "$0"),
            (4_300_000_000, "$0.0043"),
            (4_251_000_000, "$0.0043"),
            (360_000_000, "$0.00036"),
            (36_000_000_000, "$0.036"),
            (250_000_000_000, "$0.25"),
            (500_000_000_000, "$0.50"),
            (999_900_000_000, "$1.00"),
            (12_345_000_000_000, "$12.35"),
            (-12_000_000_000_000, "-$12.00"),
            (1, "$0.000000000001"),
        ] {
            assert_eq!(usd_short(pico), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read_back(pico in any::<u64>()) {
            // usd() is dollars, the reader scales by 10^6: shift by comparing with the same digits.
            let text = usd(pico);
            let back = scaled(&text, 12);
            prop_assert_eq!(back, Ok(pico));
        }

        #[test]
        fn the_short_form_never_panics(pico in any::<i128>()) {
            prop_assert!(usd_short(pico).contains('$'));
        }
    }

    #[test]
    fn amounts_of_json_are_exact() {
        for (text, pico) in [
            ("0", Some(0)),
            ("0.0042", Some(4_200_000_000)),
            ("4.2e-3", Some(4_200_000_000)),
            ("4.2E-3", Some(4_200_000_000)),
            ("1e-05", Some(10_000_000)),
            ("12", Some(12_000_000_000_000)),
            ("1.5e1", Some(15_000_000_000_000)),
            ("0.0000000000001", Some(1)),
            ("1e-300", Some(1)),
            ("0e-300", Some(0)),
            ("0.1234567890125", Some(123_456_789_013)),
            ("1e8", None),
            ("1e300", None),
            ("-1", None),
            ("\"1\"", None),
            ("null", None),
            (".5", None),
            ("", None),
        ] {
            assert_eq!(pico_from_json_usd(text), pico, "{text}");
        }
    }
}
