//! A forward-only walk over JSON bytes that yields spans and builds nothing.
//!
//! Made for looking at bodies that belong to someone else: it needs no tree and no copy, does not
//! recurse on the input (nesting is unbounded), and tolerates what strict parsers refuse although
//! it is passed on every day: lone surrogate escapes, integers of any length, invalid UTF-8 and
//! control characters in strings, keys that stand twice. What is walked over member by member is
//! checked; a value that is skipped is only checked for balance.

use std::borrow::Cow;

use crate::provider::view::Span;

/// Why a body cannot be walked, as a stable word for records.
pub type Fault = &'static str;

/// Brackets of a skipped value are matched by kind down to this nesting; below it only counted.
const MATCHED_NESTING: u32 = u64::BITS;

/// Where the walk stands in a body.
#[derive(Debug, Clone)]
pub struct Walker<'a> {
    body: &'a [u8],
    at: usize,
    /// White space outside of strings was passed since this was last cleared.
    pub gaps: bool,
    key_start: u32,
}

impl<'a> Walker<'a> {
    /// Starts at the first byte.
    ///
    /// # Errors
    /// Bodies over 4 GiB, which spans cannot address.
    pub fn new(body: &'a [u8]) -> Result<Self, Fault> {
        if u32::try_from(body.len()).is_err() {
            return Err("json_too_large");
        }
        Ok(Self {
            body,
            at: 0,
            gaps: false,
            key_start: 0,
        })
    }

    /// Passes white space and looks at the byte that begins the next token.
    ///
    /// # Errors
    /// The body ends here.
    #[inline]
    pub fn peek(&mut self) -> Result<u8, Fault> {
        loop {
            match self.body.get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => {
                    self.gaps = true;
                    self.at += 1;
                }
                Some(byte) => return Ok(*byte),
                None => return Err("json_cut_short"),
            }
        }
    }

    /// Offset of the next token once [`Self::peek`] has passed the white space before it.
    #[must_use]
    pub fn at(&self) -> u32 {
        self.at as u32
    }

    /// Enters an object or array if the next token is `bracket`.
    ///
    /// # Errors
    /// The body ends here.
    #[inline]
    pub fn enter(&mut self, bracket: u8) -> Result<bool, Fault> {
        let here = self.peek()? == bracket;
        self.at += usize::from(here);
        Ok(here)
    }

    /// The key of the next member of the object that was entered, unescaped; the walk then stands
    /// before its value, which must be consumed. `None` once the object is closed. `first` starts
    /// as true for each object.
    ///
    /// # Errors
    /// Anything that is no member.
    #[inline]
    pub fn key(&mut self, first: &mut bool) -> Result<Option<Cow<'a, [u8]>>, Fault> {
        if !self.next(first, b'}')? {
            return Ok(None);
        }
        if self.peek()? != b'"' {
            return Err("json_key_expected");
        }
        let span = self.string()?;
        self.key_start = span.start;
        let inner = &self.body[span.start as usize + 1..span.end as usize - 1];
        let key = if memchr::memchr(b'\\', inner).is_some() {
            Cow::Owned(unescape(inner).into_owned().into_bytes())
        } else {
            Cow::Borrowed(inner)
        };
        if self.peek()? != b':' {
            return Err("json_colon_expected");
        }
        self.at += 1;
        Ok(Some(key))
    }

    /// Offset of the quote that opens the last key that [`Self::key`] returned.
    #[must_use]
    pub fn key_start(&self) -> u32 {
        self.key_start
    }

    /// Whether the array that was entered has a next element, before which the walk then stands.
    /// `first` starts as true for each array.
    ///
    /// # Errors
    /// Anything that is neither a comma nor the end.
    #[inline]
    pub fn element(&mut self, first: &mut bool) -> Result<bool, Fault> {
        self.next(first, b']')
    }

    #[inline]
    fn next(&mut self, first: &mut bool, close: u8) -> Result<bool, Fault> {
        let byte = self.peek()?;
        if byte == close {
            self.at += 1;
            return Ok(false);
        }
        if std::mem::take(first) {
            return Ok(true);
        }
        if byte != b',' {
            return Err("json_comma_expected");
        }
        self.at += 1;
        Ok(true)
    }

    /// Consumes a string; the span covers its quotes. The walk must stand on the opening quote.
    #[inline]
    fn string(&mut self) -> Result<Span, Fault> {
        let start = self.at;
        let end = string_end(self.body, start + 1).ok_or("json_cut_short")?;
        self.at = end;
        Ok(span(start, end))
    }

    /// Consumes any value and returns where it stood.
    ///
    /// # Errors
    /// Brackets that do not match, a token that is no JSON, an early end.
    #[inline]
    pub fn skip(&mut self) -> Result<Span, Fault> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => self.skip_nested(),
            _ => self.skip_scalar(),
        }
    }

    fn skip_nested(&mut self) -> Result<Span, Fault> {
        let (body, start) = (self.body, self.at);
        let mut at = start;
        let (mut depth, mut deepest) = (0_u32, 0_u32);
        // One bit a level, set for an object, the innermost level lowest.
        let mut kinds = 0_u64;
        let mut gaps = false;
        loop {
            let byte = *body.get(at).ok_or("json_cut_short")?;
            at += 1;
            match byte {
                b'"' => at = string_end(body, at).ok_or("json_cut_short")?,
                b'{' | b'[' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                    kinds = kinds << 1 | u64::from(byte == b'{');
                }
                b'}' | b']' => {
                    if deepest <= MATCHED_NESTING && (kinds & 1 == 1) != (byte == b'}') {
                        return Err("json_brackets_differ");
                    }
                    kinds >>= 1;
                    depth -= 1;
                    if depth == 0 {
                        self.at = at;
                        self.gaps |= gaps;
                        return Ok(span(start, at));
                    }
                }
                b' ' | b'\n' | b'\t' | b'\r' => gaps = true,
                _ => {}
            }
        }
    }

    fn skip_scalar(&mut self) -> Result<Span, Fault> {
        let start = self.at;
        let rest = &self.body[start..];
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r'))
            .unwrap_or(rest.len());
        let token = &rest[..length];
        let sound = match token.first() {
            Some(b'-' | b'0'..=b'9') => token
                .iter()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')),
            _ => matches!(token, b"true" | b"false" | b"null"),
        };
        if !sound {
            return Err("json_value_expected");
        }
        self.at += length;
        Ok(span(start, self.at))
    }

    /// Checks that nothing but white space is left.
    ///
    /// # Errors
    /// Anything else is left.
    pub fn finish(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Ok(_) => Err("json_trailing_bytes"),
            Err(_) => Ok(()),
        }
    }
}

fn span(start: usize, end: usize) -> Span {
    // Walker::new has refused bodies in which an offset would not fit.
    Span {
        start: start as u32,
        end: end as u32,
    }
}

/// From the first byte inside a string to one past its closing quote.
///
/// Only quotes are searched for: of the escapes that texts of agents are full of (tabs, line ends),
/// they are a small part. Strings of agents are short (keys) or have many quotes (code), so a few
/// words are looked at in place before the vectorised search, whose start costs more than it saves
/// there.
#[inline]
pub(crate) fn string_end(body: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at = next_quote(body, at)?;
        // Behind an odd number of backslashes a quote belongs to the string. They are counted back to
        // the last quote at most, so all of this stays linear.
        let before = body[start..at].iter().rev();
        let backslashes = before.take_while(|byte| **byte == b'\\').count();
        at += 1;
        if backslashes % 2 == 0 {
            return Some(at);
        }
    }
}

#[inline]
fn next_quote(body: &[u8], mut at: usize) -> Option<usize> {
    const WORDS_IN_PLACE: usize = 4;
    for _ in 0..WORDS_IN_PLACE {
        let Some(word) = body.get(at..).and_then(<[u8]>::first_chunk::<8>) else {
            break;
        };
        let hit = first_quote(u64::from_le_bytes(*word));
        if hit < 8 {
            return Some(at + hit);
        }
        at += 8;
    }
    Some(at + memchr::memchr(b'"', body.get(at..)?)?)
}

/// Index of the first quote in a little-endian word; 8 if there is none.
#[inline]
fn first_quote(word: u64) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // A byte's high bit is set where the byte is zero; bits above the first one may be wrong.
    let quotes = word ^ (LOW * b'"' as u64);
    let hits = quotes.wrapping_sub(LOW) & !quotes & HIGH;
    hits.trailing_zeros() as usize / 8
}

/// The inside of a raw JSON string without its quotes, if it has any.
#[must_use]
pub fn inside(raw: &[u8]) -> &[u8] {
    match raw {
        [b'"', inner @ .., b'"'] => inner,
        _ => raw,
    }
}

/// The text of a raw JSON string, of which at most so many bytes are kept.
#[must_use]
pub fn beginning(raw: &[u8], most: usize) -> String {
    // Escapes only shrink when read, but at most sixfold.
    let raw = &raw[..raw.len().min(most * 6)];
    crate::text::prefix(&unescape(raw), most).to_owned()
}

/// The text of a raw JSON string (with or without its quotes).
///
/// Never fails: lone surrogates and invalid UTF-8 become U+FFFD, an unknown escape stands for its
/// letter. At most three times as long as `raw`; callers bound what they keep.
#[must_use]
pub fn unescape(raw: &[u8]) -> Cow<'_, str> {
    let raw = inside(raw);
    if memchr::memchr(b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw);
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        text.extend_from_slice(&rest[..at]);
        let (character, used) = escape(&rest[at..]);
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[at + used..];
    }
    text.extend_from_slice(rest);
    Cow::Owned(String::from_utf8_lossy(&text).into_owned())
}

/// The character of the escape that `rest` begins with, and its length in bytes.
fn escape(rest: &[u8]) -> (char, usize) {
    let unit = |at: usize| -> Option<u32> {
        if rest.get(at..at + 2)? != b"\\u" {
            return None;
        }
        rest.get(at + 2..at + 6)?.iter().try_fold(0, |sum, digit| {
            Some(sum << 4 | char::from(*digit).to_digit(16)?)
        })
    };
    if let Some(first) = unit(0) {
        if let Some(character) = char::from_u32(first) {
            return (character, 6);
        }
        return match unit(6) {
            Some(second @ 0xDC00..=0xDFFF) if first < 0xDC00 => {
                let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                (
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                    12,
                )
            }
            _ => (char::REPLACEMENT_CHARACTER, 6),
        };
    }
    let character = match rest.get(1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(byte) if byte.is_ascii() => char::from(*byte),
        // The bytes that follow are taken as they are.
        _ => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (character, 2)
}

/// Whether a raw JSON string says `word`.
#[must_use]
pub fn says(raw: &[u8], word: &str) -> bool {
    let inner = inside(raw);
    inner == word.as_bytes()
        || (inner.len() > word.len()
            && memchr::memchr(b'\\', inner).is_some()
            && unescape(inner) == word)
}

/// Whether a raw JSON string is empty or only white space once unescaped, in the widest sense in
/// which a server may trim it (Unicode white space, the ASCII separators, the byte order mark).
#[must_use]
pub fn blank(raw: &[u8]) -> bool {
    let mut rest = inside(raw);
    while let Some(&byte) = rest.first() {
        let (character, used) = match byte {
            b'\\' => escape(rest),
            byte if byte.is_ascii() => (char::from(byte), 1),
            byte => {
                let length = (byte.leading_ones() as usize).clamp(1, rest.len());
                match std::str::from_utf8(&rest[..length]).map(|s| s.chars().next()) {
                    Ok(Some(character)) => (character, length),
                    _ => return false,
                }
            }
        };
        if !(character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}' | '\u{feff}')) {
            return false;
        }
        rest = &rest[used..];
    }
    true
}

#[cfg(test)]
mod tests;
