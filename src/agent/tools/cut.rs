//! Long results lose their middle: what a command did first and how it ended say the most.

/// A text of at most `max` bytes: whole, or its head and its tail with a notice of how much is
/// missing between them. Characters stay whole.
#[must_use]
pub fn cut(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    // The number can only become shorter once it is known what is left out.
    let Some(room) = max.checked_sub(notice(text.len()).len()) else {
        return crate::text::prefix(&text, max).to_owned();
    };
    let head = crate::text::prefix(&text, room / 2);
    let tail = &text[text.ceil_char_boundary(text.len() - (room - room / 2))..];
    let notice = notice(text.len() - head.len() - tail.len());
    format!("{head}{notice}{tail}")
}

fn notice(left_out: usize) -> String {
    format!("\n[... {left_out} bytes left out ...]\n")
}
