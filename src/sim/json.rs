//! JSON as the provider sees it: order, number spelling and escapes are kept.
//!
//! A prompt cache works on what was written, so a tree that re-spells numbers or sorts keys could
//! not tell a changed prompt from an equal one. Strings and numbers therefore stay raw text here.

use std::fmt::Write as _;

/// Deepest nesting that is read; the real API refuses absurd nesting too.
const MAX_DEPTH: u32 = 192;

/// One JSON value with the spelling it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as spelled.
    Num(Box<str>),
    /// A string between its quotes, escapes as spelled.
    Str(Box<str>),
    /// An array.
    Arr(Vec<Json>),
    /// An object in its order; keys are decoded.
    Obj(Vec<(String, Json)>),
}

/// Why a text is not the JSON that is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// What was wrong.
    pub what: &'static str,
    /// Where.
    pub at: usize,
}

impl Json {
    /// Reads one value that fills `bytes`.
    ///
    /// # Errors
    /// On anything that is not JSON: bad syntax, bad UTF-8, a key that stands twice in one object,
    /// or nesting beyond a fixed depth.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(bytes).map_err(|error| JsonError {
            what: "invalid UTF-8",
            at: error.valid_up_to(),
        })?;
        let mut reader = Reader { text, at: 0 };
        reader.space();
        let value = reader.value(0)?;
        reader.space();
        if reader.at == text.len() {
            Ok(value)
        } else {
            Err(reader.fail("trailing characters"))
        }
    }

    /// A string value with this content.
    #[must_use]
    pub fn string(content: &str) -> Self {
        let quoted = quote(content);
        Self::Str(quoted[1..quoted.len() - 1].into())
    }

    /// The member `key` of an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.members()
            .iter()
            .find_map(|(name, value)| (name == key).then_some(value))
    }

    /// The member `key`, with `null` counted as absent.
    #[must_use]
    pub fn given(&self, key: &str) -> Option<&Self> {
        self.get(key).filter(|value| **value != Self::Null)
    }

    /// The members of an object; empty for anything else.
    #[must_use]
    pub fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Obj(members) => members,
            _ => &[],
        }
    }

    /// The items of an array; empty for anything else.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Arr(items) => items,
            _ => &[],
        }
    }

    /// The decoded text of a string; lone surrogates become the replacement character.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Str(raw) => Some(unescape(raw)),
            _ => None,
        }
    }

    /// The decoded text of the string member `key`.
    #[must_use]
    pub fn text_of(&self, key: &str) -> Option<String> {
        self.get(key)?.text()
    }

    /// Whether this is the string `content`.
    #[must_use]
    pub fn is(&self, content: &str) -> bool {
        match self {
            Self::Str(raw) if raw.contains('\\') => unescape(raw) == content,
            Self::Str(raw) => **raw == *content,
            _ => false,
        }
    }

    /// A number that is a non-negative integer.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Num(raw) => raw.parse().ok(),
            _ => None,
        }
    }

    /// Writes the value without white space, spelling kept.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Num(raw) => out.push_str(raw),
            Self::Str(raw) => {
                out.push('"');
                out.push_str(raw);
                out.push('"');
            }
            Self::Arr(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Obj(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&quote(key));
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The value without white space, spelling kept.
    #[must_use]
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

/// `content` as a JSON string, quotes included.
#[must_use]
pub fn quote(content: &str) -> String {
    let mut out = String::with_capacity(content.len() + 2);
    out.push('"');
    for c in content.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        let mut used = at + 2;
        match escape {
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'u' => {
                let unit = hex4(rest, at + 2);
                used = at + 6;
                let low = rest
                    .get(used..used + 2)
                    .filter(|next| *next == "\\u")
                    .and_then(|_| hex4(rest, used + 2));
                let c = match (unit, low) {
                    (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                        used += 6;
                        char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
                    }
                    (Some(unit), _) => char::from_u32(unit),
                    (None, _) => None,
                };
                out.push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            other => out.push(char::from(other)),
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

fn hex4(text: &str, at: usize) -> Option<u32> {
    u32::from_str_radix(text.get(at..at + 4)?, 16).ok()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn fail(&self, what: &'static str) -> JsonError {
        JsonError { what, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &'static str, value: Json) -> Result<Json, JsonError> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.fail("unknown word"))
        }
    }

    fn value(&mut self, depth: u32) -> Result<Json, JsonError> {
        if depth > MAX_DEPTH {
            return Err(self.fail("nested too deeply"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::Str(self.string()?.into())),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.fail("unexpected character")),
            None => Err(self.fail("unexpected end")),
        }
    }

    fn object(&mut self, depth: u32) -> Result<Json, JsonError> {
        self.at += 1;
        let mut members: Vec<(String, Json)> = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Obj(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.fail("expected a key"));
            }
            let key = unescape(self.string()?);
            if members.iter().any(|(name, _)| *name == key) {
                return Err(self.fail("duplicate key"));
            }
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.fail("expected a colon"));
            }
            self.at += 1;
            self.space();
            let value = self.value(depth + 1)?;
            members.push((key, value));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Json::Obj(members));
                }
                _ => return Err(self.fail("expected a comma or a closing brace")),
            }
        }
    }

    fn array(&mut self, depth: u32) -> Result<Json, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::Arr(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Json::Arr(items));
                }
                _ => return Err(self.fail("expected a comma or a closing bracket")),
            }
        }
    }

    fn string(&mut self) -> Result<&str, JsonError> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let raw = start..self.at;
                    self.at += 1;
                    return Ok(&self.text[raw]);
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                            self.at += 1;
                        }
                        Some(b'u') if hex4(self.text, self.at + 1).is_some() => self.at += 5,
                        _ => return Err(self.fail("bad escape")),
                    }
                }
                Some(0..=31) => return Err(self.fail("control character in a string")),
                Some(_) => self.at += 1,
                None => return Err(self.fail("unterminated string")),
            }
        }
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let digits = self.digits();
        if digits == 0 || (leading_zero && digits > 1) {
            return Err(self.fail("bad number"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.fail("bad number"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.fail("bad number"));
            }
        }
        Ok(Json::Num(self.text[start..self.at].into()))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spelling_and_order_survive() {
        let text = r#"{"b":1.0,"a":[1e3,-0,12345678901234567890],"u":"\u00e9é\/","n":null}"#;
        let spaced = text.replace(",\"", " ,\n\t\"").replace(':', " : ");
        for input in [text, &spaced] {
            assert_eq!(Json::parse(input.as_bytes()).unwrap().compact(), text);
        }
    }

    #[test]
    fn strings_are_decoded_on_demand() {
        let check = |raw: &str, expected: &str| {
            let value = Json::parse(raw.as_bytes()).unwrap();
            assert_eq!(value.text().as_deref(), Some(expected), "{raw}");
            assert!(value.is(expected), "{raw}");
        };
        check(r#""a\n\t\"\\\/b""#, "a\n\t\"\\/b");
        check(r#""\ud83d\ude00x""#, "😀x");
        check(r#""\ud83dx""#, "\u{fffd}x");
        check(r#""\u00e9""#, "é");
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"a\nb\"",
            "nul",
            "{\"a\":1,\"a\":2}",
            "1 2",
            "{'a':1}",
            "\"open",
            "-",
            "1e",
            "\"\\u00é\"",
        ] {
            assert!(Json::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Json::parse(b"\"\xff\"").is_err());
        let deep = "[".repeat(100_000);
        assert!(Json::parse(deep.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Json::parse(&bytes);
        }

        #[test]
        fn near_json_never_panics(text in r#"[\[\]{}",:\\u0-9a-f \-+.eé]{0,60}"#) {
            if let Ok(value) = Json::parse(text.as_bytes()) {
                prop_assert_eq!(Json::parse(value.compact().as_bytes()), Ok(value));
            }
        }

        #[test]
        fn quoting_and_reading_agree(content in any::<String>()) {
            let value = Json::parse(quote(&content).as_bytes()).unwrap();
            prop_assert_eq!(value.text().unwrap(), content.clone());
            prop_assert_eq!(value, Json::string(&content));
        }
    }
}
