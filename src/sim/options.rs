//! How a simulated provider is set up.

use std::net::SocketAddr;
use std::time::Duration;

use super::cache::Counting;
use super::clock::Clock;

/// Settings of one simulated provider.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Where time comes from, for lifetimes and dates. Delays always use the runtime's clock.
    pub clock: Clock,
    /// Makes ids and signatures differ between simulated providers.
    pub seed: u64,
    /// Requests that are remembered; the oldest go first. 0 remembers none.
    pub record_requests: usize,
    /// Body bytes that are remembered over all requests; the oldest go first.
    pub record_bytes: usize,
    /// Before the head of each answer of the model.
    pub head_delay: Duration,
    /// Before each event of a stream.
    pub event_delay: Duration,
    /// How the lookback counts positions.
    pub counting: Counting,
    /// Refuse what the API refuses in fields and conversations. Markers are always checked.
    pub strict: bool,
    /// Check the signatures of thinking blocks (only with `strict`).
    pub check_signatures: bool,
    /// Compress answers for clients that accept gzip.
    pub compress: bool,
    /// Scripted failures also hit requests without tools.
    pub inject_any: bool,
    /// Answer diagnostics as "still pending", as the API does now and then.
    pub diagnostics_pending: bool,
    /// How long models before gpt-5.6 keep a prefix after its last use.
    pub openai_keep: Duration,
    /// Directory of `hello.txt` and `missing.txt` in scripted reads.
    pub workdir: String,
    /// Fault of all answers of the model; can be changed while it runs.
    pub fault: Fault,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            clock: Clock::Real,
            seed: 1,
            record_requests: 10_000,
            record_bytes: 256 << 20,
            head_delay: Duration::ZERO,
            event_delay: Duration::ZERO,
            counting: Counting::PerBlock,
            strict: true,
            check_signatures: true,
            compress: false,
            inject_any: false,
            diagnostics_pending: false,
            openai_keep: Duration::from_secs(600),
            workdir: ".".to_owned(),
            fault: Fault::default(),
        }
    }
}

/// What goes wrong (or slowly) with the body of every answer of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fault {
    /// The connection breaks after that many body bytes.
    pub cut_at: Option<u64>,
    /// The body ends cleanly, as if it were whole, after that many bytes. Streams only; a JSON body
    /// has a length and breaks instead.
    pub end_at: Option<u64>,
    /// Nothing more comes after that many bytes, and the connection stays open.
    pub stall_at: Option<u64>,
    /// Writes are at most that many bytes, which also splits characters.
    pub split: Option<usize>,
    /// Waits between writes.
    pub write_delay: Duration,
    /// A failure of the script's grammar (`429`, `drop`, `sse_overloaded` ...) for every answer.
    pub inject: Option<String>,
}
