//! Sub-agents without headers: a new conversation whose first words are the prompt of a pending
//! tool call was started by the thread that made the call.

use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Shorter strings (paths, names, flags) are too common to identify a prompt.
pub const MIN_PROMPT_BYTES: usize = 16;
/// At most this many strings of one tool input are remembered.
const MAX_STRINGS: usize = 8;

/// The top-level string values of a tool input that are long enough to be a prompt, unescaped.
/// Anything that is not a JSON object has none.
#[must_use]
pub fn prompts(input: &[u8]) -> Vec<String> {
    let Ok(members) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(input) else {
        return Vec::new();
    };
    members
        .values()
        .filter(|value| value.get().starts_with('"') && value.get().len() > MIN_PROMPT_BYTES)
        .filter_map(|value| serde_json::from_str::<String>(value.get()).ok())
        .filter(|text| text.trim().len() >= MIN_PROMPT_BYTES)
        .take(MAX_STRINGS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::prompts;

    #[test]
    fn only_long_top_level_strings_are_prompts() {
        let input = br#"{"description":"short","prompt":"Look at \"all\" of the files","n":12345678901234567890,"deep":{"x":"a string inside an object"}}"#;
        assert_eq!(prompts(input), [r#"Look at "all" of the files"#]);
        assert!(prompts(b"[1]").is_empty());
        assert!(prompts(br#"{"prompt":"cut in the mid"#).is_empty());
    }
}
