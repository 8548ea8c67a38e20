//! The models the simulated provider serves. Its own data: it must be able to contradict the engine's.
//!
//! Source: provider docs and SDK types, Aug to Nov 2026.

/// What the simulated provider knows of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// The id that answers carry.
    pub id: &'static str,
    /// Other accepted spelling.
    pub alias: Option<&'static str>,
    /// Smallest cacheable prefix in tokens; below it nothing is cached and nothing is said.
    pub min_cache_tokens: u64,
    /// Context window in tokens.
    pub context: u64,
    /// Largest `max_tokens`.
    pub max_output: u64,
    /// Thinking blocks are valid only after the exact conversation they were written for; thinking
    /// cannot be switched off and tool use cannot be forced.
    pub binds_thinking: bool,
    /// Thinking of earlier turns stays in the prompt after a new user text (Opus 4.5, Sonnet 4.6 and
    /// newer); without it, old thinking is taken out and the prefix changes there.
    pub keeps_thinking: bool,
    /// `role: "system"` inside the conversation is accepted.
    pub mid_system: bool,
    /// The conversation may end in an assistant text that is to be continued.
    pub prefill: bool,
    /// Has a fast mode.
    pub fast: bool,
}

const M1: u64 = 1_000_000;

/// The newest families: bound thinking.
const fn bound(id: &'static str, fast: bool) -> Model {
    Model {
        id,
        alias: None,
        min_cache_tokens: 512,
        context: M1,
        max_output: 128_000,
        binds_thinking: true,
        keeps_thinking: true,
        mid_system: true,
        prefill: false,
        fast,
    }
}

const fn plain(id: &'static str, min_cache_tokens: u64, mid_system: bool, fast: bool) -> Model {
    Model {
        min_cache_tokens,
        binds_thinking: false,
        mid_system,
        ..bound(id, fast)
    }
}

const fn old(id: &'static str, alias: &'static str, min_cache_tokens: u64, keeps: bool) -> Model {
    Model {
        alias: Some(alias),
        context: 200_000,
        max_output: 64_000,
        keeps_thinking: keeps,
        prefill: true,
        ..plain(id, min_cache_tokens, false, false)
    }
}

/// A model of the tests: no binding, everything allowed.
const fn test(id: &'static str, min_cache_tokens: u64) -> Model {
    Model {
        prefill: true,
        ..plain(id, min_cache_tokens, true, true)
    }
}

/// All models, newest first; `test-*` exist only here.
pub const MODELS: &[Model] = &[
    bound("claude-fable-5-2", true),
    bound("claude-mythos-5-2", true),
    bound("claude-fable-5-1", false),
    bound("claude-mythos-5-1", false),
    bound("claude-opus-5-5", true),
    bound("claude-sonnet-5-5", false),
    bound("claude-haiku-5-5", false),
    plain("claude-fable-5", 512, true, false),
    plain("claude-mythos-5", 512, true, false),
    plain("claude-opus-5", 512, true, true),
    plain("claude-sonnet-5", 1_024, false, false),
    plain("claude-opus-4-8", 1_024, true, true),
    plain("claude-opus-4-7", 2_048, false, false),
    plain("claude-opus-4-6", 4_096, false, false),
    plain("claude-sonnet-4-6", 1_024, false, false),
    old("claude-opus-4-5-20251101", "claude-opus-4-5", 4_096, true),
    old(
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5",
        1_024,
        false,
    ),
    old(
        "claude-haiku-4-5-20251001",
        "claude-haiku-4-5",
        4_096,
        false,
    ),
    test("test-sonnet", 1_024),
    test("test-small", 4_096),
];

/// Finds a model by id or alias.
#[must_use]
pub fn find(id: &str) -> Option<&'static Model> {
    MODELS
        .iter()
        .find(|model| model.id == id || model.alias == Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_sizes_follow_the_documented_table() {
        for (id, min) in [
            ("claude-sonnet-5-5", 512),
            ("claude-sonnet-5", 1_024),
            ("claude-opus-4-7", 2_048),
            ("claude-opus-4-6", 4_096),
            ("claude-haiku-4-5", 4_096),
            ("test-sonnet", 1_024),
            ("test-small", 4_096),
        ] {
            assert_eq!(find(id).unwrap().min_cache_tokens, min, "{id}");
        }
        assert!(find("claude-2").is_none());
    }

    #[test]
    fn only_the_newest_models_bind_thinking() {
        let bound: Vec<_> = MODELS
            .iter()
            .filter(|m| m.binds_thinking)
            .map(|m| m.id)
            .collect();
        assert_eq!(bound.len(), 7);
        assert!(bound.contains(&"claude-fable-5-1") && !bound.contains(&"claude-fable-5"));
        assert!(!find("claude-haiku-4-5").unwrap().keeps_thinking);
    }
}
