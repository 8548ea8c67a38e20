//! Workloads through the real gateway in front of the simulated provider, under caching policies.
//!
//! Both live in this process and go by one clock that is moved by hand; between client, gateway
//! and provider are real sockets. What each request read and wrote is what the provider says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    reason = "what goes wrong here ends the measurement"
)]

pub mod talk;
pub mod workloads;

use std::net::SocketAddr;

use prefixgate::clock::Clock;
use prefixgate::config::{CachePolicy, Config, Format, Upstream};
use prefixgate::prompt_cache::chain::Hasher;
use prefixgate::prompt_cache::optimum::optimum;
use prefixgate::prompt_cache::strategies::{Recorded, Tally, Traffic};
use prefixgate::prompt_cache::trail::{Betas, Trail};
use prefixgate::provider::anthropic::request::view;
use prefixgate::server::Gateway;
use prefixgate::sim::{Options, Sim};
use prefixgate::usage::PriceBook;

use super::client::Wire;
use talk::Marks;
use workloads::{ANSWER_MS, Workload};

/// Policies, in the order in which they are shown.
pub const POLICIES: [&str; 6] = [
    "none",
    "automatic",
    "system_tail",
    "client",
    "fill",
    "optimum",
];

/// Between requests that are under way together, by the machine's clock.
const APART: std::time::Duration = std::time::Duration::from_millis(15);

/// What a workload cost under a policy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Tokens of all prompts by kind, and their cost without the output's.
    pub tally: Tally,
    /// Requests that were not answered.
    pub refused: u64,
}

impl Outcome {
    /// The part of all prompts that was read.
    pub fn hit_ratio(&self) -> f64 {
        self.tally.read as f64 / self.tally.prompt().max(1) as f64
    }

    pub fn usd(&self) -> f64 {
        self.tally.cost_pico as f64 / 1e12
    }

    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.refused += other.refused;
    }
}

/// A workload under all policies, in the order of [`POLICIES`].
pub async fn measure(work: &Workload) -> [Outcome; 6] {
    let off = CachePolicy::Off;
    let ((none, optimum), automatic, system_tail, client, fill) = tokio::join!(
        run(work, Marks::None, off),
        run(work, Marks::Automatic, off),
        run(work, Marks::SystemTail, off),
        run(work, Marks::Own, off),
        run(work, Marks::Own, CachePolicy::Fill),
    );
    [none, automatic.0, system_tail.0, client.0, fill.0, optimum]
}

/// One policy with a fresh gateway and a fresh provider; and the optimum for what arrived there.
async fn run(work: &Workload, marks: Marks, cache: CachePolicy) -> (Outcome, Outcome) {
    let (clock, hand) = Clock::manual();
    let sim = Sim::start(Options {
        clock: clock.clone(),
        record_bytes: 1 << 30,
        ..Options::default()
    })
    .unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = Config::embedded(dir.path().join("data"));
    (config.listen, config.admin, config.cache) = (any, any, cache);
    config.upstreams = vec![Upstream {
        name: "sim".to_owned(),
        base: sim.base_url().parse().unwrap(),
        format: Format::Anthropic,
        price_provider: "anthropic".to_owned(),
        dialect: prefixgate::provider::dialect::Dialect::default(),
    }];
    let gateway = Gateway::start_at(config, clock).await.unwrap();
    let mut threads = Vec::new();
    for step in &work.steps {
        hand.advance(step.wait_ms);
        let mut sent = Vec::new();
        for ask in &step.asks {
            threads.push(ask.thread);
            if !sent.is_empty() {
                // Nobody starts them at the very same moment.
                tokio::time::sleep(APART).await;
            }
            let (body, agent) = (ask.body(marks), ask.agent);
            let to = gateway.proxy_addr();
            sent.push(tokio::spawn(async move {
                let agent = format!("user-agent: {agent}");
                Wire::exchange(to, "/v1/messages", &[&agent], body.as_bytes()).await
            }));
        }
        for reply in sent {
            let reply = reply.await.unwrap();
            assert!(
                reply.status == 200,
                "{} {marks:?}: {}",
                work.name,
                reply.text()
            );
        }
        hand.advance(ANSWER_MS);
    }
    let seen = sim.requests();
    gateway.shutdown().await;
    let book = PriceBook::new(&[]).unwrap();
    let hasher = Hasher::new([7; 32]);
    let mut outcome = Outcome::default();
    let mut recorded = Vec::new();
    for (number, request) in seen.iter().enumerate() {
        // The gateway sends the client's own bytes once more after a refusal; only this shows it.
        if request.status != Some(200) {
            outcome.refused += 1;
            continue;
        }
        let tokens = request.tokens.unwrap();
        let view = view(&request.body).unwrap();
        let model = view.model.as_deref().unwrap();
        let at_ms = i64::try_from(request.at_ms).unwrap();
        let rates = book.rates_for("anthropic", model, tokens.total(), at_ms);
        let rates = rates.expect("a price");
        let cost = |tokens: u64, pico: u64| u128::from(tokens) * u128::from(pico);
        outcome.tally.add(&Tally {
            read: tokens.read,
            write_5m: tokens.write_5m,
            write_1h: tokens.write_1h,
            uncached: tokens.uncached,
            cost_pico: cost(tokens.read, rates.read_pico)
                + cost(tokens.write_5m, rates.write_5m_pico)
                + cost(tokens.write_1h, rates.write_1h_pico)
                + cost(tokens.uncached, rates.input_pico),
        });
        if marks == Marks::None {
            let chain = hasher.chain(&request.body, &view, &[0; 16]);
            recorded.push(Recorded {
                at_ms,
                begins_ms: Some(at_ms + i64::try_from(ANSWER_MS).unwrap()),
                scope: 0,
                run: 0,
                // Those that start together come in any order, and none of them goes on.
                thread: threads[number],
                trail: Trail::new(
                    &hasher,
                    &request.body,
                    &view,
                    &chain,
                    Betas::default(),
                    Vec::new(),
                ),
                unmarkable: Some(view.blocks.iter().map(|b| b.unmarkable).collect()),
                forced: view.forced_call,
                prompt_tokens: Some(tokens.total()),
                bytes_per_token_milli: 0,
                min_tokens: book.model("anthropic", model, at_ms).min_cache_tokens,
                rates: Some(rates),
            });
        }
    }
    let best = Outcome {
        tally: optimum(&Traffic::new(recorded)).into_iter().sum(),
        refused: 0,
    };
    (outcome, best)
}
