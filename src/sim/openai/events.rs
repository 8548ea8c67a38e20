//! Writing a response: as one document, or as the events of a stream.

use std::fmt::Write as _;
use std::sync::Arc;

use super::answer::{Answer, Output};
use super::tools::Form;
use crate::sim::answer::{INJECTED, Step, pieces};
use crate::sim::json::{Json, quote};

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

/// How far a response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// In the background, not begun.
    Queued,
    /// Begun.
    InProgress,
    /// Ended as its answer says.
    Ended,
    /// Taken back.
    Cancelled,
    /// Broken off with this code.
    Failed(&'static str),
}

/// A response with everything that its document says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The answer.
    pub answer: Answer,
    /// Members that repeat the request, as JSON.
    pub echo: Arc<str>,
    /// It runs in the background.
    pub background: bool,
    /// The code with which it fails there.
    pub background_failure: Option<&'static str>,
    /// It was asked for as a stream.
    pub streamed: bool,
    /// Without, it only prepares.
    pub generate: bool,
}

/// The `code` and the `message` of a failure inside a stream; `None` for names that are none.
fn failure(kind: &str) -> Option<(&'static str, &'static str)> {
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
    /// The code with which a failure of that name ends a response in the background.
    #[must_use]
    pub fn failure_code(kind: &str) -> Option<&'static str> {
        failure(kind).map(|(code, _)| code)
    }

    /// The `usage` object.
    #[must_use]
    pub fn usage(&self) -> String {
        let Answer {
            tokens,
            bills_writes,
            output,
            thinking,
            ..
        } = &self.answer;
        let split = if *bills_writes {
            format!(
                r#","cache_write_tokens_details":{{"ttl_30m_tokens":{},"ttl_12h_tokens":{}}}"#,
                tokens.write_30m, tokens.write_12h
            )
        } else {
            String::new()
        };
        format!(
            concat!(
                r#"{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{},"cache_write_tokens":{}{}}},"#,
                r#""output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}}"#
            ),
            tokens.total,
            tokens.read,
            tokens.written(),
            split,
            output,
            thinking,
            tokens.total + output
        )
    }

    /// The response object.
    #[must_use]
    pub fn document(&self, status: Status) -> String {
        self.document_of(status, self.answer.outputs.len())
    }

    /// The response object with the first `done` items of its output.
    fn document_of(&self, status: Status, done: usize) -> String {
        let Answer { id, created, .. } = &self.answer;
        let ended = !matches!(status, Status::Queued | Status::InProgress);
        let word = match status {
            Status::Queued => "queued",
            Status::InProgress => "in_progress",
            Status::Cancelled => "cancelled",
            Status::Failed(_) => "failed",
            Status::Ended if self.answer.cut => "incomplete",
            Status::Ended => "completed",
        };
        let error = match status {
            Status::Failed(code) => format!(
                r#"{{"code":"{code}","message":{}}}"#,
                quote(if code == "server_is_overloaded" {
                    "Overloaded"
                } else {
                    INJECTED
                })
            ),
            _ => "null".to_owned(),
        };
        let incomplete = if word == "incomplete" {
            r#"{"reason":"max_output_tokens"}"#
        } else {
            "null"
        };
        let usage = if ended && status != Status::Cancelled {
            self.usage()
        } else {
            "null".to_owned()
        };
        let completed = if word == "completed" {
            created.to_string()
        } else {
            "null".to_owned()
        };
        let output = if ended { done } else { 0 };
        let diagnostics = match &self.answer.diagnostics {
            Some(diagnostics) if ended => {
                format!(r#","prompt_cache_diagnostics":{diagnostics}"#)
            }
            _ => String::new(),
        };
        format!(
            concat!(
                r#"{{"id":"{}","object":"response","created_at":{},"status":"{}","background":{},"completed_at":{},"#,
                r#""error":{},"incomplete_details":{},"model":"{}","output":{},"service_tier":"{}",{},"usage":{}{}}}"#
            ),
            id,
            created,
            word,
            self.background,
            completed,
            error,
            incomplete,
            self.answer.model,
            self.output(output, true),
            self.answer.tier,
            self.echo,
            usage,
            diagnostics
        )
    }

    /// The first items of the output, as a JSON array.
    fn output(&self, count: usize, whole: bool) -> String {
        let items: Vec<String> = self
            .answer
            .outputs
            .iter()
            .take(count)
            .map(|output| self.item(output, whole))
            .collect();
        format!("[{}]", items.join(","))
    }

    /// The output as items of a later request.
    #[must_use]
    pub fn as_history(&self) -> Vec<Arc<Json>> {
        let text = self.output(self.answer.outputs.len(), true);
        match Json::parse(text.as_bytes()) {
            Ok(Json::Arr(items)) => items.into_iter().map(Arc::new).collect(),
            _ => Vec::new(),
        }
    }

    /// One item; not `whole`, as it is when it begins.
    fn item(&self, output: &Output, whole: bool) -> String {
        let cut = self.answer.cut && self.answer.outputs.last() == Some(output);
        let status = match (whole, cut) {
            (false, _) => "in_progress",
            (true, true) => "incomplete",
            (true, false) => "completed",
        };
        match output {
            Output::Thinking {
                name,
                sealed,
                summary,
            } => {
                let summary = match summary {
                    Some(summary) if whole => {
                        format!(r#"{{"type":"summary_text","text":{}}}"#, quote(summary))
                    }
                    _ => String::new(),
                };
                // What stands in the event that adds it is not the whole of it.
                let sealed = if whole {
                    format!(r#","encrypted_content":"{sealed}""#)
                } else {
                    String::new()
                };
                format!(r#"{{"id":"rs_{name}","type":"reasoning","summary":[{summary}]{sealed}}}"#)
            }
            Output::Text { id, .. } | Output::Refusal { id, .. } => {
                let content = if whole {
                    part(output, true)
                } else {
                    String::new()
                };
                format!(
                    r#"{{"id":"{id}","type":"message","status":"{status}","role":"assistant","phase":"{}","content":[{content}]}}"#,
                    if self.answer.calls() {
                        "commentary"
                    } else {
                        "final_answer"
                    }
                )
            }
            Output::Call {
                id,
                call_id,
                name,
                form,
                input,
            } => call(
                id,
                call_id,
                name,
                form,
                if whole { Some(input) } else { None },
                status,
            ),
        }
    }

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

/// A content part; not `whole`, as it is when it begins.
fn part(output: &Output, whole: bool) -> String {
    let shown = |text: &str| quote(if whole { text } else { "" });
    match output {
        Output::Text { text, .. } => format!(
            r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{}}}"#,
            shown(text)
        ),
        Output::Refusal { text, .. } => {
            format!(r#"{{"type":"refusal","refusal":{}}}"#, shown(text))
        }
        _ => String::new(),
    }
}

fn call(
    id: &str,
    call_id: &str,
    name: &str,
    form: &Form,
    input: Option<&String>,
    status: &str,
) -> String {
    let start = format!(r#"{{"id":"{id}","status":"{status}","call_id":"{call_id}","#);
    let input = input.map(String::as_str);
    let parsed = input.and_then(|input| Json::parse(input.as_bytes()).ok());
    let list = |member: &str| {
        parsed
            .as_ref()
            .and_then(|input| input.given(member))
            .map_or_else(|| "[]".to_owned(), Json::compact)
    };
    let space = |space: &Option<String>| {
        space.as_ref().map_or_else(String::new, |space| {
            format!(r#","namespace":{}"#, quote(space))
        })
    };
    match form {
        Form::Function(namespace) => format!(
            r#"{start}"type":"function_call","arguments":{},"name":{}{}}}"#,
            quote(input.unwrap_or_default()),
            quote(name),
            space(namespace)
        ),
        Form::Custom(namespace) => format!(
            r#"{start}"type":"custom_tool_call","input":{},"name":{}{}}}"#,
            quote(input.unwrap_or_default()),
            quote(name),
            space(namespace)
        ),
        Form::LocalShell => format!(
            r#"{start}"type":"local_shell_call","action":{{"type":"exec","command":{},"env":{{}}}}}}"#,
            list("command")
        ),
        Form::Shell => format!(
            r#"{start}"type":"shell_call","action":{{"commands":{},"max_output_length":null,"timeout_ms":null}},"environment":null}}"#,
            list("commands")
        ),
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
            Form::Custom(_) => (
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
