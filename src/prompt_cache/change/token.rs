//! What kind of thing stands at the first difference of two texts: a time, an identifier, a
//! number that counts on.
//!
//! Both texts are JSON as written; up to the difference they are alike.

use crate::prompt_cache::verdict::What;

/// How far a token is followed to either side, in bytes.
const TOKEN_REACH: usize = 64;

/// How far before a number a word is looked for that makes it a time.
const WORDS_REACH: usize = 40;

/// What follows a number that counts on must be alike for this many bytes.
const SAME_AFTER: usize = 8;

/// Digits from which a number without any other sense is an identifier.
const ID_DIGITS: usize = 15;

const NAMES_OF_TIME: [&str; 38] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "jan",
    "feb",
    "mar",
    "apr",
    "jun",
    "jul",
    "aug",
    "sep",
    "sept",
    "oct",
    "nov",
    "dec",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun",
];

/// Words that announce a time; the number that follows is then one.
const WORDS_OF_TIME: [&str; 11] = [
    "now",
    "time",
    "date",
    "today",
    "datetime",
    "timestamp",
    "clock",
    "uptime",
    "elapsed",
    "utc",
    "epoch",
];

/// How identifiers begin that say what they identify.
const ID_PREFIXES: [&str; 22] = [
    "req",
    "request",
    "sess",
    "session",
    "msg",
    "message",
    "run",
    "trace",
    "span",
    "conv",
    "conversation",
    "thread",
    "user",
    "task",
    "job",
    "call",
    "toolu",
    "chatcmpl",
    "corr",
    "id",
    "turn",
    "nonce",
];

/// A token: where it stands, and where in it the texts part.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) start: usize,
    pub(super) end: usize,
    bytes: &'a [u8],
    at: usize,
}

/// What the first difference at `at` is; `None` for any other text.
pub(super) fn classify(old: &[u8], new: &[u8], at: usize) -> Option<What> {
    let (before, after) = (token(old, at), token(new, at));
    let both = |is: fn(&Token<'_>) -> bool| is(&before) && is(&after);
    if both(is_date_or_time)
        || both(is_name_of_time)
        || is_unix_time(&before, &after)
        || (both(is_numeric) && told_as_time(old, &before) && told_as_time(new, &after))
    {
        return Some(What::Clock);
    }
    if both(is_id) {
        return Some(What::Id);
    }
    counts_on(old, new, at).then_some(What::Counter)
}

/// The token around a place, as far as [`TOKEN_REACH`].
pub(super) fn token(text: &[u8], at: usize) -> Token<'_> {
    let at = at.min(text.len());
    let (start, end) = run(text, at, |b| {
        b.is_ascii_alphanumeric() || b"-:._+/=".contains(&b)
    });
    let start = start + escape_letters(text, start, at);
    Token {
        start,
        end,
        bytes: &text[start..end],
        at: at - start,
    }
}

/// The letters of an escape (`\n`, `\u00e9`) that a token seems to begin with.
fn escape_letters(text: &[u8], start: usize, at: usize) -> usize {
    let slashes = text[..start]
        .iter()
        .rev()
        .take_while(|b| **b == b'\\')
        .count();
    if slashes % 2 == 0 {
        return 0;
    }
    let letters = if text.get(start) == Some(&b'u') { 5 } else { 1 };
    letters.min(at - start)
}

/// The run of bytes of a class around a place.
fn run(text: &[u8], at: usize, class: impl Fn(u8) -> bool) -> (usize, usize) {
    let at = at.min(text.len());
    let left = text[..at].iter().rev().take(TOKEN_REACH);
    let right = text[at..].iter().take(TOKEN_REACH);
    let left = left.take_while(|b| class(**b)).count();
    let right = right.take_while(|b| class(**b)).count();
    (at - left, at + right)
}

/// Whether the place lies in a date or a time of day.
fn is_date_or_time(token: &Token<'_>) -> bool {
    let touches = |start: usize, len: usize| start <= token.at && token.at <= start + len;
    (0..token.bytes.len()).any(|start| {
        let rest = &token.bytes[start..];
        let before = start.checked_sub(1).map(|at| token.bytes[at]);
        if before.is_some_and(|b| b.is_ascii_digit()) {
            return false;
        }
        [date(rest), compact_date(rest), time_of_day(rest, before)]
            .into_iter()
            .flatten()
            .any(|len| touches(start, len))
    })
}

/// The length of the number that begins here, if it has `digits` digits, and the number.
fn number(text: &[u8], digits: std::ops::RangeInclusive<usize>) -> Option<(usize, u64)> {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if !digits.contains(&len) || len > 18 {
        return None;
    }
    let value = text[..len]
        .iter()
        .fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    Some((len, value))
}

/// Length of `2026-01-05`, `5.1.2026`, `01/05/2026`.
fn date(text: &[u8]) -> Option<usize> {
    let (first, a) = number(text, 1..=4)?;
    let separator = *text.get(first).filter(|b| b"-/.".contains(b))?;
    let (second, b) = number(&text[first + 1..], 1..=2)?;
    let at = first + 1 + second;
    if text.get(at) != Some(&separator) {
        return None;
    }
    let (third, c) = number(&text[at + 1..], 1..=4)?;
    let plausible = |year, one: u64, other: u64| {
        (1900..2200).contains(&year)
            && one.max(other) <= 31
            && one.min(other) <= 12
            && one * other > 0
    };
    let sound = match (first, third) {
        (4, 1..=2) => plausible(a, b, c),
        (1..=2, 4) => plausible(c, a, b),
        _ => false,
    };
    sound.then_some(at + 1 + third)
}

/// Length of `20260105T100000`.
fn compact_date(text: &[u8]) -> Option<usize> {
    let (_, day) = number(text, 8..=8)?;
    let rest = text.get(8..)?;
    let sound = (19_000_101..22_000_101).contains(&day) && rest.first() == Some(&b'T');
    let (clock, _) = number(rest.get(1..)?, 4..=6)?;
    sound.then_some(9 + clock)
}

/// Length of `10:00`, `9:05:20`, `10:00:20.123`.
fn time_of_day(text: &[u8], before: Option<u8>) -> Option<usize> {
    let part = |at: usize| {
        (text.get(at) == Some(&b':')).then_some(())?;
        number(&text[at + 1..], 2..=2).filter(|(_, value)| *value < 60)
    };
    let (first, hour) = number(text, 1..=2)?;
    part(first).filter(|_| hour <= 24)?;
    let minutes = first + 3;
    if part(minutes).is_none() {
        // `file.rs:12:34` is a place, not a time.
        return (before != Some(b':')).then_some(minutes);
    }
    let seconds = minutes + 3;
    let fraction = match text.get(seconds) {
        Some(b'.') => number(&text[seconds + 1..], 1..=9).map_or(0, |(len, _)| len + 1),
        _ => 0,
    };
    Some(seconds + fraction)
}

/// A month, a day of the week, or which half of the day it is.
fn is_name_of_time(token: &Token<'_>) -> bool {
    let (start, end) = run(token.bytes, token.at, |b| b.is_ascii_alphabetic());
    let word = &token.bytes[start..end];
    is_one_of(word, &NAMES_OF_TIME) || is_one_of(word, &["am", "pm"])
}

fn is_one_of(word: &[u8], words: &[&str]) -> bool {
    words
        .iter()
        .any(|w| w.as_bytes().eq_ignore_ascii_case(word))
}

/// Seconds, milli-, micro- or nanoseconds since 1970 that went on.
fn is_unix_time(old: &Token<'_>, new: &Token<'_>) -> bool {
    let nanos = |token: &Token<'_>| -> Option<u128> {
        let digit = |b: u8| b.is_ascii_digit() || b == b'.';
        let (mut start, mut end) = run(token.bytes, token.at, digit);
        while start < end && token.bytes[start] == b'.' {
            start += 1;
        }
        while end > start && token.bytes[end - 1] == b'.' {
            end -= 1;
        }
        let text = &token.bytes[start..end];
        let whole = text.iter().position(|b| *b == b'.').unwrap_or(text.len());
        let scale = match whole {
            10 => 1_000_000_000,
            13 => 1_000_000,
            16 => 1_000,
            19 => 1,
            _ => return None,
        };
        let fold = |value: u128, digit: &u8| value * 10 + u128::from(digit - b'0');
        let value = text[..whole].iter().fold(0_u128, fold) * scale;
        let fraction = text.get(whole + 1..).unwrap_or_default();
        let fraction = fraction.get(..9).unwrap_or(fraction);
        if fraction.contains(&b'.') {
            return None;
        }
        let part = fraction.iter().fold(0_u128, fold) * 10_u128.pow(9 - fraction.len() as u32);
        // From 2001 to 2100.
        let seconds = 1_000_000_000..4_102_444_800_u128;
        let value = value + part * scale / 1_000_000_000;
        seconds.contains(&(value / 1_000_000_000)).then_some(value)
    };
    matches!((nanos(old), nanos(new)), (Some(old), Some(new)) if new > old)
}

fn is_numeric(token: &Token<'_>) -> bool {
    let numeric = |b: &u8| b.is_ascii_digit() || b":./-TZ+".contains(b);
    token.bytes.iter().any(u8::is_ascii_digit) && token.bytes.iter().all(numeric)
}

/// Whether the words around a number make it a time.
fn told_as_time(text: &[u8], token: &Token<'_>) -> bool {
    let from = token.start.saturating_sub(WORDS_REACH);
    let before = &text[from..token.start];
    // Not beyond the line, which may be told by an escape.
    let line = before.windows(2).rposition(|pair| pair == b"\\n");
    let before = line.map_or(before, |at| &before[at + 2..]);
    let mut words = before
        .split(|b| !b.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .rev()
        .take(3);
    let last = words.next().unwrap_or_default();
    let after = &text[token.end..text.len().min(token.end + WORDS_REACH)];
    let next = after
        .split(|b| !b.is_ascii_alphanumeric())
        .find(|word| !word.is_empty())
        .unwrap_or_default();
    let is_word = |word: &[u8]| is_one_of(word, &WORDS_OF_TIME);
    is_one_of(last, &NAMES_OF_TIME)
        || is_one_of(next, &NAMES_OF_TIME)
        || is_word(last)
        || words.any(is_word)
}

fn is_id(token: &Token<'_>) -> bool {
    is_uuid(token) || is_prefixed(token) || is_random(token)
}

fn is_uuid(token: &Token<'_>) -> bool {
    const LENGTH: usize = 36;
    let first = token.at.saturating_sub(LENGTH);
    (first..=token.at).any(|start| {
        let text = token.bytes.get(start..start + LENGTH);
        text.is_some_and(|text| {
            text.iter().enumerate().all(|(at, b)| match at {
                8 | 13 | 18 | 23 => *b == b'-',
                _ => b.is_ascii_hexdigit(),
            })
        })
    })
}

/// `req_011CSk...`, `sess-8f3a`.
fn is_prefixed(token: &Token<'_>) -> bool {
    let (start, end) = run(token.bytes, token.at, |b| {
        b.is_ascii_alphanumeric() || b == b'_' || b == b'-'
    });
    let unit = &token.bytes[start..end];
    let Some(at) = unit.iter().position(|b| *b == b'_' || *b == b'-') else {
        return false;
    };
    let rest = &unit[at + 1..];
    let digits = rest.iter().filter(|b| b.is_ascii_digit()).count();
    is_one_of(&unit[..at], &ID_PREFIXES)
        && rest.len() >= 4
        && digits > 0
        && (digits < rest.len() || digits >= 10)
}

/// Letters and digits without any sense.
fn is_random(token: &Token<'_>) -> bool {
    let (start, end) = run(token.bytes, token.at, |b| b.is_ascii_alphanumeric());
    let text = &token.bytes[start..end];
    let digits = text.iter().filter(|b| b.is_ascii_digit()).count();
    if text.len() < 8 || digits < 2 {
        return false;
    }
    if digits == text.len() {
        return digits >= ID_DIGITS;
    }
    let class = |b: &u8| match b {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        _ => 2,
    };
    let changes = text
        .windows(2)
        .filter(|p| class(&p[0]) != class(&p[1]))
        .count();
    let is_hex = text.iter().all(u8::is_ascii_hexdigit);
    (is_hex && changes >= 2) || changes >= (text.len() / 4).max(4)
}

/// A number of its own that went on (or down, where something is said to be left), followed by
/// the same text.
fn counts_on(old: &[u8], new: &[u8], at: usize) -> bool {
    let digits = |text: &[u8]| {
        let (start, end) = run(text, at, |b| b.is_ascii_digit());
        let (len, value) = number(&text[start..end], 1..=18)?;
        let glued = |at: usize| text.get(at).is_some_and(u8::is_ascii_alphabetic);
        let escape = start >= 2 && text[start - 2] == b'\\';
        let alone = !glued(end) && (start == 0 || escape || !glued(start - 1));
        alone.then_some((start + len, value))
    };
    let (Some((old_end, before)), Some((new_end, after))) = (digits(old), digits(new)) else {
        return false;
    };
    let same = |text: &[u8], end: usize| text[end..text.len().min(end + SAME_AFTER)].to_vec();
    if before == after || same(old, old_end) != same(new, new_end) {
        return false;
    }
    after > before || says_left(new, at)
}

fn says_left(text: &[u8], at: usize) -> bool {
    let near = &text[at.saturating_sub(WORDS_REACH)..text.len().min(at + WORDS_REACH)];
    near.split(|b| !b.is_ascii_alphabetic())
        .any(|word| is_one_of(word, &["left", "remaining", "remain", "remains"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(old: &str, new: &str) -> Option<What> {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let at = old.iter().zip(new).position(|(a, b)| a != b);
        classify(old, new, at.unwrap_or(old.len().min(new.len())))
    }

    #[test]
    fn clocks() {
        for (old, new) in [
            ("Now: 2026-01-05 10:00:20. S", "Now: 2026-01-05 10:00:40. S"),
            ("2026-01-05T09:59:59.123Z", "2026-01-05T10:00:00.001Z"),
            ("2026-01-05T09:59:59.123Z", "2026-01-05T09:59:59.124Z"),
            ("it is 9:59", "it is 10:00"),
            ("on 31.12.2025 in", "on 1.1.2026 in"),
            ("on 12/31/2025", "on 01/01/2026"),
            ("log-20260105T100000.txt", "log-20260105T100001.txt"),
            ("ts=1767607200", "ts=1767607220"),
            ("ts=1767607200.25", "ts=1767607200.5"),
            ("{\"t\":1767607200123}", "{\"t\":1767607200124}"),
            ("Today is Monday, 5", "Today is Tuesday, 6"),
            ("5 January 2026", "6 January 2026"),
            ("January 5, 2026", "January 12, 2026"),
            ("31 January", "31 March"),
            ("at 9 AM", "at 9 PM"),
            ("current time: 9", "current time: 10"),
            ("\\n10:00:20", "\\n10:00:21"),
            ("\\u00e910:00", "\\u00e911:00"),
            ("time:10:00:20", "time:10:00:21"),
        ] {
            assert_eq!(what(old, new), Some(What::Clock), "{old} {new}");
        }
    }

    #[test]
    fn ids() {
        for (old, new) in [
            (
                "id 3f2504e0-4f89-41d3-9a0c-0305e82c3301 x",
                "id 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d x",
            ),
            (
                "/tmp/3f2504e0-4f89-41d3-9a0c-0305e82c3301",
                "/tmp/3f2504e0-4f89-41d3-9a0c-0305e82c3302",
            ),
            ("req_011CSkAbc9", "req_011CSkXyz3"),
            ("sess-8f3a", "sess-91bc"),
            ("commit 9fceb02d", "commit 4c1a77be"),
            ("sha256=9f86d081884c7d659a2f", "sha256=60303ae22b998861bce3"),
            ("token a8Kd9QmZ3x", "token Zk27bMq0pT"),
            (
                "snowflake 918273645546372819",
                "snowflake 118273645546372819",
            ),
        ] {
            assert_eq!(what(old, new), Some(What::Id), "{old} {new}");
        }
    }

    #[test]
    fn counters() {
        for (old, new) in [
            ("turn 9 of many", "turn 10 of many"),
            ("turn 1", "turn 12"),
            ("cost: 0.53 USD", "cost: 0.61 USD"),
            ("{\"n\":3,\"m\":1}", "{\"n\":4,\"m\":1}"),
            ("\\n3 done", "\\n4 done"),
            ("9 tokens left", "8 tokens left"),
            ("step-3", "step-4"),
        ] {
            assert_eq!(what(old, new), Some(What::Counter), "{old} {new}");
        }
    }

    #[test]
    fn other_texts_are_none_of_these() {
        for (old, new) in [
            ("hello world", "hello there"),
            ("v1", "v2"),
            ("turn 10 of", "turn 9 of"),
            ("there are 5 apples", "there are 9 people"),
            ("src/a.rs:12:34", "src/a.rs:12:35!"),
            ("2026-01-05-a.txt", "2026-01-05-b.txt"),
            ("report2024final", "reportfinal"),
            ("a-kebab-case-name", "a-kebab-other-name"),
            ("", "x"),
            ("x", ""),
            ("timeout of 30 things", "timeout of 20 things"),
            ("é", "è"),
            ("2026-01-05", "tomorrow"),
            ("1767607220", "1767607200"),
            ("you may use it", "you can use it"),
        ] {
            assert_eq!(what(old, new), None, "{old} {new}");
        }
    }
}
