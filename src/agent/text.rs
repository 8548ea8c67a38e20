//! Texts as JSON writes them.

use std::ops::Deref;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A text that goes to the model again with every request: how JSON writes it is worked out once.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text {
    text: String,
    json: OnceLock<String>,
}

impl Text {
    /// The text as it is.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text as a JSON string.
    #[must_use]
    pub fn json(&self) -> &str {
        self.json.get_or_init(|| quote(&self.text))
    }

    /// Adds to its end.
    pub fn push_str(&mut self, more: &str) {
        self.text.push_str(more);
        self.json = OnceLock::new();
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self {
            text,
            json: OnceLock::new(),
        }
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.text
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Text {}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

/// A text as a JSON string, as `serde_json` writes it. What has to be escaped is looked for in eight
/// bytes at once.
pub(super) fn quote(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len() + text.len() / 16 + 2);
    out.push('"');
    let (mut copied, mut at) = (0, 0);
    while at < bytes.len() {
        at += match bytes[at..].first_chunk::<8>() {
            Some(word) => match first_special(u64::from_le_bytes(*word)) {
                8 => {
                    at += 8;
                    continue;
                }
                hit => hit,
            },
            None if special(bytes[at]) => 0,
            None => {
                at += 1;
                continue;
            }
        };
        out.push_str(&text[copied..at]);
        escape(&mut out, bytes[at]);
        at += 1;
        copied = at;
    }
    out.push_str(&text[copied..]);
    out.push('"');
    out
}

fn special(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// Index of the first byte of a little-endian word that has to be escaped; 8 if there is none.
#[inline]
fn first_special(word: u64) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // A byte's high bit is set where the byte is below the limit; bits above the first one may be
    // wrong.
    let below = |x: u64, limit: u64| x.wrapping_sub(LOW * limit) & !x & HIGH;
    let equal = |byte: u8| below(word ^ (LOW * u64::from(byte)), 1);
    let hits = below(word, u64::from(b' ')) | equal(b'"') | equal(b'\\');
    hits.trailing_zeros() as usize / 8
}

fn escape(out: &mut String, byte: u8) {
    match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        0x08 => out.push_str("\\b"),
        0x0C => out.push_str("\\f"),
        control => out.push_str(&format!("\\u{control:04x}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Text, quote};

    #[test]
    fn every_control_character_and_quote_is_escaped() {
        let all: String = (0..128_u8).map(char::from).collect();
        assert_eq!(quote(&all), serde_json::to_string(&all).unwrap());
        assert_eq!(quote(""), "\"\"");
    }

    #[test]
    fn what_is_added_is_quoted_too() {
        let mut text = Text::from("one\n".to_owned());
        assert_eq!(text.json(), "\"one\\n\"");
        text.push_str("two");
        assert_eq!(text.json(), "\"one\\ntwo\"");
        let again: Text = serde_json::from_str(&serde_json::to_string(&text).unwrap()).unwrap();
        assert_eq!(again, text);
    }

    proptest! {
        #[test]
        fn it_is_quoted_as_serde_json_does(parts in prop::collection::vec(
            prop_oneof![
                "[a-z ]{0,200}",
                "[\\x00-\\x1f\"\\\\é\u{1f600}]{0,8}",
                any::<String>(),
            ], 0..12)
        ) {
            let text = parts.concat();
            prop_assert_eq!(quote(&text), serde_json::to_string(&text).unwrap());
        }
    }
}
