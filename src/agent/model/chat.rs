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

use super::foreign::{self, Ids};
use super::members::{object, quote};
use super::openai::{self, BREAKPOINT, Family};
use super::{Ask, Assemble, Format, NO_TEXT};
use crate::agent::machine::Setup;
use crate::agent::talk::{Answer, Entry, Kind, ToolCall};
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

    fn headers(&self, key: &str) -> Vec<(&'static str, String)> {
        openai::headers(key)
    }

    fn request(&self, ask: &Ask<'_>) -> Vec<u8> {
        let setup = ask.setup;
        let family = Family::of(&setup.model);
        let limit = if family.openai {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        let mut out = String::with_capacity(4096);
        out.push_str(&format!(
            "{{\"model\":{},\"stream\":true,\"stream_options\":{{\"include_usage\":true}},\"{limit}\":{}",
            quote(&setup.model),
            ask.max_tokens
        ));
        if let Some(effort) = &setup.effort {
            out.push_str(&format!(",\"reasoning_effort\":{}", quote(effort)));
        }
        if family.openai {
            let key = openai::cache_key(setup);
            out.push_str(&format!(",\"prompt_cache_key\":{}", quote(&key)));
        }
        tools(&mut out, setup);
        out.push_str(",\"messages\":[");
        out.push_str(&messages(ask, family).join(","));
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
        format!(
            "{{\"type\":\"function\",\"function\":{{\"name\":{},\"description\":{},\"parameters\":{}}}}}",
            quote(&tool.name),
            quote(&tool.description),
            tool.schema
        )
    });
    out.push_str(",\"tools\":[");
    out.push_str(&tools.collect::<Vec<_>>().join(","));
    out.push(']');
}

/// The conversation; what goes on gives the same elements and further ones.
fn messages(ask: &Ask<'_>, family: Family) -> Vec<String> {
    let setup = ask.setup;
    let mut out = Vec::with_capacity(ask.entries.len() + 2);
    if !setup.system.trim().is_empty() {
        let text = quote(&setup.system);
        // `system` is the older word for `developer`, and the one that every server knows.
        out.push(if family.breakpoints {
            format!("{{\"role\":\"system\",\"content\":[{{\"type\":\"text\",\"text\":{text}{BREAKPOINT}}}]}}")
        } else {
            format!("{{\"role\":\"system\",\"content\":{text}}}")
        });
    }
    let mut ids = Ids::default();
    for (at, entry) in ask.entries.iter().enumerate() {
        match entry {
            Entry::User { results, texts } => {
                out.extend(results.iter().map(|result| {
                    format!(
                        "{{\"role\":\"tool\",\"tool_call_id\":{},\"content\":{}}}",
                        quote(ids.of(&result.call)),
                        openai::output(result)
                    )
                }));
                let said = texts.iter().filter(|text| !text.trim().is_empty());
                out.extend(said.map(|text| user(text)));
            }
            Entry::Assistant(answer) => {
                let own = answer.wire == Wire::Chat && answer.model == setup.model;
                ids.take(at, answer, own);
                out.push(if own {
                    as_it_came(answer)
                } else {
                    anew(answer, &ids)
                });
            }
        }
    }
    out.extend(ask.aside.map(user));
    out
}

fn user(text: &str) -> String {
    format!("{{\"role\":\"user\",\"content\":{}}}", quote(text))
}

/// An answer of this model. Its fragments are put together again.
fn as_it_came(answer: &Answer) -> String {
    let mut content = Vec::new();
    let mut others = String::new();
    let mut calls = Vec::new();
    for block in &answer.blocks {
        match &block.kind {
            Kind::Call(_) => calls.push(block.raw.as_str()),
            // Older journals may hold texts that are refused.
            Kind::Text(text) if text.trim().is_empty() => {}
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
    assistant(&content, &others, &calls.join(","))
}

/// An answer of another model, or of another format: its texts and its calls.
fn anew(answer: &Answer, ids: &Ids) -> String {
    let calls: Vec<String> = answer.calls().map(|call| tool_call(call, ids)).collect();
    assistant(&content_of(answer), "", &calls.join(","))
}

fn assistant(content: &str, others: &str, calls: &str) -> String {
    let calls = match calls {
        "" => String::new(),
        calls => format!(",\"tool_calls\":[{calls}]"),
    };
    format!("{{\"role\":\"assistant\",{content}{others}{calls}}}")
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
        "{{\"id\":{},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}}}",
        quote(ids.of(&call.id)),
        quote(&foreign::name(&call.name)),
        quote(&object(&call.input))
    )
}
