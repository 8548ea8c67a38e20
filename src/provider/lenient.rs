//! Values read from answers, forgiving about shape: one odd field must not hide the others.
//!
//! Everything here is for looking only; nothing is ever written back.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::text;
use crate::usage::pico_from_json_usd;

/// Longest word (id, model, type ...) that is kept; the rest is cut on a character border.
pub const MAX_WORD_BYTES: usize = 512;

/// Largest whole number that a float holds exactly.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A token count. Anything but a whole number from 0 to `u64::MAX` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count(pub Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
        Ok(Count(Some(value)))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Count, E> {
        Ok(Count(u64::try_from(value).ok()))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Count, E> {
        let whole = value.fract() == 0.0 && (0.0..=MAX_EXACT_FLOAT).contains(&value);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked: whole, not negative, exact"
        )]
        Ok(Count(whole.then_some(value as u64)))
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<Count, E> {
        Ok(Count(None))
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<Count, E> {
        Ok(Count(None))
    }
    fn visit_unit<E: Error>(self) -> Result<Count, E> {
        Ok(Count(None))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
}

/// An amount in USD, in picodollars. Anything but a number that is not negative is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dollars(pub Option<u64>);

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(pico_from_json_usd(raw.get())))
    }
}

/// The decoded bytes of a JSON string, borrowed where nothing was escaped.
///
/// Bytes rather than text: a lone surrogate escape or a broken character is no reason to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(bytes)))
    }
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(bytes.to_vec())))
    }
}

/// The length in bytes of a JSON string once decoded; the string itself is not kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Len(pub u64);

impl<'de> Deserialize<'de> for Len {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(LenVisitor)
    }
}

struct LenVisitor;

impl Visitor<'_> for LenVisitor {
    type Value = Len;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Len, E> {
        Ok(Len(bytes.len() as u64))
    }
}

/// A short string such as an id or a type; `None` for any other shape and for an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word(pub Option<String>);

impl Word {
    /// The word, or nothing.
    #[must_use]
    pub fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        // Most words stand there as they are.
        let plain = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
        let word = match plain.filter(|plain| !plain.contains('\\')) {
            Some(plain) => Some(text::prefix(plain, MAX_WORD_BYTES).to_owned()),
            None => {
                let text = serde_json::from_str::<Text<'_>>(raw).ok();
                text.map(|text| cut(&text.0, MAX_WORD_BYTES))
            }
        };
        Ok(Self(word.filter(|word| !word.is_empty())))
    }
}

/// `bytes` as text of at most `max_bytes`; what is not UTF-8 is replaced.
#[must_use]
pub fn cut(bytes: &[u8], max_bytes: usize) -> String {
    // A cut of the bytes first, so that a huge message is not copied; four bytes are enough for the
    // character that the cut may hit.
    let head = &bytes[..bytes.len().min(max_bytes.saturating_add(4))];
    text::prefix(&String::from_utf8_lossy(head), max_bytes).to_owned()
}

/// A `T`, or nothing when the value has another shape.
///
/// Not for types that contain themselves: each level starts a parser of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maybe<T>(pub Option<T>);

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).ok()))
    }
}

/// The first `N` elements of an array, and whether there were more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Few<T, const N: usize> {
    /// The elements kept.
    pub items: Vec<T>,
    /// There were more.
    pub more: bool,
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Few<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FewVisitor(Self {
            items: Vec::new(),
            more: false,
        }))
    }
}

struct FewVisitor<T, const N: usize>(Few<T, N>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for FewVisitor<T, N> {
    type Value = Few<T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Few<T, N>, A::Error> {
        while self.0.items.len() < N {
            match seq.next_element()? {
                Some(item) => self.0.items.push(item),
                None => return Ok(self.0),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            self.0.more = true;
        }
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(json: &str) -> Option<u64> {
        serde_json::from_str::<Count>(json).unwrap().0
    }

    #[test]
    fn a_count_is_a_whole_number_or_unknown() {
        assert_eq!(count("25"), Some(25));
        assert_eq!(count("25.0"), Some(25));
        assert_eq!(count("18446744073709551615"), Some(u64::MAX));
        for unknown in [
            "null",
            "-1",
            "2.5",
            "\"25\"",
            "true",
            "[1]",
            "{\"a\":[2]}",
            "1e300",
            "99999999999999999999",
        ] {
            assert_eq!(count(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn words_and_lengths() {
        let word = |json| serde_json::from_str::<Word>(json).unwrap().0;
        assert_eq!(word(r#""a\u00e9""#), Some("aé".into()));
        assert_eq!(word(r#""a\ud83d""#).map(|w| w.starts_with('a')), Some(true));
        assert_eq!((word("7"), word("null"), word("\"\"")), (None, None, None));
        let long = format!("\"{}\"", "é".repeat(MAX_WORD_BYTES));
        assert_eq!(word(&long).map(|w| w.len()), Some(MAX_WORD_BYTES));
        let len = |json| serde_json::from_str::<Len>(json).unwrap().0;
        assert_eq!(
            (len(r#""\n\u00e9""#), len(r#""é""#), len("\"\"")),
            (3, 2, 0)
        );
    }

    #[test]
    fn few_are_kept() {
        let few: Few<u8, 2> = serde_json::from_str("[1,2]").unwrap();
        assert_eq!((few.items, few.more), (vec![1, 2], false));
        let few: Few<u8, 2> = serde_json::from_str("[1,2,{\"x\":3},4]").unwrap();
        assert_eq!((few.items, few.more), (vec![1, 2], true));
    }
}
