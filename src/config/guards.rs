//! What is meant by `[loops]`, `[caps]`, `[app]` and `[alerts]`.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::{CaptureMode, Config};
use crate::guard::caps::Limits;
use crate::guard::loops::Policy;

/// What a request holds of a cap while it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reserve {
    /// The most it can use. No number of requests at once can go beyond the cap.
    Worst,
    /// Nothing: it passes unless the cap has been used up. Requests at once can go beyond it.
    Nothing,
}

/// What becomes of a request that a cap does not let pass. Of caps that pass later (on requests a
/// minute, and at a time) it is refused in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CapAction {
    /// It is refused.
    Block,
    /// The turn is ended with an answer of the gateway's own.
    Answer,
    /// It goes on, and the run is flagged.
    Warn,
}

/// What becomes of a request under a cap on money whose price is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unpriced {
    /// It is refused.
    Refuse,
    /// It goes on, and the run is flagged and alerted: its cap cannot be enforced.
    Flag,
}

/// What becomes of capped requests while the shared books cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RedisDown {
    /// They are refused, to be tried again.
    Refuse,
    /// Each gateway goes on with its own books.
    Local,
}

/// `[caps]`
#[derive(Clone)]
pub struct Caps {
    /// Of each run.
    pub run: Limits,
    /// Of what a key sends in a day without naming a run; what is not set here is as for a run.
    pub unnamed: Limits,
    /// Of each key, in a day.
    pub key: Limits,
    /// What becomes of a request that goes beyond one.
    pub action: CapAction,
    /// What is held.
    pub reserve: Reserve,
    /// Unknown prices.
    pub unpriced: Unpriced,
    /// Output taken as possible where a request does not limit it, in tokens.
    pub default_max_tokens: u64,
    /// Status of refusals.
    pub status: u16,
    /// Whether answers say what is left.
    pub headers: bool,
    /// Where days begin and end.
    pub zone: TimeZone,
    /// The zone's name.
    pub zone_name: String,
    /// `redis://` URL of books that several gateways share.
    pub redis: Option<String>,
    /// When they cannot be reached.
    pub redis_down: RedisDown,
}

impl std::fmt::Debug for Caps {
    /// Without the URL of the shared books, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caps")
            .field("run", &self.run)
            .field("unnamed", &self.unnamed)
            .field("key", &self.key)
            .field("reserve", &self.reserve)
            .field("unpriced", &self.unpriced)
            .field("shared", &self.redis.is_some())
            .finish_non_exhaustive()
    }
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            run: Limits::default(),
            unnamed: Limits::default(),
            key: Limits::default(),
            action: CapAction::Block,
            reserve: Reserve::Worst,
            unpriced: Unpriced::Refuse,
            default_max_tokens: 32_000,
            status: 400,
            headers: true,
            zone: TimeZone::UTC,
            zone_name: "UTC".to_owned(),
            redis: None,
            redis_down: RedisDown::Refuse,
        }
    }
}

/// `[app.NAME]`: what is other for one application.
#[derive(Debug, Clone, Default)]
pub struct App {
    /// Loops, where it says anything of them.
    pub loops: Option<Policy>,
    /// Caps of its runs, each in place of the one of `[caps.run]`.
    pub run: Limits,
    /// Status of refusals.
    pub status: Option<u16>,
    /// How much content is kept.
    pub capture: Option<CaptureMode>,
}

/// How an alert is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// All of it, as JSON.
    Json,
    /// A message for Slack and what understands its webhooks.
    Slack,
}

/// `[webhook.NAME]`: where alerts go.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Name, for messages: the URL is a secret.
    pub name: String,
    /// Where to.
    pub url: http::Uri,
    /// In what form.
    pub form: Form,
}

/// `[alerts]`: what is told. Nothing goes anywhere without a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// Shares of a cap in percent, ascending.
    pub cap_levels: Vec<u32>,
    /// Loops.
    pub loops: bool,
    /// Spend of all requests within the last hour, in pico-USD; `None` for never.
    pub cost_per_hour_pico: Option<u64>,
    /// Drop of the cache-hit ratio of the last 15 minutes below that of the hour before, in
    /// percentage points; `None` for never.
    pub hit_ratio_drop: Option<u32>,
    /// Loss from which on a new culprit is told, in pico-USD; `None` for never.
    pub culprit_pico: Option<u64>,
    /// Models without a price.
    pub unpriced: bool,
    /// Records that were dropped.
    pub store: bool,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            cap_levels: vec![50, 80, 100],
            loops: true,
            cost_per_hour_pico: None,
            hit_ratio_drop: None,
            culprit_pico: None,
            unpriced: true,
            store: true,
        }
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("name", &self.name)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

/// By name.
pub type Apps = BTreeMap<String, App>;

impl Config {
    /// What is done about loops of an application; of a request that names none, or one that
    /// nothing is configured for, what `[loops]` says.
    #[must_use]
    pub fn loops_for(&self, app: Option<&str>) -> &Policy {
        self.app(app)
            .and_then(|app| app.loops.as_ref())
            .unwrap_or(&self.loops)
    }

    /// The limits of a run of an application: its own, each in place of the one of `[caps.run]`.
    #[must_use]
    pub fn run_limits(&self, app: Option<&str>) -> Limits {
        let run = &self.caps.run;
        let Some(App { run: own, .. }) = self.app(app) else {
            return *run;
        };
        Limits {
            turns: own.turns.or(run.turns),
            input_tokens: own.input_tokens.or(run.input_tokens),
            output_tokens: own.output_tokens.or(run.output_tokens),
            tokens: own.tokens.or(run.tokens),
            usd_pico: own.usd_pico.or(run.usd_pico),
            wall_ms: own.wall_ms.or(run.wall_ms),
            depth: own.depth.or(run.depth),
            agents: own.agents.or(run.agents),
            requests_per_minute: own.requests_per_minute.or(run.requests_per_minute),
            concurrency: own.concurrency.or(run.concurrency),
        }
    }

    /// The status of a refusal that an application gets.
    #[must_use]
    pub fn refusal_status(&self, app: Option<&str>) -> u16 {
        self.app(app)
            .and_then(|app| app.status)
            .unwrap_or(self.caps.status)
    }

    /// How much content of an application's requests is kept.
    #[must_use]
    pub fn capture_for(&self, app: Option<&str>) -> CaptureMode {
        self.app(app)
            .and_then(|app| app.capture)
            .unwrap_or(self.capture.mode)
    }

    /// Whether content of any application is kept.
    #[must_use]
    pub fn captures(&self) -> bool {
        let captured = |mode| mode != CaptureMode::None;
        captured(self.capture.mode)
            || self
                .apps
                .values()
                .filter_map(|app| app.capture)
                .any(captured)
    }

    fn app(&self, name: Option<&str>) -> Option<&App> {
        self.apps.get(name?)
    }
}
