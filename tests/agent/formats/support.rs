//! What these tests stand on: an agent with one tool, a journal and a listener that can be looked
//! into, and scripted origins.

#![allow(dead_code, reason = "each test uses a part of it")]

pub use crate::it_support::{client, secure, upstream};

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use prefixgate::agent::budget::Budget;
use prefixgate::agent::driver::{Agent, Delegated, Options, Parts};
use prefixgate::agent::journal::{Journal, JournalError};
use prefixgate::agent::machine::{AgentRun, Event, Happened, Limits, Setup, ToolSpec};
use prefixgate::agent::model::{Endpoint, Piece, Whole, format_of};
use prefixgate::agent::notice::{Listener, Notice};
use prefixgate::agent::tools::{CallContext, Manners, Tool, ToolResult, Toolbox};
use prefixgate::clock::Clock;
use prefixgate::config::Config;
use prefixgate::provider::wire::Wire;
use prefixgate::usage::PriceBook;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use upstream::{LAST_CHUNK, SSE_HEAD, Step, Upstream, chunk};

/// All formats, each with a model that the simulated provider knows.
pub const FORMATS: [(Wire, &str); 3] = [
    (Wire::Messages, "claude-sonnet-5"),
    (Wire::Chat, "gpt-5.6-sol"),
    (Wire::Responses, "gpt-5.6-sol"),
];

/// A tool that notes its calls and says what it is told to say.
#[derive(Clone, Default)]
pub struct Search {
    pub says: Arc<Mutex<String>>,
    pub called: Arc<Mutex<Vec<String>>>,
}

impl Tool for Search {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "search".to_owned(),
            description: "Searches for a text.".to_owned(),
            schema: r#"{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}"#
                .to_owned(),
        }
    }

    fn manners(&self) -> Manners {
        Manners::READS
    }

    fn call(&self, _input: Value, context: CallContext) -> BoxFuture<'static, ToolResult> {
        self.called.lock().unwrap().push(context.call);
        let says = self.says.lock().unwrap().clone();
        async move { Ok(says) }.boxed()
    }
}

/// A journal that a test can look into.
#[derive(Clone, Default)]
pub struct Kept(pub Arc<Mutex<Vec<Happened>>>);

impl Journal for Kept {
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError> {
        self.0.lock().unwrap().push(happened.clone());
        Ok(())
    }

    fn settle(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn checkpoint(&mut self, _run: &AgentRun) -> Result<(), JournalError> {
        Ok(())
    }

    fn load(&mut self) -> Result<Option<AgentRun>, JournalError> {
        Ok(AgentRun::fold(&*self.0.lock().unwrap()))
    }

    fn events(&mut self) -> Result<Vec<Happened>, JournalError> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Notes what is told, a word each.
#[derive(Default)]
pub struct Told(pub Mutex<Vec<String>>);

impl Told {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Listener for Told {
    fn notice(&self, _agent: &str, notice: Notice<'_>) {
        let word = match notice {
            Notice::Asked { attempt, .. } => format!("asked {attempt}"),
            Notice::Text(text) => format!("text {text}"),
            Notice::Reset { wait, .. } => format!("reset {}", wait.is_some()),
            Notice::ThinkingDropped(count) => format!("thinking dropped {count}"),
            Notice::CallBegan { call, .. } => format!("call {}", call.id),
            _ => return,
        };
        self.0.lock().unwrap().push(word);
    }
}

/// An agent with all that it is seen by.
pub struct World {
    pub agent: Agent,
    pub journal: Kept,
    pub told: Arc<Told>,
    pub search: Search,
    pub cancelled: CancellationToken,
}

impl World {
    pub fn events(&self) -> Vec<Event> {
        self.journal
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|h| h.event.clone())
            .collect()
    }
}

pub fn setup(wire: Wire, model: &str) -> Setup {
    Setup {
        run: "run-1".to_owned(),
        agent: "main".to_owned(),
        parent: None,
        depth: 0,
        wire,
        model: model.to_owned(),
        system: "You search. ".repeat(600),
        tools: vec![Search::default().spec()],
        max_tokens: 1000,
        effort: None,
        window: 200_000,
        compact_at: 160_000,
        limits: Limits::default(),
        loop_threshold: 0,
    }
}

pub fn endpoint(wire: Wire, base: &str) -> Endpoint {
    endpoint_with(wire, base, &Config::embedded(PathBuf::new()))
}

pub fn endpoint_with(wire: Wire, base: &str, config: &Config) -> Endpoint {
    Endpoint {
        format: format_of(wire),
        base: base.to_owned(),
        key: "k".to_owned(),
        client: prefixgate::proxy::upstream::clients(config).unwrap().pooled,
        prices: Arc::new(PriceBook::new(&[]).unwrap()),
        provider: match wire {
            Wire::Messages => "anthropic".to_owned(),
            Wire::Chat | Wire::Responses => "openai".to_owned(),
        },
        silence: Duration::from_secs(20),
    }
}

/// An agent that begins with `task`.
pub fn agent(
    wire: Wire,
    model: &str,
    base: &str,
    task: &str,
    change: impl FnOnce(&mut Setup, &mut Options),
) -> World {
    let (journal, told, search) = (
        Kept::default(),
        Arc::new(Told::default()),
        Search::default(),
    );
    "found".clone_into(&mut search.says.lock().unwrap());
    let mut toolbox = Toolbox::new();
    toolbox.add(Arc::new(search.clone()));
    let mut setup = setup(wire, model);
    let mut options = Options {
        attempts: 1,
        ..Options::default()
    };
    change(&mut setup, &mut options);
    let cancelled = CancellationToken::new();
    let parts = Parts {
        endpoint: Arc::new(endpoint(wire, base)),
        toolbox: Arc::new(toolbox),
        journal: Box::new(journal.clone()),
        listener: Arc::clone(&told) as Arc<dyn Listener>,
        budget: Budget::default(),
        delegated: Delegated::default(),
        cancelled: cancelled.clone(),
        clock: Clock::Real,
        options,
    };
    World {
        agent: Agent::begin(parts, setup, task).unwrap(),
        journal,
        told,
        search,
        cancelled,
    }
}

/// What an answer of this format comes to when its stream arrives in these pieces, and what was
/// told meanwhile. `None` where it is broken.
pub fn assemble<'a>(
    wire: Wire,
    bytes: impl IntoIterator<Item = &'a [u8]>,
) -> (Option<Whole>, Vec<Piece>) {
    let mut making = format_of(wire).assembler("m");
    let mut decoder = prefixgate::sse::Decoder::new(1 << 20);
    let mut pieces = Vec::new();
    for bytes in bytes {
        decoder.feed(bytes, |event| making.event(event, &mut pieces));
    }
    (making.finish().ok(), pieces)
}

/// The same from one body.
pub fn assemble_body(wire: Wire, json: &str) -> (Option<Whole>, Vec<Piece>) {
    let mut making = format_of(wire).assembler("m");
    let mut pieces = Vec::new();
    making.body(json.as_bytes(), &mut pieces);
    (making.finish().ok(), pieces)
}

/// A stream of data as an answer.
pub fn streamed(events: &str) -> Vec<Step> {
    let mut bytes = SSE_HEAD.to_vec();
    bytes.extend(chunk(events.as_bytes()));
    bytes.extend(LAST_CHUNK);
    vec![Step::Write(bytes)]
}

/// Events with their type as a name.
pub fn events<S: AsRef<str>>(data: impl IntoIterator<Item = S>) -> String {
    data.into_iter()
        .map(|data| upstream::event(data.as_ref()))
        .collect()
}

/// An answer of Messages in which every block comes whole.
pub fn messages(blocks: &[&str], end: &str) -> String {
    let mut data = vec![
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}"#
            .to_owned(),
    ];
    for (index, block) in blocks.iter().enumerate() {
        data.push(format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#
        ));
        data.push(format!(
            r#"{{"type":"content_block_stop","index":{index}}}"#
        ));
    }
    data.push(format!(
        r#"{{"type":"message_delta","delta":{end},"usage":{{"output_tokens":5}}}}"#
    ));
    data.push(r#"{"type":"message_stop"}"#.to_owned());
    events(data)
}

/// The same with nothing but a reason to stop.
pub fn stopping(blocks: &[&str], reason: &str) -> String {
    messages(blocks, &format!(r#"{{"stop_reason":"{reason}"}}"#))
}

/// Whether the simulated provider takes a request, signatures left aside; its words if not.
pub async fn accepted(wire: Wire, body: &[u8]) -> Result<(), String> {
    let sim = prefixgate::sim::Sim::start(prefixgate::sim::Options {
        check_signatures: false,
        ..prefixgate::sim::Options::default()
    })
    .unwrap();
    let path = format_of(wire).path();
    let headers = ["authorization: Bearer k"];
    let reply = client::Wire::exchange(sim.addr(), path, &headers, body).await;
    match reply.status {
        200 => Ok(()),
        status => Err(format!("{status}: {}", reply.text())),
    }
}
