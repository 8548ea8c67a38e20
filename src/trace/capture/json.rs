//! JSON with its strings redacted and everything else as it was: the order of members, members
//! that stand twice, the spelling of numbers. Only white space outside of strings is left out.
//!
//! Strings are read with their escapes undone, keys included. The value of a member whose name
//! says that it is secret goes as a whole, whatever it looks like.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use crate::provider::anthropic::media;
use crate::provider::json::{string_end, unescape};
use crate::redact::{Counts, Redactor};

/// Numbers with fewer digits are no card numbers.
const CARD_DIGITS: usize = 13;
/// Below this a number with a decimal point is a whole number exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// What a link begins with that holds its bytes itself, and what stands before them.
const DATA_LINK: (&str, &str) = ("data:", ";base64,");

/// Rewrites a body; `None` if it is no JSON. Without a redactor only encoded images and documents
/// are left out.
pub(super) fn rewritten(
    text: &str,
    redactor: Option<&Redactor>,
    counts: &mut Counts,
) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut writer = Writer {
        redactor,
        counts,
        out: String::with_capacity(text.len()),
        levels: Vec::new(),
    };
    writer.write(text)?;
    Some(writer.out)
}

/// JSON with everything replaced that the rules find; `None` if it is no JSON.
#[must_use]
pub fn redacted(text: &str, redactor: &Redactor, counts: &mut Counts) -> Option<String> {
    rewritten(text, Some(redactor), counts)
}

/// What is known of a value by the name of its member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Member {
    #[default]
    Plain,
    /// All of it is secret.
    Secret,
    /// It is secret if it looks so.
    Token,
    /// An object that may hold encoded bytes.
    Holder,
    /// Those bytes.
    Bytes,
    /// The name of what stands beside it.
    Name,
}

#[derive(Debug, Clone, Copy, Default)]
struct Level {
    object: bool,
    /// The next string is a key.
    key: bool,
    /// Of the value that comes.
    member: Member,
    holder: bool,
    /// Its member `name` says that its member `value` is secret.
    named: bool,
}

struct Writer<'a> {
    redactor: Option<&'a Redactor>,
    counts: &'a mut Counts,
    out: String,
    levels: Vec<Level>,
}

impl Writer<'_> {
    /// Writes JSON that has been found to be sound; `None` if it is not after all.
    fn write(&mut self, text: &str) -> Option<()> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b' ' | b'\n' | b'\t' | b'\r' => at += 1,
                b'{' | b'[' => {
                    let object = *byte == b'{';
                    let member = self.member();
                    self.levels.push(Level {
                        object,
                        key: object,
                        // A list of secrets is as secret as one.
                        member: if object { Member::Plain } else { member },
                        holder: object && member == Member::Holder,
                        named: false,
                    });
                    self.out.push(char::from(*byte));
                    at += 1;
                }
                b'}' | b']' => {
                    self.levels.pop();
                    self.out.push(char::from(*byte));
                    at += 1;
                }
                b',' => {
                    if let Some(level) = self.levels.last_mut()
                        && level.object
                    {
                        level.key = true;
                        level.member = Member::Plain;
                    }
                    self.out.push(',');
                    at += 1;
                }
                b':' => {
                    self.out.push(':');
                    at += 1;
                }
                b'"' => {
                    let end = string_end(bytes, at + 1)?;
                    let raw = text.get(at..end)?;
                    let escaped = raw.contains('\\');
                    if self.levels.last().is_some_and(|level| level.key) {
                        self.key(raw, escaped);
                    } else {
                        self.string(raw, escaped);
                    }
                    at = end;
                }
                _ => {
                    let rest = &bytes[at..];
                    let length = rest
                        .iter()
                        .position(|b| {
                            matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r')
                        })
                        .unwrap_or(rest.len());
                    self.scalar(text.get(at..at + length)?);
                    at += length;
                }
            }
        }
        Some(())
    }

    fn member(&self) -> Member {
        self.levels
            .last()
            .map_or(Member::Plain, |level| level.member)
    }

    fn key(&mut self, raw: &str, escaped: bool) {
        let key = plain(raw, escaped);
        let holder = self.levels.last().is_some_and(|level| level.holder);
        let named = self.levels.last().is_some_and(|level| level.named);
        let member = if media::is_holder(&key) {
            Member::Holder
        } else if holder && media::is_data(&key) {
            Member::Bytes
        } else if Redactor::names_secret(&key) {
            Member::Secret
        } else if Redactor::names_token(&key) {
            Member::Token
        } else if matches!(&*key, "name" | "key") {
            Member::Name
        } else if named && key == "value" {
            Member::Secret
        } else {
            Member::Plain
        };
        if let Some(level) = self.levels.last_mut() {
            level.key = false;
            level.member = member;
        }
        self.text(raw, &key);
    }

    fn string(&mut self, raw: &str, escaped: bool) {
        let text = plain(raw, escaped);
        let member = self.member();
        let bytes = match member {
            Member::Bytes => media::encoded_bytes(&text).map(|bytes| (0, bytes)),
            _ => data_link(&text),
        };
        if let Some((kept, bytes)) = bytes {
            let short = format!("{}[{bytes} bytes]", &text[..kept]);
            self.put(&short);
            return;
        }
        if member == Member::Name
            && let Some(level) = self.levels.last_mut()
        {
            level.named = Redactor::names_secret(&text);
        }
        let secret = match member {
            Member::Secret => !text.is_empty(),
            Member::Token => Redactor::looks_random(&text),
            _ => false,
        };
        match self.redactor {
            Some(redactor) if secret => {
                let value = redactor.value(&text, self.counts);
                self.put(&value);
            }
            _ => self.text(raw, &text),
        }
    }

    /// A string that reads `text`, redacted; as it was written where nothing is to be replaced.
    fn text(&mut self, raw: &str, text: &str) {
        let redacted = match self.redactor {
            Some(redactor) => redactor.text(text, self.counts),
            None => Cow::Borrowed(text),
        };
        // What is no text (half a character) is written anew, so that everyone can read the whole.
        if redacted == text && (text.len() + 2 == raw.len() || is_text(raw)) {
            self.out.push_str(raw);
        } else {
            self.put(&redacted);
        }
    }

    /// Numbers, `true`, `false` and `null`.
    fn scalar(&mut self, raw: &str) {
        let number = raw.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let Some(redactor) = self.redactor.filter(|_| number) else {
            self.out.push_str(raw);
            return;
        };
        if self.member() == Member::Secret {
            let value = redactor.value(raw, self.counts);
            self.put(&value);
            return;
        }
        let digits = raw.bytes().filter(u8::is_ascii_digit).count();
        if digits >= CARD_DIGITS || raw.contains(['e', 'E']) || redactor.has_own() {
            let shown = whole(raw);
            let redacted = redactor.text(&shown, self.counts);
            if redacted != shown {
                self.put(&redacted);
                return;
            }
        }
        self.out.push_str(raw);
    }

    fn put(&mut self, text: &str) {
        match serde_json::to_string(text) {
            Ok(quoted) => self.out.push_str(&quoted),
            // A text is always written; if not, nothing of it is.
            Err(_) => self.out.push_str("\"\""),
        }
    }
}

fn plain(raw: &str, escaped: bool) -> Cow<'_, str> {
    if escaped {
        unescape(raw.as_bytes())
    } else {
        Cow::Borrowed(raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default())
    }
}

fn is_text(raw: &str) -> bool {
    serde_json::from_str::<Cow<'_, str>>(raw).is_ok()
}

/// A link that holds its bytes itself: where they begin, and how many they are.
fn data_link(text: &str) -> Option<(usize, u64)> {
    let rest = text.strip_prefix(DATA_LINK.0)?;
    let at = rest.find(DATA_LINK.1)? + DATA_LINK.0.len() + DATA_LINK.1.len();
    let bytes = media::base64_bytes(text.get(at..)?)?;
    Some((at, bytes))
}

/// A whole number that is written in another way, as its digits.
fn whole(raw: &str) -> Cow<'_, str> {
    if !raw.contains(['.', 'e', 'E']) {
        return Cow::Borrowed(raw);
    }
    match raw.parse::<f64>() {
        Ok(number) if number.fract() == 0.0 && number.abs() <= EXACT => {
            Cow::Owned(format!("{number:.0}"))
        }
        _ => Cow::Borrowed(raw),
    }
}
