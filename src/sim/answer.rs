//! Writing the model's answer: as one JSON message, or as a stream of events.

use std::fmt::Write as _;

use super::cache::Tokens;
use super::error::kind_of;
use super::json::{Json, quote};
use super::prompt;

/// Text of injected failures.
pub const INJECTED: &str = "simulated failure";

/// Pieces that a block's text is streamed in, at least.
const PIECES: usize = 3;

/// Largest piece of a streamed text in bytes.
const MAX_PIECE: usize = 8 << 10;

/// One content block of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Reasoning and its signature.
    Thinking(String, String),
    /// Text.
    Text(String),
    /// A call.
    Call {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// The input as JSON text.
        input: String,
    },
}

impl Block {
    fn write(&self, out: &mut String) {
        let _ = match self {
            Self::Thinking(text, signature) => write!(
                out,
                r#"{{"type":"thinking","thinking":{},"signature":{}}}"#,
                quote(text),
                quote(signature)
            ),
            Self::Text(text) => write!(out, r#"{{"type":"text","text":{}}}"#, quote(text)),
            Self::Call { id, name, input } => write!(
                out,
                r#"{{"type":"tool_use","id":{},"name":{},"input":{input}}}"#,
                quote(id),
                quote(name)
            ),
        };
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// `msg_...`.
    pub id: String,
    /// The model that answered.
    pub model: &'static str,
    /// Content.
    pub blocks: Vec<Block>,
    /// Why it stopped.
    pub stop_reason: &'static str,
    /// Input tokens.
    pub tokens: Tokens,
    /// `standard` or `batch`.
    pub tier: &'static str,
    /// Whether it was served in the fast mode.
    pub fast: bool,
    /// The `diagnostics` member, as JSON.
    pub diagnostics: Option<String>,
    /// Ends the output early, as a limit would.
    pub output: u64,
}

impl Answer {
    fn content(&self) -> String {
        let mut out = String::from("[");
        for (index, block) in self.blocks.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            block.write(&mut out);
        }
        out.push(']');
        out
    }

    /// The content as blocks of a later request.
    #[must_use]
    pub fn as_history(&self) -> Vec<Json> {
        match Json::parse(self.content().as_bytes()) {
            Ok(Json::Arr(blocks)) => blocks,
            _ => Vec::new(),
        }
    }

    /// Output tokens of some content, from its bytes.
    #[must_use]
    pub fn count(blocks: &[Block]) -> u64 {
        let mut out = String::new();
        for block in blocks {
            block.write(&mut out);
        }
        prompt::of_bytes(out.len())
    }

    fn usage(&self, output: u64) -> String {
        let Tokens {
            read,
            write_5m,
            write_1h,
            uncached,
        } = self.tokens;
        let speed = if self.fast { "fast" } else { "standard" };
        format!(
            concat!(
                r#"{{"input_tokens":{},"cache_creation_input_tokens":{},"cache_read_input_tokens":{},"#,
                r#""cache_creation":{{"ephemeral_5m_input_tokens":{},"ephemeral_1h_input_tokens":{}}},"#,
                r#""output_tokens":{},"service_tier":"{}","inference_geo":"global","speed":"{}"}}"#
            ),
            uncached,
            write_5m + write_1h,
            read,
            write_5m,
            write_1h,
            output,
            self.tier,
            speed
        )
    }

    fn message(&self, content: &str, stop: &str, output: u64) -> String {
        let diagnostics = self
            .diagnostics
            .as_ref()
            .map_or_else(String::new, |json| format!(r#","diagnostics":{json}"#));
        format!(
            r#"{{"id":"{}","type":"message","role":"assistant","model":"{}","content":{content},"stop_reason":{stop},"stop_sequence":null,"usage":{}{diagnostics}}}"#,
            self.id,
            self.model,
            self.usage(output)
        )
    }

    /// The answer as one JSON document.
    #[must_use]
    pub fn json(&self) -> String {
        self.message(&self.content(), &quote(self.stop_reason), self.output)
    }

    /// The answer as a stream, with a failure inside it if one is named.
    #[must_use]
    pub fn stream(&self, failure: Option<&str>, request_id: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        let start = self.message("[]", "null", 1);
        steps.push(event("message_start", &format!(r#""message":{start}"#)));
        steps.push(event("ping", ""));
        for (index, block) in self.blocks.iter().enumerate() {
            if self.stream_block(index, block, failure, request_id, &mut steps) {
                return steps;
            }
        }
        // Cumulative, and without the split by lifetime. Source: SDK types, Nov 2026.
        steps.push(event(
            "message_delta",
            &format!(
                concat!(
                    r#""delta":{{"stop_reason":{},"stop_sequence":null}},"usage":{{"input_tokens":{},"#,
                    r#""cache_creation_input_tokens":{},"cache_read_input_tokens":{},"output_tokens":{}}}"#
                ),
                quote(self.stop_reason),
                self.tokens.uncached,
                self.tokens.written(),
                self.tokens.read,
                self.output
            ),
        ));
        steps.push(event("message_stop", ""));
        steps
    }

    /// Streams one block; true when the failure ended the stream inside it.
    fn stream_block(
        &self,
        index: usize,
        block: &Block,
        failure: Option<&str>,
        request_id: &str,
        steps: &mut Vec<Step>,
    ) -> bool {
        let delta = |members: String| {
            event(
                "content_block_delta",
                &format!(r#""index":{index},"delta":{{{members}}}"#),
            )
        };
        let start = |json: &str| {
            event(
                "content_block_start",
                &format!(r#""index":{index},"content_block":{json}"#),
            )
        };
        let in_tool = failure.filter(|kind| kind.ends_with("_tool"));
        match block {
            Block::Thinking(text, signature) => {
                steps.push(start(r#"{"type":"thinking","thinking":"","signature":""}"#));
                for piece in pieces(text) {
                    steps.push(delta(format!(
                        r#""type":"thinking_delta","thinking":{}"#,
                        quote(piece)
                    )));
                }
                steps.push(delta(format!(
                    r#""type":"signature_delta","signature":{}"#,
                    quote(signature)
                )));
            }
            Block::Text(text) => {
                steps.push(start(r#"{"type":"text","text":""}"#));
                for piece in pieces(text) {
                    steps.push(delta(format!(
                        r#""type":"text_delta","text":{}"#,
                        quote(piece)
                    )));
                    if in_tool.is_none() && fail(failure, request_id, steps) {
                        return true;
                    }
                }
            }
            Block::Call { id, name, input } => {
                let head = format!(
                    r#"{{"type":"tool_use","id":{},"name":{},"input":{{}}}}"#,
                    quote(id),
                    quote(name)
                );
                steps.push(start(&head));
                steps.push(delta(
                    r#""type":"input_json_delta","partial_json":"""#.to_owned(),
                ));
                for piece in pieces(input) {
                    steps.push(delta(format!(
                        r#""type":"input_json_delta","partial_json":{}"#,
                        quote(piece)
                    )));
                    let kind = in_tool.and_then(|kind| kind.strip_suffix("_tool"));
                    if fail(kind, request_id, steps) {
                        return true;
                    }
                }
            }
        }
        steps.push(event("content_block_stop", &format!(r#""index":{index}"#)));
        false
    }
}

/// One step of writing a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// One event.
    Bytes(String),
    /// A document, already encoded.
    Raw(bytes::Bytes),
    /// The connection breaks.
    Break,
    /// The body ends as if it were whole.
    End,
    /// Nothing more comes, and the connection stays open.
    Stall,
}

fn event(name: &str, members: &str) -> Step {
    let comma = if members.is_empty() { "" } else { "," };
    Step::Bytes(format!(
        "event: {name}\ndata: {{\"type\":\"{name}\"{comma}{members}}}\n\n"
    ))
}

/// Ends a stream with the failure of that name; false when it is none that happens inside a stream.
fn fail(kind: Option<&str>, request_id: &str, steps: &mut Vec<Step>) -> bool {
    let error = match kind {
        Some("drop") => {
            steps.push(Step::Break);
            return true;
        }
        Some("cut") => {
            steps.push(Step::End);
            return true;
        }
        Some("stall") => {
            steps.push(Step::Stall);
            return true;
        }
        Some("sse_overloaded") => kind_of(529),
        Some("sse_api_error") => kind_of(500),
        Some("sse_rate_limit") => kind_of(429),
        Some("sse_invalid") => kind_of(400),
        Some("sse_permission") => kind_of(403),
        _ => return false,
    };
    let message = if kind == Some("sse_overloaded") {
        "Overloaded"
    } else {
        INJECTED
    };
    steps.push(event(
        "error",
        &format!(
            r#""error":{{"type":"{error}","message":{}}},"request_id":{}"#,
            quote(message),
            quote(request_id)
        ),
    ));
    true
}

/// A text in at least [`PIECES`] pieces (if it is long enough), cut between characters.
#[must_use]
pub fn pieces(text: &str) -> Vec<&str> {
    let size = text.len().div_ceil(PIECES).clamp(1, MAX_PIECE);
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let cut = (size.min(rest.len())..=rest.len())
            .find(|at| rest.is_char_boundary(*at))
            .unwrap_or(rest.len());
        let (piece, after) = rest.split_at(cut);
        out.push(piece);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn answer() -> Answer {
        Answer {
            id: "msg_1".into(),
            model: "test-sonnet",
            blocks: vec![
                Block::Thinking("hm, naïve".into(), "sig".into()),
                Block::Text("Zwei Zeilen\nund ein ✓".into()),
                Block::Call {
                    id: "toolu_1".into(),
                    name: "Bash".into(),
                    input: r#"{"command":"ls"}"#.into(),
                },
            ],
            stop_reason: "tool_use",
            tokens: Tokens {
                read: 10,
                write_5m: 20,
                write_1h: 30,
                uncached: 40,
            },
            tier: "standard",
            fast: false,
            diagnostics: None,
            output: 7,
        }
    }

    fn events(steps: &[Step]) -> Vec<Value> {
        steps
            .iter()
            .filter_map(|step| match step {
                Step::Bytes(text) => {
                    let data = text.split_once("\ndata: ").unwrap().1;
                    Some(serde_json::from_str(data).unwrap())
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn the_stream_adds_up_to_the_document() {
        let answer = answer();
        let document: Value = serde_json::from_str(&answer.json()).unwrap();
        let events = events(&answer.stream(None, "req_1"));
        let mut text = String::new();
        let mut input = String::new();
        for event in &events {
            text.push_str(event["delta"]["text"].as_str().unwrap_or_default());
            input.push_str(event["delta"]["partial_json"].as_str().unwrap_or_default());
        }
        assert_eq!(document["content"][1]["text"], text);
        assert_eq!(
            document["content"][2]["input"],
            serde_json::from_str::<Value>(&input).unwrap()
        );
        let start = &events[0]["message"]["usage"];
        assert_eq!(start["cache_creation"], document["usage"]["cache_creation"]);
        assert_eq!(start["cache_creation_input_tokens"], 50);
        let delta = &events[events.len() - 2];
        assert_eq!(delta["type"], "message_delta");
        assert_eq!(delta["usage"]["output_tokens"], 7);
        assert_eq!(delta["usage"]["cache_read_input_tokens"], 10);
        assert!(delta["usage"]["cache_creation"].is_null());
        assert_eq!(events.last().unwrap()["type"], "message_stop");
    }

    #[test]
    fn failures_end_the_stream_inside_a_block() {
        let check = |kind: &str, last: Option<Step>| {
            let steps = answer().stream(Some(kind), "req_1");
            match last {
                Some(step) => assert_eq!(*steps.last().unwrap(), step, "{kind}"),
                None => assert_eq!(events(&steps).last().unwrap()["type"], "error", "{kind}"),
            }
            let events = events(&steps);
            assert!(
                events.iter().all(|event| event["type"] != "message_stop"),
                "{kind}"
            );
        };
        check("drop", Some(Step::Break));
        check("cut", Some(Step::End));
        check("stall", Some(Step::Stall));
        check("drop_tool", Some(Step::Break));
        check("cut_tool", Some(Step::End));
        for kind in [
            "sse_overloaded",
            "sse_api_error",
            "sse_rate_limit",
            "sse_invalid",
            "sse_permission",
        ] {
            check(kind, None);
        }
    }

    #[test]
    fn pieces_never_split_a_character() {
        for text in ["", "a", "ab", "é✓🦀", "🦀🦀🦀🦀🦀"] {
            assert_eq!(pieces(text).concat(), text);
        }
        assert_eq!(pieces(&"x".repeat(100_000)).len(), 13);
    }
}
