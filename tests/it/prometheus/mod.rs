//! Metrics, rules, dashboards and the compose file, held against the real gateway, the real Prometheus,
//! its tools and Alertmanager, and Grafana's own schema.

mod compose;
pub mod dashboards;
mod reference;
mod rules;
mod scraped;

use std::time::Duration;

use prefixgate::sim::agents::Agent;
use prefixgate::sim::{Options, Sim};

use crate::support::{ClickHouse, Gateway, Step, Upstream, Wire, eventually};

/// What the scraped gateway is set up to do: applications with labels, one of them capped, and an
/// upstream that nobody answers at.
const CONFIG: &str = r#"
[metrics]
apps = ["demo", "capped"]
[app.capped]
turns = 1
[upstream.dead]
url = "http://127.0.0.1:9"
format = "anthropic"
prices = "anthropic"
"#;

/// A gateway before the simulated provider, and traffic through it of every kind that metrics tell
/// apart.
struct Scene {
    gateway: Gateway,
    sim: Sim,
    rounds: usize,
}

impl Scene {
    fn start() -> Self {
        let sim = Sim::start(Options {
            record_requests: 0,
            ..Options::default()
        })
        .unwrap();
        Self {
            gateway: Gateway::with(&sim.base_url(), CONFIG, &[]),
            sim,
            rounds: 0,
        }
    }

    /// Agents that are well, stuck, careless with their prompt and beyond their cap; then requests
    /// that go wrong in one way each.
    async fn round(&mut self) {
        self.rounds += 1;
        let to = self.gateway.url();
        let agent = |name: &str| {
            let mut agent = Agent::new(&format!("{name}-{}", self.rounds));
            agent.tool_turns = 5;
            agent.pause = Duration::from_millis(20);
            agent
        };
        agent("well").run(&to).await.unwrap();
        let mut stuck = agent("stuck");
        stuck.stuck = true;
        stuck.run(&to).await.unwrap();
        let mut careless = agent("careless");
        careless.clock_in_system = true;
        careless.run(&to).await.unwrap();
        let mut capped = agent("capped");
        capped.app = "capped".to_owned();
        capped.run(&to).await.unwrap_err();

        let ask = async |path: &str, body: &str| {
            let reply = Wire::exchange(self.gateway.proxy, path, &[], body.as_bytes()).await;
            reply.status
        };
        let messages = r#"[{"role":"user","content":"hello"}]"#;
        let unknown = format!(r#"{{"model":"nobody-1","max_tokens":9,"messages":{messages}}}"#);
        assert_eq!(ask("/v1/messages", &unknown).await, 404);
        assert_eq!(ask("/v1/messages", "no JSON at all").await, 400);
        let block = r#"{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}"#;
        let marked = format!(
            r#"{{"model":"claude-sonnet-5","max_tokens":9,"messages":[{{"role":"user","content":[{}]}}]}}"#,
            [block; 5].join(",")
        );
        assert_eq!(ask("/v1/messages", &marked).await, 400);
        let fine = format!(r#"{{"model":"claude-sonnet-5","max_tokens":9,"messages":{messages}}}"#);
        assert_eq!(ask("/u/dead/v1/messages", &fine).await, 502);
    }
}

/// A second gateway before the same provider: one with remote stores, and content that is captured.
struct Replica {
    gateway: Gateway,
    engine: ClickHouse,
    receiver: Upstream,
    rounds: usize,
}

impl Replica {
    async fn start(scene: &Scene) -> Self {
        let engine = ClickHouse::start();
        let receiver = Upstream::start(|_, _| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
            vec![Step::write(head)]
        })
        .await;
        let config = format!(
            "[clickhouse]\nurl = \"{}\"\ndatabase = \"panels\"\nbatch_wait = \"20ms\"\n\
             [otlp]\nendpoint = \"{}\"\n[capture]\nmode = \"redacted\"\n",
            engine.url(),
            receiver.url()
        );
        Self {
            gateway: Gateway::with(&scene.sim.base_url(), &config, &[]),
            engine,
            receiver,
            rounds: 0,
        }
    }

    /// An agent whose turns go to all stores.
    async fn round(&mut self) {
        self.rounds += 1;
        let mut agent = Agent::new(&format!("kept-{}", self.rounds));
        agent.pause = Duration::from_millis(20);
        agent.run(&self.gateway.url()).await.unwrap();
    }

    /// Waits until ClickHouse has rows and the receiver has spans.
    async fn delivered(&self) {
        eventually("rows and spans", async || {
            let rows = self.engine.try_query("SELECT count() FROM panels.turns");
            let rows = rows.is_ok_and(|rows| rows != "0");
            (rows && !self.receiver.seen().is_empty()).then_some(())
        })
        .await;
    }
}

/// All names in a text that look like metrics of ours.
fn names(text: &str) -> Vec<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut names: Vec<&str> = text
        .split(|c| !word(c))
        .filter(|name| name.starts_with("process_") || name.contains("prefixgate_"))
        .filter(|name| !name.starts_with('_'))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
