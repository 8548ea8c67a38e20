//! A gateway and the simulated provider in this process, both by one clock that a test moves by
//! hand; everything else is real: sockets, bytes, the store.

use std::net::SocketAddr;

use prefixgate::clock::{Clock, ManualClock};
use prefixgate::config::{CachePolicy, Config, Format, Upstream};
use prefixgate::server::Gateway;
use prefixgate::sim::{Options, Sim};
use prefixgate::store::{Filter, Questions as _, Sqlite};
use prefixgate::trace::TurnRecord;
use prefixgate::usage::PriceOverride;
use serde_json::Value;
use tempfile::TempDir;

use super::client::{Reply, Wire};
use super::eventually;

/// One minute in milliseconds.
pub const MINUTE: u64 = 60_000;

pub struct World {
    pub sim: Sim,
    pub clock: ManualClock,
    gateway: Option<Gateway>,
    config: Config,
    dir: TempDir,
}

impl World {
    /// Breakpoints are the client's own: nothing is inserted.
    pub async fn watching() -> Self {
        Self::with(Options::default(), |config| config.cache = CachePolicy::Off).await
    }

    /// The defaults.
    pub async fn filling() -> Self {
        Self::with(Options::default(), |_| {}).await
    }

    pub async fn with(options: Options, change: impl FnOnce(&mut Config)) -> Self {
        let (clock, hand) = Clock::manual();
        let sim = Sim::start(Options {
            clock: clock.clone(),
            ..options
        })
        .unwrap();
        let dir = TempDir::new().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::embedded(dir.path().join("data"));
        config.listen = any;
        config.admin = any;
        config.upstreams = vec![Upstream {
            name: "sim".to_owned(),
            base: sim.base_url().parse().unwrap(),
            format: Format::Anthropic,
            price_provider: "anthropic".to_owned(),
        }];
        config.prices = vec![PriceOverride {
            model: "test-sonnet".to_owned(),
            input_pico: 3_000_000,
            output_pico: 15_000_000,
            read_pico: 300_000,
            write_5m_pico: 3_750_000,
            write_1h_pico: 6_000_000,
            min_cache_tokens: Some(1024),
        }];
        change(&mut config);
        let gateway = Gateway::start_at(config.clone(), clock).await.unwrap();
        Self {
            sim,
            clock: hand,
            gateway: Some(gateway),
            config,
            dir,
        }
    }

    /// Moves the time on, and lets the gateway do what is due.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.gateway.as_ref().unwrap().look_at_clock();
    }

    pub fn proxy(&self) -> SocketAddr {
        self.gateway.as_ref().unwrap().proxy_addr()
    }

    pub fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// Stops the gateway in good order and starts another on the same data.
    pub async fn restart(&mut self) {
        self.gateway.take().unwrap().shutdown().await;
        let clock = Clock::Manual(self.clock.clone());
        let gateway = Gateway::start_at(self.config.clone(), clock).await;
        self.gateway = Some(gateway.unwrap());
    }

    /// A request that must be answered.
    pub async fn ask(&self, run: &str, body: &Value) -> Reply {
        self.ask_with(run, &[], body).await
    }

    pub async fn ask_with(&self, run: &str, headers: &[&str], body: &Value) -> Reply {
        let named = format!("x-prefixgate-run: {run}");
        let mut all = vec![
            "x-api-key: sk-test",
            "anthropic-version: 2023-06-01",
            &named,
        ];
        all.extend(headers);
        let body = body.to_string();
        let reply = Wire::exchange(self.proxy(), "/v1/messages", &all, body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
    }

    /// Asks, and gives the record of it.
    pub async fn turn(&self, run: &str, body: &Value) -> TurnRecord {
        self.turn_with(run, &[], body).await
    }

    pub async fn turn_with(&self, run: &str, headers: &[&str], body: &Value) -> TurnRecord {
        let before = self.turns(run).len();
        self.ask_with(run, headers, body).await;
        let mut turns = self.recorded(run, before + 1).await;
        turns.remove(before)
    }

    /// The records of a run, once there are so many.
    pub async fn recorded(&self, run: &str, count: usize) -> Vec<TurnRecord> {
        eventually("records of the run", async || {
            let turns = self.turns(run);
            (turns.len() >= count).then_some(turns)
        })
        .await
    }

    pub fn turns(&self, run: &str) -> Vec<TurnRecord> {
        let store = Sqlite::open_read(&self.data()).unwrap();
        store.turns(run, &Filter::all(10_000), false).unwrap()
    }
}
