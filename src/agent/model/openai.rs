//! What the formats of OpenAI have in common: the order of a conversation, how tools, calls and
//! results are written, the cache key, and what is sent to some models only.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;

use super::foreign::{self, Ids};
use super::members::{object, quote, said};
use super::{Ask, Format};
use crate::agent::machine::{Setup, ToolSpec};
use crate::agent::talk::{Answer, CallResult, Entry, ToolCall};
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

/// The elements of a conversation, as a format writes them.
pub trait Elements: Format {
    /// A result; id and output are JSON.
    fn result(id: &str, output: &str) -> String;

    /// A text of the user.
    fn user(text: &str) -> String;

    /// An answer of this model, with all that came.
    fn as_it_came(answer: &Answer, out: &mut Vec<String>);

    /// An answer of another model, or of another format: its texts and its calls.
    fn anew(answer: &Answer, ids: &Ids, out: &mut Vec<String>);
}

/// Adds the conversation; what goes on gives the same elements and further ones.
pub fn conversation<F: Elements>(format: &F, ask: &Ask<'_>, out: &mut Vec<String>) {
    let mut ids = Ids::default();
    for (at, entry) in ask.entries.iter().enumerate() {
        match entry {
            Entry::User { results, texts } => {
                out.extend(results.iter().map(|result| {
                    let id = quote(ids.of(&result.call));
                    F::result(&id, &output(result))
                }));
                let said = texts.iter().filter(|text| !text.trim().is_empty());
                out.extend(said.map(|text| F::user(text)));
            }
            Entry::Assistant(answer) => {
                let own = answer.wire == format.wire() && answer.model == ask.setup.model;
                ids.take(at, answer, own);
                if own {
                    F::as_it_came(answer, out);
                } else {
                    F::anew(answer, &ids, out);
                }
            }
        }
    }
    out.extend(ask.aside.map(F::user));
}

/// A result as text: these formats have no mark for a failure.
fn output(result: &CallResult) -> String {
    if result.is_error {
        quote(&format!("Error: {}", result.text))
    } else {
        quote(&result.text)
    }
}

/// The members that declare a tool.
pub fn function(tool: &ToolSpec) -> String {
    format!(
        "\"name\":{},\"description\":{},\"parameters\":{}",
        quote(&tool.name),
        quote(&tool.description),
        tool.schema
    )
}

/// The members that tell what was called, and with what.
pub fn called(call: &ToolCall) -> String {
    format!(
        "\"name\":{},\"arguments\":{}",
        quote(&foreign::name(&call.name)),
        quote(&object(&call.input))
    )
}

/// What the arguments of a call say. They are a text; some servers give an object in its place.
pub fn arguments(json: &str) -> Cow<'_, str> {
    said(json).unwrap_or(Cow::Borrowed(json))
}

/// The input of a call from its arguments, all of them: none is an empty object.
pub fn input(arguments: &str) -> String {
    let blank = arguments.trim().is_empty();
    if blank { "{}" } else { arguments }.to_owned()
}

/// The `prompt_cache_key` of an agent as JSON: requests of one key meet one cache.
pub fn cache_key(setup: &Setup) -> String {
    let key = format!("{}/{}", setup.run, setup.agent);
    if key.len() <= MAX_KEY {
        return quote(&key);
    }
    let hash = xxh3_64(key.as_bytes());
    let room = MAX_KEY - 17;
    quote(&format!("{}-{hash:016x}", crate::text::prefix(&key, room)))
}
