//! OpenAI Responses.
//!
//! Nothing is kept at the provider (`store: false`): the conversation is sent as a whole, and
//! reasoning comes and goes back encrypted. Its items go back byte for byte. An item of reasoning is
//! refused without the item that followed it, and the other way round where the id names it, so of
//! an answer of another model texts and calls are told anew, without ids.

mod assemble;

use super::foreign::{self, Ids};
use super::members::{object, quote};
use super::openai::{self, BREAKPOINT, Family};
use super::{Ask, Assemble, Format, NO_TEXT};
use crate::agent::machine::Setup;
use crate::agent::talk::{Answer, Entry, Kind, ToolCall};
use crate::provider::wire::Wire;

/// Smallest output limit that is accepted.
const MIN_OUTPUT: u32 = 16;

/// The format.
#[derive(Debug, Clone, Copy, Default)]
pub struct Responses;

impl Format for Responses {
    fn wire(&self) -> Wire {
        Wire::Responses
    }

    fn path(&self) -> &'static str {
        "/v1/responses"
    }

    fn headers(&self, key: &str) -> Vec<(&'static str, String)> {
        openai::headers(key)
    }

    fn request(&self, ask: &Ask<'_>) -> Vec<u8> {
        let setup = ask.setup;
        let family = Family::of(&setup.model);
        let mut out = String::with_capacity(4096);
        out.push_str(&format!(
            "{{\"model\":{},\"stream\":true,\"store\":false,\"max_output_tokens\":{}",
            quote(&setup.model),
            ask.max_tokens.max(MIN_OUTPUT)
        ));
        if family.may_reason {
            out.push_str(",\"include\":[\"reasoning.encrypted_content\"]");
        }
        if let Some(effort) = &setup.effort {
            out.push_str(&format!(",\"reasoning\":{{\"effort\":{}}}", quote(effort)));
        }
        if family.openai {
            let key = openai::cache_key(setup);
            out.push_str(&format!(",\"prompt_cache_key\":{}", quote(&key)));
        }
        tools(&mut out, setup);
        let system = Some(&setup.system).filter(|system| !system.trim().is_empty());
        // Instructions cannot carry a breakpoint; as a message they can.
        if let Some(system) = system.filter(|_| !family.breakpoints) {
            out.push_str(&format!(",\"instructions\":{}", quote(system)));
        }
        let system = system.filter(|_| family.breakpoints);
        let mut items: Vec<String> = system.into_iter().map(|text| developer(text)).collect();
        input(ask, &mut items);
        out.push_str(",\"input\":[");
        out.push_str(&items.join(","));
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
    let tools = setup.tools.iter().map(|tool| {
        // Strict is the default here, and refuses schemas with optional members.
        format!(
            "{{\"type\":\"function\",\"name\":{},\"description\":{},\"parameters\":{},\"strict\":false}}",
            quote(&tool.name),
            quote(&tool.description),
            tool.schema
        )
    });
    out.push_str(",\"tools\":[");
    out.push_str(&tools.collect::<Vec<_>>().join(","));
    out.push(']');
}

/// The conversation; what goes on gives the same items and further ones.
fn input(ask: &Ask<'_>, out: &mut Vec<String>) {
    let mut ids = Ids::default();
    for (at, entry) in ask.entries.iter().enumerate() {
        match entry {
            Entry::User { results, texts } => {
                out.extend(results.iter().map(|result| {
                    format!(
                        "{{\"type\":\"function_call_output\",\"call_id\":{},\"output\":{}}}",
                        quote(ids.of(&result.call)),
                        openai::output(result)
                    )
                }));
                let said = texts.iter().filter(|text| !text.trim().is_empty());
                out.extend(said.map(|text| message("user", "input_text", text, "")));
            }
            Entry::Assistant(answer) => {
                let own = answer.wire == Wire::Responses && answer.model == ask.setup.model;
                ids.take(at, answer, own);
                if own {
                    let blank =
                        |kind: &Kind| matches!(kind, Kind::Text(text) if text.trim().is_empty());
                    let blocks = answer.blocks.iter().filter(|block| !blank(&block.kind));
                    out.extend(blocks.map(|block| block.raw.clone()));
                } else {
                    anew(answer, &ids, out);
                }
            }
        }
    }
    out.extend(
        ask.aside
            .map(|text| message("user", "input_text", text, "")),
    );
}

fn developer(text: &str) -> String {
    message("developer", "input_text", text, BREAKPOINT)
}

fn message(role: &str, part: &str, text: &str, more: &str) -> String {
    format!(
        "{{\"type\":\"message\",\"role\":\"{role}\",\"content\":[{{\"type\":\"{part}\",\"text\":{}{more}}}]}}",
        quote(text)
    )
}

/// An answer of another model, or of another format: its texts and its calls.
fn anew(answer: &Answer, ids: &Ids, out: &mut Vec<String>) {
    let before = out.len();
    for block in &answer.blocks {
        match &block.kind {
            Kind::Text(text) if text.trim().is_empty() => {}
            Kind::Text(text) => out.push(message("assistant", "output_text", text, "")),
            Kind::Call(call) => out.push(function_call(call, ids)),
            Kind::Thinking | Kind::Other => {}
        }
    }
    if out.len() == before {
        out.push(message("assistant", "output_text", NO_TEXT, ""));
    }
}

fn function_call(call: &ToolCall, ids: &Ids) -> String {
    format!(
        "{{\"type\":\"function_call\",\"call_id\":{},\"name\":{},\"arguments\":{}}}",
        quote(ids.of(&call.id)),
        quote(&foreign::name(&call.name)),
        quote(&object(&call.input))
    )
}
