//! OpenAI Chat Completions, and the many servers that speak like it.
//!
//! An answer is one message. Its blocks here are fragments of that message: an object with the
//! members that hold the text, the reasoning or whatever else came, and for each call its element of
//! `tool_calls`. Servers name reasoning `reasoning_content`, `reasoning` or `reasoning_details`, and
//! most want it back under the name it came with; what they add to calls (signatures) as well.
//!
//! The output limit is `max_completion_tokens` for OpenAI's own models, which refuse the older name,
//! and `max_tokens` for all others, which may not know the newer one.

mod assemble;
mod grown;

use super::body::{Body, List, put};
use super::foreign::Ids;
use super::openai::{self, BREAKPOINT, Elements, Family};
use super::{Ask, Assemble, Format, NO_TEXT};
use crate::agent::machine::ToolSpec;
use crate::agent::talk::{Answer, CallResult, Kind, ToolCall};
use crate::agent::text::quote;
use crate::provider::wire::Wire;

/// The format.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chat;

impl Format for Chat {
    fn wire(&self) -> Wire {
        Wire::Chat
    }

    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn request(&self, ask: &Ask<'_>) -> Vec<u8> {
        let setup = ask.setup;
        let family = Family::of(&setup.model);
        let limit = if family.openai {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        let mut body = Body::of(ask);
        body.member("stream", true);
        body.member("stream_options", "{\"include_usage\":true}");
        body.member(limit, ask.max_tokens);
        if let Some(effort) = &setup.effort {
            body.member("reasoning_effort", quote(effort));
        }
        if family.openai {
            body.member("prompt_cache_key", openai::cache_key(setup));
        }
        body.tools(&setup.tools, declaration, "");
        body.list("messages", |messages| {
            if !setup.system.trim().is_empty() {
                system(messages.next(), &setup.system, family);
            }
            openai::conversation(self, ask, messages);
        });
        body.end()
    }

    fn assembler(&self, model: &str) -> Box<dyn Assemble> {
        Box::new(assemble::Making::new(model))
    }
}

impl Elements for Chat {
    fn result(out: &mut String, id: &str, result: &CallResult) {
        put(
            out,
            &["{\"role\":\"tool\",\"tool_call_id\":", id, ",\"content\":"],
        );
        openai::output(out, result);
        out.push('}');
    }

    fn user(out: &mut String, text: &str) {
        put(out, &["{\"role\":\"user\",\"content\":", &quote(text), "}"]);
    }

    /// Its fragments are put together again.
    fn as_it_came(answer: &Answer, out: &mut List<'_>) {
        let mut content = Vec::new();
        let mut others = String::new();
        let mut calls = Vec::new();
        for block in &answer.blocks {
            match &block.kind {
                Kind::Call(_) => calls.push(block.raw.as_str()),
                // Older journals may hold texts that are refused.
                kind if kind.is_blank() => {}
                Kind::Text(_) => content.push(inside(&block.raw)),
                Kind::Thinking | Kind::Other => {
                    others.push(',');
                    others.push_str(inside(&block.raw));
                }
            }
        }
        let content = match content.as_slice() {
            [one] => (*one).to_owned(),
            _ => content_of(answer),
        };
        assistant(out.next(), &content, &others, &calls.join(","));
    }

    fn anew(answer: &Answer, ids: &Ids, out: &mut List<'_>) {
        let calls: Vec<String> = answer.calls().map(|call| tool_call(call, ids)).collect();
        assistant(out.next(), &content_of(answer), "", &calls.join(","));
    }
}

fn declaration(out: &mut String, tool: &ToolSpec) {
    out.push_str("{\"type\":\"function\",\"function\":{");
    openai::function(out, tool);
    out.push_str("}}");
}

/// `system` is the older word for `developer`, and the one that every server knows.
fn system(out: &mut String, text: &str, family: Family) {
    let text = quote(text);
    out.push_str("{\"role\":\"system\",\"content\":");
    if family.breakpoints {
        put(
            out,
            &["[{\"type\":\"text\",\"text\":", &text, BREAKPOINT, "}]"],
        );
    } else {
        out.push_str(&text);
    }
    out.push('}');
}

fn assistant(out: &mut String, content: &str, others: &str, calls: &str) {
    put(out, &["{\"role\":\"assistant\",", content, others]);
    if !calls.is_empty() {
        put(out, &[",\"tool_calls\":[", calls, "]"]);
    }
    out.push('}');
}

/// The member `content` from the texts of an answer. A message needs one of content and calls.
fn content_of(answer: &Answer) -> String {
    let text = answer.text();
    if !text.trim().is_empty() {
        format!("\"content\":{}", quote(&text))
    } else if answer.calls().next().is_some() {
        "\"content\":null".to_owned()
    } else {
        format!("\"content\":{}", quote(NO_TEXT))
    }
}

/// The members of a fragment, without its braces.
fn inside(fragment: &str) -> &str {
    let inside = fragment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    inside.unwrap_or(fragment)
}

fn tool_call(call: &ToolCall, ids: &Ids) -> String {
    format!(
        "{{\"id\":{},\"type\":\"function\",\"function\":{{{}}}}}",
        quote(ids.of(&call.id)),
        openai::called(call)
    )
}
