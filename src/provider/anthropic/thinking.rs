//! Which models keep earlier reasoning in the prompt.
//!
//! Source: provider docs on extended thinking and what invalidates the cache, Aug 2026: Opus from
//! 4.5, Sonnet from 4.6 and all newer families keep it. Older models, and Haiku up to 4.5, leave
//! out what they thought before the newest user message that is no batch of tool results, and
//! with it change the prefix from there on.

/// Whether a model leaves earlier thinking out when a new user text comes. Names of other clouds
/// (`us.anthropic.claude-sonnet-4-5-20250929-v1:0`) and other spellings (`claude-sonnet-4.5`) are
/// understood; of models that are not known, nothing is assumed.
#[must_use]
pub fn drops_thinking(model: &str) -> bool {
    let Some((_, name)) = model.rsplit_once("claude-") else {
        return false;
    };
    let mut words = name.split(['-', '.', '@', ':', '/', '_']);
    let family = words.next().unwrap_or_default();
    if family.starts_with(|c: char| c.is_ascii_digit()) {
        // `claude-3-7-sonnet`: the old order of words, and none of them kept it.
        return true;
    }
    // A date is no version.
    let number = |word: Option<&str>| -> Option<u32> {
        word.filter(|word| word.len() <= 2)
            .and_then(|word| word.parse().ok())
    };
    let Some(major) = number(words.next()) else {
        return false;
    };
    let version = (major, number(words.next()).unwrap_or(0));
    match family {
        "opus" => version < (4, 5),
        "sonnet" => version < (4, 6),
        "haiku" => version <= (4, 5),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::drops_thinking;

    #[test]
    fn the_line_runs_through_the_families() {
        for (model, drops) in [
            ("claude-3-7-sonnet-20250219", true),
            ("claude-opus-4-20250514", true),
            ("claude-opus-4-1-20250805", true),
            ("claude-opus-4-5-20251101", false),
            ("claude-opus-5", false),
            ("claude-sonnet-4-0", true),
            ("claude-sonnet-4-5-20250929", true),
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", true),
            ("anthropic/claude-sonnet-4.5", true),
            ("claude-sonnet-4-5@20250929", true),
            ("claude-sonnet-4-6", false),
            ("claude-sonnet-5-5", false),
            ("claude-haiku-4-5", true),
            ("claude-haiku-5-5", false),
            ("claude-fable-5-2", false),
            ("claude-opus", false),
            ("gpt-5", false),
            ("test-sonnet", false),
        ] {
            assert_eq!(drops_thinking(model), drops, "{model}");
        }
    }
}
