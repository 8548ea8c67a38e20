//! A response as one document.

use std::sync::Arc;

use super::answer::{Answer, Output};
use super::events::failure;
use super::tools::Form;
use crate::sim::answer::INJECTED;
use crate::sim::json::{Json, quote};

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
    #[must_use]
    pub fn document_of(&self, status: Status, done: usize) -> String {
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
    #[must_use]
    pub fn item(&self, output: &Output, whole: bool) -> String {
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
}

/// A content part; not `whole`, as it is when it begins.
#[must_use]
pub fn part(output: &Output, whole: bool) -> String {
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
        Form::Custom(namespace) | Form::Code(namespace) => format!(
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
