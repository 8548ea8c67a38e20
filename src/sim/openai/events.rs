//! A response as the events of a stream.

use std::fmt::Write as _;

use super::answer::Output;
use super::told::{Status, Told, part};
use super::tools::Form;
use crate::sim::answer::{INJECTED, Step, pieces};
use crate::sim::json::quote;

/// One event, on whichever transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its `type`.
    pub name: &'static str,
    /// Its JSON.
    pub data: String,
}

/// One step of a stream: an event, or the fault that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// An event.
    Event(Event),
    /// A fault.
    Fault(Step),
}

/// As server-sent events.
#[must_use]
pub fn sse(sent: Vec<Sent>) -> Vec<Step> {
    sent.into_iter()
        .map(|sent| match sent {
            Sent::Event(Event { name, data }) => {
                Step::Bytes(format!("event: {name}\ndata: {data}\n\n"))
            }
            Sent::Fault(step) => step,
        })
        .collect()
}

/// The `code` and the `message` of a failure inside a stream; `None` for names that are none.
#[must_use]
pub fn failure(kind: &str) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        "sse_overloaded" => ("server_is_overloaded", "Overloaded"),
        "sse_rate_limit" => ("rate_limit_exceeded", INJECTED),
        "sse_invalid" => ("invalid_prompt", INJECTED),
        "sse_permission" => ("permission_denied", INJECTED),
        "sse_api_error" => ("server_error", INJECTED),
        _ => return None,
    })
}

/// The fault of that name inside a stream.
#[must_use]
pub fn fault(kind: &str) -> Option<Step> {
    match kind {
        "drop" => Some(Step::Break),
        "cut" => Some(Step::End),
        "stall" => Some(Step::Stall),
        _ => None,
    }
}

impl Told {
    /// The stream, with a failure inside it if one is named.
    #[must_use]
    pub fn events(&self, failure: Option<&str>, obfuscate: bool) -> Vec<Sent> {
        let mut stream = Stream {
            told: self,
            sent: Vec::new(),
            number: 0,
            failure,
            obfuscate,
        };
        stream.response("response.created", Status::InProgress, 0);
        if self.background {
            stream.response("response.queued", Status::Queued, 0);
        }
        if self.generate {
            stream.response("response.in_progress", Status::InProgress, 0);
        }
        for (index, output) in self.answer.outputs.iter().enumerate() {
            if stream.item(index, output) {
                return stream.sent;
            }
        }
        let end = if self.answer.cut {
            "response.incomplete"
        } else {
            "response.completed"
        };
        stream.response(end, Status::Ended, self.answer.outputs.len());
        stream.sent
    }
}

/// The events of one response as they are written.
struct Stream<'a> {
    told: &'a Told,
    sent: Vec<Sent>,
    number: usize,
    failure: Option<&'a str>,
    obfuscate: bool,
}

impl Stream<'_> {
    fn event(&mut self, name: &'static str, members: &str) {
        let data = format!(
            r#"{{"type":"{name}","sequence_number":{},{members}}}"#,
            self.number
        );
        self.number += 1;
        self.sent.push(Sent::Event(Event { name, data }));
    }

    fn response(&mut self, name: &'static str, status: Status, done: usize) {
        let document = self.told.document_of(status, done);
        self.event(name, &format!(r#""response":{document}"#));
    }

    fn delta(&mut self, name: &'static str, place: &str, delta: &str, more: &str) {
        let mut members = format!(r#"{place},"delta":{}{more}"#, quote(delta));
        if self.obfuscate {
            let _ = write!(
                members,
                r#","obfuscation":"{}""#,
                self.told.answer.padding(self.number)
            );
        }
        self.event(name, &members);
    }

    /// Ends the stream with the failure, if it is one of this place; true when it did.
    fn fail(&mut self, in_call: bool, done: usize) -> bool {
        let kind = match (self.failure, in_call) {
            (Some(kind), true) => kind.strip_suffix("_tool"),
            (Some(kind), false) if !kind.ends_with("_tool") => Some(kind),
            _ => None,
        };
        let Some(kind) = kind else {
            return false;
        };
        if let Some(fault) = fault(kind) {
            self.sent.push(Sent::Fault(fault));
            return true;
        }
        let Some((code, message)) = failure(kind) else {
            return false;
        };
        if matches!(kind, "sse_api_error" | "sse_permission") {
            self.event(
                "error",
                &format!(
                    r#""code":"{code}","message":{},"param":null"#,
                    quote(message)
                ),
            );
        } else {
            self.response("response.failed", Status::Failed(code), done);
        }
        true
    }

    /// One item; true when the failure ended the stream inside it.
    fn item(&mut self, index: usize, output: &Output) -> bool {
        let begun = self.told.item(output, false);
        self.event(
            "response.output_item.added",
            &format!(r#""output_index":{index},"item":{begun}"#),
        );
        let failed = match output {
            Output::Thinking { name, summary, .. } => {
                if let Some(summary) = summary {
                    self.summary(index, name, summary);
                }
                false
            }
            Output::Text { id, text } => self.text(index, id, output, text),
            Output::Refusal { id, text } => self.text(index, id, output, text),
            Output::Call {
                id, form, input, ..
            } => self.call(index, id, form, input),
        };
        if failed {
            return true;
        }
        let whole = self.told.item(output, true);
        self.event(
            "response.output_item.done",
            &format!(r#""output_index":{index},"item":{whole}"#),
        );
        false
    }

    fn summary(&mut self, index: usize, name: &str, summary: &str) {
        let place = format!(r#""item_id":"rs_{name}","output_index":{index},"summary_index":0"#);
        let part = |text: &str| {
            format!(
                r#"{place},"part":{{"type":"summary_text","text":{}}}"#,
                quote(text)
            )
        };
        self.event("response.reasoning_summary_part.added", &part(""));
        for piece in pieces(summary) {
            self.delta("response.reasoning_summary_text.delta", &place, piece, "");
        }
        self.event(
            "response.reasoning_summary_text.done",
            &format!(r#"{place},"text":{}"#, quote(summary)),
        );
        self.event("response.reasoning_summary_part.done", &part(summary));
    }

    fn text(&mut self, index: usize, id: &str, output: &Output, text: &str) -> bool {
        let place = format!(r#""item_id":"{id}","output_index":{index},"content_index":0"#);
        let refusal = matches!(output, Output::Refusal { .. });
        let (delta, done) = if refusal {
            ("response.refusal.delta", "response.refusal.done")
        } else {
            ("response.output_text.delta", "response.output_text.done")
        };
        let logprobs = if refusal { "" } else { r#","logprobs":[]"# };
        self.event(
            "response.content_part.added",
            &format!(r#"{place},"part":{}"#, part(output, false)),
        );
        for piece in pieces(text) {
            self.delta(delta, &place, piece, logprobs);
            if self.fail(false, index) {
                return true;
            }
        }
        let member = if refusal { "refusal" } else { "text" };
        self.event(
            done,
            &format!(r#"{place},"{member}":{}{logprobs}"#, quote(text)),
        );
        self.event(
            "response.content_part.done",
            &format!(r#"{place},"part":{}"#, part(output, true)),
        );
        false
    }

    fn call(&mut self, index: usize, id: &str, form: &Form, input: &str) -> bool {
        let (delta, done, member) = match form {
            Form::Function(_) => (
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "arguments",
            ),
            Form::Custom(_) | Form::Code(_) => (
                "response.custom_tool_call_input.delta",
                "response.custom_tool_call_input.done",
                "input",
            ),
            Form::LocalShell | Form::Shell => return self.fail(true, index),
        };
        let place = format!(r#""item_id":"{id}","output_index":{index}"#);
        for piece in pieces(input) {
            self.delta(delta, &place, piece, "");
            if self.fail(true, index) {
                return true;
            }
        }
        self.event(done, &format!(r#"{place},"{member}":{}"#, quote(input)));
        false
    }
}
