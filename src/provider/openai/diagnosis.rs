//! The provider's own explanation of a cache miss: how it is asked for, and what its words mean.
//!
//! Source: SDK types, Nov 2026 (Responses, from gpt-5.6 on). It is asked with the id of an earlier
//! answer to compare with; without one there is nothing to ask.

use crate::provider::view::{DIAGNOSIS_NONE, Diagnosis, QuestionSpelling};

/// How the question is written into a request that has no `prompt_cache_options`.
pub static QUESTION: QuestionSpelling = QUESTION_ALONE;

const QUESTION_ALONE: QuestionSpelling = QuestionSpelling {
    before: br#""prompt_cache_options":{"comparison_response_id":"#,
    nothing: None,
    after: b"},",
};

/// The same, which asks for half an hour as well: both stand in one member.
pub static QUESTION_30M: QuestionSpelling = QuestionSpelling {
    after: br#","ttl":"30m"},"#,
    ..QUESTION_ALONE
};

/// The same for twelve hours.
pub static QUESTION_12H: QuestionSpelling = QuestionSpelling {
    after: br#","ttl":"12h"},"#,
    ..QUESTION_ALONE
};

/// What a word of [`crate::provider::view::Answer::native_diagnosis`] means.
#[must_use]
pub fn meaning(word: &str) -> Diagnosis {
    match word {
        DIAGNOSIS_NONE => Diagnosis::NoDifference,
        "model_changed" => Diagnosis::Model,
        "tools_changed" => Diagnosis::Tools,
        "input_changed" | "context_compacted" => Diagnosis::Input,
        "prompt_cache_key_changed"
        | "text_format_changed"
        | "reasoning_effort_changed"
        | "verbosity_changed"
        | "service_tier_changed" => Diagnosis::Setting,
        "unavailable" => Diagnosis::Unavailable,
        // `comparison_response_not_found` among them.
        _ => Diagnosis::Nothing,
    }
}
