//! Two versions of one block, byte by byte: where they part, in which value, and what happened.

use std::borrow::Cow;

use serde_json::Value;

use super::Seen;
use super::token::{self, classify};
use crate::prompt_cache::chain::compacted;
use crate::prompt_cache::keep::{PART_BYTES, head_of};
use crate::prompt_cache::verdict::{Excerpt, What};
use crate::provider::json::{Walker, inside, string_end, unescape};
use crate::provider::view::{Block, BlockKind, Form, Section, Span};
use crate::redact;

/// Of the new version this much is looked at: a whole kept block, and a window behind it.
const LOOK_BYTES: usize = PART_BYTES + 256;

/// Longest excerpt of one version, in bytes.
const EXCERPT_BYTES: usize = 40;

/// Of it, what stands before the value that differs.
const EXCERPT_LEAD: usize = 12;

/// A value that is longer than this before the difference is shown from inside.
const EXCERPT_TOKEN: usize = 24;

/// Longest name of a member that is put into a path; other names may be anything.
const MEMBER_BYTES: usize = 32;

/// Tags in which clients inject text of their own into messages (observed in agents' requests,
/// Nov 2026). Without the closing bracket, since some carry attributes.
const INJECTED: [&str; 5] = [
    "<system-reminder",
    "<system_reminder",
    "<environment_details",
    "<environment_context",
    "<additional_context",
];

/// How far behind a difference an injected tag may begin to count as what differs, in bytes.
const TAG_REACH: usize = 24;

/// What two versions differ in.
pub(super) struct Delta {
    pub(super) what: What,
    /// Of the value that differs.
    pub(super) path: String,
    /// Inside it.
    pub(super) offset: Option<u32>,
    /// The block's member that differs.
    pub(super) member: Option<String>,
    pub(super) excerpt: Option<Excerpt>,
    /// Nothing but one token differs.
    pub(super) lone: bool,
    pub(super) detail: &'static str,
}

/// Compares a block with the one of hash `old`; `None` if that is not known any more.
pub(super) fn delta(seen: &Seen<'_>, old: u64, block: &Block) -> Option<Delta> {
    let kept = seen.keep.get(old)?;
    let (old, new) = (kept.bytes, head_of(seen.body, block, LOOK_BYTES));
    let new = new.as_slice();
    let at = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let nowhere = |what, detail| Delta {
        what,
        path: value_path(seen, block),
        offset: None,
        member: None,
        excerpt: None,
        lone: true,
        detail,
    };
    if at == old.len() && !kept.whole {
        return Some(nowhere(
            What::Unknown,
            "it differs behind the part that is kept for comparing",
        ));
    }
    if at == old.len() && at == new.len() {
        return Some(nowhere(What::Text, "the same content under another role"));
    }
    let whole = kept.whole && new.len() < LOOK_BYTES;
    let found = locate(seen, block, at);
    let (what, detail) = what_of(old, new, at, whole);
    let (before, after) = (token::token(old, at), token::token(new, at));
    Some(Delta {
        what,
        path: found.path,
        offset: Some(found.offset),
        member: found.member,
        excerpt: seen.excerpts.then(|| excerpt(old, new, at, after.start)),
        lone: old[before.end..] == new[after.end..],
        detail,
    })
}

/// What happened, and the same in words.
fn what_of(old: &[u8], new: &[u8], at: usize, whole: bool) -> (What, &'static str) {
    if whole && let Some(spelling) = spelling(old, new, at) {
        return spelling;
    }
    match classify(old, new, at) {
        Some(What::Clock) => (What::Clock, "a date or time is another one"),
        Some(What::Id) => (What::Id, "an identifier is another one"),
        Some(What::Counter) => (What::Counter, "a number counted on"),
        _ if in_injected(old, at) || in_injected(new, at) => {
            (What::Reminder, "an injected reminder is another one")
        }
        _ => (What::Text, "it says something else"),
    }
}

/// Differences that say the same: escapes, the order of members, white space.
fn spelling(old: &[u8], new: &[u8], at: usize) -> Option<(What, &'static str)> {
    const ESCAPES: (What, &str) = (What::Escapes, "the same in another spelling");
    const REORDERED: (What, &str) = (What::KeyOrder, "the same members in another order");
    const SPACE: (What, &str) = (What::Whitespace, "only white space in a text differs");
    if old.first() == Some(&b'"') && new.first() == Some(&b'"') {
        let (old, new) = (unescape(old), unescape(new));
        if old == new {
            return Some(ESCAPES);
        }
        return alike_text(&old, &new, true).then_some(SPACE);
    }
    let parse = |json| serde_json::from_slice::<Value>(json).ok();
    let bare_and_object = match (old.first(), new.first()) {
        (Some(b'"'), _) => Some((old, new)),
        (_, Some(b'"')) => Some((new, old)),
        _ => None,
    };
    if let Some((bare, object)) = bare_and_object {
        let (text, object) = (unescape(bare), parse(object)?);
        let members = object.as_object()?;
        let same = members.values().any(|value| value.as_str() == Some(&text));
        let told = match members.len() {
            2 => REORDERED,
            _ => (What::Text, "the same text with other members beside it"),
        };
        return same.then_some(told);
    }
    let (before, after) = (parse(old)?, parse(new)?);
    if alike(&before, &after, false) {
        let keys = key_at(old, at).zip(key_at(new, at));
        let reordered = keys.is_some_and(|(a, b)| unescape(a) != unescape(b));
        return Some(if reordered { REORDERED } else { ESCAPES });
    }
    alike(&before, &after, true).then_some(SPACE)
}

fn alike_text(a: &str, b: &str, but_space: bool) -> bool {
    let visible = |c: &char| !c.is_whitespace();
    a == b || (but_space && a.chars().filter(visible).eq(b.chars().filter(visible)))
}

/// Whether two values say the same, whatever the order of their members and the spelling of
/// numbers; also if white space in texts differs.
fn alike(a: &Value, b: &Value, but_space: bool) -> bool {
    /// Up to here a float is exact, and so is "the same number".
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match (a, b) {
        (Value::String(a), Value::String(b)) => alike_text(a, b, but_space),
        (Value::Number(x), Value::Number(y)) => {
            (x == y && !x.is_f64())
                || matches!((x.as_f64(), y.as_f64()), (Some(x), Some(y)) if x == y && x.abs() < EXACT)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b, but_space))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, value)| b.get(key).is_some_and(|b| alike(value, b, but_space));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => a == b,
    }
}

/// The string at a place of compact JSON, if it is the key of a member.
fn key_at(json: &[u8], at: usize) -> Option<&[u8]> {
    let mut from = 0;
    while from <= at {
        let start = from + memchr::memchr(b'"', json.get(from..)?)?;
        let end = string_end(json, start + 1)?;
        if at < end {
            let key = json.get(end) == Some(&b':') && start <= at;
            return key.then(|| &json[start..end]);
        }
        from = end;
    }
    None
}

/// Whether a place lies in, or just before, text that a client injected.
fn in_injected(text: &[u8], at: usize) -> bool {
    let seen = &text[..text.len().min(at + TAG_REACH)];
    INJECTED.iter().any(|tag| {
        let Some(open) = memchr::memmem::rfind(seen, tag.as_bytes()) else {
            return false;
        };
        let mut close = vec![b'<', b'/'];
        close.extend_from_slice(&tag.as_bytes()[1..]);
        let inside = &text[open.min(at)..at];
        memchr::memmem::find(inside, &close).is_none()
    })
}

/// Whether a text block is nothing but injected text, by its canonical bytes.
pub(super) fn is_injected(block: &[u8]) -> bool {
    /// Other members may stand before the text.
    const HEAD: usize = 64;
    let head = &block[..block.len().min(HEAD)];
    let tag = |tag: &&str| memchr::memmem::find(head, tag.as_bytes()).is_some();
    INJECTED.iter().any(tag)
}

/// A place in a request.
struct Located {
    path: String,
    offset: u32,
    member: Option<String>,
}

/// Path of the value that says what a block says.
pub(super) fn value_path(seen: &Seen<'_>, block: &Block) -> String {
    let path = seen.view.path(block);
    if block.section == Section::Tools || block.form == Form::BareString {
        return path;
    }
    match block.content.and_then(|at| member_before(seen.body, at)) {
        Some(member) => format!("{path}.{member}"),
        None => path,
    }
}

/// Where the byte `at` of a block's canonical spelling stands in the request.
fn locate(seen: &Seen<'_>, block: &Block, at: usize) -> Located {
    let body = seen.body;
    let path = seen.view.path(block);
    let text = block.plain.filter(|_| block.content == block.plain);
    if let Some(text) = text.filter(|_| is_all_of(block)) {
        return Located {
            path: value_path(seen, block),
            offset: within_string(text, at),
            member: None,
        };
    }
    let on_block = |offset: usize, member| Located {
        path: path.clone(),
        offset: offset.min(block.span.len() as usize) as u32,
        member,
    };
    let Some(found) = member_of(body, block, at) else {
        return on_block(0, None);
    };
    let start = found.value.start as usize - block.span.start as usize;
    let raw = found.value.of(body);
    let is_string = raw.first() == Some(&b'"');
    let offset = match is_string {
        true => found.at,
        false => raw_offset(raw, found.at, block.compact),
    };
    let Some(name) = member_before(body, found.member) else {
        return on_block(start + offset, None);
    };
    if block.section == Section::Tools {
        return on_block(start + offset, Some(name.to_owned()));
    }
    let mut path = format!("{path}.{name}");
    // One text in an array says the same as the bare string; its place is told as it is written.
    if found.value != found.member {
        path.push_str("[0]");
        if let Some(inner) = member_before(body, found.value) {
            path.push('.');
            path.push_str(inner);
        }
    }
    Located {
        path,
        offset: match is_string {
            true => within_string(found.value, found.at),
            false => offset as u32,
        },
        member: Some(name.to_owned()),
    }
}

/// Whether the canonical spelling of a block is one bare string.
fn is_all_of(block: &Block) -> bool {
    block.kind == BlockKind::Text && block.plain.is_some()
}

fn within_string(string: Span, at: usize) -> u32 {
    let inside = string.len().saturating_sub(2);
    (at.saturating_sub(1)).min(inside as usize) as u32
}

struct Member {
    /// The member's value as it is written.
    member: Span,
    /// The value that stands for it in the canonical spelling.
    value: Span,
    /// The place inside the canonical spelling of the value.
    at: usize,
}

/// The member of a block in which the byte `at` of its canonical spelling stands.
fn member_of(body: &[u8], block: &Block, at: usize) -> Option<Member> {
    let raw = block.span.of(body);
    let mut walk = Walker::new(raw).ok()?;
    walk.enter(b'{').ok().filter(|entered| *entered)?;
    let (mut first, mut begin) = (true, 1);
    while walk.key(&mut first).ok()?.is_some() {
        let key = walk.key_start() as usize;
        let key_end = string_end(raw, key + 1)?;
        let value = walk.skip().ok()?;
        let member = Span {
            start: block.span.start + value.start,
            end: block.span.start + value.end,
        };
        if block
            .marker_member
            .is_some_and(|m| m.start as usize == block.span.start as usize + key)
        {
            continue;
        }
        let value = block
            .plain
            .filter(|_| block.content == Some(member))
            .unwrap_or(member);
        let start = begin + (key_end - key) + 1;
        let len = compact_len(value.of(body), block.compact || value != member);
        if at < start {
            return None;
        }
        let scalar = !matches!(value.of(body).first(), Some(b'"' | b'{' | b'['));
        if at < start + len || (scalar && at == start + len) {
            return Some(Member {
                member,
                value,
                at: at - start,
            });
        }
        begin = start + len + 1;
    }
    None
}

fn compact_len(json: &[u8], compact: bool) -> usize {
    let mut len = 0;
    compacted(json, compact, &mut |part| len += part.len());
    len
}

/// Where the byte `at` of the compact spelling of a value stands in it as it is written.
fn raw_offset(json: &[u8], at: usize, compact: bool) -> usize {
    if compact {
        return at;
    }
    let (mut before, mut found) = (0, None);
    let base = json.as_ptr().addr();
    compacted(json, false, &mut |part: &[u8]| {
        if found.is_none() && at < before + part.len() {
            found = Some(part.as_ptr().addr() - base + at - before);
        }
        before += part.len();
    });
    found.unwrap_or(json.len())
}

/// The name of the member whose value stands at `value`, if it is fit for a path.
fn member_before(body: &[u8], value: Span) -> Option<&str> {
    let before = body.get(..value.start as usize)?.trim_ascii_end();
    let before = before.strip_suffix(b":")?.trim_ascii_end();
    let before = before.strip_suffix(b"\"")?;
    let from = before.len().saturating_sub(MEMBER_BYTES + 1);
    let start = from + memchr::memrchr(b'"', &before[from..])? + 1;
    let name = std::str::from_utf8(&before[start..]).ok()?;
    let fit = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (!name.is_empty() && name.bytes().all(fit)).then_some(name)
}

/// Windows of both versions. `token` is where the differing value begins in both.
fn excerpt(old: &[u8], new: &[u8], at: usize, token: usize) -> Excerpt {
    let value = match at - token.min(at) <= EXCERPT_TOKEN {
        true => token,
        false => at,
    };
    let start = value.saturating_sub(EXCERPT_LEAD);
    let cut = |text: &[u8]| {
        // The quotes of a bare text are no part of it.
        let (text, start) = match text.first() {
            Some(b'"') => (inside(text), start.saturating_sub(1)),
            _ => (text, start),
        };
        let start = start.min(text.len());
        let window = &text[start..text.len().min(start + EXCERPT_BYTES)];
        let shown = on_borders(window);
        let start = start + continued(window);
        // A window shows pieces of what is only recognised whole.
        redact::built_in().part(&same_length(text), start..start + shown.len())
    };
    Excerpt {
        before: cut(old),
        after: cut(new),
    }
}

/// How many bytes of a character that has begun before it a window begins with.
fn continued(window: &[u8]) -> usize {
    let cut = window.iter().take_while(|b| **b & 0xC0 == 0x80).count();
    cut.min(3)
}

/// Bytes as a text of the same length: what is no text is replaced byte by byte.
fn same_length(bytes: &[u8]) -> Cow<'_, str> {
    let mut rest = match std::str::from_utf8(bytes) {
        Ok(text) => return Cow::Borrowed(text),
        Err(_) => bytes,
    };
    let mut text = String::with_capacity(bytes.len());
    while let Err(error) = std::str::from_utf8(rest) {
        let valid = &rest[..error.valid_up_to()];
        text.push_str(std::str::from_utf8(valid).unwrap_or_default());
        text.push('?');
        rest = &rest[valid.len() + 1..];
    }
    text.push_str(std::str::from_utf8(rest).unwrap_or_default());
    Cow::Owned(text)
}

/// The window without characters that its ends cut. What is no text at all ends it.
fn on_borders(window: &[u8]) -> &str {
    let window = &window[continued(window)..];
    match std::str::from_utf8(window) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&window[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The place of a block in words that need no text: used where the bytes are gone.
pub(super) fn unknown(seen: &Seen<'_>, block: &Block) -> Delta {
    Delta {
        what: What::Unknown,
        path: value_path(seen, block),
        offset: None,
        member: None,
        excerpt: None,
        lone: false,
        detail: "it differs; its previous text is not known any more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_compact_json_are_found_in_what_is_written() {
        let json = br#"{ "a" : [ 1,  2 ], "b" : "x y" }"#;
        let mut compact = Vec::new();
        compacted(json, false, &mut |part| compact.extend_from_slice(part));
        for (at, byte) in compact.iter().enumerate() {
            assert_eq!(json[raw_offset(json, at, false)], *byte, "{at}");
        }
        assert_eq!(raw_offset(json, compact.len(), false), json.len());
    }

    #[test]
    fn keys_are_told_from_values() {
        let json = br#"{"a":"b","c\"d":["e"]}"#;
        let key = |at| key_at(json, at).map(|k| std::str::from_utf8(k).unwrap());
        assert_eq!(key(2), Some("\"a\""));
        assert_eq!(key(6), None);
        assert_eq!(key(11), Some(r#""c\"d""#));
        assert_eq!(key(18), None);
        assert_eq!(key(json.len() - 1), None);
    }

    #[test]
    fn excerpts_are_cut_on_characters() {
        for shift in 0..4 {
            let lead = format!("\"{}{}", "x".repeat(shift), "→".repeat(40));
            let (old, new) = (format!("{lead}alt→→→\""), format!("{lead}neu→→→\""));
            let windows = excerpt(old.as_bytes(), new.as_bytes(), lead.len(), lead.len());
            assert!(windows.before.contains("alt") && windows.after.contains("neu"));
            assert!(windows.before.len() <= EXCERPT_BYTES && windows.after.len() <= EXCERPT_BYTES);
            assert!(!windows.after.contains('\u{fffd}'));
        }
    }

    #[test]
    fn e15_excerpts_show_no_piece_of_a_secret() {
        let key = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfGhIjKlMnOpQrStUvWxYz";
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----",
            "MIIEvQIBADANBg".repeat(60)
        );
        for secret in [key, &pem] {
            for at in (0..secret.len()).step_by(7) {
                let old = format!("\"use {secret} now\"");
                let mut new = old.clone().into_bytes();
                new[5 + at] = if new[5 + at] == b'x' { b'y' } else { b'x' };
                let windows = excerpt(old.as_bytes(), &new, 5 + at, 5);
                let shown = windows.before.replace("[redacted:", "");
                let piece = |from: usize| secret.get(from..from + 8);
                for piece in (0..secret.len())
                    .filter_map(piece)
                    .filter(|p| !p.contains(' '))
                {
                    assert!(!shown.contains(piece), "{shown} shows {piece}");
                }
            }
        }
        // Bytes that are no text move nothing.
        let old = [b"\"a\xFF\xFFb mail jo@example.org is ", "1\"".as_bytes()].concat();
        let windows = excerpt(&old, &old, old.len() - 2, old.len() - 2);
        assert_eq!(windows.before, "[redacted:mail] is 1");
    }

    #[test]
    fn injected_text_is_recognised_by_its_tag() {
        let text =
            b"a <system-reminder>be brief</system-reminder> and more text behind it, far away";
        assert!(in_injected(text, 20) && in_injected(text, 2) && !in_injected(text, 60));
        assert!(in_injected(b"x<environment_details>", 1));
        assert!(!in_injected(b"plain", 3));
    }
}
