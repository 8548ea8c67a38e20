//! Metrics, rules, dashboards and the compose file, held against the real gateway, the real Prometheus,
//! its tools and Alertmanager, and Grafana's own schema.

mod compose;
pub mod dashboards;
mod reference;
mod rules;
mod scraped;

use std::time::Duration;

use prefixgate::export::prometheus::render;
use prefixgate::sim::agents::Agent;
use prefixgate::sim::{Options, Sim};
use prefixgate::trace::metrics::{Metrics, OtlpStats, REMOTE_DROPS, RemoteStats};

use crate::support::prometheus::serve;
use crate::support::{Gateway, Wire};

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

/// The exposition of a gateway with remote stores, one of which is down.
fn with_stores() -> Metrics {
    let metrics = Metrics::new(&[]).unwrap();
    let up = RemoteStats {
        limit_bytes: 1 << 30,
        appended: 900,
        delivered: 900,
        up: Some(true),
        ..RemoteStats::default()
    };
    let down = RemoteStats {
        waiting_records: 100,
        waiting_bytes: 1 << 20,
        limit_bytes: 1 << 30,
        oldest_ms: Some(90_000),
        appended: 900,
        delivered: 799,
        dropped: REMOTE_DROPS.into_iter().map(|reason| (reason, 0)).collect(),
        failures: 30,
        up: Some(false),
    };
    metrics.remote("otlp", &up);
    metrics.remote("clickhouse", &down);
    metrics.otlp(&OtlpStats::default());
    metrics
}

/// A second gateway to scrape, as far as its admin listener goes: one with remote stores.
async fn replica() -> std::net::SocketAddr {
    let metrics = with_stores();
    serve(move |_| render(&metrics).unwrap()).await
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
