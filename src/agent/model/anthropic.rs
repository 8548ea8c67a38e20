//! Anthropic Messages.
//!
//! Two cache breakpoints: behind tools and system prompt, and at the end of the conversation, from
//! where the next request reads. A text that is said for one request stands behind the second, so
//! that it is not written to the cache.

mod assemble;

use serde_json::value::RawValue;

use super::members::quote;
use super::{Ask, Assemble, Format};
use crate::agent::machine::Setup;
use crate::agent::talk::{Answer, CallResult, Entry, Kind, ToolCall};
use crate::provider::wire::Wire;

/// The version that this client speaks.
const VERSION: &str = "2023-06-01";

const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

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
        vec![
            ("authorization", format!("Bearer {key}")),
            ("anthropic-version", VERSION.to_owned()),
        ]
    }

    fn request(&self, ask: &Ask<'_>) -> Vec<u8> {
        let setup = ask.setup;
        let mut out = String::with_capacity(4096);
        out.push_str("{\"model\":");
        out.push_str(&quote(&setup.model));
        out.push_str(&format!(
            ",\"max_tokens\":{},\"stream\":true",
            ask.max_tokens
        ));
        if let Some(effort) = &setup.effort {
            out.push_str(&format!(
                ",\"output_config\":{{\"effort\":{}}}",
                quote(effort)
            ));
        }
        tools(&mut out, setup);
        out.push_str(",\"system\":[{\"type\":\"text\",\"text\":");
        out.push_str(&quote(&setup.system));
        out.push_str(MARKER);
        out.push_str("}],\"messages\":[");
        messages(&mut out, ask);
        out.push_str("]}");
        out.into_bytes()
    }

    fn assembler(&self, model: &str) -> Box<dyn Assemble> {
        Box::new(assemble::Making::new(model))
    }
}

fn tools(out: &mut String, setup: &Setup) {
    if setup.tools.is_empty() {
        return;
    }
    out.push_str(",\"tools\":[");
    for (at, tool) in setup.tools.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&format!(
            "{{\"name\":{},\"description\":{},\"input_schema\":{}}}",
            quote(&tool.name),
            quote(&tool.description),
            tool.schema
        ));
    }
    out.push(']');
}

fn messages(out: &mut String, ask: &Ask<'_>) {
    let entries = ask.entries;
    let marked = entries
        .iter()
        .rposition(|entry| matches!(entry, Entry::User { .. }));
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        match entry {
            Entry::User { results, texts } => {
                out.push_str("{\"role\":\"user\",\"content\":[");
                user(out, results, texts, marked == Some(at));
                if let (true, Some(aside)) = (at + 1 == entries.len(), ask.aside) {
                    out.push_str(",{\"type\":\"text\",\"text\":");
                    out.push_str(&quote(aside));
                    out.push('}');
                }
            }
            Entry::Assistant(answer) => {
                out.push_str("{\"role\":\"assistant\",\"content\":[");
                assistant(out, answer, &ask.setup.model);
            }
        }
        out.push_str("]}");
    }
    // Behind an answer, what is said for one request is a turn of its own.
    if let (Some(Entry::Assistant(_)), Some(aside)) = (entries.last(), ask.aside) {
        out.push_str(",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":");
        out.push_str(&quote(aside));
        out.push_str("}]}");
    }
}

fn user(out: &mut String, results: &[CallResult], texts: &[String], marked: bool) {
    let last = (results.len() + texts.len()).saturating_sub(1);
    let mut at = 0;
    let mut end = |out: &mut String| {
        if marked && at == last {
            out.push_str(MARKER);
        }
        out.push('}');
        if at < last {
            out.push(',');
        }
        at += 1;
    };
    for result in results {
        out.push_str("{\"type\":\"tool_result\",\"tool_use_id\":");
        out.push_str(&quote(&result.call));
        out.push_str(",\"content\":");
        out.push_str(&quote(&result.text));
        if result.is_error {
            out.push_str(",\"is_error\":true");
        }
        end(out);
    }
    for text in texts {
        out.push_str("{\"type\":\"text\",\"text\":");
        out.push_str(&quote(text));
        end(out);
    }
}

/// Its own blocks go back byte for byte. From another model of the provider reasoning is left out
/// as a whole, since its signature is bound to the model; from another format only texts and calls
/// are told.
fn assistant(out: &mut String, answer: &Answer, model: &str) {
    let own = answer.wire == Wire::Messages;
    let same_model = own && answer.model == model;
    let mut first = true;
    for block in &answer.blocks {
        let written = match &block.kind {
            Kind::Thinking if !same_model => continue,
            _ if own => block.raw.clone(),
            Kind::Text(text) => format!("{{\"type\":\"text\",\"text\":{}}}", quote(text)),
            Kind::Call(call) => tool_use(call),
            Kind::Thinking | Kind::Other => continue,
        };
        if !first {
            out.push(',');
        }
        first = false;
        out.push_str(&written);
    }
    if first {
        // Nothing of the answer can be told here, and an empty message is refused.
        out.push_str("{\"type\":\"text\",\"text\":\"(no text)\"}");
    }
}

fn tool_use(call: &ToolCall) -> String {
    format!(
        "{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{}}}",
        quote(&call.id),
        quote(&call.name),
        object(&call.input)
    )
}

/// The input as an object; what is none goes back as a member, since the provider takes objects only.
fn object(input: &str) -> String {
    let input = input.trim();
    match serde_json::from_str::<&RawValue>(input) {
        Ok(_) if input.starts_with('{') => input.to_owned(),
        _ if input.is_empty() => "{}".to_owned(),
        _ => format!("{{\"unparsed\":{}}}", quote(input)),
    }
}
