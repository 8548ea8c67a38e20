//! Words of a harness behind the result of a tool: `<system-reminder>...</system-reminder>` at its
//! end. They are no part of what the tool has said, so that a harness may tell its model of a loop
//! in the result without hiding the loop from whoever compares results.

const OPEN: &str = "<system-reminder>";
const CLOSE: &str = "</system-reminder>";

/// Words of a client's own as they stand behind a result, from the line break before them on.
#[must_use]
pub fn reminder(words: &str) -> String {
    format!("\n{OPEN}{words}{CLOSE}")
}

/// What a tool has said itself: the inside of a JSON string, still escaped, without the reminder at
/// its end and one line break before that. Where there is nothing else, the reminder is the result.
pub(super) fn own(text: &[u8]) -> &[u8] {
    let mut end = text;
    while let Some(shorter) = end.strip_suffix(b"\\n").or(end.strip_suffix(b" ")) {
        end = shorter;
    }
    let Some(before) = end.strip_suffix(CLOSE.as_bytes()) else {
        return text;
    };
    let Some(at) = memchr::memmem::rfind(before, OPEN.as_bytes()) else {
        return text;
    };
    let kept = &text[..at];
    let kept = match kept.strip_suffix(b"\\n") {
        // Behind another backslash it is an n.
        Some(line) if trailing_backslashes(line).is_multiple_of(2) => line,
        _ => kept,
    };
    if kept.is_empty() { text } else { kept }
}

fn trailing_backslashes(text: &[u8]) -> usize {
    let last = text.iter().rev();
    last.take_while(|byte| **byte == b'\\').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reminder_at_the_end_is_left_out() {
        for (text, kept) in [
            (
                r"ENOENT\n<system-reminder>3 times</system-reminder>",
                r"ENOENT",
            ),
            (r"a\n\n<system-reminder>x</system-reminder>\n", r"a\n"),
            (r"a<system-reminder>\nx\n</system-reminder> ", r"a"),
            (r"C:\\\n<system-reminder>x</system-reminder>", r"C:\\"),
            (r"C:\\n<system-reminder>x</system-reminder>", r"C:\\n"),
            (
                r"<system-reminder>x</system-reminder> a\n<system-reminder>y</system-reminder>",
                r"<system-reminder>x</system-reminder> a",
            ),
        ] {
            assert_eq!(own(text.as_bytes()), kept.as_bytes(), "{text}");
        }
        for text in [
            "",
            r"a\n",
            r"<system-reminder>x</system-reminder>",
            r"\n<system-reminder>x</system-reminder>",
            r"<system-reminder>x</system-reminder> and more",
            r"a</system-reminder>",
            r"a\n<system-reminder>x</system-reminder>\\n",
        ] {
            assert_eq!(own(text.as_bytes()), text.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_a_client_puts_behind_a_result_is_left_out_again() {
        let raw = serde_json::to_string(&format!("a \"b\"\n{}", reminder("again"))).unwrap();
        let inside = raw.trim_matches('"');
        assert_eq!(own(inside.as_bytes()), br#"a \"b\"\n"#);
    }
}
