//! Configuration: what a user may write, and what it means once validated.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::usage::PriceOverride;

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
}

/// What the planner may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachePolicy {
    /// Nothing is looked for and no byte is added.
    Off,
    /// Breakpoints are planned and recorded, but not sent.
    DryRun,
    /// Free slots are filled; the client's markers stay.
    Fill,
}

/// What to do with conversations that the provider holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Threads {
    /// Pass them through and follow them by answer id.
    Pass,
    /// Answer a continuation with the provider's `thread_not_found`, so that the SDK sends all.
    Replay,
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
    /// Provider-held conversations.
    pub threads: Threads,
    /// The user's own prices.
    pub prices: Vec<PriceOverride>,
    /// Records older than this many days are removed.
    pub retention_days: u32,
    /// The trace database is kept below this size by removing the oldest records.
    pub retention_bytes: u64,
    /// Records that may wait for the writer; beyond it they are dropped and counted.
    pub record_queue: usize,
    /// Applications allowed as a metric label; all others share one.
    pub app_labels: Vec<String>,
}
