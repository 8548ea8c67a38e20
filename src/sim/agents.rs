//! Scripted agents: tool loops with a growing history, for the demo and for load.
//!
//! They set no cache markers and know nothing of the gateway but its URL and its run header.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::json::{Json, quote};

/// Longest a single request of an agent may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Largest answer an agent reads.
const MAX_ANSWER: usize = 16 << 20;

/// Bytes of the system prompt, about three thousand tokens.
const SYSTEM_BYTES: usize = 12_000;

/// Bytes of an ordinary tool result, about two hundred tokens.
const RESULT_BYTES: usize = 800;

/// Why an agent could not finish.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The request could not be made or its answer not be read.
    #[error("request to {url} failed: {reason}")]
    Request {
        /// Where to.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The answer was a refusal.
    #[error("answered {status}: {body}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its body, cut.
        body: String,
    },
    /// The answer was no message.
    #[error("the answer is no message: {0}")]
    NoMessage(String),
}

/// What an agent does.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Name of its run.
    pub run: String,
    /// Name of its application.
    pub app: String,
    /// Model to ask for.
    pub model: String,
    /// Turns that call a tool; one more ends the run.
    pub tool_turns: usize,
    /// Puts the time of day into the system prompt, which breaks the prefix each turn.
    pub clock_in_system: bool,
    /// Makes the same failing call over and over.
    pub stuck: bool,
    /// Asks for streams.
    pub stream: bool,
    /// Waits between a result and the next request, as tools take time.
    pub pause: Duration,
}

impl Agent {
    /// A healthy agent of twelve turns.
    #[must_use]
    pub fn new(run: &str) -> Self {
        Self {
            run: run.to_owned(),
            app: "demo".to_owned(),
            model: "claude-sonnet-5".to_owned(),
            tool_turns: 11,
            clock_in_system: false,
            stuck: false,
            stream: true,
            pause: Duration::ZERO,
        }
    }

    /// The system prompt at a turn.
    fn system(&self, turn: usize) -> String {
        let mut text = String::new();
        if self.clock_in_system {
            // Seconds that move each turn, as a careless template would fill them in.
            let _ = writeln!(
                text,
                "Current time: 2026-12-01T09:{:02}:{:02}Z.",
                turn / 60 % 60,
                turn % 60
            );
        }
        let _ = writeln!(text, "You are the agent of the run {}.", self.run);
        const RULES: &str = "Work in small steps. Read a file before you change it. Run the tests after each change, and \
            say in one sentence what you found. Never guess the content of a file that you have not read. ";
        while text.len() < SYSTEM_BYTES {
            text.push_str(RULES);
        }
        text
    }

    /// The body of a request, written by hand: what an agent sends must not depend on a serialiser.
    fn body(&self, turn: usize, messages: &str) -> String {
        format!(
            r#"{{"model":{},"max_tokens":1024,"stream":{},"system":{},"tools":{},"messages":[{messages}]}}"#,
            quote(&self.model),
            self.stream,
            quote(&self.system(turn)),
            tools(),
        )
    }

    /// Runs the agent against a base URL and gives the number of requests made.
    ///
    /// # Errors
    /// When a request fails or is refused.
    pub async fn run(&self, base_url: &str) -> Result<usize, AgentError> {
        let client: Client<HttpConnector, Full<Bytes>> =
            Client::builder(TokioExecutor::new()).build_http();
        let word = if self.stuck { "same_fail" } else { "shell_ok" };
        let plan = vec![word; self.tool_turns].join(",");
        let task = format!(
            "Task of {}: make the tests pass. [[plan:{plan},end]]",
            self.run
        );
        let mut messages = format!(r#"{{"role":"user","content":{}}}"#, quote(&task));
        let mut turn = 0;
        loop {
            let answer = self
                .ask(&client, base_url, self.body(turn, &messages))
                .await?;
            turn += 1;
            let content = answer.blocks.join(",");
            let _ = write!(messages, r#",{{"role":"assistant","content":[{content}]}}"#);
            if answer.calls.is_empty() || turn > self.tool_turns {
                return Ok(turn);
            }
            let results: Vec<String> = answer
                .calls
                .iter()
                .map(|id| self.result(id, turn))
                .collect();
            let _ = write!(
                messages,
                r#",{{"role":"user","content":[{}]}}"#,
                results.join(",")
            );
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
    }

    fn result(&self, id: &str, turn: usize) -> String {
        let (text, failed) = if self.stuck {
            (
                "cat: /nonexistent-same: No such file or directory".to_owned(),
                true,
            )
        } else {
            let line = format!("test {turn}: module passes, 14 assertions, 0 failures\\n");
            (line.repeat(RESULT_BYTES / line.len()), false)
        };
        format!(
            r#"{{"type":"tool_result","tool_use_id":{},"content":{},"is_error":{failed}}}"#,
            quote(id),
            quote(&text)
        )
    }

    async fn ask(
        &self,
        client: &Client<HttpConnector, Full<Bytes>>,
        base_url: &str,
        body: String,
    ) -> Result<Heard, AgentError> {
        let url = format!("{base_url}/v1/messages");
        let failed = |reason: String| AgentError::Request {
            url: url.clone(),
            reason,
        };
        let request = Request::post(&url)
            .header("content-type", "application/json")
            .header("x-api-key", "demo-key")
            .header("anthropic-version", "2023-06-01")
            .header("user-agent", "prefixgate-demo-agent")
            .header("x-prefixgate-run", &self.run)
            .header("x-prefixgate-app", &self.app)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = client.request(request).await.map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                failed(cause.unwrap_or_else(|| error.to_string()))
            })?;
            let status = response.status().as_u16();
            let body = http_body_util::Limited::new(response.into_body(), MAX_ANSWER)
                .collect()
                .await
                .map_err(|error| failed(error.to_string()))?
                .to_bytes();
            Ok::<_, AgentError>((status, String::from_utf8_lossy(&body).into_owned()))
        };
        let (status, text) = tokio::time::timeout(REQUEST_LIMIT, exchange)
            .await
            .map_err(|_| failed("no whole answer in time".to_owned()))??;
        if status != 200 {
            let body = text.chars().take(300).collect();
            return Err(AgentError::Refused { status, body });
        }
        let heard = if self.stream {
            from_stream(&text)
        } else {
            from_document(&text)
        };
        heard.ok_or_else(|| AgentError::NoMessage(text.chars().take(300).collect()))
    }
}

/// What came back: the content as it goes into the history, and the ids of its calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    blocks: Vec<String>,
    calls: Vec<String>,
}

fn from_document(text: &str) -> Option<Heard> {
    let message = Json::parse(text.as_bytes()).ok()?;
    let mut heard = Heard::default();
    for block in message.get("content")?.items() {
        heard.calls.extend(block.text_of("id"));
        heard.blocks.push(block.compact());
    }
    Some(heard)
}

/// Reads a whole stream; `None` unless it ended with its terminal event.
fn from_stream(text: &str) -> Option<Heard> {
    let mut heard = Heard::default();
    let mut ended = false;
    let mut start = Json::Null;
    let mut written = String::new();
    let mut signature = String::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event = Json::parse(line.as_bytes()).ok()?;
        match event.text_of("type")?.as_str() {
            "content_block_start" => {
                start = event.get("content_block")?.clone();
                written.clear();
                signature.clear();
            }
            "content_block_delta" => {
                let delta = event.get("delta")?;
                for key in ["text", "partial_json", "thinking"] {
                    written.push_str(&delta.text_of(key).unwrap_or_default());
                }
                signature.push_str(&delta.text_of("signature").unwrap_or_default());
            }
            "content_block_stop" => {
                let text = quote(&written);
                heard.blocks.push(match start.text_of("type")?.as_str() {
                    "text" => format!(r#"{{"type":"text","text":{text}}}"#),
                    "thinking" => format!(
                        r#"{{"type":"thinking","thinking":{text},"signature":{}}}"#,
                        quote(&signature)
                    ),
                    _ => {
                        let (id, name) = (start.text_of("id")?, start.text_of("name")?);
                        let block = format!(
                            r#"{{"type":"tool_use","id":{},"name":{},"input":{written}}}"#,
                            quote(&id),
                            quote(&name)
                        );
                        heard.calls.push(id);
                        block
                    }
                });
            }
            "message_stop" => ended = true,
            _ => {}
        }
    }
    ended.then_some(heard)
}

/// Eight tools, as a coding agent declares them.
fn tools() -> String {
    let tool = |name: &str, about: &str, argument: &str| {
        format!(
            concat!(
                r#"{{"name":"{}","description":"{} Use it only when the task needs it, and prefer the narrowest call that "#,
                r#"answers the question.","input_schema":{{"type":"object","properties":{{"{}":{{"type":"string","#,
                r#""description":"What to work on."}}}},"required":["{}"]}}}}"#
            ),
            name, about, argument, argument
        )
    };
    let all = [
        tool(
            "Bash",
            "Runs a shell command and gives its output.",
            "command",
        ),
        tool("Read", "Reads a file.", "file_path"),
        tool("Write", "Writes a file.", "file_path"),
        tool("Edit", "Replaces text in a file.", "file_path"),
        tool("Glob", "Finds files by name.", "pattern"),
        tool("Grep", "Finds text in files.", "pattern"),
        tool("WebFetch", "Fetches a page.", "url"),
        tool("TodoWrite", "Keeps the list of open points.", "todos"),
    ];
    format!("[{}]", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Options, Sim, Tokens};

    async fn played(agent: Agent) -> (usize, Vec<Tokens>) {
        let sim = Sim::start(Options::default()).unwrap();
        let turns = agent.run(&sim.base_url()).await.unwrap();
        let tokens = sim
            .requests()
            .iter()
            .map(|request| request.tokens.unwrap())
            .collect();
        sim.shutdown().await;
        (turns, tokens)
    }

    #[tokio::test]
    async fn an_agent_plays_its_turns_with_a_growing_history() {
        for stream in [true, false] {
            let (turns, tokens) = played(Agent {
                stream,
                ..Agent::new("r")
            })
            .await;
            assert_eq!((turns, tokens.len()), (12, 12));
            assert!(
                tokens
                    .windows(2)
                    .all(|pair| pair[0].total() < pair[1].total())
            );
            assert!(tokens[0].total() > 3_000, "{:?}", tokens[0]);
            assert!(
                tokens.iter().all(|t| t.read == 0 && t.written() == 0),
                "it sets no markers"
            );
        }
    }

    #[tokio::test]
    async fn agents_echo_bound_thinking_unchanged() {
        let agent = Agent {
            model: "claude-sonnet-5-5".into(),
            ..Agent::new("r")
        };
        assert_eq!(played(agent).await.0, 12);
    }

    #[tokio::test]
    async fn a_stuck_agent_repeats_one_failing_call() {
        let sim = Sim::start(Options::default()).unwrap();
        let agent = Agent {
            stuck: true,
            tool_turns: 3,
            ..Agent::new("r")
        };
        assert_eq!(agent.run(&sim.base_url()).await.unwrap(), 4);
        let last = sim.requests().pop().unwrap();
        let text = String::from_utf8_lossy(&last.body);
        assert_eq!(
            text.matches(r#""command":"cat /nonexistent-same""#).count(),
            3
        );
        assert_eq!(text.matches(r#""is_error":true"#).count(), 3);
    }

    #[test]
    fn the_clock_moves_each_turn_and_only_if_asked() {
        let broken = Agent {
            clock_in_system: true,
            ..Agent::new("r")
        };
        assert_ne!(broken.system(1), broken.system(2));
        let healthy = Agent::new("r");
        assert_eq!(healthy.system(1), healthy.system(2));
    }

    #[test]
    fn a_stream_without_its_end_is_no_answer() {
        assert_eq!(from_stream("data: {\"type\":\"message_start\"}\n\n"), None);
        assert_eq!(
            from_stream("data: {\"type\":\"message_stop\"}\n\n"),
            Some(Heard::default())
        );
    }
}
