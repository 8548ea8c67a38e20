//! What reports, the page and alerts ask of a store, whichever store it is.

use jiff::tz::TimeZone;

use super::audit::{Agreement, CulpritBy, Culprits, Duplicates, Unreads, Verdicts};
use super::guards::{CapSeen, LoopSeen, ToolSeen};
use super::{Savings, StoreError, Totals};
use crate::trace::TurnRecord;

/// Which requests are meant. Everything left out does not restrict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Start of the range, UTC milliseconds, inclusive.
    pub since_ms: Option<i64>,
    /// End of the range, UTC milliseconds, exclusive.
    pub until_ms: Option<i64>,
    /// Application.
    pub app: Option<String>,
    /// Run.
    pub run: Option<String>,
    /// Most rows of an answer.
    pub limit: usize,
}

impl Filter {
    /// Everything there is, at most `limit` rows of it.
    #[must_use]
    pub fn all(limit: usize) -> Self {
        Self {
            since_ms: None,
            until_ms: None,
            app: None,
            run: None,
            limit,
        }
    }
}

/// One run with everything that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSummary {
    /// Name.
    pub id: String,
    /// Where the name came from.
    pub source: String,
    /// Application, from the newest request that told it.
    pub app: Option<String>,
    /// Client program, from the newest request that told it.
    pub client: Option<String>,
    /// Models that answered, in the order of their first answer; at most [`RunSummary::MODELS`].
    pub models: Vec<String>,
    /// Start of the first request, UTC milliseconds.
    pub started_ms: i64,
    /// End of the last request, UTC milliseconds.
    pub ended_ms: i64,
    /// Number of threads.
    pub threads: u32,
    /// Sums over all requests of the run.
    pub totals: Totals,
}

impl RunSummary {
    /// Models that a summary names.
    pub const MODELS: usize = 8;
}

/// One thread of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadSummary {
    /// Name.
    pub id: String,
    /// The thread that started it.
    pub parent: Option<String>,
    /// The client's name of its agent.
    pub agent: Option<String>,
    /// Start of the first request, UTC milliseconds.
    pub started_ms: i64,
    /// End of the last request, UTC milliseconds.
    pub ended_ms: i64,
    /// Tool calls that its answers asked for.
    pub calls: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Sums over all of its requests.
    pub totals: Totals,
}

impl ThreadSummary {
    /// A thread before its first request is added.
    #[must_use]
    pub(super) fn begin(id: &str, started_ms: i64) -> Self {
        Self {
            id: id.to_owned(),
            parent: None,
            agent: None,
            started_ms,
            ended_ms: started_ms,
            calls: 0,
            failed: 0,
            totals: Totals::default(),
        }
    }
}

/// What spend is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The application.
    App,
    /// The model that answered; the model asked for where none did.
    Model,
    /// The credential, by its keyed hash.
    Key,
    /// The upstream.
    Upstream,
    /// The day of the request's start in the zone that is asked for.
    Day,
    /// The hour of the request's start there. An hour that a clock goes through twice is one.
    Hour,
}

impl By {
    /// Whether groups come in the order of time.
    #[must_use]
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Day | Self::Hour)
    }
}

/// The spend of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Spend {
    /// What they have in common, days as `YYYY-MM-DD` and hours as `YYYY-MM-DDTHH`; `None` for
    /// requests that told none.
    pub key: Option<String>,
    /// Sums.
    pub totals: Totals,
}

/// The questions. Requests of kind `turn` count, and the cost of those of our own; whoever counts
/// does it with [`Totals`].
pub trait Questions {
    /// Runs that started a request in the range (and, with an application, one of that
    /// application), the most recently active first. A run is always summed up as a whole, so
    /// that its totals are those of its turns.
    ///
    /// # Errors
    /// The store cannot be read.
    fn runs(&self, filter: &Filter) -> Result<Vec<RunSummary>, StoreError>;

    /// The requests of a run in the order of their start, retries included. `every_kind` adds
    /// what is not a turn.
    ///
    /// # Errors
    /// The store cannot be read.
    fn turns(
        &self,
        run: &str,
        filter: &Filter,
        every_kind: bool,
    ) -> Result<Vec<TurnRecord>, StoreError>;

    /// The threads of a run in the order of their first request: the agent, its sub-agents, and
    /// side calls. Each names the one that started it.
    ///
    /// # Errors
    /// The store cannot be read.
    fn tree(&self, run: &str, filter: &Filter) -> Result<Vec<ThreadSummary>, StoreError>;

    /// Spend of the range in groups: days and hours in order, everything else by cost. Each request is in
    /// exactly one group; whatever the zone, days sum up to the range.
    ///
    /// # Errors
    /// The store cannot be read.
    fn spend(&self, by: By, filter: &Filter, zone: &TimeZone) -> Result<Vec<Spend>, StoreError>;

    /// What broke the cache, the dearest first, and the same losses by reason.
    ///
    /// # Errors
    /// The store cannot be read.
    fn culprits(
        &self,
        by: CulpritBy,
        filter: &Filter,
        zone: &TimeZone,
    ) -> Result<Culprits, StoreError>;

    /// Turns of the range that wrote to the cache what no turn has read (of any range), once the
    /// lifetime of what they wrote has passed by `now_ms`, UTC milliseconds.
    ///
    /// # Errors
    /// The store cannot be read.
    fn unread(&self, filter: &Filter, now_ms: i64) -> Result<Unreads, StoreError>;

    /// Turns that wrote what a sibling was writing at the same time.
    ///
    /// # Errors
    /// The store cannot be read.
    fn duplicates(&self, filter: &Filter) -> Result<Duplicates, StoreError>;

    /// How the verdicts compare with the provider's own diagnosis.
    ///
    /// # Errors
    /// The store cannot be read.
    fn agreement(&self, filter: &Filter) -> Result<Agreement, StoreError>;

    /// How many turns have which verdict.
    ///
    /// # Errors
    /// The store cannot be read.
    fn verdicts(&self, filter: &Filter) -> Result<Verdicts, StoreError>;

    /// What the cache, the helpers and the inserted breakpoints have saved.
    ///
    /// # Errors
    /// The store cannot be read.
    fn savings(&self, filter: &Filter) -> Result<Savings, StoreError>;

    /// Loops that were found in the range, the one that went on last first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn loops(&self, filter: &Filter) -> Result<Vec<LoopSeen>, StoreError>;

    /// Caps of which something is to be told in the range: a share that was used, a refusal, or
    /// that they cannot be enforced. The one that was last heard of comes first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn caps(&self, filter: &Filter) -> Result<Vec<CapSeen>, StoreError>;

    /// How the tools did that were asked for in the range, the one that failed most often first.
    /// With an application, calls whose turn is not stored are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn tools(&self, filter: &Filter) -> Result<Vec<ToolSeen>, StoreError>;
}
