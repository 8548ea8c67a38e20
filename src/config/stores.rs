//! What is meant by `[clickhouse]`, `[otlp]`, `[spool]` and `[capture]`.

use std::time::Duration;

use rustls_pki_types::CertificateDer;

/// `[clickhouse]`: the trace store that several gateways share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClickHouse {
    /// `http://` or `https://` URL of the HTTP interface, without user and password.
    pub url: String,
    /// Database; made if it is missing.
    pub database: String,
    /// User; `None` for the server's default.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Name of a cluster: tables are made replicated on all of its nodes, with distributed ones in
    /// front. `None` for a single node.
    pub cluster: Option<String>,
    /// Records older than this many days are removed by the server.
    pub retention_days: u32,
    /// Most rows of an insert.
    pub batch_rows: usize,
    /// Most bytes of an insert, as they lie in the spool.
    pub batch_bytes: usize,
    /// How long the first record of an insert waits for company.
    pub batch_wait: Duration,
    /// The server gathers inserts of several gateways into one part, and answers when it is written.
    pub async_insert: bool,
    /// Certificates that are trusted beside the compiled-in roots: those of `tls.extra_ca`.
    pub extra_ca: Vec<CertificateDer<'static>>,
}

impl ClickHouse {
    /// Longest retention in days: the dates of the server's TTL end in 2106, and wrap around.
    pub const MAX_RETENTION_DAYS: u32 = 18_250;

    /// The defaults for a server.
    #[must_use]
    pub fn at(url: String) -> Self {
        Self {
            url,
            database: "prefixgate".to_owned(),
            user: None,
            password: None,
            cluster: None,
            retention_days: 365,
            batch_rows: 10_000,
            batch_bytes: 16 << 20,
            batch_wait: Duration::from_secs(2),
            async_insert: false,
            extra_ca: Vec::new(),
        }
    }
}

impl std::fmt::Debug for ClickHouse {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClickHouse")
            .field("url", &self.url)
            .field("database", &self.database)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// The names that spans and metrics are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Semconv {
    /// Those of the newest GenAI conventions.
    Latest,
    /// Also those that older dashboards read.
    Both,
}

/// `[otlp]`: spans, and metrics by choice, to a collector or a backend.
#[derive(Clone, PartialEq, Eq)]
pub struct Otlp {
    /// Where traces are posted to, with its path (`http://127.0.0.1:4318/v1/traces`).
    pub traces: http::Uri,
    /// Where metrics are posted to; `None` for nowhere.
    pub metrics: Option<http::Uri>,
    /// How often metrics are posted.
    pub metrics_interval: Duration,
    /// Headers of each post, credentials among them.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Headers of posts of metrics where they are others, as another receiver wants them.
    pub metrics_headers: Option<Vec<(http::HeaderName, http::HeaderValue)>>,
    /// Posts are compressed.
    pub gzip: bool,
    /// How long a post may take.
    pub timeout: Duration,
    /// Share of runs that are exported, in millionths. All turns of a run share its fate.
    pub sample_ppm: u32,
    /// Attributes of the resource; `service.name` is among them.
    pub resource: Vec<(String, String)>,
    /// A run has ended when it was silent for so long.
    pub run_idle: Duration,
    /// The upstream is told our span as its parent in `traceparent`, instead of the client's.
    pub propagate: bool,
    /// Names.
    pub semconv: Semconv,
    /// Most spans of a post.
    pub batch_spans: usize,
    /// How long the first record of a post waits for company.
    pub batch_wait: Duration,
}

impl Otlp {
    /// The defaults for an endpoint.
    #[must_use]
    pub fn at(traces: http::Uri) -> Self {
        Self {
            traces,
            metrics: None,
            metrics_interval: Duration::from_secs(60),
            headers: Vec::new(),
            metrics_headers: None,
            gzip: true,
            timeout: Duration::from_secs(10),
            sample_ppm: 1_000_000,
            resource: vec![("service.name".to_owned(), "prefixgate".to_owned())],
            run_idle: Duration::from_secs(60),
            propagate: false,
            semconv: Semconv::Latest,
            batch_spans: 512,
            batch_wait: Duration::from_secs(2),
        }
    }
}

impl std::fmt::Debug for Otlp {
    /// Without the headers, which hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Otlp")
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .field("sample_ppm", &self.sample_ppm)
            .finish_non_exhaustive()
    }
}

/// What is given up when a spool is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpoolFull {
    /// What has waited longest.
    DropOldest,
    /// What comes.
    DropNewest,
}

/// `[spool]`: what waits on disk for each remote store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spool {
    /// Most bytes on disk for one store.
    pub max_bytes: u64,
    /// What is given up beyond that.
    pub full: SpoolFull,
}

impl Default for Spool {
    fn default() -> Self {
        Self {
            max_bytes: 1 << 30,
            full: SpoolFull::DropOldest,
        }
    }
}

/// How much content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Nothing.
    None,
    /// Everything, with what the rules recognise replaced.
    Redacted,
    /// Everything.
    Full,
}

/// `[capture]`: content of requests and answers. Nothing is kept by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// How much.
    pub mode: CaptureMode,
    /// Most bytes of one body that are kept; the rest is cut on a character border.
    pub max_bytes: usize,
    /// Captured bodies older than this many days are removed.
    pub retention_days: u32,
    /// Captured bodies are kept below this size by removing the oldest.
    pub retention_bytes: u64,
    /// Rules of the user's own: name and regular expression. What matches is replaced.
    pub rules: Vec<(String, String)>,
}

impl Default for Capture {
    fn default() -> Self {
        Self {
            mode: CaptureMode::None,
            max_bytes: 1 << 20,
            retention_days: 7,
            retention_bytes: 1 << 30,
            rules: Vec::new(),
        }
    }
}
