//! Which texts in messages of the user's role are the user's own.
//!
//! Harnesses put texts of their own there. In a message without results, a text is theirs when all
//! of it stands in tags that they are known to use. Beside results, where users seldom get to speak,
//! a text is theirs when all of it stands in any tags, or when the same text has stood beside
//! results before.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::provider::json::{blank, inside, unescape};
use crate::provider::view::{BlockKind, Message, RequestView};

/// Tags of harnesses, as seen in November 2026.
const TAGS: [&str; 18] = [
    "bash-stderr",
    "bash-stdout",
    "command-message",
    "environment_context",
    "environment_details",
    "ide_opened_file",
    "ide_selection",
    "local-command-caveat",
    "local-command-stderr",
    "local-command-stdout",
    "new-diagnostics",
    "post-tool-use-hook",
    "system-notification",
    "system-reminder",
    "system_reminder",
    "task-notification",
    "total_tokens",
    "user-prompt-submit-hook",
];
/// Longest name of a tag, in bytes.
const MAX_TAG: usize = 64;
/// Texts beside results that are remembered.
const BESIDE: usize = 256;

/// Texts that have stood beside results, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Beside(VecDeque<u64>);

impl Beside {
    /// Remembers a text; whether it was known.
    fn again(&mut self, text: &[u8]) -> bool {
        let hash = xxh3_64(text);
        if self.0.contains(&hash) {
            return true;
        }
        self.0.push_back(hash);
        self.keep(BESIDE);
        false
    }

    /// Forgets all but the newest.
    pub(super) fn keep(&mut self, most: usize) {
        while self.0.len() > most {
            self.0.pop_front();
        }
    }
}

/// Whether the user speaks in a message of the user's role.
pub(super) fn speaks(
    body: &[u8],
    view: &RequestView,
    message: &Message,
    beside: &mut Beside,
) -> bool {
    let range = message.blocks.start as usize..message.blocks.end as usize;
    let blocks = view.blocks.get(range).unwrap_or_default();
    let mut texts = blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Text)
        .filter_map(|block| Some(inside(block.content?.of(body))))
        .filter(|text| !blank(text))
        .peekable();
    if texts.peek().is_none() {
        return false;
    }
    if !blocks
        .iter()
        .any(|block| block.kind == BlockKind::ToolResult)
    {
        return texts.any(|text| !in_tags(text, true));
    }
    let mut speaks = false;
    for text in texts {
        speaks |= !in_tags(text, false) && !beside.again(text);
    }
    speaks
}

/// Whether a text, still escaped, is nothing but one or more elements with tags.
fn in_tags(text: &[u8], known: bool) -> bool {
    let text = trim(text);
    if text.starts_with(b"\\u003c") || text.starts_with(b"\\u003C") {
        let plain = unescape(text);
        return !plain.starts_with("\\u003") && elements(plain.as_bytes(), known);
    }
    elements(text, known)
}

fn elements(text: &[u8], known: bool) -> bool {
    let mut rest = trim(text);
    loop {
        let Some(behind) = element(rest, known) else {
            return false;
        };
        rest = trim(behind);
        if rest.is_empty() {
            return true;
        }
    }
}

/// What stands behind the element that the text begins with.
fn element(text: &[u8], known: bool) -> Option<&[u8]> {
    let inner = text.strip_prefix(b"<")?;
    let length = inner
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')))?;
    let name = &inner[..length];
    let sound = (1..=MAX_TAG).contains(&length) && name[0].is_ascii_alphabetic();
    if !sound || (known && !TAGS.iter().any(|tag| tag.as_bytes() == name)) {
        return None;
    }
    if !matches!(inner[length], b'>' | b' ' | b'\\' | b'\n' | b'\t') {
        return None;
    }
    let close = [b"</", name, b">"].concat();
    let at = memchr::memmem::find(inner, &close)?;
    Some(&inner[at + close.len()..])
}

/// Without white space at either end, escaped or not.
fn trim(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii();
        text = match text {
            [b'\\', b'n' | b'r' | b't', rest @ ..] => rest,
            [rest @ .., b'\\', b'n' | b'r' | b't'] if !rest.ends_with(b"\\") => rest,
            _ => return text,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::in_tags;

    #[test]
    fn only_what_stands_in_tags_from_end_to_end_is_the_harness() {
        for (text, known, any) in [
            (
                "<system-reminder>mind the time</system-reminder>",
                true,
                true,
            ),
            (r"\n <system-reminder>\nx\n</system-reminder>\n", true, true),
            (
                "<system-reminder>a</system-reminder> <new-diagnostics>b</new-diagnostics>",
                true,
                true,
            ),
            (
                r"\u003csystem-reminder\u003ex\u003c/system-reminder\u003e",
                true,
                true,
            ),
            (
                r#"<task-notification id=\"7\">done</task-notification>"#,
                true,
                true,
            ),
            ("<note>x</note>", false, true),
            (
                "<system-reminder>a</system-reminder> go on please",
                false,
                false,
            ),
            ("go on <system-reminder>a</system-reminder>", false, false),
            (
                "<system-reminder>a</system-reminder> no <system-reminder>b</system-reminder>",
                false,
                false,
            ),
            ("<system-reminder>never closed", false, false),
            ("<>x</>", false, false),
            ("< b>x</ b>", false, false),
            ("", false, false),
            ("<", false, false),
            ("<a", false, false),
        ] {
            assert_eq!(in_tags(text.as_bytes(), true), known, "{text}");
            assert_eq!(in_tags(text.as_bytes(), false), any, "{text}");
        }
    }
}
