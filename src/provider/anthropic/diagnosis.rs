//! The provider's own explanation of a cache miss: how it is asked for, and what its words mean.
//!
//! Source: provider docs and SDK types, Nov 2026. Generally available since 2026-09-23, without a
//! beta header. Only requests that carry the question can be compared with later, so it is to be
//! asked with every request, the first one included.

use crate::provider::view::{DIAGNOSIS_NONE, Diagnosis, QuestionSpelling};

/// How the question is written.
pub static QUESTION: QuestionSpelling = QuestionSpelling {
    before: br#""diagnostics":{"previous_message_id":"#,
    nothing: Some(b"null"),
    after: b"},",
};

/// What a word of [`crate::provider::view::Answer::native_diagnosis`] means, given that the
/// request named an answer to compare with.
#[must_use]
pub fn meaning(word: &str) -> Diagnosis {
    match word {
        DIAGNOSIS_NONE => Diagnosis::NoDifference,
        "model_changed" => Diagnosis::Model,
        "tools_changed" => Diagnosis::Tools,
        "system_changed" => Diagnosis::System,
        "messages_changed" => Diagnosis::Messages,
        "unavailable" => Diagnosis::Unavailable,
        // `previous_message_not_found` among them.
        _ => Diagnosis::Nothing,
    }
}
