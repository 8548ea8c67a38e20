//! Anthropic Messages.
//!
//! Two cache breakpoints: behind tools and system prompt, and at the end of the conversation, from
//! where the next request reads. The provider looks only a few blocks back from a breakpoint, so
//! after a turn of many blocks the one of the request before stays where it was. A text that is said
//! for one request stands behind the last of them, so that it is not written to the cache.

mod assemble;

use std::collections::HashSet;

use super::body::Body;
use super::foreign::{self, Ids};
use super::members::{object, quote};
use super::{Ask, Assemble, Format, NO_TEXT, bearer};
use crate::agent::machine::ToolSpec;
use crate::agent::talk::{Answer, CallResult, Entry, Kind, ToolCall};
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
        let mut body = Body::of(setup);
        body.member("max_tokens", ask.max_tokens);
        body.member("stream", true);
        if let Some(effort) = &setup.effort {
            body.member("output_config", format!("{{\"effort\":{}}}", quote(effort)));
        }
        // Without a system prompt the last tool is the end of what never changes.
        let system = !setup.system.trim().is_empty();
        let mut tools: Vec<String> = setup.tools.iter().map(declaration).collect();
        if !system {
            mark(&mut tools);
        }
        body.tools(&tools);
        if system {
            let mut system = [text_block(&setup.system)];
            mark(&mut system);
            body.list("system", &system);
        }
        body.list("messages", &messages(ask));
        body.end()
    }

    fn assembler(&self, model: &str) -> Box<dyn Assemble> {
        Box::new(assemble::Making::new(model))
    }
}

/// Sets a breakpoint behind the last of these.
fn mark(blocks: &mut [String]) {
    if let Some(last) = blocks.last_mut() {
        last.insert_str(last.len() - 1, MARKER);
    }
}

fn declaration(tool: &ToolSpec) -> String {
    format!(
        "{{\"name\":{},\"description\":{},\"input_schema\":{}}}",
        quote(&tool.name),
        quote(&tool.description),
        tool.schema
    )
}

fn messages(ask: &Ask<'_>) -> Vec<String> {
    let entries = ask.entries;
    let marked = marked(entries);
    let aside = ask.aside.map(text_block);
    let mut out = Vec::with_capacity(entries.len() + 1);
    let mut ids = Ids::default();
    for (at, entry) in entries.iter().enumerate() {
        out.push(match entry {
            Entry::User { results, texts } => {
                let mut blocks = user(results, texts, &ids, marked.contains(&at));
                if at + 1 == entries.len() {
                    blocks.extend(aside.clone());
                }
                message("user", &blocks)
            }
            Entry::Assistant(answer) => {
                ids.take(at, answer, answer.wire == Wire::Messages);
                message("assistant", &assistant(answer, &ids, &ask.setup.model))
            }
        });
    }
    // Behind an answer, what is said for one request is a turn of its own.
    if let (Some(Entry::Assistant(_)), Some(aside)) = (entries.last(), aside) {
        out.push(message("user", &[aside]));
    }
    out
}

fn message(role: &str, blocks: &[String]) -> String {
    let length: usize = blocks.iter().map(|block| block.len() + 1).sum();
    let mut out = String::with_capacity(length + 64);
    out.push_str(&format!("{{\"role\":\"{role}\",\"content\":["));
    for (at, block) in blocks.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(block);
    }
    out.push_str("]}");
    out
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

fn user(results: &[CallResult], texts: &[String], ids: &Ids, marked: bool) -> Vec<String> {
    let mut blocks: Vec<String> = results
        .iter()
        .map(|result| tool_result(result, ids))
        .collect();
    // Older journals may hold texts that the provider refuses.
    let said = texts.iter().filter(|text| !text.trim().is_empty());
    blocks.extend(said.map(|text| text_block(text)));
    if blocks.is_empty() {
        blocks.push(text_block(NO_TEXT));
    }
    if marked {
        mark(&mut blocks);
    }
    blocks
}

fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quote(text))
}

fn tool_result(result: &CallResult, ids: &Ids) -> String {
    format!(
        "{{\"type\":\"tool_result\",\"tool_use_id\":{},\"content\":{}{}}}",
        quote(ids.of(&result.call)),
        quote(&result.text),
        if result.is_error {
            ",\"is_error\":true"
        } else {
            ""
        }
    )
}

/// Its own blocks go back byte for byte. From another model of the provider reasoning is left out
/// as a whole, since its signature is bound to the model; from another format only texts and calls
/// are told.
fn assistant(answer: &Answer, ids: &Ids, model: &str) -> Vec<String> {
    let own = answer.wire == Wire::Messages;
    let same_model = own && answer.model == model;
    let mut blocks = Vec::with_capacity(answer.blocks.len());
    for block in &answer.blocks {
        blocks.push(match &block.kind {
            Kind::Thinking if !same_model => continue,
            kind if kind.is_blank() => continue,
            _ if own => block.raw.clone(),
            Kind::Text(text) => text_block(text),
            Kind::Call(call) => tool_use(call, ids),
            Kind::Thinking | Kind::Other => continue,
        });
    }
    if blocks.is_empty() {
        // Nothing of the answer can be told here, and an empty message is refused.
        blocks.push(text_block(NO_TEXT));
    }
    blocks
}

fn tool_use(call: &ToolCall, ids: &Ids) -> String {
    format!(
        "{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{}}}",
        quote(ids.of(&call.id)),
        quote(&foreign::name(&call.name)),
        object(&call.input)
    )
}
