//! A crew at work on a provider.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use prefixgate::agent::budget::Budget;
use prefixgate::agent::crew::{Crew, Post};
use prefixgate::agent::driver::Options;
use prefixgate::agent::journal::Scratch;
use prefixgate::agent::machine::{Setup, ToolSpec};
use prefixgate::agent::model::{Endpoint, Messages};
use prefixgate::agent::notice::{Listener, Notice};
use prefixgate::agent::subagent::Spawning;
use prefixgate::agent::tools::{CallContext, Manners, Tool, ToolResult, Toolbox};
use prefixgate::clock::Clock;
use prefixgate::config::Config;
use prefixgate::usage::PriceBook;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::play::setup;

/// A tool from a function.
pub struct Fun<F> {
    pub name: &'static str,
    pub schema: &'static str,
    pub manners: Manners,
    pub does: F,
}

impl<F> Tool for Fun<F>
where
    F: Fn(Value, CallContext) -> BoxFuture<'static, ToolResult> + Send + Sync,
{
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            description: format!("The tool {}. Use it when you are told to.", self.name),
            schema: self.schema.to_owned(),
        }
    }

    fn manners(&self) -> Manners {
        self.manners
    }

    fn call(&self, input: Value, context: CallContext) -> BoxFuture<'static, ToolResult> {
        (self.does)(input, context)
    }
}

/// A shell that only says what it was given.
pub fn shell() -> Arc<dyn Tool> {
    Arc::new(Fun {
        name: "bash",
        schema: r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}"#,
        manners: Manners::CHANGES,
        does: |input: Value, _| {
            let command = input["command"].as_str().unwrap().to_owned();
            let text = match command.contains("nonexistent") {
                true => Err(prefixgate::agent::tools::ToolError::failed(
                    "exit",
                    "no such file",
                )),
                false => Ok(format!("output of {command}: {}", "line ".repeat(200))),
            };
            Box::pin(std::future::ready(text)) as BoxFuture<'static, ToolResult>
        },
    })
}

/// What was told, by agent.
#[derive(Default)]
pub struct Heard(pub Mutex<Vec<(String, String)>>);

impl Heard {
    pub fn all(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap().clone()
    }

    /// What was heard of a kind, whoever said it.
    pub fn of(&self, kind: &str) -> Vec<String> {
        let all = self.all();
        let some = all.iter().filter_map(|(_, what)| what.strip_prefix(kind));
        some.map(str::to_owned).collect()
    }
}

impl Listener for Heard {
    fn notice(&self, agent: &str, notice: Notice<'_>) {
        let what = match notice {
            Notice::Began(_) => "began".to_owned(),
            Notice::Planned { number, steps } => format!("planned {number}: {}", steps.join(", ")),
            Notice::Judged { passed, why } => format!("judged {passed}: {why}"),
            Notice::Reflected(text) => format!("reflected {text}"),
            Notice::Compacted(done) => format!("compacted {}", done.is_ok()),
            Notice::Ended { outcome, .. } => format!("ended {}", outcome.as_str()),
            Notice::CallBegan { call, .. } => format!("call {}", call.name),
            Notice::CallEnded { result, .. } => format!("result {}", result.text),
            Notice::Reset { reason, .. } => format!("reset {reason}"),
            _ => return,
        };
        self.0.lock().unwrap().push((agent.to_owned(), what));
    }
}

pub fn endpoint(base: &str) -> Endpoint {
    Endpoint {
        format: Box::new(Messages),
        base: base.to_owned(),
        key: "sk-ant-api03-test".to_owned(),
        client: prefixgate::proxy::upstream::clients(&Config::embedded(PathBuf::new()))
            .unwrap()
            .pooled,
        prices: Arc::new(PriceBook::new(&[]).unwrap()),
        provider: "anthropic".to_owned(),
        silence: Duration::from_secs(60),
    }
}

pub struct Site {
    pub base: String,
    pub tools: Toolbox,
    pub spawning: Option<Spawning>,
    pub journals: Scratch,
    pub heard: Arc<Heard>,
    pub cancelled: CancellationToken,
}

impl Site {
    pub fn new(base: &str, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let mut toolbox = Toolbox::new();
        for tool in tools {
            toolbox.add(tool);
        }
        Self {
            base: base.to_owned(),
            tools: toolbox,
            spawning: Some(Spawning::default()),
            journals: Scratch::default(),
            heard: Arc::default(),
            cancelled: CancellationToken::new(),
        }
    }

    /// The crew as one process has it.
    pub fn crew(&self) -> Arc<Crew> {
        Arc::new(Crew {
            endpoint: Arc::new(endpoint(&self.base)),
            tools: self.tools.clone(),
            spawning: self.spawning.clone(),
            journals: Arc::new(self.journals.clone()),
            listener: Arc::clone(&self.heard) as Arc<dyn Listener>,
            budget: Budget::default(),
            clock: Clock::Real,
            options: Options::default(),
        })
    }

    pub fn post(&self, crew: &Crew, setup: Setup, task: &str) -> Post {
        Post {
            setup,
            task: task.to_owned(),
            allowed: None,
            budget: crew.budget.clone(),
            cancelled: self.cancelled.clone(),
        }
    }
}

/// A setup with a system prompt that is long enough to be cached.
pub fn cached() -> Setup {
    let mut setup = setup();
    setup.system = "Work in small steps. Read a file before you change it. ".repeat(160);
    setup
}
