//! Runs of the loop client with tools of a test, through the real gateway to the simulated
//! provider; and what client and gateway have made of them.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use prefixgate::agent::crew::{Crew, Post};
use prefixgate::agent::driver::Agent;
use prefixgate::agent::machine::{Outcome, Setup};
use prefixgate::agent::model::Endpoint;
use prefixgate::agent::notice::{Listener, Notice};
use prefixgate::agent::talk::{CallResult, Entry};
use prefixgate::agent::tools::{Manners, ToolError, Toolbox, raw};
use prefixgate::provider::wire::Wire;
use prefixgate::sim::{Options, Sim};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::world::{Ended, agent, ended};
use crate::it_support::Gateway;

/// How a call ends: a result, or the words of a failure.
pub type End = Result<String, String>;

/// Tools of a test, and the calls of them that were made, in order.
#[derive(Default)]
pub struct Hands {
    toolbox: Toolbox,
    made: Arc<Mutex<Vec<&'static str>>>,
}

impl Hands {
    /// One more tool; `end` is how its n-th call ends, from 1.
    pub fn with(
        mut self,
        name: &'static str,
        end: impl Fn(usize) -> End + Send + Sync + 'static,
    ) -> Self {
        let made = Arc::clone(&self.made);
        let schema = r#"{"type":"object"}"#;
        let work = move |_, _| {
            let mut made = made.lock().unwrap();
            made.push(name);
            let n = made.iter().filter(|one| **one == name).count();
            let end = end(n).map_err(ToolError::Said);
            async move { end }
        };
        let tool = raw(name, "A tool of a test.", schema, Manners::CHANGES, work);
        self.toolbox.add(tool);
        self
    }

    /// One more tool that always gives this.
    pub fn says(self, name: &'static str, text: &'static str) -> Self {
        self.with(name, move |_| Ok(text.to_owned()))
    }

    /// One more tool that always fails in these words.
    pub fn fails(self, name: &'static str, text: &'static str) -> Self {
        self.with(name, move |_| Err(text.to_owned()))
    }
}

/// How often the model was asked.
#[derive(Default)]
struct Asked(AtomicUsize);

impl Listener for Asked {
    fn notice(&self, _agent: &str, notice: Notice<'_>) {
        if matches!(notice, Notice::Asked { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A loop that the gateway has recorded with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// How many results stood in the request.
    pub results: usize,
    pub detector: String,
    pub tools: Vec<String>,
    pub count: u64,
    pub period: u64,
}

/// Every loop in the records of a run in which each answer made one call, so that request `n` has
/// brought `n` results.
pub fn flags(records: &[Value]) -> Vec<Flag> {
    let found = records.iter().enumerate().flat_map(|(results, record)| {
        let findings = record["guard"]["findings"].as_array();
        let findings = findings.map(Vec::as_slice).unwrap_or_default();
        findings.iter().map(move |finding| Flag {
            results,
            detector: finding["detector"].as_str().unwrap().to_owned(),
            tools: serde_json::from_value(finding["tools"].clone()).unwrap(),
            count: finding["count"].as_u64().unwrap(),
            period: finding["period"].as_u64().unwrap(),
        })
    });
    found.collect()
}

/// A run that has ended.
pub struct Ran {
    crew: Arc<Crew>,
    setup: Setup,
    asked: Arc<Asked>,
    /// How.
    pub outcome: Outcome,
    /// The results as the model reads them, in order.
    pub results: Vec<CallResult>,
    /// The tools whose calls were made, in order.
    pub made: Vec<&'static str>,
    /// The gateway's records, in order.
    pub records: Vec<Value>,
}

impl Ran {
    /// The results, by number from 1, in which the client has told the model of a loop.
    pub fn told(&self) -> Vec<usize> {
        self.those(|text| text.contains("<system-reminder>"))
    }

    /// Those with which it has refused a call.
    pub fn refused(&self) -> Vec<usize> {
        self.those(|text| text.starts_with("not run: "))
    }

    fn those(&self, are: impl Fn(&str) -> bool) -> Vec<usize> {
        let numbered = self.results.iter().zip(1..);
        let those = numbered.filter(|(result, _)| are(&result.text));
        those.map(|(_, number)| number).collect()
    }

    pub fn flags(&self) -> Vec<Flag> {
        flags(&self.records)
    }

    /// How often the client has sent a request.
    pub fn asked(&self) -> usize {
        self.asked.0.load(Ordering::Relaxed)
    }
}

/// A simulated provider, and the real program before it.
pub struct Scene {
    pub sim: Sim,
    pub gateway: Gateway,
}

impl Scene {
    /// With this configuration of the gateway.
    pub fn start(config: &str) -> Self {
        let sim = Sim::start(Options::default()).unwrap();
        let gateway = Gateway::with(&sim.base_url(), config, &[]);
        Self { sim, gateway }
    }

    /// Has the model make these calls (in the words of a plan, less `tool=`) until it says that it
    /// is done. `threshold` is the client's own.
    pub async fn run(&self, threshold: u32, calls: &[impl AsRef<str>], hands: Hands) -> Ran {
        let Hands { toolbox, made } = hands;
        let endpoint = Endpoint::new(Wire::Messages, &self.gateway.url(), "sk-test").unwrap();
        let asked = Arc::new(Asked::default());
        let mut crew = Crew::new(endpoint, toolbox);
        crew.listener = Arc::clone(&asked) as Arc<dyn Listener>;
        let mut setup = Setup::new(Wire::Messages, "claude-sonnet-5", "Work.");
        setup.limits.turns = 100;
        setup.loop_threshold = threshold;
        let steps: String = calls
            .iter()
            .map(|call| format!("tool={},", call.as_ref()))
            .collect();
        let crew = Arc::new(crew);
        let agent = work(&crew, &setup, format!("Go on. [[plan:{steps}end]]")).await;
        let made = made.lock().unwrap().clone();
        let requests = asked.0.load(Ordering::Relaxed);
        let ran = Ran {
            outcome: agent.run().outcome().unwrap().clone(),
            results: results(&agent),
            made,
            records: self.gateway.turns_of(&setup.run, requests).await,
            crew,
            setup,
            asked,
        };
        assert_eq!(ran.records.len(), ran.asked(), "one record a request");
        ran
    }

    /// Goes on with a run that was stopped.
    pub async fn go_on(&self, ran: &mut Ran) {
        let agent = work(&ran.crew, &ran.setup, String::new()).await;
        ran.outcome = agent.run().outcome().unwrap().clone();
        ran.results = results(&agent);
        ran.records = self.gateway.turns_of(&ran.setup.run, ran.asked()).await;
    }

    /// `prefixgate agent`, whose home and files are in `dir`.
    pub async fn command(&self, dir: &Path, args: &[&str]) -> Ended {
        let mut command = agent(dir);
        command
            .args(args)
            .env("ANTHROPIC_BASE_URL", self.gateway.url())
            .env("ANTHROPIC_API_KEY", "sk-ant-api03-not-a-key")
            .env("PREFIXGATE_AGENT_ROOT", dir);
        ended(command).await
    }

    /// How many loops the gateway has counted.
    pub async fn loops(&self, labels: &[&str]) -> f64 {
        self.gateway.metric("prefixgate_loops_total", labels).await
    }

    /// How many requests have come to the provider. All were taken.
    pub fn forwarded(&self) -> usize {
        let seen = self.sim.requests();
        assert!(seen.iter().all(|seen| seen.status == Some(200)), "{seen:?}");
        seen.len()
    }
}

async fn work(crew: &Arc<Crew>, setup: &Setup, task: String) -> Agent {
    let post = Post {
        setup: setup.clone(),
        task,
        allowed: None,
        budget: crew.budget.clone(),
        cancelled: CancellationToken::new(),
    };
    crew.work(post).await.unwrap()
}

fn results(agent: &Agent) -> Vec<CallResult> {
    let entries = agent.run().entries().iter();
    let results = entries.filter_map(|entry| match entry {
        Entry::User { results, .. } => Some(results.clone()),
        Entry::Assistant(_) => None,
    });
    results.flatten().collect()
}
