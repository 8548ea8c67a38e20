//! Cutting text without breaking characters, and writing short ones cheaply.

/// The longest prefix of `text` that is at most `max_bytes` long and ends on a character border.
#[must_use]
pub fn prefix(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Appends a number in decimal, at a fraction of what formatting costs.
pub fn push_number(text: &mut String, number: u64) {
    text.push_str(itoa::Buffer::new().format(number));
}

/// Appends the last `places` decimal digits of a number, zeros included: what stands behind a point.
pub fn push_digits(text: &mut String, number: u64, places: u32) {
    for place in (0..places).rev() {
        let digit = number / 10_u64.saturating_pow(place) % 10;
        text.push(char::from(b'0' + digit as u8));
    }
}

/// A path with places in it: each word with the number behind it, and the end. Written several times
/// a turn.
#[must_use]
pub fn indexed(parts: &[(&str, u32)], end: &str) -> String {
    const DIGITS: usize = 10;
    let words = parts.iter().map(|(word, _)| word.len() + DIGITS);
    let mut text = String::with_capacity(words.sum::<usize>() + end.len());
    for (word, number) in parts {
        text.push_str(word);
        push_number(&mut text, u64::from(*number));
    }
    text.push_str(end);
    text
}

/// Longest quoted name that [`without_quotations`] keeps, in bytes.
const MAX_QUOTED_NAME: usize = 48;

/// A message without the foreign text that it quotes: each quotation becomes an ellipsis, except
/// names of fields and kinds (`messages.0.content`, `tool_use`), which are not content.
///
/// A quotation without an end reaches to the end of the message.
#[must_use]
pub fn without_quotations(message: &str) -> String {
    let mut kept = String::with_capacity(message.len());
    let mut rest = message;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        // An apostrophe inside a word opens nothing.
        let close = closing(first).filter(|_| !before.is_alphanumeric());
        kept.push(first);
        let Some(close) = close else {
            before = first;
            rest = after;
            continue;
        };
        let end = after.match_indices(close).map(|(at, _)| at).find(|at| {
            let next = after[at + close.len_utf8()..].chars().next();
            !next.is_some_and(char::is_alphanumeric)
        });
        let (quoted, beyond) = end.map_or((after, ""), |end| {
            (&after[..end], &after[end + close.len_utf8()..])
        });
        if end.is_some() && is_name(quoted) {
            kept.push_str(quoted);
        } else {
            kept.push('…');
        }
        if end.is_some() {
            kept.push(close);
        }
        before = close;
        rest = beyond;
    }
    kept
}

fn closing(open: char) -> Option<char> {
    match open {
        '\'' | '"' | '`' => Some(open),
        '‘' => Some('’'),
        '“' => Some('”'),
        _ => None,
    }
}

/// Lower-case words, joined as in a path; numbers only as whole steps of it.
fn is_name(text: &str) -> bool {
    let step = |step: &str| {
        let word = |b: u8| b.is_ascii_lowercase() || b == b'_';
        !step.is_empty() && (step.bytes().all(word) || step.bytes().all(|b| b.is_ascii_digit()))
    };
    text.len() <= MAX_QUOTED_NAME && text.split('.').all(step)
}

#[cfg(test)]
mod tests {
    use super::{prefix, without_quotations};

    #[test]
    fn e15_quoted_content_is_left_out_and_the_rest_of_a_message_kept() {
        for (message, kept) in [
            (
                "prompt is too long: 210000 tokens > 200000",
                "prompt is too long: 210000 tokens > 200000",
            ),
            (
                "between \"user\" and \"assistant\"",
                "between \"user\" and \"assistant\"",
            ),
            (
                "`tool_use` in `messages.0.content` isn't 'so'",
                "`tool_use` in `messages.0.content` isn't 'so'",
            ),
            (
                "x: 'my mail is a@b.c' doesn't match '^[a-z]+$'.",
                "x: '…' doesn't match '…'.",
            ),
            ("'it's mine' is bad", "'…' is bad"),
            ("tag \"Hunter\" and `hunter2`", "tag \"…\" and `…`"),
            ("“grüße” and ‘so’", "“…” and ‘so’"),
            ("cut 'in the mid", "cut '…"),
            ("", ""),
            ("'", "'…"),
        ] {
            assert_eq!(without_quotations(message), kept);
        }
    }

    /// E08: every byte of a multi-byte character falls on the limit once.
    #[test]
    fn e08_cuts_on_character_borders_only() {
        for sample in ["a→b", "🙂x", "e\u{301}é", "“”", ""] {
            for max in 0..=sample.len() + 1 {
                let cut = prefix(sample, max);
                assert!(cut.len() <= max && sample.starts_with(cut));
                assert!(sample.len() <= max || sample.len() - cut.len() > 0);
                assert!(max < sample.len() || cut == sample);
            }
        }
    }
}
