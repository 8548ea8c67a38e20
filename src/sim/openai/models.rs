//! The models of the OpenAI side. Its own data: it must be able to contradict the engine's.
//!
//! Source: SDK types and price tables, Nov 2026.

/// What the simulated provider knows of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// The id that answers carry.
    pub id: &'static str,
    /// The name it is usually asked by, where that differs.
    pub alias: Option<&'static str>,
    /// gpt-5.6 and later: breakpoints, lifetimes, billed writes, exact boundaries.
    pub breakpoints: bool,
    /// gpt-5.5 and later know no other `prompt_cache_retention` than `24h`.
    pub only_24h: bool,
    /// Largest input in tokens.
    pub context: u64,
    /// Largest output in tokens.
    pub max_output: u64,
    /// Efforts it takes; empty for a model that does not reason.
    pub efforts: &'static [&'static str],
    /// Makes vectors, not text.
    pub embeds: bool,
}

impl Model {
    /// Whether it reasons before it answers.
    #[must_use]
    pub fn reasons(&self) -> bool {
        !self.efforts.is_empty()
    }
}

const ALL: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const NEWEST: &[&str] = &["low", "medium", "high", "xhigh", "max"];
const CLASSIC: &[&str] = &["minimal", "low", "medium", "high"];

const fn new(id: &'static str) -> Model {
    Model {
        id,
        alias: None,
        breakpoints: true,
        only_24h: true,
        context: 922_000,
        max_output: 128_000,
        efforts: ALL,
        embeds: false,
    }
}

const fn newest(id: &'static str) -> Model {
    Model {
        efforts: NEWEST,
        ..new(id)
    }
}

const fn old(id: &'static str, alias: Option<&'static str>) -> Model {
    Model {
        alias,
        breakpoints: false,
        only_24h: false,
        context: 272_000,
        ..new(id)
    }
}

const fn classic(id: &'static str, alias: Option<&'static str>) -> Model {
    Model {
        efforts: CLASSIC,
        ..old(id, alias)
    }
}

const fn plain(id: &'static str, alias: &'static str, context: u64, max_output: u64) -> Model {
    Model {
        context,
        max_output,
        efforts: &[],
        ..old(id, Some(alias))
    }
}

const fn embedding(id: &'static str) -> Model {
    Model {
        alias: None,
        embeds: true,
        context: 8_192,
        max_output: 0,
        efforts: &[],
        ..old(id, None)
    }
}

/// All models, newest first; `test-*` exist only here.
pub const MODELS: &[Model] = &[
    newest("gpt-6.2-astra"),
    newest("gpt-6.2-sol"),
    new("gpt-6.1-sol"),
    new("gpt-6.1-terra"),
    new("gpt-6-astra"),
    new("gpt-6-sol"),
    new("gpt-6-luna"),
    new("gpt-5.6-sol"),
    new("gpt-5.6-terra"),
    new("gpt-5.6-luna"),
    Model {
        only_24h: true,
        context: 922_000,
        ..old("gpt-5.5-2026-04-23", Some("gpt-5.5"))
    },
    old("gpt-5.4", None),
    old("gpt-5.4-mini-2026-03-17", Some("gpt-5.4-mini")),
    old("gpt-5.2-2025-12-11", Some("gpt-5.2")),
    old("gpt-5.1-2025-11-13", Some("gpt-5.1")),
    classic("gpt-5.1-codex", None),
    classic("gpt-5-codex", None),
    classic("gpt-5-2025-08-07", Some("gpt-5")),
    classic("gpt-5-mini-2025-08-07", Some("gpt-5-mini")),
    classic("gpt-5-nano-2025-08-07", Some("gpt-5-nano")),
    classic("o4-mini-2025-04-16", Some("o4-mini")),
    classic("o3-2025-04-16", Some("o3")),
    plain("gpt-4.1-2025-04-14", "gpt-4.1", 1_014_808, 32_768),
    plain("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini", 1_014_808, 32_768),
    plain("gpt-4o-2024-08-06", "gpt-4o", 111_616, 16_384),
    plain("gpt-4o-mini-2024-07-18", "gpt-4o-mini", 111_616, 16_384),
    embedding("text-embedding-3-small"),
    embedding("text-embedding-3-large"),
    embedding("text-embedding-ada-002"),
    Model {
        efforts: &[],
        ..new("test-gpt")
    },
    plain("test-gpt-old-2026-01-01", "test-gpt-old", 272_000, 128_000),
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
    fn breakpoints_come_with_gpt_5_6() {
        for (id, breakpoints, only_24h) in [
            ("gpt-6.2-sol", true, true),
            ("gpt-5.6-luna", true, true),
            ("gpt-5.5", false, true),
            ("gpt-5.4", false, false),
            ("gpt-4o", false, false),
        ] {
            let model = find(id).unwrap();
            assert_eq!((model.breakpoints, model.only_24h), (breakpoints, only_24h));
        }
        assert!(find("claude-sonnet-5").is_none());
    }

    #[test]
    fn an_alias_is_answered_by_its_snapshot() {
        assert_eq!(find("gpt-5").unwrap().id, "gpt-5-2025-08-07");
        assert_eq!(find("gpt-5-2025-08-07").unwrap().id, "gpt-5-2025-08-07");
        assert!(!find("gpt-6.2-astra").unwrap().efforts.contains(&"minimal"));
    }
}
