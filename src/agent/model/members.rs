//! A JSON object as its members in order, so that what is not understood stays as it came.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object; values are JSON text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(Vec<(String, String)>);

impl Members {
    /// Reads an object; `None` where it is none.
    pub fn read(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Name and value of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The JSON text of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value)
    }

    /// A member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        said(self.get(name)?).map(Cow::into_owned)
    }

    /// Gives a member another value, at its place, or at the end where it is new.
    pub fn set(&mut self, name: &str, json: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) => *value = json,
            None => self.0.push((name.to_owned(), json)),
        }
    }

    /// Takes a member out.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The object as JSON text.
    pub fn write(&self) -> String {
        let mut out = String::from("{");
        for (at, (name, value)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(&quote(name));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

/// A text as a JSON string, as `serde_json` writes it. With each request the whole conversation is
/// quoted anew: what has to be escaped is looked for in eight bytes at once.
pub fn quote(text: &str) -> String {
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

/// What a JSON string says; `None` where it is none.
pub fn said(json: &str) -> Option<Cow<'_, str>> {
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Said<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Said<'_>>(json)
        .ok()
        .map(|said| said.0)
}

/// Whether a text is JSON.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The input of a call as an object. Providers take nothing else back, so what is none goes back as
/// a member of one.
pub fn object(input: &str) -> String {
    let input = input.trim();
    if input.is_empty() {
        "{}".to_owned()
    } else if input.starts_with('{') && is_json(input) {
        input.to_owned()
    } else {
        format!("{{\"unparsed\":{}}}", quote(input))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.0.push((name, value.get().to_owned()));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::quote;

    #[test]
    fn every_control_character_and_quote_is_escaped() {
        let all: String = (0..128_u8).map(char::from).collect();
        assert_eq!(quote(&all), serde_json::to_string(&all).unwrap());
        assert_eq!(quote(""), "\"\"");
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
