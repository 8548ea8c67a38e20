//! What the formats of OpenAI have in common: the order of a conversation, how tools, calls and
//! results are written, the cache key, and what is sent to some models only.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;

use super::body::{List, put};
use super::foreign::{self, Ids};
use super::members::{object, said};
use super::{Ask, Format};
use crate::agent::machine::{Setup, ToolSpec};
use crate::agent::talk::{Answer, CallResult, Entry, ToolCall};
use crate::agent::text::quote;
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
    /// A result; the id is JSON.
    fn result(out: &mut String, id: &str, result: &CallResult);

    /// A text of the user.
    fn user(out: &mut String, text: &str);

    /// An answer of this model, with all that came.
    fn as_it_came(answer: &Answer, out: &mut List<'_>);

    /// An answer of another model, or of another format: its texts and its calls.
    fn anew(answer: &Answer, ids: &Ids, out: &mut List<'_>);
}

/// Adds the conversation; what goes on gives the same elements and further ones.
pub fn conversation<F: Elements>(format: &F, ask: &Ask<'_>, out: &mut List<'_>) {
    let mut ids = Ids::default();
    for (at, entry) in ask.entries.iter().enumerate() {
        match entry {
            Entry::User { results, texts } => {
                for result in results {
                    F::result(out.next(), &quote(ids.of(&result.call)), result);
                }
                for text in texts.iter().filter(|text| !text.trim().is_empty()) {
                    F::user(out.next(), text);
                }
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
    if let Some(aside) = ask.aside {
        F::user(out.next(), aside);
    }
}

/// What a result says, as JSON: these formats have no mark for a failure.
pub fn output(out: &mut String, result: &CallResult) {
    let text = result.text.json();
    match text.strip_prefix('"').filter(|_| result.is_error) {
        Some(rest) => put(out, &["\"Error: ", rest]),
        None => out.push_str(text),
    }
}

/// The members that declare a tool.
pub fn function(out: &mut String, tool: &ToolSpec) {
    let (name, description) = (quote(&tool.name), quote(&tool.description));
    put(
        out,
        &["\"name\":", &name, ",\"description\":", &description],
    );
    put(out, &[",\"parameters\":", &tool.schema]);
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
