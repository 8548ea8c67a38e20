//! OpenAI Responses.
//!
//! Nothing is kept at the provider (`store: false`): the conversation is sent as a whole, and
//! reasoning comes and goes back encrypted. Its items go back byte for byte. An item of reasoning is
//! refused without the item that followed it, and the other way round where the id names it, so of
//! an answer of another model texts and calls are told anew, without ids.

mod assemble;

use super::body::Body;
use super::foreign::Ids;
use super::members::quote;
use super::openai::{self, BREAKPOINT, Elements, Family};
use super::{Ask, Assemble, Format, NO_TEXT};
use crate::agent::machine::ToolSpec;
use crate::agent::talk::{Answer, Kind, ToolCall};
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

    fn request(&self, ask: &Ask<'_>) -> Vec<u8> {
        let setup = ask.setup;
        let family = Family::of(&setup.model);
        let mut body = Body::of(setup);
        body.member("stream", true);
        body.member("store", false);
        body.member("max_output_tokens", ask.max_tokens.max(MIN_OUTPUT));
        if family.may_reason {
            body.member("include", "[\"reasoning.encrypted_content\"]");
        }
        if let Some(effort) = &setup.effort {
            body.member("reasoning", format!("{{\"effort\":{}}}", quote(effort)));
        }
        if family.openai {
            body.member("prompt_cache_key", openai::cache_key(setup));
        }
        let tools: Vec<String> = setup.tools.iter().map(declaration).collect();
        body.tools(&tools);
        let system = Some(&setup.system).filter(|system| !system.trim().is_empty());
        // Instructions cannot carry a breakpoint; as a message they can.
        if let Some(system) = system.filter(|_| !family.breakpoints) {
            body.member("instructions", quote(system));
        }
        let system = system.filter(|_| family.breakpoints);
        let mut items: Vec<String> = system.into_iter().map(|text| developer(text)).collect();
        openai::conversation(self, ask, &mut items);
        body.list("input", &items);
        body.end()
    }

    fn assembler(&self, model: &str) -> Box<dyn Assemble> {
        Box::new(assemble::Making::new(model))
    }
}

impl Elements for Responses {
    fn result(id: &str, output: &str) -> String {
        format!("{{\"type\":\"function_call_output\",\"call_id\":{id},\"output\":{output}}}")
    }

    fn user(text: &str) -> String {
        message("user", "input_text", text, "")
    }

    fn as_it_came(answer: &Answer, out: &mut Vec<String>) {
        let blocks = answer.blocks.iter().filter(|block| !block.kind.is_blank());
        out.extend(blocks.map(|block| block.raw.clone()));
    }

    fn anew(answer: &Answer, ids: &Ids, out: &mut Vec<String>) {
        let before = out.len();
        for block in &answer.blocks {
            match &block.kind {
                kind if kind.is_blank() => {}
                Kind::Text(text) => out.push(message("assistant", "output_text", text, "")),
                Kind::Call(call) => out.push(function_call(call, ids)),
                Kind::Thinking | Kind::Other => {}
            }
        }
        if out.len() == before {
            out.push(message("assistant", "output_text", NO_TEXT, ""));
        }
    }
}

/// Strict is the default here, and refuses schemas with optional members.
fn declaration(tool: &ToolSpec) -> String {
    let function = openai::function(tool);
    format!("{{\"type\":\"function\",{function},\"strict\":false}}")
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

fn function_call(call: &ToolCall, ids: &Ids) -> String {
    format!(
        "{{\"type\":\"function_call\",\"call_id\":{},{}}}",
        quote(ids.of(&call.id)),
        openai::called(call)
    )
}
