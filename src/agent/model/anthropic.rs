//! Anthropic Messages.
//!
//! Two cache breakpoints: behind tools and system prompt, and at the end of the conversation, from
//! where the next request reads. The provider looks only a few blocks back from a breakpoint, so
//! after a turn of many blocks the one of the request before stays where it was. A text that is said
//! for one request stands behind the last of them, so that it is not written to the cache.

mod assemble;

use std::collections::HashSet;

use super::body::{Body, List, put};
use super::foreign::{self, Ids};
use super::members::object;
use super::{Ask, Assemble, Format, NO_TEXT, bearer};
use crate::agent::machine::ToolSpec;
use crate::agent::talk::{Answer, CallResult, Entry, Kind, ToolCall};
use crate::agent::text::quote;
use crate::provider::wire::Wire;

/// The version that this client speaks.
const VERSION: &str = "2023-06-01";

const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// Blocks that the provider looks back from a breakpoint, less two for safety.
const LOOKBACK: usize = 18;

/// The format.
#[derive(Debug, Clone, Copy, Default)]
pub struct Messages;

impl Format for Messages {
    fn wire(&self) -> Wire {
        Wire::Messages
    }

    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn headers(&self, key: &str) -> Vec<(&'static str, String)> {
        let version = ("anthropic-version", VERSION.to_owned());
        std::iter::once(version).chain(bearer(key)).collect()
    }

    fn request(&self, ask: &Ask<'_>) -> Vec<u8> {
        let setup = ask.setup;
        let mut body = Body::of(ask);
        body.member("max_tokens", ask.max_tokens);
        body.member("stream", true);
        if let Some(effort) = &setup.effort {
            body.member("output_config", format!("{{\"effort\":{}}}", quote(effort)));
        }
        // Without a system prompt the last tool is the end of what never changes.
        let system = !setup.system.trim().is_empty();
        body.tools(&setup.tools, declaration, if system { "" } else { MARKER });
        if system {
            body.list("system", |list| {
                text_block(list.next(), &quote(&setup.system));
                list.extend_last(MARKER);
            });
        }
        body.list("messages", |list| messages(ask, list));
        body.end()
    }

    fn assembler(&self, model: &str) -> Box<dyn Assemble> {
        Box::new(assemble::Making::new(model))
    }
}

fn declaration(out: &mut String, tool: &ToolSpec) {
    let (name, description) = (quote(&tool.name), quote(&tool.description));
    put(
        out,
        &["{\"name\":", &name, ",\"description\":", &description],
    );
    put(out, &[",\"input_schema\":", &tool.schema, "}"]);
}

fn messages(ask: &Ask<'_>, out: &mut List<'_>) {
    let entries = ask.entries;
    let marked = marked(entries);
    let aside = ask.aside.map(quote);
    let mut ids = Ids::default();
    for (at, entry) in entries.iter().enumerate() {
        match entry {
            Entry::User { results, texts } => message(out.next(), "user", |blocks| {
                user(results, texts, &ids, blocks);
                if marked.contains(&at) {
                    blocks.extend_last(MARKER);
                }
                if let Some(aside) = aside.as_ref().filter(|_| at + 1 == entries.len()) {
                    text_block(blocks.next(), aside);
                }
            }),
            Entry::Assistant(answer) => {
                ids.take(at, answer, answer.wire == Wire::Messages);
                message(out.next(), "assistant", |blocks| {
                    assistant(answer, &ids, &ask.setup.model, blocks);
                });
            }
        }
    }
    // Behind an answer, what is said for one request is a turn of its own.
    if let (Some(Entry::Assistant(_)), Some(aside)) = (entries.last(), aside) {
        message(out.next(), "user", |blocks| {
            text_block(blocks.next(), &aside);
        });
    }
}

fn message(out: &mut String, role: &str, write: impl FnOnce(&mut List<'_>)) {
    put(out, &["{\"role\":\"", role, "\",\"content\":"]);
    List::write(out, write);
    out.push('}');
}

/// The turns of the user at whose end a breakpoint stands: the newest, and the one before it where
/// the newest is too far away to find it.
fn marked(entries: &[Entry]) -> HashSet<usize> {
    let mut users = (0..entries.len())
        .rev()
        .filter(|at| matches!(entries[*at], Entry::User { .. }));
    let (newest, before) = (users.next(), users.next());
    let blocks = |entry: &Entry| match entry {
        Entry::User { results, texts } => results.len() + texts.len(),
        Entry::Assistant(answer) => answer.blocks.len(),
    };
    let far = match (before, newest) {
        (Some(before), Some(newest)) => {
            let between = &entries[before + 1..=newest];
            between.iter().map(blocks).sum::<usize>() > LOOKBACK
        }
        _ => false,
    };
    newest.into_iter().chain(before.filter(|_| far)).collect()
}

fn user(results: &[CallResult], texts: &[String], ids: &Ids, out: &mut List<'_>) {
    for result in results {
        tool_result(out.next(), result, ids);
    }
    // Older journals may hold texts that the provider refuses.
    for text in texts.iter().filter(|text| !text.trim().is_empty()) {
        text_block(out.next(), &quote(text));
    }
    if out.len() == 0 {
        text_block(out.next(), &quote(NO_TEXT));
    }
}

/// A block of a text, which is JSON.
fn text_block(out: &mut String, text: &str) {
    put(out, &["{\"type\":\"text\",\"text\":", text, "}"]);
}

fn tool_result(out: &mut String, result: &CallResult, ids: &Ids) {
    let id = quote(ids.of(&result.call));
    put(out, &["{\"type\":\"tool_result\",\"tool_use_id\":", &id]);
    put(out, &[",\"content\":", result.text.json()]);
    let end = if result.is_error {
        ",\"is_error\":true}"
    } else {
        "}"
    };
    out.push_str(end);
}

/// Its own blocks go back byte for byte. From another model of the provider reasoning is left out
/// as a whole, since its signature is bound to the model; from another format only texts and calls
/// are told.
fn assistant(answer: &Answer, ids: &Ids, model: &str, out: &mut List<'_>) {
    let own = answer.wire == Wire::Messages;
    let same_model = own && answer.model == model;
    for block in &answer.blocks {
        match &block.kind {
            Kind::Thinking if !same_model => {}
            kind if kind.is_blank() => {}
            _ if own => out.next().push_str(&block.raw),
            Kind::Text(text) => text_block(out.next(), &quote(text)),
            Kind::Call(call) => tool_use(out.next(), call, ids),
            Kind::Thinking | Kind::Other => {}
        }
    }
    if out.len() == 0 {
        // Nothing of the answer can be told here, and an empty message is refused.
        text_block(out.next(), &quote(NO_TEXT));
    }
}

fn tool_use(out: &mut String, call: &ToolCall, ids: &Ids) {
    let (id, name) = (quote(ids.of(&call.id)), quote(&foreign::name(&call.name)));
    put(
        out,
        &["{\"type\":\"tool_use\",\"id\":", &id, ",\"name\":", &name],
    );
    put(out, &[",\"input\":", &object(&call.input), "}"]);
}
