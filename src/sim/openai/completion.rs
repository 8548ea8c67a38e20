//! Writing a chat completion: as one document, or as the chunks of a stream.

use std::fmt::Write as _;

use super::answer::{Answer, Output};
use super::chat::Wishes;
use super::error::OpenAiError;
use super::events::fault;
use super::tools::Form;
use crate::sim::answer::{INJECTED, Step, pieces};
use crate::sim::json::quote;

/// What `system_fingerprint` says.
const FINGERPRINT: &str = "fp_simulated";

fn usage(answer: &Answer) -> String {
    let tokens = answer.tokens;
    let written = if answer.bills_writes {
        format!(r#","cache_write_tokens":{}"#, tokens.written())
    } else {
        String::new()
    };
    format!(
        concat!(
            r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"#,
            r#""prompt_tokens_details":{{"cached_tokens":{},"audio_tokens":0{}}},"#,
            r#""completion_tokens_details":{{"reasoning_tokens":{},"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#
        ),
        tokens.total,
        answer.output,
        tokens.total + answer.output,
        tokens.read,
        written,
        answer.thinking
    )
}

fn finish(answer: &Answer) -> &'static str {
    if answer.cut {
        "length"
    } else if answer.calls() {
        "tool_calls"
    } else {
        "stop"
    }
}

fn head(answer: &Answer, object: &str) -> String {
    format!(
        r#""id":"{}","object":"{object}","created":{},"model":"{}","service_tier":"{}","system_fingerprint":"{FINGERPRINT}""#,
        answer.id, answer.created, answer.model, answer.tier
    )
}

/// A call's `type`, and the member that keeps its input.
fn shape(form: &Form) -> (&'static str, &'static str) {
    match form {
        Form::Custom(_) | Form::Code(_) => ("custom", "input"),
        _ => ("function", "arguments"),
    }
}

/// The answer as one document.
#[must_use]
pub fn document(answer: &Answer, wishes: Wishes) -> String {
    let mut content = String::from("null");
    let mut refusal = String::from("null");
    let mut calls = Vec::new();
    for output in &answer.outputs {
        match output {
            Output::Thinking { .. } => {}
            Output::Text { text, .. } => content = quote(text),
            Output::Refusal { text, .. } => refusal = quote(text),
            Output::Call {
                call_id,
                name,
                form,
                input,
                ..
            } => {
                let (kind, member) = shape(form);
                calls.push(format!(
                    r#"{{"id":"{call_id}","type":"{kind}","{kind}":{{"name":{},"{member}":{}}}}}"#,
                    quote(name),
                    quote(input)
                ));
            }
        }
    }
    let calls = if calls.is_empty() {
        String::new()
    } else {
        format!(r#","tool_calls":[{}]"#, calls.join(","))
    };
    let choices: Vec<String> = (0..wishes.choices.max(1))
        .map(|index| {
            format!(
                r#"{{"index":{index},"message":{{"role":"assistant","content":{content},"refusal":{refusal},"annotations":[]{calls}}},"logprobs":null,"finish_reason":"{}"}}"#,
                finish(answer)
            )
        })
        .collect();
    format!(
        r#"{{{},"choices":[{}],"usage":{}}}"#,
        head(answer, "chat.completion"),
        choices.join(","),
        usage(answer)
    )
}

struct Stream<'a> {
    answer: &'a Answer,
    wishes: Wishes,
    obfuscate: bool,
    failure: Option<&'a str>,
    steps: Vec<Step>,
}

impl Stream<'_> {
    fn chunk(&mut self, choices: &str, usage: &str) {
        let mut members = format!(
            r#"{},"choices":[{choices}]"#,
            head(self.answer, "chat.completion.chunk")
        );
        if self.wishes.include_usage {
            let _ = write!(members, r#","usage":{usage}"#);
        }
        if self.obfuscate {
            let _ = write!(
                members,
                r#","obfuscation":"{}""#,
                self.answer.padding(self.steps.len())
            );
        }
        self.steps
            .push(Step::Bytes(format!("data: {{{members}}}\n\n")));
    }

    fn delta(&mut self, choice: u64, delta: &str, finish: &str) {
        self.chunk(
            &format!(
                r#"{{"index":{choice},"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish}}}"#
            ),
            "null",
        );
    }

    /// Ends the stream with the failure, if it is one of this place; true when it did.
    fn fail(&mut self, in_call: bool) -> bool {
        let kind = match (self.failure, in_call) {
            (Some(kind), true) => kind.strip_suffix("_tool"),
            (Some(kind), false) if !kind.ends_with("_tool") => Some(kind),
            _ => None,
        };
        let Some(kind) = kind else {
            return false;
        };
        if let Some(fault) = fault(kind) {
            self.steps.push(fault);
            return true;
        }
        let (status, code) = match kind {
            "sse_overloaded" => (503, "server_is_overloaded"),
            "sse_api_error" => (500, "server_error"),
            "sse_rate_limit" => (429, "rate_limit_exceeded"),
            "sse_invalid" => (400, "invalid_prompt"),
            "sse_permission" => (403, "permission_denied"),
            _ => return false,
        };
        let message = if status == 503 {
            "Overloaded"
        } else {
            INJECTED
        };
        let error = OpenAiError::new(status, message).code(code);
        self.steps
            .push(Step::Bytes(format!("data: {}\n\n", error.body())));
        true
    }

    /// One choice; true when the failure ended the stream inside it.
    fn choice(&mut self, choice: u64) -> bool {
        self.delta(
            choice,
            r#""role":"assistant","content":"","refusal":null"#,
            "null",
        );
        let mut calls = 0;
        for output in &self.answer.outputs {
            match output {
                Output::Thinking { .. } => {}
                Output::Text { text, .. } | Output::Refusal { text, .. } => {
                    let member = if matches!(output, Output::Text { .. }) {
                        "content"
                    } else {
                        "refusal"
                    };
                    for piece in pieces(text) {
                        self.delta(choice, &format!(r#""{member}":{}"#, quote(piece)), "null");
                        if self.fail(false) {
                            return true;
                        }
                    }
                }
                Output::Call {
                    call_id,
                    name,
                    form,
                    input,
                    ..
                } => {
                    let (kind, member) = shape(form);
                    let begin = format!(
                        r#""tool_calls":[{{"index":{calls},"id":"{call_id}","type":"{kind}","{kind}":{{"name":{},"{member}":""}}}}]"#,
                        quote(name)
                    );
                    self.delta(choice, &begin, "null");
                    for piece in pieces(input) {
                        let more = format!(
                            r#""tool_calls":[{{"index":{calls},"{kind}":{{"{member}":{}}}}}]"#,
                            quote(piece)
                        );
                        self.delta(choice, &more, "null");
                        if self.fail(true) {
                            return true;
                        }
                    }
                    calls += 1;
                }
            }
        }
        let finish = quote(finish(self.answer));
        self.delta(choice, "", &finish);
        false
    }
}

/// The answer as a stream, with a failure inside it if one is named.
#[must_use]
pub fn stream(
    answer: &Answer,
    wishes: Wishes,
    obfuscate: bool,
    failure: Option<&str>,
) -> Vec<Step> {
    let mut stream = Stream {
        answer,
        wishes,
        obfuscate,
        failure,
        steps: Vec::new(),
    };
    for choice in 0..wishes.choices.max(1) {
        if stream.choice(choice) {
            return stream.steps;
        }
    }
    if wishes.include_usage {
        stream.chunk("", &usage(answer));
    }
    stream
        .steps
        .push(Step::Bytes("data: [DONE]\n\n".to_owned()));
    stream.steps
}
