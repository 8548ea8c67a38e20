//! Does what the machine asks for: asks the model, makes the calls, writes the journal.
//!
//! An event is in the journal before anything follows from it, so the journal is never behind what
//! has happened in the world but for the one thing that was under way. It is settled before the
//! model is asked, before calls are made and at an end: what came in one go is forced onto the disk
//! at once.
//!
//! Here is the loop, and what every step needs. The steps are in `ask` (the next answer, with
//! `retry` where an attempt fails), `calls` (its calls) and `beside` (the summary of a compaction, and
//! what else is asked beside the conversation).

mod ask;
mod beside;
mod calls;
mod retry;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::journal::{Journal, JournalError};
use super::machine::{AgentRun, Event, Happened, Outcome, Setup, Situation, Spent, Step};
use super::model::{Endpoint, Headers};
use super::notice::{Listener, Notice};
use super::tools::{Batch, Toolbox};
use crate::clock::Clock;

pub use calls::INTERRUPTED;
#[cfg(feature = "restate")]
pub(super) use {beside::SUM_UP, retry::backoff};

/// How a driver works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Attempts for one answer.
    pub attempts: u32,
    /// Tools start while the answer is still coming in. An answer that breaks off after one has
    /// started is not asked for again.
    pub eager: bool,
    /// Turns between checkpoints.
    pub checkpoint_every: u32,
    /// Headers of every request. Those of [`Listener::headers`] take their place.
    pub headers: Headers,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            attempts: 5,
            eager: false,
            checkpoint_every: 10,
            headers: Vec::new(),
        }
    }
}

/// What sub-agents have used, until the agent that started them has booked it.
pub type Delegated = Arc<Mutex<Vec<(String, Spent)>>>;

/// Everything that an agent works with.
pub struct Parts {
    /// The model.
    pub endpoint: Arc<Endpoint>,
    /// The tools.
    pub toolbox: Arc<Toolbox>,
    /// Where events go.
    pub journal: Box<dyn Journal>,
    /// Who is told.
    pub listener: Arc<dyn Listener>,
    /// The books of the run.
    pub budget: Budget,
    /// Filled by the tool that starts sub-agents.
    pub delegated: Delegated,
    /// Ends the run when cancelled.
    pub cancelled: CancellationToken,
    /// The time of events.
    pub clock: Clock,
    /// How it works.
    pub options: Options,
}

/// An agent at work.
pub struct Agent {
    parts: Parts,
    run: AgentRun,
    /// Calls that began in this process, with their batch.
    batch: Option<Batch>,
    live: HashSet<String>,
    /// Attempts of the answer that is asked for.
    attempts: u32,
}

impl Agent {
    /// A new run with a first text of the user.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn begin(parts: Parts, setup: Setup, task: &str) -> Result<Self, JournalError> {
        let at_ms = parts.clock.utc_ms();
        let run = AgentRun::new(setup.clone(), at_ms);
        let mut agent = Self::with(parts, run);
        agent.record(Event::Began(Box::new(setup)))?;
        agent.say(task)?;
        Ok(agent)
    }

    /// A run that its journal brings back; `None` where the journal ends before the user has said
    /// anything, so that nothing has been done and nothing is to do.
    ///
    /// Calls that had begun without an end are made again where their tool is idempotent, with the
    /// same key; the others are answered with [`INTERRUPTED`].
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub fn resume(mut parts: Parts, resumed: Event) -> Result<Option<Self>, JournalError> {
        let run = parts.journal.load()?;
        let Some(run) = run.filter(|run| !run.entries().is_empty()) else {
            return Ok(None);
        };
        parts.budget.add(run.spent());
        Self::reopen(parts, run, resumed).map(Some)
    }

    /// A run that was read from the journal among `parts`, as it stands: to look at, or to ask
    /// something beside it.
    #[must_use]
    pub fn held(parts: Parts, run: AgentRun) -> Self {
        Self::with(parts, run)
    }

    /// Goes on with a run that was read from the journal among `parts`, and whose use is on the
    /// books already.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn reopen(parts: Parts, run: AgentRun, resumed: Event) -> Result<Self, JournalError> {
        let mut agent = Self::with(parts, run);
        agent.record(resumed)?;
        Ok(agent)
    }

    fn with(parts: Parts, run: AgentRun) -> Self {
        Self {
            parts,
            run,
            batch: None,
            live: HashSet::new(),
            attempts: 0,
        }
    }

    /// The state.
    #[must_use]
    pub const fn run(&self) -> &AgentRun {
        &self.run
    }

    /// The user says something; what was ended goes on with it.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn say(&mut self, text: &str) -> Result<(), JournalError> {
        self.record(Event::Said {
            text: text.to_owned(),
        })
    }

    /// Another model from now on.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn switch(&mut self, endpoint: Arc<Endpoint>, model: &str) -> Result<(), JournalError> {
        let wire = endpoint.format.wire();
        let dropped = endpoint.format.drops(self.run.entries(), model);
        if dropped > 0 {
            self.tell(Notice::ThinkingDropped(dropped));
        }
        self.parts.endpoint = endpoint;
        self.record(Event::Switched {
            wire,
            model: model.to_owned(),
        })
    }

    /// Goes on until the run ends.
    ///
    /// # Errors
    /// The journal cannot be written. The run stands where the journal does.
    pub async fn go(&mut self) -> Result<Outcome, JournalError> {
        self.tell(Notice::Began(&self.run));
        loop {
            let whole = self.parts.budget.spent();
            let step = self.run.next(Situation {
                now_ms: self.parts.clock.utc_ms(),
                whole_run: Some(&whole),
            });
            let cancelled = self.parts.cancelled.is_cancelled();
            match step {
                Step::Done(outcome) => return self.end(outcome),
                _ if cancelled => return self.end(Outcome::Cancelled),
                Step::CallModel { max_tokens } => self.turn(max_tokens).await?,
                Step::Compact { from } => self.compact(from).await?,
                Step::CallTools(todo) => self.call(todo).await?,
            }
        }
    }

    fn end(&mut self, outcome: Outcome) -> Result<Outcome, JournalError> {
        self.batch = None;
        if self.run.outcome() != Some(&outcome) {
            self.record(Event::Ended(outcome.clone()))?;
        }
        self.parts.journal.settle()?;
        self.checkpoint();
        self.tell(Notice::Ended {
            outcome: &outcome,
            run: &self.run,
        });
        Ok(outcome)
    }

    fn record(&mut self, event: Event) -> Result<(), JournalError> {
        let happened = Happened {
            at_ms: self.parts.clock.utc_ms(),
            event,
        };
        self.parts.journal.append(&happened)?;
        self.parts.budget.add(&happened.event.spent());
        self.run.apply(&happened);
        Ok(())
    }

    fn checkpoint(&mut self) {
        // The events are there all the same: a run does not end for this.
        if let Err(error) = self.parts.journal.checkpoint(&self.run) {
            tracing::warn!(%error, "no checkpoint was written");
        }
    }

    fn tell(&self, notice: Notice<'_>) {
        self.parts.listener.notice(&self.run.setup().agent, notice);
    }
}
