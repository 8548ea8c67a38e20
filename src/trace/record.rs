//! The records. Ids are fixed at creation; money is integer pico-USD; unknown is `None`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::code;
use crate::guard::loops::Finding;
use crate::prompt_cache::verdict::Verdict;
use crate::provider::view::Ttl;
use crate::usage::Usage;

/// A word of the program's own vocabulary. (By another name, since serde takes a plain `&str` for one
/// that borrows from what is read.)
type Word = &'static str;

/// What a request was for. Only [`RequestKind::Turn`] counts as a turn of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A model request.
    Turn,
    /// Token counting.
    CountTokens,
    /// Model lists.
    Models,
    /// Creation, polling and results of batches.
    Batch,
    /// A reachability probe.
    Probe,
    /// A request of our own that keeps a prefix in the provider's cache. It costs, and is no turn.
    KeepWarm,
    /// Anything else.
    Other,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A whole answer was delivered.
    Ok,
    /// The upstream answered with an error, as a status or inside the stream.
    UpstreamError,
    /// The upstream could not be reached, or broke off before it answered.
    UpstreamUnreachable,
    /// The answer broke off: a reset, or an end without the terminal event.
    UpstreamCut,
    /// The client left before the end.
    ClientAbort,
    /// The request was wrong (framing, too large) and went nowhere.
    ClientError,
    /// prefixgate refused it (a cap, a loop, a configured replay).
    Refused,
}

/// Whether the request body could be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inspection {
    /// It was read.
    Inspected,
    /// This kind of request is passed through without looking.
    NotWanted,
    /// It could not be read; the word says why (`not_json`, `unknown_encoding`, `too_large` ...).
    NotInspected(&'static str),
}

/// What the prompt-cache engine has to say of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheRecord {
    /// What became of the cache.
    pub verdict: Option<Verdict>,
    /// Why there is no verdict, as a stable word.
    #[serde(default, deserialize_with = "code::word_or_none")]
    pub unjudged: Option<Word>,
    /// The policy that decided about breakpoints (`off`, `dry-run`, `fill`, `replace`), or
    /// `holdout` for a run that was left alone to be compared with.
    #[serde(default, deserialize_with = "code::word_or_none")]
    pub policy: Option<Word>,
    /// Tokens that the shadow cache expected to be read, where it knows their exact number.
    pub expected_read: Option<u64>,
    /// The turn that wrote the entry which was read.
    pub read_of: Option<Uuid>,
    /// What the writes cost more than plain input would have, in pico-USD.
    pub premium_pico: Option<u64>,
    /// A turn that wrote the same prefix at the same time, so that this one paid for it again.
    pub duplicate_of: Option<Uuid>,
    /// Tokens of that prefix, where their number is known from usage.
    pub duplicate_tokens: Option<u64>,
    /// What reading them would have saved, in pico-USD.
    pub duplicate_pico: Option<u64>,
    /// Whether the provider's own diagnosis says the same as the verdict; `None` where it says
    /// nothing that can be compared.
    pub native_agrees: Option<bool>,
    /// The opt-in helper that acted on this request (`tool_order`, `warm_first`, `keep_warm`).
    #[serde(default, deserialize_with = "code::word_or_none")]
    pub helper: Option<Word>,
    /// Tokens that were read thanks to it.
    pub helper_tokens: Option<u64>,
    /// What it saved in pico-USD; negative where it cost more.
    pub helper_pico: Option<i64>,
    /// The blocks of the request (hashes, kinds, sizes, breakpoints) as what is new after the
    /// thread's previous record; see [`crate::prompt_cache::trail`]. Empty when unknown.
    #[serde(with = "code::hex")]
    pub trail: Vec<u8>,
}

/// What the guards have to say of a request. Everything is empty for a healthy run without caps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardRecord {
    /// Loops that its newest results belong to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// What was done about them (`warn`, `hint`, `block`, `answer`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// What the loop has cost so far in pico-USD, where all of its turns have a known cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loop_pico: Option<u64>,
    /// The cap that refused the request (`usd`), and in which scope (`run`, `unnamed`, `key`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<String>,
    /// See `cap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_scope: Option<String>,
    /// What was booked where the cost is not known: the most it could have been, in pico-USD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booked_pico: Option<u64>,
    /// The rules that bind this thread, where hints are or were among them; see
    /// [`crate::guard::loops::Policy::code`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Texts that were put into the history.
    #[serde(skip_serializing_if = "is_zero")]
    pub hints: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature is serde's.
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl GuardRecord {
    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A breakpoint that prefixgate added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// JSON path of the block.
    pub path: String,
    /// Lifetime.
    pub ttl: Ttl,
    /// Offset of the splice in the client's (decoded) body.
    pub offset: u32,
}

/// One request, whatever its exit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// UUIDv7, fixed when the request was accepted.
    pub id: Uuid,
    /// What it was for.
    pub kind: RequestKind,
    /// The run it belongs to.
    pub run_id: String,
    /// Where the run's name came from (`header`, `label`, `client`, `body`, `chain`, `trace`, `content`, `none`).
    #[serde(deserialize_with = "code::word")]
    pub run_source: Word,
    /// The thread inside the run.
    pub thread_id: String,
    /// The thread that started this one, for sub-agents.
    pub parent_thread: Option<String>,
    /// The client's name of the agent, where it gave one.
    pub agent: Option<String>,
    /// The client's name of the agent that started it.
    pub parent_agent: Option<String>,
    /// 1-based number of the turn in its thread; 0 for what is not a turn.
    pub turn: u32,
    /// 1 for the first try; retries of the same request by the client count up.
    pub attempt: u32,
    /// The application, from a label or header.
    pub app: Option<String>,
    /// The client program and version, from its user agent.
    pub client: Option<String>,
    /// Name of the upstream.
    pub upstream: String,
    /// Keyed hash of the credential that was sent.
    pub credential: Option<String>,
    /// HTTP method.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// Model asked for.
    pub model_requested: Option<String>,
    /// Model that answered.
    pub model_served: Option<String>,
    /// Start, UTC milliseconds since 1970. A request belongs to the day of its start.
    pub started_ms: i64,
    /// Microseconds from the last byte of the request until it went upstream: what the gateway added.
    /// Measured for turns only.
    pub overhead_us: Option<u64>,
    /// Microseconds from start until the response head arrived.
    pub head_us: Option<u64>,
    /// Microseconds from start until the first content.
    pub first_token_us: Option<u64>,
    /// Microseconds from start until the end.
    pub duration_us: u64,
    /// HTTP status that the client was given.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why the model stopped.
    pub stop_reason: Option<String>,
    /// The provider's error type, or our own word for what went wrong.
    pub error_type: Option<String>,
    /// The message of that error, cut.
    pub error_message: Option<String>,
    /// Whether a stream was asked for.
    pub streamed: bool,
    /// Tokens.
    pub usage: Usage,
    /// The final usage was seen. If not, `usage` is a lower bound or an estimate.
    pub usage_complete: bool,
    /// Some of `usage` was estimated from delivered bytes.
    pub usage_estimated: bool,
    /// Cost in pico-USD; `None` when the price or the usage is unknown.
    pub cost_pico: Option<u64>,
    /// What the same tokens would have cost without any prompt cache.
    pub cost_no_cache_pico: Option<u64>,
    /// Version of the price data, or why there is no price.
    pub price_version: Option<String>,
    /// Whether the body was read.
    pub inspection: Inspection,
    /// Body size as the client sent it.
    pub request_bytes: u64,
    /// Body size as it went upstream.
    pub sent_bytes: u64,
    /// Body size of the answer as delivered.
    pub response_bytes: u64,
    /// Number of blocks, messages and tools of the request.
    pub blocks: u32,
    /// Messages.
    pub messages: u32,
    /// Tool definitions.
    pub tools: u32,
    /// The client's own breakpoints.
    pub markers_client: u32,
    /// Breakpoints added (or, in a dry run, that would have been).
    pub markers_added: Vec<Placed>,
    /// Whether the additions were only planned.
    pub dry_run: bool,
    /// Keyed hash of tools and system.
    pub root: Option<String>,
    /// Keyed chain hash at the last block.
    pub chain: Option<String>,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// The provider's request id.
    pub request_id: Option<String>,
    /// The W3C `traceparent` that the client sent, where it is a valid one.
    #[serde(default)]
    pub traceparent: Option<String>,
    /// The provider's own explanation of a cache miss.
    pub native_diagnosis: Option<String>,
    /// The prompt cache.
    pub cache: CacheRecord,
    /// Loops and caps.
    pub guard: GuardRecord,
    /// Stable words, some with a detail after a colon.
    pub warnings: Vec<String>,
}

impl TurnRecord {
    /// A record of which only this is known as yet. Until it is said otherwise, the client has left.
    #[must_use]
    pub fn begin(id: Uuid, kind: RequestKind, upstream: &str, started_ms: i64) -> Self {
        Self {
            id,
            kind,
            run_id: "unplaced".to_owned(),
            run_source: "none",
            thread_id: "main".to_owned(),
            parent_thread: None,
            agent: None,
            parent_agent: None,
            turn: 0,
            attempt: 1,
            app: None,
            client: None,
            upstream: upstream.to_owned(),
            credential: None,
            method: String::new(),
            path: String::new(),
            model_requested: None,
            model_served: None,
            started_ms,
            overhead_us: None,
            head_us: None,
            first_token_us: None,
            duration_us: 0,
            status: None,
            outcome: Outcome::ClientAbort,
            stop_reason: None,
            error_type: None,
            error_message: None,
            streamed: false,
            usage: Usage::default(),
            usage_complete: false,
            usage_estimated: false,
            cost_pico: None,
            cost_no_cache_pico: None,
            price_version: None,
            inspection: Inspection::NotWanted,
            request_bytes: 0,
            sent_bytes: 0,
            response_bytes: 0,
            blocks: 0,
            messages: 0,
            tools: 0,
            markers_client: 0,
            markers_added: Vec::new(),
            dry_run: false,
            root: None,
            chain: None,
            response_id: None,
            request_id: None,
            traceparent: None,
            native_diagnosis: None,
            cache: CacheRecord::default(),
            guard: GuardRecord::default(),
            warnings: Vec::new(),
        }
    }
}

/// How a tool call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallStatus {
    /// The model asked for it; no result has been seen.
    Pending,
    /// A result was seen and not flagged as failed.
    Ok,
    /// A result was seen that is a failure: by its flag, or by what its text says.
    Failed,
    /// The stream broke inside the call.
    Incomplete,
    /// The conversation went on without a result.
    Unanswered,
}

/// One tool call, written when the answer ends and again when its result is seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallRecord {
    /// The turn whose answer asked for it.
    pub turn_id: Uuid,
    /// Run.
    pub run_id: String,
    /// Thread.
    pub thread_id: String,
    /// The provider's id of the call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Keyed hash of the input.
    pub input_hash: String,
    /// Size of the input in bytes.
    pub input_bytes: u64,
    /// When the answer that asked for it ended, UTC milliseconds.
    pub asked_ms: i64,
    /// How it stands.
    pub status: CallStatus,
    /// Milliseconds from the end of the answer to the request with the result.
    pub latency_ms: Option<u64>,
    /// Size of the result in bytes.
    pub result_bytes: Option<u64>,
    /// What is wrong with the call itself, as a stable word: `undeclared` (the request declares no
    /// such tool) or `invalid_input` (it does not satisfy the declared schema).
    #[serde(default, deserialize_with = "code::word_or_none")]
    pub wrong: Option<Word>,
    /// How often the same call had failed right before, without a success in between.
    pub retries: u32,
}

/// What a later request told about a tool call: the answer to a [`ToolCallRecord`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// Run.
    pub run_id: String,
    /// Thread.
    pub thread_id: String,
    /// The provider's id of the call.
    pub call_id: String,
    /// How it stands now.
    pub status: CallStatus,
    /// Milliseconds from the end of the answer to the request with the result.
    pub latency_ms: Option<u64>,
    /// Size of the result in bytes.
    pub result_bytes: Option<u64>,
    /// How often the same call had failed right before, without a success in between.
    pub retries: u32,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A loop was found, or came to the next step of its ladder.
    Loop,
    /// A share of a cap was used.
    CapLevel,
    /// A cap refused a request.
    CapRefused,
    /// A cap on money cannot be enforced: a price is unknown.
    CapUnenforced,
    /// An alert of another kind.
    Alert,
}

/// Something that happened, beside the turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// UUIDv7, fixed when it happened.
    pub id: Uuid,
    /// UTC milliseconds.
    pub at_ms: i64,
    /// What kind.
    pub kind: EventKind,
    /// The detector, the cap, or the alert's own name.
    pub name: String,
    /// The run; empty where it concerns none.
    pub run_id: String,
    /// The thread; empty where it concerns none.
    pub thread_id: String,
    /// The request in which it happened.
    pub turn_id: Option<Uuid>,
    /// The application.
    pub app: Option<String>,
    /// The scope of a cap (`run`, `unnamed`, `key`); empty for others.
    pub scope: String,
    /// What was done (`warn`, `hint`, `block`, `answer`, `refused`); empty where nothing.
    pub action: String,
    /// The count of a loop; what of a cap was used, in the cap's unit.
    pub value: Option<u64>,
    /// The threshold or the limit.
    pub limit: Option<u64>,
    /// Percent of a cap.
    pub level: Option<u32>,
    /// Pico-USD: what a loop has cost so far.
    pub pico: Option<u64>,
    /// The tools of a loop; names only.
    pub tools: Vec<String>,
}
