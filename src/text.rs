//! Cutting text without breaking characters.

/// The longest prefix of `text` that is at most `max_bytes` long and ends on a character border.
#[must_use]
pub fn prefix(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::prefix;

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
