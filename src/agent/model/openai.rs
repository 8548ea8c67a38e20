//! What the formats of OpenAI have in common: the cache key, results, and what is sent to some models
//! only.

use xxhash_rust::xxh3::xxh3_64;

use super::members::quote;
use crate::agent::machine::Setup;
use crate::agent::talk::CallResult;
use crate::provider::openai::{caching, models};

/// Longest `prompt_cache_key` that is accepted.
const MAX_KEY: usize = 64;

/// A breakpoint of the prompt cache, as a member of a part of a message.
pub const BREAKPOINT: &str = r#","prompt_cache_breakpoint":{"mode":"explicit"}"#;

/// What is known of a model by its name. Other servers speak these formats too, and refuse what is
/// new in them, so what is OpenAI's alone is sent to its own models only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// One of OpenAI's, under its own name or behind that of a reseller.
    pub openai: bool,
    /// It may reason, so it may be asked for its reasoning.
    pub may_reason: bool,
    /// Its prompt cache takes breakpoints. Only under its own name: resellers need not pass them on.
    pub breakpoints: bool,
}

impl Family {
    /// The family of a model.
    pub fn of(model: &str) -> Self {
        Self {
            openai: models::is_own(model),
            may_reason: models::may_reason(model),
            breakpoints: !model.contains('/') && caching::rules(model, false).at_breakpoints,
        }
    }
}

/// The `prompt_cache_key` of an agent: requests of one key meet one cache.
pub fn cache_key(setup: &Setup) -> String {
    let key = format!("{}/{}", setup.run, setup.agent);
    if key.len() <= MAX_KEY {
        return key;
    }
    let hash = xxh3_64(key.as_bytes());
    let room = MAX_KEY - 17;
    format!("{}-{hash:016x}", crate::text::prefix(&key, room))
}

/// A result as text: these formats have no mark for a failure.
pub fn output(result: &CallResult) -> String {
    if result.is_error {
        quote(&format!("Error: {}", result.text))
    } else {
        quote(&result.text)
    }
}

/// The credential.
pub fn headers(key: &str) -> Vec<(&'static str, String)> {
    match key {
        "" => Vec::new(),
        key => vec![("authorization", format!("Bearer {key}"))],
    }
}
