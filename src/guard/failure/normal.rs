//! Error texts without what differs each time although the error is the same.
//!
//! Two strengths. Strict leaves out what no error is about: colours, times and durations, ids and
//! addresses, numbers of processes and ports, paths below temporary directories, the lines in which
//! a harness numbers and times its output. Loose leaves out other numbers as well, except one that
//! says which error it is (`HTTP 503`, `exit code 2`).

use std::borrow::Cow;

const TIME: &[u8] = b"<time>";
const SPAN: &[u8] = b"<span>";
const ID: &[u8] = b"<id>";
const NUMBER: &[u8] = b"<n>";
const PATH: &[u8] = b"<tmp>";

/// Length of the escape sequence that sets a colour (or another one of its kind); 0 for none.
fn colour(text: &[u8]) -> usize {
    if !text.starts_with(b"\x1b[") {
        return usize::from(text.first() == Some(&0x1b));
    }
    let end = text[2..]
        .iter()
        .position(|byte| (0x40..=0x7e).contains(byte));
    end.map_or(text.len(), |end| end + 3)
}

/// The text without colours.
pub(super) fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return Cow::Borrowed(text);
    }
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(byte) = rest.first() {
        let used = colour(rest);
        if used == 0 {
            kept.push(*byte);
        }
        rest = &rest[used.max(1)..];
    }
    Cow::Owned(String::from_utf8_lossy(&kept).into_owned())
}

/// The strict normal form, up to about `limit` bytes of it.
pub(super) fn strict(text: &[u8], limit: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len().min(limit));
    let (mut at, mut gap, mut line_start) = (0, false, true);
    while at < text.len() && out.len() < limit {
        let rest = &text[at..];
        let colour = colour(rest);
        if colour > 0 {
            at += colour;
            continue;
        }
        if rest[0].is_ascii_whitespace() {
            gap = true;
            line_start |= rest[0] == b'\n';
            at += 1;
            continue;
        }
        if std::mem::take(&mut line_start) && is_of_harness(rest) {
            at += rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len());
            continue;
        }
        if std::mem::take(&mut gap) && !out.is_empty() {
            out.push(b' ');
        }
        let glued =
            at > 0 && (text[at - 1].is_ascii_alphanumeric() || b"/._-~".contains(&text[at - 1]));
        let (used, instead) = token(rest, glued);
        match instead {
            Some(Instead::All(word)) => out.extend_from_slice(word),
            Some(Instead::After(kept)) => {
                out.extend_from_slice(&rest[..kept]);
                out.extend_from_slice(NUMBER);
            }
            None => out.extend_from_slice(&rest[..used]),
        }
        at += used;
    }
    out
}

/// What is written instead of a token.
enum Instead {
    All(&'static [u8]),
    /// So many bytes of it, then a number.
    After(usize),
}

/// Lines with which a harness numbers and times its output.
fn is_of_harness(line: &[u8]) -> bool {
    let starts = |words: &[u8]| {
        let start = line.get(..words.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(words))
    };
    starts(b"chunk id:") || starts(b"wall time:") || starts(b"wall time ")
}

/// Length of the token that the text begins with, and what stands for it.
fn token(text: &[u8], glued: bool) -> (usize, Option<Instead>) {
    if text[0] == b'/' {
        let used = if glued { 0 } else { temporary(text) };
        return if used > 0 {
            (used, Some(Instead::All(PATH)))
        } else {
            (1, None)
        };
    }
    if !text[0].is_ascii_alphanumeric() {
        return (1, None);
    }
    if !glued {
        let used = windows_temporary(text);
        if used > 0 {
            return (used, Some(Instead::All(PATH)));
        }
    }
    for (shape, word) in [
        (uuid as fn(&[u8]) -> usize, ID),
        (date, TIME),
        (clock, TIME),
        (calendar, TIME),
        (duration, SPAN),
    ] {
        let used = shape(text);
        if used > 0 {
            return (used, Some(Instead::All(word)));
        }
    }
    let word = word(text);
    if is_id(&text[..word]) {
        return (word, Some(Instead::All(ID)));
    }
    let named = chunk(text, word);
    if named > 0 {
        return (named, Some(Instead::All(ID)));
    }
    let number = process(text, word);
    if number > 0 {
        let digits = digits(&text[number..]);
        return (number + digits, Some(Instead::After(number)));
    }
    let number = measured(text, word);
    if number > 0 {
        let used = number + decimal(&text[number..]);
        return (used, Some(Instead::After(number)));
    }
    (word, None)
}

fn word(text: &[u8]) -> usize {
    let end = text
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'));
    end.unwrap_or(text.len())
}

fn letters(text: &[u8]) -> usize {
    text.iter()
        .take_while(|byte| byte.is_ascii_alphabetic())
        .count()
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn path_end(text: &[u8]) -> usize {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`:,;()[]{}<>|".contains(byte);
    text.iter().position(ends).unwrap_or(text.len())
}

fn temporary(text: &[u8]) -> usize {
    const PLACES: [&[u8]; 5] = [
        b"/tmp/",
        b"/var/folders/",
        b"/var/tmp/",
        b"/private/tmp/",
        b"/private/var/folders/",
    ];
    let here = PLACES.iter().any(|place| text.starts_with(place));
    if here { path_end(text) } else { 0 }
}

fn windows_temporary(text: &[u8]) -> usize {
    let [drive, b':', b'\\' | b'/', rest @ ..] = text else {
        return 0;
    };
    let end = path_end(rest);
    let path = rest[..end].to_ascii_lowercase();
    let here = drive.is_ascii_alphabetic()
        && [&b"\\temp\\"[..], b"/temp/", b"\\tmp\\"]
            .iter()
            .any(|part| memchr::memmem::find(&path, part).is_some());
    if here { 3 + end } else { 0 }
}

fn uuid(text: &[u8]) -> usize {
    const LENGTH: usize = 36;
    let Some(start) = text.get(..LENGTH) else {
        return 0;
    };
    let sound = start.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let over = !text.get(LENGTH).is_some_and(u8::is_ascii_alphanumeric);
    if sound && over { LENGTH } else { 0 }
}

/// Whether a word is an id or an address: `0x7f..`, long hexadecimal, a long mix of letters and
/// digits, or digits enough for a time in seconds.
fn is_id(word: &[u8]) -> bool {
    if let [b'0', b'x' | b'X', rest @ ..] = word {
        return !rest.is_empty() && rest.iter().all(u8::is_ascii_hexdigit);
    }
    let count = |is: fn(&u8) -> bool, part: &[u8]| part.iter().filter(|byte| is(byte)).count();
    let numbers = count(u8::is_ascii_digit, word);
    if numbers == 0 {
        return false;
    }
    if numbers == word.len() {
        return numbers >= 10;
    }
    if word.len() >= 8 && word.iter().all(u8::is_ascii_hexdigit) {
        return true;
    }
    // `toolu_01A09q90qw90lq917835lq9`, `req_...`: what follows the last underscore.
    let part = word.rsplit(|byte| *byte == b'_').next().unwrap_or(word);
    part.len() >= 16
        && count(u8::is_ascii_digit, part) >= 2
        && count(u8::is_ascii_alphabetic, part) >= 2
}

/// A date of ISO 8601 (also with slashes), with the time of day if one follows.
fn date(text: &[u8]) -> usize {
    let shape = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let sound = (0..4).chain(5..7).chain(8..10).all(shape)
        && matches!(
            (text.get(4), text.get(7)),
            (Some(b'-'), Some(b'-')) | (Some(b'/'), Some(b'/'))
        );
    if !sound || shape(10) {
        return 0;
    }
    let joined = matches!(text.get(10), Some(b'T' | b' ' | b'_' | b't'));
    let time = text.get(11..).map_or(0, |rest| time_of_day(rest, false));
    if joined && time > 0 { 11 + time } else { 10 }
}

fn clock(text: &[u8]) -> usize {
    time_of_day(text, true)
}

/// `hh:mm:ss` with fraction and zone; `hh:mm` only where seconds may be left out, or before am, pm.
fn time_of_day(text: &[u8], with_seconds: bool) -> usize {
    let pair = |at: usize| {
        let two = text
            .get(at..at + 2)
            .filter(|two| two.iter().all(u8::is_ascii_digit));
        two.is_some_and(|two| two[0] < b'6') && !text.get(at + 2).is_some_and(u8::is_ascii_digit)
    };
    let hour = digits(text);
    if !(1..=2).contains(&hour) || text.get(hour) != Some(&b':') || !pair(hour + 1) {
        return 0;
    }
    let mut at = hour + 3;
    if text.get(at) == Some(&b':') && pair(at + 1) {
        at += 3;
        if matches!(text.get(at), Some(b'.' | b',')) {
            let fraction = digits(&text[at + 1..]);
            at += if fraction > 0 { 1 + fraction } else { 0 };
        }
    } else {
        let half = text[at..].strip_prefix(b" ").unwrap_or(&text[at..]);
        let named = half
            .get(..2)
            .is_some_and(|two| two.eq_ignore_ascii_case(b"am") || two.eq_ignore_ascii_case(b"pm"));
        if with_seconds && !named {
            return 0;
        }
    }
    match text.get(at) {
        Some(b'Z' | b'z') => at + 1,
        Some(b'+' | b'-') => {
            let zone = text[at + 1..]
                .iter()
                .take_while(|b| b.is_ascii_digit() || **b == b':');
            match zone.count() {
                zone @ (4 | 5) => at + 1 + zone,
                _ => at,
            }
        }
        _ => at,
    }
}

/// `Mon, 30 Nov`, `Nov 30`, `30 Nov 2026`: days with names.
fn calendar(text: &[u8]) -> usize {
    const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let named = |text: &[u8], names: &[&str]| {
        let length = letters(text);
        let short = length == 3 && names.iter().any(|name| text.starts_with(name.as_bytes()));
        if short { length } else { 0 }
    };
    let day = |text: &[u8]| {
        let digits = digits(text);
        if (1..=2).contains(&digits) { digits } else { 0 }
    };
    let blanks = |text: &[u8]| text.iter().take_while(|b| matches!(b, b' ' | b',')).count();
    let mut at = named(text, &DAYS);
    at += if at > 0 { blanks(&text[at..]) } else { 0 };
    let rest = &text[at..];
    let month = named(rest, &MONTHS);
    let used = if month > 0 {
        let gap = month + blanks(&rest[month..]);
        let day = day(&rest[gap..]);
        if day > 0 && gap > month { gap + day } else { 0 }
    } else {
        let day = day(rest);
        let gap = day + rest.get(day..).map_or(0, blanks);
        let month = named(&rest[gap..], &MONTHS);
        if day > 0 && gap > day && month > 0 {
            gap + month
        } else {
            0
        }
    };
    if used > 0 { at + used } else { 0 }
}

/// A number with a unit of time, also several in a row (`1m30s`).
fn duration(text: &[u8]) -> usize {
    const GLUED: [&str; 9] = ["ns", "us", "µs", "ms", "s", "m", "h", "sec", "min"];
    const APART: [&str; 14] = [
        "ms",
        "sec",
        "secs",
        "second",
        "seconds",
        "min",
        "mins",
        "minute",
        "minutes",
        "hour",
        "hours",
        "millisecond",
        "milliseconds",
        "µs",
    ];
    let unit = |text: &[u8], units: &[&str], more: bool| {
        let fits = |unit: &&&str| {
            let rest = text.strip_prefix(unit.as_bytes());
            rest.is_some_and(|rest| match rest.first() {
                Some(next) if next.is_ascii_digit() => more,
                next => !next.is_some_and(|next| next.is_ascii_alphabetic() || *next == b'_'),
            })
        };
        units
            .iter()
            .filter(fits)
            .map(|unit| unit.len())
            .max()
            .unwrap_or(0)
    };
    let mut at = 0;
    loop {
        let whole = digits(&text[at..]);
        if whole == 0 {
            return at;
        }
        let mut end = at + whole;
        if text.get(end) == Some(&b'.') {
            let fraction = digits(&text[end + 1..]);
            end += if fraction > 0 { 1 + fraction } else { 0 };
        }
        let glued = unit(&text[end..], &GLUED, true);
        if glued > 0 {
            at = end + glued;
            continue;
        }
        let apart = text[end..]
            .strip_prefix(b" ")
            .map_or(0, |rest| unit(rest, &APART, false));
        return if apart > 0 { end + 1 + apart } else { at };
    }
}

/// Where the number of a process or a port begins behind its word; 0 where there is none.
fn process(text: &[u8], word: usize) -> usize {
    const WORDS: [&[u8]; 6] = [b"pid", b"pgid", b"ppid", b"tid", b"port", b"ports"];
    if !WORDS
        .iter()
        .any(|name| text[..word].eq_ignore_ascii_case(name))
    {
        return 0;
    }
    let gap = text[word..]
        .iter()
        .take(3)
        .take_while(|byte| b" :=#(".contains(byte))
        .count();
    let at = word + gap;
    if gap > 0 && digits(&text[at..]) > 0 {
        at
    } else {
        0
    }
}

/// Length of a number with or without a fraction.
fn decimal(text: &[u8]) -> usize {
    let whole = digits(text);
    match text.get(whole) {
        Some(b'.') if whole > 0 => match digits(&text[whole + 1..]) {
            0 => whole,
            fraction => whole + 1 + fraction,
        },
        _ => whole,
    }
}

/// Length of the member by which Codex numbers a piece of output; 0 where there is none.
fn chunk(text: &[u8], word: usize) -> usize {
    const BEFORE: &[u8] = b"chunk_id\":\"";
    const MAX_VALUE: usize = 32;
    if &text[..word] != b"chunk_id" || !text.starts_with(BEFORE) {
        return 0;
    }
    let value = &text[BEFORE.len()..];
    let end = value.iter().take(MAX_VALUE).position(|byte| *byte == b'"');
    end.map_or(0, |end| BEFORE.len() + end)
}

/// Where a duration begins that a member of JSON holds; 0 where there is none.
fn measured(text: &[u8], word: usize) -> usize {
    const WORDS: [&[u8]; 8] = [
        b"duration",
        b"duration_ms",
        b"duration_seconds",
        b"durationMs",
        b"elapsed",
        b"elapsed_ms",
        b"elapsed_seconds",
        b"wall_time_seconds",
    ];
    if !WORDS.contains(&&text[..word]) || text.get(word) != Some(&b'"') {
        return 0;
    }
    let rest = &text[word + 1..];
    let gap = rest.iter().take(3).take_while(|byte| b" :".contains(byte));
    let at = word + 1 + gap.count();
    if at > word + 1 && digits(&text[at..]) > 0 {
        at
    } else {
        0
    }
}

/// The loose normal form of a strict one.
pub(super) fn loose(strict: &[u8]) -> Vec<u8> {
    /// Words whose number says which error it is, and how many numbers follow them.
    const TELLING: [(&[u8], u32); 7] = [
        (b"http", 3),
        (b"status", 1),
        (b"code", 1),
        (b"exit", 1),
        (b"errno", 1),
        (b"returncode", 1),
        (b"exit_code", 1),
    ];
    let mut out = Vec::with_capacity(strict.len());
    let (mut at, mut telling) = (0, 0);
    while at < strict.len() {
        let used = word(&strict[at..]);
        let token = &strict[at..at + used.max(1)];
        at += token.len();
        let number = used > 0 && token.iter().all(u8::is_ascii_digit);
        if number && telling == 0 {
            out.extend_from_slice(NUMBER);
            continue;
        }
        if number {
            telling -= 1;
        } else if used > 0 {
            let of = TELLING
                .iter()
                .find(|(name, _)| token.eq_ignore_ascii_case(name));
            telling = of.map_or(0, |(_, numbers)| *numbers);
        }
        out.extend_from_slice(token);
    }
    out
}

/// Whether a strict form says no more than that something failed.
pub(super) fn bare(strict: &[u8]) -> bool {
    const EMPTY_WORDS: [&str; 30] = [
        "exit",
        "exited",
        "code",
        "status",
        "error",
        "errors",
        "failed",
        "failure",
        "process",
        "command",
        "with",
        "the",
        "output",
        "stdout",
        "stderr",
        "returncode",
        "exit_code",
        "empty",
        "none",
        "null",
        "no",
        "false",
        "in",
        "span",
        "n",
        "original",
        "token",
        "count",
        "total",
        "lines",
    ];
    let text = String::from_utf8_lossy(strict);
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.filter(|word| !word.is_empty()).all(|word| {
        word.bytes().all(|byte| byte.is_ascii_digit())
            || EMPTY_WORDS
                .iter()
                .any(|empty| word.eq_ignore_ascii_case(empty))
    })
}
