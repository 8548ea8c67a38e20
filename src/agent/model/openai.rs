//! What the formats of OpenAI have in common: the cache key, results, and what the name of a model
//! says about the parameters that it takes.

use xxhash_rust::xxh3::xxh3_64;

use super::members::quote;
use crate::agent::machine::Setup;
use crate::agent::talk::CallResult;
use crate::provider::openai::caching::rules;

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
    /// It may reason. Those that never do refuse to be asked for their reasoning.
    pub may_reason: bool,
    /// Its prompt cache takes breakpoints. Only under its own name: resellers need not pass them on.
    pub breakpoints: bool,
}

impl Family {
    /// The family of a model.
    pub fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        let version = name.strip_prefix("gpt-").and_then(version);
        let thinker = name
            .strip_prefix('o')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let chat = name.starts_with("chatgpt");
        let old = version.is_some_and(|(major, _)| major < 5 || name.contains("-chat"));
        Self {
            openai: version.is_some() || thinker || chat || name.starts_with("codex"),
            may_reason: !(chat || old),
            breakpoints: name == model && rules(model, false).at_breakpoints,
        }
    }
}

/// `5.6-sol`, `5-mini`, `4o`: the numbers at the beginning.
fn version(rest: &str) -> Option<(u32, u32)> {
    let number = |text: &str| -> Option<(u32, usize)> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        Some((text[..digits].parse().ok()?, digits))
    };
    let (major, digits) = number(rest)?;
    let minor = rest[digits..].strip_prefix('.').and_then(number);
    Some((major, minor.map_or(0, |(minor, _)| minor)))
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
