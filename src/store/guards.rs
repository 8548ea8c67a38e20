//! What the guards have seen, and how tools did. Values; no store.

/// A loop, from what was said of it each time it came to a next step, or to the threshold times a power
/// of two.
///
/// One detector in one thread with the same tools is one loop here: the calls themselves are not
/// kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopSeen {
    /// Run.
    pub run_id: String,
    /// Thread.
    pub thread_id: String,
    /// Application.
    pub app: Option<String>,
    /// Word of the detector.
    pub detector: String,
    /// Names of its tools.
    pub tools: Vec<String>,
    /// The highest count that was told; by now it may be nearly twice as high.
    pub count: Option<u64>,
    /// The threshold that held last.
    pub threshold: Option<u64>,
    /// How often it was told.
    pub steps: u64,
    /// When it was found, UTC milliseconds.
    pub first_ms: i64,
    /// When it was last told, UTC milliseconds.
    pub last_ms: i64,
    /// Word of what was done then; empty where nothing.
    pub action: String,
    /// What it had cost by then, in pico-USD.
    pub pico: Option<u64>,
}

/// A cap of which something is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapSeen {
    /// Word of the scope: `run`, `unnamed` or `key`.
    pub scope: String,
    /// The run: its own cap, or one of a key that its requests met.
    pub run_id: String,
    /// Application.
    pub app: Option<String>,
    /// Word of the cap.
    pub cap: String,
    /// The highest share of which was told, in per cent.
    pub level: Option<u32>,
    /// What was used when a limit was last told, in the cap's unit (pico-USD, milliseconds,
    /// counts).
    pub value: Option<u64>,
    /// That limit, in the same unit.
    pub limit: Option<u64>,
    /// Shares that were reached.
    pub crossings: u64,
    /// Requests that it refused.
    pub refusals: u64,
    /// How often it was told that it cannot be enforced.
    pub unenforced: u64,
    /// First time, UTC milliseconds.
    pub first_ms: i64,
    /// Last time, UTC milliseconds.
    pub last_ms: i64,
}

/// How a tool did. Each call is in exactly one of `ok`, `failed`, `incomplete`, `unanswered` and
/// `pending`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSeen {
    /// Its name.
    pub name: String,
    /// Calls that were asked for.
    pub calls: u64,
    /// Calls with a result that is no failure.
    pub ok: u64,
    /// Calls whose result is a failure.
    pub failed: u64,
    /// Calls inside which the stream broke.
    pub incomplete: u64,
    /// Calls without a result, though the conversation went on.
    pub unanswered: u64,
    /// Calls whose result is still to come.
    pub pending: u64,
    /// Calls of a tool that the request did not declare.
    pub undeclared: u64,
    /// Calls with an input that does not satisfy the declared schema.
    pub invalid_input: u64,
    /// Calls that repeat one which had failed right before.
    pub retried: u64,
    /// Median of the milliseconds until the request with the result, of the calls where it is
    /// known: the value at the nearest rank.
    pub p50_ms: Option<u64>,
    /// The same at 95 per cent.
    pub p95_ms: Option<u64>,
}
