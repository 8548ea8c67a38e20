//! A gateway and the simulated provider in this process, both by one clock that a test moves by
//! hand; everything else is real: sockets, bytes, the store.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use prefixgate::clock::{Clock, ManualClock};
use prefixgate::config::{CachePolicy, Config, Format, NativeDiagnostics, Upstream};
use prefixgate::prompt_cache::verdict::Reason;
use prefixgate::server::Gateway;
use prefixgate::sim::{Options, Sim};
use prefixgate::store::{Filter, Questions as _, Sqlite, Unreads};
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
    /// Texts may stand in its conversations.
    hints: bool,
    compared: AtomicUsize,
}

/// Reasons that are no changes, and so have no place.
const PLACELESS: [Reason; 8] = [
    Reason::Beta,
    Reason::Expired,
    Reason::Concurrent,
    Reason::Lookback,
    Reason::BelowMinimum,
    Reason::NoMarker,
    Reason::Evicted,
    Reason::NotWritten,
];

impl World {
    /// Breakpoints are the client's own; the provider is asked why it missed, and must say what we
    /// say.
    pub async fn watching() -> Self {
        Self::watching_with(Options::default()).await
    }

    pub async fn watching_with(options: Options) -> Self {
        Self::with(options, |config| {
            config.cache = CachePolicy::Off;
            config.native_diagnostics = NativeDiagnostics::Request;
        })
        .await
    }

    /// Nothing is added to any request.
    pub async fn untouched() -> Self {
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
            dialect: prefixgate::provider::dialect::Dialect::default(),
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
            hints: config.loops.hints(),
            config,
            dir,
            compared: AtomicUsize::new(0),
        }
    }

    /// Moves the time on, and lets the gateway do what is due.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.gateway.as_ref().unwrap().look_at_clock();
    }

    /// Turns whose verdict could be compared with the provider's own diagnosis.
    pub fn compared(&self) -> usize {
        self.compared.load(Ordering::Relaxed)
    }

    pub fn proxy(&self) -> SocketAddr {
        self.gateway.as_ref().unwrap().proxy_addr()
    }

    pub fn data(&self) -> std::path::PathBuf {
        self.config.data_dir.clone()
    }

    /// Stops the gateway in good order and starts another on the same data.
    pub async fn restart(&mut self) {
        self.gateway.take().unwrap().shutdown().await;
        let clock = Clock::Manual(self.clock.clone());
        let gateway = Gateway::start_at(self.config.clone(), clock).await;
        self.gateway = Some(gateway.unwrap());
    }

    /// The same with other settings.
    pub async fn restart_with(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        self.hints |= self.config.loops.hints();
        self.restart().await;
    }

    /// Puts a gateway in the place of this one that shares nothing with it but the settings.
    pub async fn replace_by_replica(&mut self) {
        self.gateway.take().unwrap().shutdown().await;
        self.config.data_dir = self.dir.path().join("replica");
        let clock = Clock::Manual(self.clock.clone());
        let gateway = Gateway::start_at(self.config.clone(), clock).await;
        self.gateway = Some(gateway.unwrap());
    }

    /// A request that must be answered.
    pub async fn ask(&self, run: &str, body: &Value) -> Reply {
        self.ask_with(run, &[], body).await
    }

    pub async fn ask_with(&self, run: &str, headers: &[&str], body: &Value) -> Reply {
        let reply = self.send(run, headers, &body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
    }

    /// Sends these bytes. What arrives without our insertions must be what was sent.
    pub async fn send(&self, run: &str, headers: &[&str], body: &str) -> Reply {
        let mut head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: gateway\r\nx-prefixgate-run: {run}\r\n\
             anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n",
            body.len()
        );
        let key = headers.iter().any(|header| header.starts_with("x-api-key"));
        let key = (!key).then_some("x-api-key: sk-test");
        for header in headers.iter().copied().chain(key) {
            head.push_str(header);
            head.push_str("\r\n");
        }
        let mut wire = Wire::connect(self.proxy()).await;
        wire.send(format!("{head}\r\n{body}").as_bytes()).await;
        let reply = wire.response().await;
        if self.config.stable_tool_order || self.hints || reply.status >= 400 {
            // The one helper that moves bytes; texts of ours; what went nowhere.
            return reply;
        }
        let plain = |text: &str| match self.config.cache {
            CachePolicy::Off => text.to_owned(),
            _ => without_markers(text),
        };
        let expected = plain(body);
        let arrived = self.sim.requests();
        let mut arrived = arrived.iter().rev();
        assert!(
            arrived.any(|seen| seen.body == body.as_bytes()
                || plain(&without_question(&seen.body)) == expected),
            "no request arrived with the client's bytes"
        );
        reply
    }

    /// Asks, and gives the record of it.
    pub async fn turn(&self, run: &str, body: &Value) -> TurnRecord {
        self.turn_with(run, &[], body).await
    }

    pub async fn turn_with(&self, run: &str, headers: &[&str], body: &Value) -> TurnRecord {
        self.turn_of(run, headers, &body.to_string()).await
    }

    /// The same with a body as text.
    pub async fn turn_of(&self, run: &str, headers: &[&str], body: &str) -> TurnRecord {
        let before = self.turns(run).len();
        let reply = self.send(run, headers, body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let mut turns = self.recorded(run, before + 1).await;
        let turn = turns.remove(before);
        self.check(&turn);
        turn
    }

    /// What must hold for every turn.
    fn check(&self, turn: &TurnRecord) {
        let agrees = turn.cache.native_agrees;
        assert_ne!(
            agrees,
            Some(false),
            "the provider says another thing: {turn:#?}"
        );
        self.compared
            .fetch_add(usize::from(agrees.is_some()), Ordering::Relaxed);
        let Some(verdict) = &turn.cache.verdict else {
            return;
        };
        if verdict
            .reason
            .is_none_or(|reason| PLACELESS.contains(&reason))
        {
            let place = (&verdict.first_changed, verdict.offset, verdict.what);
            assert_eq!(place, (&None, None, None), "{turn:#?}");
            assert_eq!(verdict.excerpt, None);
        }
        if verdict.reason.is_some() {
            assert!(!verdict.detail.is_empty(), "{turn:#?}");
        }
    }

    /// The records of a run, once there are so many.
    pub async fn recorded(&self, run: &str, count: usize) -> Vec<TurnRecord> {
        eventually("records of the run", async || {
            let turns = self.turns(run);
            (turns.len() >= count).then_some(turns)
        })
        .await
    }

    /// What was written and not read, as seen at a time.
    pub fn unread(&self, now_ms: i64) -> Unreads {
        let store = Sqlite::open_read(&self.data()).unwrap();
        store.unread(&Filter::all(10_000), now_ms).unwrap()
    }

    pub fn turns(&self, run: &str) -> Vec<TurnRecord> {
        let store = Sqlite::open_read(&self.data()).unwrap();
        store.turns(run, &Filter::all(10_000), false).unwrap()
    }
}

/// Takes our question for the provider's diagnosis out.
fn without_question(body: &[u8]) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let Some(rest) = text.strip_prefix(r#"{"diagnostics":{"previous_message_id":"#) else {
        return text;
    };
    match rest.split_once("},") {
        Some((_, rest)) => format!("{{{rest}"),
        None => text,
    }
}

fn without_markers(text: &str) -> String {
    let bare = text.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    bare.replace(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#, "")
}
