//! A world that is the same each time: a simulated provider, and tools that note each call they
//! make.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use prefixgate::agent::budget::Budget;
use prefixgate::agent::driver::{Delegated, Options, Parts};
use prefixgate::agent::journal::Journal;
use prefixgate::agent::machine::{Event, Happened, Limits, Setup, ToolSpec};
use prefixgate::agent::model::{Endpoint, format_of};
use prefixgate::agent::notice::Silent;
use prefixgate::agent::tools::{CallContext, Manners, Tool, ToolResult, Toolbox};
use prefixgate::clock::Clock;
use prefixgate::config::Config;
use prefixgate::provider::wire::Wire;
use prefixgate::proxy::upstream::clients;
use prefixgate::sim::{self, Sim};
use prefixgate::usage::PriceBook;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub const MODEL: &str = "claude-sonnet-5";

/// Calls that were made: the tool, and the key.
pub type Made = Arc<Mutex<Vec<(String, String)>>>;

/// Notes its calls, and gives a text of a size.
pub struct Noting {
    name: &'static str,
    manners: Manners,
    bytes: usize,
    made: Made,
}

impl Tool for Noting {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            description: format!("{} something. For tests.", self.name),
            schema: r#"{"type":"object","properties":{}}"#.to_owned(),
        }
    }

    fn manners(&self) -> Manners {
        self.manners
    }

    fn call(&self, _input: Value, context: CallContext) -> BoxFuture<'static, ToolResult> {
        self.made
            .lock()
            .unwrap()
            .push((self.name.to_owned(), context.key));
        let text = format!("{}: {}", self.name, "x ".repeat(self.bytes / 2));
        Box::pin(async move { Ok(text) })
    }
}

/// The tools of this world: two that may be called again, two that may not.
pub const IDEMPOTENT: [&str; 2] = ["look", "count"];
const ALONE: Manners = Manners {
    serial: true,
    ..Manners::READS
};
const BESIDE: Manners = Manners {
    serial: false,
    ..Manners::CHANGES
};

pub struct World {
    pub sim: Sim,
    pub made: Made,
    endpoint: Arc<Endpoint>,
    clock: Clock,
}

impl World {
    pub fn start() -> Self {
        let sim = Sim::start(sim::Options::default()).unwrap();
        let config = Config::embedded(PathBuf::new());
        let endpoint = Endpoint {
            format: format_of(Wire::Messages),
            base: sim.base_url(),
            key: "test".to_owned(),
            client: clients(&config).unwrap().pooled,
            prices: Arc::new(PriceBook::new(&[]).unwrap()),
            provider: "anthropic".to_owned(),
            silence: Duration::from_secs(30),
        };
        Self {
            sim,
            made: Made::default(),
            endpoint: Arc::new(endpoint),
            clock: Clock::manual().0,
        }
    }

    pub fn toolbox(&self) -> Toolbox {
        let mut toolbox = Toolbox::new();
        let tools = [
            ("look", Manners::READS, 1500),
            ("count", ALONE, 1500),
            ("charge", Manners::CHANGES, 100),
            ("send", BESIDE, 100),
        ];
        for (name, manners, bytes) in tools {
            toolbox.add(Arc::new(Noting {
                name,
                manners,
                bytes,
                made: Arc::clone(&self.made),
            }));
        }
        toolbox
    }

    pub fn setup(&self, run: &str) -> Setup {
        Setup {
            run: run.to_owned(),
            agent: "main".to_owned(),
            parent: None,
            depth: 0,
            wire: Wire::Messages,
            model: MODEL.to_owned(),
            system: "You are a test.".to_owned(),
            tools: self.toolbox().specs(),
            max_tokens: 4096,
            effort: None,
            window: 200_000,
            compact_at: 150_000,
            limits: Limits::default(),
            loop_threshold: 0,
        }
    }

    pub fn parts(&self, journal: Box<dyn Journal>) -> Parts {
        Parts {
            endpoint: Arc::clone(&self.endpoint),
            toolbox: Arc::new(self.toolbox()),
            journal,
            listener: Arc::new(Silent),
            budget: Budget::default(),
            delegated: Delegated::default(),
            cancelled: CancellationToken::new(),
            clock: self.clock.clone(),
            options: Options {
                checkpoint_every: 3,
                ..Options::default()
            },
        }
    }

    /// The calls since this was last asked.
    pub fn made(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.made.lock().unwrap())
    }

    /// The bodies of requests since this was last asked, all of which must have been accepted.
    pub fn asked(&self) -> Vec<String> {
        let requests = self.sim.requests();
        self.sim.forget_requests();
        requests
            .into_iter()
            .map(|request| {
                assert_eq!(request.status, Some(200), "{:?}", request.error);
                String::from_utf8(request.body.to_vec()).unwrap()
            })
            .collect()
    }
}

/// A run resumed without other limits.
pub fn resumed() -> Event {
    Event::Resumed { limits: None }
}

pub fn happened(event: Event) -> Happened {
    Happened { at_ms: 1, event }
}

/// The journal of the outermost agent.
pub fn main_of(data_dir: &Path, run: &str) -> PathBuf {
    data_dir.join("agent").join(run).join("main.jsonl")
}
