//! OpenAI Responses.
//!
//! Nothing is kept at the provider (`store: false`): the conversation is sent as a whole, and
//! reasoning comes and goes back encrypted. Its items go back byte for byte. An item of reasoning is
//! refused without the item that followed it, and the other way round where the id names it, so of
//! an answer of another model texts and calls are told anew, without ids.

mod assemble;

use super::body::{Body, List, put};
use super::foreign::Ids;
use super::openai::{self, BREAKPOINT, Elements, Family};
use super::{Ask, Assemble, Format, NO_TEXT};
use crate::agent::machine::ToolSpec;
use crate::agent::talk::{Answer, CallResult, Kind, ToolCall};
use crate::agent::text::quote;
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
        let mut body = Body::of(ask);
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
        body.tools(&setup.tools, declaration, "");
        let system = Some(&setup.system).filter(|system| !system.trim().is_empty());
        // Instructions cannot carry a breakpoint; as a message they can.
        if let Some(system) = system.filter(|_| !family.breakpoints) {
            body.member("instructions", quote(system));
        }
        let system = system.filter(|_| family.breakpoints);
        body.list("input", |items| {
            if let Some(system) = system {
                message(items.next(), "developer", "input_text", system, BREAKPOINT);
            }
            openai::conversation(self, ask, items);
        });
        body.end()
    }

    fn assembler(&self, model: &str) -> Box<dyn Assemble> {
        Box::new(assemble::Making::new(model))
    }
}

impl Elements for Responses {
    fn result(out: &mut String, id: &str, result: &CallResult) {
        let kind = "{\"type\":\"function_call_output\",\"call_id\":";
        put(out, &[kind, id, ",\"output\":"]);
        openai::output(out, result);
        out.push('}');
    }

    fn user(out: &mut String, text: &str) {
        message(out, "user", "input_text", text, "");
    }

    fn as_it_came(answer: &Answer, out: &mut List<'_>) {
        for block in answer.blocks.iter().filter(|block| !block.kind.is_blank()) {
            out.next().push_str(&block.raw);
        }
    }

    fn anew(answer: &Answer, ids: &Ids, out: &mut List<'_>) {
        let before = out.len();
        for block in &answer.blocks {
            match &block.kind {
                kind if kind.is_blank() => {}
                Kind::Text(text) => message(out.next(), "assistant", "output_text", text, ""),
                Kind::Call(call) => function_call(out.next(), call, ids),
                Kind::Thinking | Kind::Other => {}
            }
        }
        if out.len() == before {
            message(out.next(), "assistant", "output_text", NO_TEXT, "");
        }
    }
}

/// Strict is the default here, and refuses schemas with optional members.
fn declaration(out: &mut String, tool: &ToolSpec) {
    out.push_str("{\"type\":\"function\",");
    openai::function(out, tool);
    out.push_str(",\"strict\":false}");
}

fn message(out: &mut String, role: &str, part: &str, text: &str, more: &str) {
    put(
        out,
        &["{\"type\":\"message\",\"role\":\"", role, "\",\"content\":"],
    );
    put(
        out,
        &[
            "[{\"type\":\"",
            part,
            "\",\"text\":",
            &quote(text),
            more,
            "}]}",
        ],
    );
}

fn function_call(out: &mut String, call: &ToolCall, ids: &Ids) {
    let id = quote(ids.of(&call.id));
    put(out, &["{\"type\":\"function_call\",\"call_id\":", &id, ","]);
    put(out, &[&openai::called(call), "}"]);
}
