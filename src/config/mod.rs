//! Configuration: what a user may write, and what it means once validated.
//!
//! [`file::File`] is what was typed, each value with its place; [`Config`] is what is meant.
//! Between them stands [`Config::load`]: flags before environment before file before defaults,
//! everything checked and every problem reported at once, before anything is opened or bound.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::guard::loops::Policy;
use crate::provider::dialect::{CacheOptions, Dialect};
use crate::provider::view::Ttl;

mod agent;
mod error;
pub mod file;
mod guards;
mod options;
mod otel;
mod render;
mod resolve;
mod stores;
#[cfg(test)]
mod tests;
mod value;

pub use crate::usage::PriceOverride;
pub use agent::{Agent, AgentOptions, Pattern, SyncEvents};
pub use error::{ConfigError, Problem};
pub use guards::{Alerts, App, Apps, CapAction, Caps, Form, RedisDown, Reserve, Unpriced, Webhook};
pub use options::{Environment, GuardOptions, Options, default_data_dir};
pub use otel::{OtlpEnv, from_env as from_otel_env};
pub use render::Setting;
pub use stores::{Capture, CaptureMode, ClickHouse, Otlp, Semconv, Spool, SpoolFull};
pub use value::{BaseUrl, Depth, Heads, Limit, Money, Size, Span, Value, Wall};

/// Which wire format an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat and Responses. Passed through and not inspected in this version.
    OpenAi,
    /// Anything else: passed through.
    Opaque,
}

/// A provider endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Name, as in `/u/<name>/...`; `[a-z0-9_-]{1,32}`.
    pub name: String,
    /// `http` or `https` base URL with an optional path prefix, without query or trailing slash.
    pub base: http::Uri,
    /// Wire format of its paths.
    pub format: Format,
    /// The provider's id in the price data (`anthropic`, `aws`, ...).
    pub price_provider: String,
    /// In what it differs from others of its format.
    pub dialect: Dialect,
}

/// What the planner may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachePolicy {
    /// No breakpoint is looked for or added.
    Off,
    /// Breakpoints are planned and recorded, but not sent.
    DryRun,
    /// Free slots are filled; the client's markers stay.
    Fill,
    /// The client's markers are taken out, and all slots are the planner's.
    Replace,
}

/// What to do about the provider's own explanation of cache misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NativeDiagnostics {
    /// Record it when the client asked for it.
    Pass,
    /// Ask for it when the client did not.
    Request,
}

/// What to do with conversations that the provider holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Threads {
    /// Pass them through and follow them by answer id.
    Pass,
    /// Answer a continuation with the provider's `thread_not_found`, so that the SDK sends all.
    Replay,
}

/// What to do with requests that have no `prompt_cache_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheKey {
    /// Nothing.
    Pass,
    /// Give them one, by their tools and system prompt.
    Add,
}

/// How long OpenAI is asked to keep what a request writes, where the client says nothing about its
/// caching. Only models that know lifetimes are asked (gpt-5.6 and later).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheLifetime {
    /// It is not asked.
    Pass,
    /// Thirty minutes, which is the provider's default.
    HalfHour,
    /// Twelve hours, at twice the price of a write.
    HalfDay,
}

impl CacheLifetime {
    /// The lifetime, if one is asked for.
    #[must_use]
    pub const fn ttl(self) -> Option<Ttl> {
        match self {
            Self::Pass => None,
            Self::HalfHour => Some(Ttl::M30),
            Self::HalfDay => Some(Ttl::H12),
        }
    }
}

/// How long OpenAI is asked to keep prompts for models before gpt-5.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheRetention {
    /// It is not asked.
    Pass,
    /// Up to a day.
    Day,
}

/// What to do with the WebSocket mode of Responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WebSockets {
    /// Pass it through and read along.
    Pass,
    /// Refuse the upgrade, upon which clients go on with plain requests.
    Refuse,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// `FILE:LINE`.
    File(String),
    /// An environment variable.
    Environment(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => f.write_str(place),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// The resolved configuration: everything valid, nothing optional that has a default.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Metrics and health.
    pub admin: SocketAddr,
    /// Where the trace database and the installation's secret live.
    pub data_dir: PathBuf,
    /// All upstreams; never empty, the first is the default.
    pub upstreams: Vec<Upstream>,
    /// CA bundle (PEM) trusted in addition to the compiled-in roots.
    pub extra_ca: Option<PathBuf>,
    /// Largest request body that is read; larger ones are refused with 413.
    pub max_body_bytes: usize,
    /// Memory all buffered request bodies may take together; further requests wait.
    pub buffered_bytes: usize,
    /// Largest decoded body that is looked at.
    pub inspect_bytes: usize,
    /// How long an idle upstream connection is kept for reuse.
    pub pool_idle: Duration,
    /// How long a connection attempt may take.
    pub connect_timeout: Duration,
    /// How long the upstream may be silent inside an answer or before its head.
    pub idle_timeout: Duration,
    /// How long running turns may go on after SIGTERM.
    pub drain: Duration,
    /// Planner policy.
    pub cache: CachePolicy,
    /// Percent of runs that get no breakpoints of ours, so that the others can be compared with them.
    pub holdout_percent: u32,
    /// Memory that the prompt-cache engine may take.
    pub cache_bytes: usize,
    /// The provider's own explanation of misses.
    pub native_diagnostics: NativeDiagnostics,
    /// Records may quote a few bytes around a change of the prompt.
    pub excerpts: bool,
    /// Tools are always sent in the same order.
    pub stable_tool_order: bool,
    /// How long siblings of a fan-out may wait for the first answer to begin; zero for not at all.
    pub warm_first: Duration,
    /// What keeping a prefix warm over one pause may cost, in millionths of a USD; 0 for never.
    pub keep_warm_max_micro_usd: u64,
    /// Provider-held conversations.
    pub threads: Threads,
    /// Requests without a key by which they are routed to one cache.
    pub cache_key: CacheKey,
    /// The lifetime that is asked of OpenAI.
    pub cache_lifetime: CacheLifetime,
    /// The same for its older models.
    pub cache_retention: CacheRetention,
    /// The WebSocket mode of Responses.
    pub websockets: WebSockets,
    /// What is done about loops.
    pub loops: Policy,
    /// Caps.
    pub caps: Caps,
    /// What is other for single applications.
    pub apps: Apps,
    /// What is alerted.
    pub alerts: Alerts,
    /// Where alerts go.
    pub webhooks: Vec<Webhook>,
    /// The trace store that several gateways share.
    pub clickhouse: Option<ClickHouse>,
    /// Where spans go.
    pub otlp: Option<Otlp>,
    /// What waits on disk for either.
    pub spool: Spool,
    /// Content that is kept.
    pub capture: Capture,
    /// The user's own prices.
    pub prices: Vec<PriceOverride>,
    /// What `prefixgate agent` works with.
    pub agent: Agent,
    /// Records older than this many days are removed.
    pub retention_days: u32,
    /// The trace database is kept below this size by removing the oldest records.
    pub retention_bytes: u64,
    /// Records that may wait for the writer; beyond it they are dropped and counted.
    pub record_queue: usize,
    /// Applications allowed as a metric label; all others share one.
    pub app_labels: Vec<String>,
    /// The admin listener may be reached from other machines.
    pub admin_allow_remote: bool,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// What is allowed and probably not wanted; to be logged at the start.
    pub warnings: Vec<String>,
    /// Where each setting came from, by its key (`server.listen`); what is missing is a default.
    pub origins: BTreeMap<String, Origin>,
}

impl Config {
    /// The defaults, without any file, flag or environment.
    #[must_use]
    pub fn embedded(data_dir: PathBuf) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8787)),
            admin: SocketAddr::from(([127, 0, 0, 1], 8788)),
            data_dir,
            upstreams: vec![
                Upstream {
                    name: "anthropic".to_owned(),
                    base: http::Uri::from_static("https://api.anthropic.com"),
                    format: Format::Anthropic,
                    price_provider: "anthropic".to_owned(),
                    dialect: Dialect::default(),
                },
                Upstream {
                    name: "openai".to_owned(),
                    base: http::Uri::from_static("https://api.openai.com"),
                    format: Format::OpenAi,
                    price_provider: "openai".to_owned(),
                    dialect: Dialect {
                        cache_options: CacheOptions::All,
                        ..Dialect::default()
                    },
                },
            ],
            extra_ca: None,
            max_body_bytes: 32 << 20,
            buffered_bytes: 1 << 30,
            inspect_bytes: 32 << 20,
            pool_idle: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(15 * 60),
            drain: Duration::from_secs(30),
            cache: CachePolicy::Fill,
            holdout_percent: 0,
            cache_bytes: 64 << 20,
            native_diagnostics: NativeDiagnostics::Pass,
            excerpts: false,
            stable_tool_order: false,
            warm_first: Duration::ZERO,
            keep_warm_max_micro_usd: 0,
            threads: Threads::Pass,
            cache_key: CacheKey::Pass,
            cache_lifetime: CacheLifetime::Pass,
            cache_retention: CacheRetention::Pass,
            websockets: WebSockets::Pass,
            loops: Policy::default(),
            caps: Caps::default(),
            apps: Apps::new(),
            alerts: Alerts::default(),
            webhooks: Vec::new(),
            clickhouse: None,
            otlp: None,
            spool: Spool::default(),
            capture: Capture::default(),
            prices: Vec::new(),
            agent: Agent::default(),
            retention_days: 90,
            retention_bytes: 2 << 30,
            record_queue: 65_536,
            app_labels: Vec::new(),
            admin_allow_remote: false,
            file: None,
            warnings: Vec::new(),
            origins: BTreeMap::new(),
        }
    }

    /// The configuration that these flags, the process's environment and the file give.
    ///
    /// Reads the file and the CA bundle; opens, creates and binds nothing else.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place and what would be right.
    pub fn load(options: &Options) -> Result<Self, ConfigError> {
        Self::load_in(options, &Environment::process())
    }

    /// As [`Config::load`], in a given environment.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_in(options: &Options, environment: &Environment) -> Result<Self, ConfigError> {
        resolve::load(options, environment)
    }
}
