//! Does what the machine asks for: asks the model, makes the calls, writes the journal.
//!
//! An event is in the journal before anything follows from it, so the journal is never behind what
//! has happened in the world but for the one thing that was under way.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::journal::{Journal, JournalError};
use super::machine::{
    AgentRun, Bill, Event, Happened, Outcome, Setup, Situation, Spent, Step, Stop, ToDo,
};
use super::model::{Ask, Attempt, Endpoint, Failure, Headers, Piece, Reply};
use super::notice::{Listener, Notice};
use super::talk::{CallResult, ToolCall};
use super::tools::{Batch, Toolbox};
use crate::clock::Clock;

/// First and longest wait before another attempt.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// What a call is answered with of which nobody knows how far it came.
pub const INTERRUPTED: &str = "interrupted, outcome unknown: the program was stopped while this \
                               ran. Look at what it has done before doing it again.";
const CANCELLED: &str = "cancelled by the user while it ran, outcome unknown";

/// What a conversation is summed up with.
const SUM_UP: &str = "Write a summary of the conversation so far, to go on from in its place. Keep: \
the task as it was given, what was decided and why, what was done (files, commands, their \
outcomes), what is known and where it stands, what is left to do. Leave out what no longer \
matters. Call no tool. Answer with the summary only.";

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
    /// Headers of every request: lineage and trace for the gateway.
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

    /// A run that its journal brings back; `None` where the journal is empty.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub fn resume(mut parts: Parts, resumed: Event) -> Result<Option<Self>, JournalError> {
        let Some(run) = parts.journal.load()? else {
            return Ok(None);
        };
        parts.budget.add(run.spent());
        let mut agent = Self::with(parts, run);
        agent.record(resumed)?;
        Ok(Some(agent))
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
        self.parts.journal.checkpoint(&self.run)?;
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
        let mut new = Spent::default();
        match &happened.event {
            Event::Answered { bill, .. }
            | Event::Abandoned { bill, .. }
            | Event::Compacted { bill, .. }
            | Event::CompactionFailed { bill, .. } => new.answer(&bill.usage, bill.pico),
            Event::CallBegan { .. } => new.calls = 1,
            // A sub-agent has booked its own.
            _ => {}
        }
        self.parts.budget.add(&new);
        self.run.apply(&happened);
        Ok(())
    }

    fn tell(&self, notice: Notice<'_>) {
        self.parts.listener.notice(&self.run.setup().agent, notice);
    }

    async fn turn(&mut self, max_tokens: u32) -> Result<(), JournalError> {
        self.attempts += 1;
        self.tell(Notice::Asked {
            turn: self.run.turns() + 1,
            attempt: self.attempts,
        });
        let begun = Instant::now();
        let eager = self.parts.options.eager;
        let answer = self.ask(None, max_tokens, eager).await?;
        match answer {
            Ok(Reply { whole, bill }) => {
                self.attempts = 0;
                self.tell(Notice::Answered {
                    bill: &bill,
                    stop: &whole.stop,
                    took: begun.elapsed(),
                });
                self.record(Event::Answered {
                    answer: whole.answer,
                    stop: whole.stop,
                    open_call: whole.open_call,
                    bill,
                })?;
                let every = self.parts.options.checkpoint_every.max(1);
                if self.run.turns().is_multiple_of(every) {
                    self.parts.journal.checkpoint(&self.run)?;
                }
                Ok(())
            }
            Err(attempt) => self.failed(attempt).await,
        }
    }

    /// Asks the model. The outer error is the journal's.
    async fn ask(
        &mut self,
        aside: Option<&str>,
        max_tokens: u32,
        eager: bool,
    ) -> Result<Result<Reply, Attempt>, JournalError> {
        let endpoint = Arc::clone(&self.parts.endpoint);
        let model = self.run.setup().model.clone();
        let body = endpoint.format.request(&Ask {
            setup: self.run.setup(),
            entries: self.run.entries(),
            aside,
            max_tokens,
        });
        let headers = self.parts.options.headers.clone();
        let cancelled = self.parts.cancelled.clone();
        let mut trouble = Ok(());
        let silent = aside.is_some();
        let mut on_piece = |piece: Piece| {
            if trouble.is_ok() && !silent {
                trouble = self.piece(piece, eager);
            }
        };
        let reply = tokio::select! {
            reply = endpoint.ask(&model, body, &headers, &mut on_piece) => reply,
            () = cancelled.cancelled() => Err(Attempt {
                reason: "cancelled".to_owned(),
                failure: Failure::Final,
                bill: Bill::default(),
            }),
        };
        trouble.map(|()| reply)
    }

    fn piece(&mut self, piece: Piece, eager: bool) -> Result<(), JournalError> {
        match piece {
            Piece::Text(text) => self.tell(Notice::Text(&text)),
            Piece::Thinking => self.tell(Notice::Thinking),
            Piece::CallOpened(name) => self.tell(Notice::CallOpened(&name)),
            Piece::Call(call) if eager && self.run.may_begin(&call) => {
                let key = self.run.coming_key(&call.id);
                self.start(call, key)?;
            }
            Piece::Call(_) => {}
        }
        Ok(())
    }

    async fn failed(&mut self, attempt: Attempt) -> Result<(), JournalError> {
        let started = self.batch.take().is_some();
        self.live.clear();
        let wait = match attempt.failure {
            Failure::Again(after) if !started && self.attempts < self.parts.options.attempts => {
                Some(after.unwrap_or_else(|| backoff(self.attempts)))
            }
            _ => None,
        };
        self.tell(Notice::Reset {
            reason: &attempt.reason,
            bill: &attempt.bill,
            wait,
        });
        self.record(Event::Abandoned {
            reason: attempt.reason.clone(),
            bill: attempt.bill,
        })?;
        if self.parts.cancelled.is_cancelled() {
            return Ok(());
        }
        if let Some(wait) = wait {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.parts.cancelled.cancelled() => {}
            }
            return Ok(());
        }
        self.attempts = 0;
        self.record(match attempt.failure {
            Failure::TooLong => Event::TooLong,
            _ => Event::Ended(Outcome::ProviderError(attempt.reason)),
        })
    }

    async fn compact(&mut self, from: usize) -> Result<(), JournalError> {
        self.attempts += 1;
        self.tell(Notice::Compacting {
            tokens: self.run.size(),
        });
        let max_tokens = self.run.setup().max_tokens;
        let answer = self.ask(Some(SUM_UP), max_tokens, false).await?;
        let (reason, bill) = match answer {
            Ok(Reply { whole, bill }) => {
                let summary = whole.answer.text();
                let said = !summary.trim().is_empty() && whole.answer.calls().next().is_none();
                if said && whole.stop == Stop::EndTurn {
                    self.attempts = 0;
                    self.tell(Notice::Compacted(Ok(&bill)));
                    return self.record(Event::Compacted {
                        summary,
                        from,
                        bill,
                    });
                }
                ("the model gave no whole summary".to_owned(), bill)
            }
            Err(attempt) if matches!(attempt.failure, Failure::Again(_)) => {
                if self.attempts < self.parts.options.attempts {
                    return self.failed(attempt).await;
                }
                (attempt.reason, attempt.bill)
            }
            Err(attempt) => (attempt.reason, attempt.bill),
        };
        self.attempts = 0;
        self.tell(Notice::Compacted(Err(&reason)));
        self.record(Event::CompactionFailed { reason, bill })
    }

    fn start(&mut self, call: ToolCall, key: String) -> Result<(), JournalError> {
        self.tell(Notice::CallBegan {
            call: &call,
            key: &key,
        });
        self.record(Event::CallBegan {
            call: call.clone(),
            key: key.clone(),
        })?;
        self.live.insert(call.id.clone());
        let parts = &self.parts;
        let batch = self.batch.get_or_insert_with(|| {
            Batch::new(Arc::clone(&parts.toolbox), parts.cancelled.child_token())
        });
        batch.start(call, key);
        Ok(())
    }

    async fn call(&mut self, todo: Vec<ToDo>) -> Result<(), JournalError> {
        let mut open = HashSet::new();
        for ToDo { call, key, begun } in todo {
            let id = call.id.clone();
            if begun && !self.live.contains(&id) {
                let again = self.parts.toolbox.get(&call.name);
                if !again.is_some_and(|tool| tool.manners().idempotent) {
                    self.answer(CallResult::failed(&id, INTERRUPTED), Duration::ZERO)?;
                    continue;
                }
            }
            if !self.live.contains(&id) {
                self.start(call, key)?;
            }
            open.insert(id);
        }
        let mut exception = None;
        let cancelled = self.parts.cancelled.clone();
        while let Some(batch) = self.batch.as_mut().filter(|_| !open.is_empty()) {
            let end = tokio::select! {
                end = batch.next() => end,
                () = cancelled.cancelled() => None,
            };
            let Some(end) = end else { break };
            open.remove(&end.result.call);
            self.book_delegated()?;
            self.answer(end.result, end.took)?;
            exception = exception.or(end.exception);
        }
        self.batch = None;
        self.live.clear();
        let mut left: Vec<String> = open.into_iter().collect();
        left.sort_unstable();
        for id in left {
            self.answer(CallResult::failed(&id, CANCELLED), Duration::ZERO)?;
        }
        match exception {
            Some(words) => self.record(Event::Ended(Outcome::ToolException(words))),
            None => Ok(()),
        }
    }

    fn answer(&mut self, result: CallResult, took: Duration) -> Result<(), JournalError> {
        self.tell(Notice::CallEnded {
            result: &result,
            took,
        });
        self.record(Event::CallEnded { result })
    }

    fn book_delegated(&mut self) -> Result<(), JournalError> {
        let new: Vec<_> = {
            let mut delegated = self
                .parts
                .delegated
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            delegated.drain(..).collect()
        };
        for (call, spent) in new {
            self.record(Event::Delegated { call, spent })?;
        }
        Ok(())
    }
}

/// Doubles from attempt to attempt, less up to a quarter, so that clients do not come back together.
fn backoff(attempts: u32) -> Duration {
    let full = FIRST_WAIT.saturating_mul(1 << attempts.saturating_sub(1).min(8));
    let full = full.min(LONGEST_WAIT);
    let mut random = [0u8; 1];
    // Without randomness it only comes back a little later.
    let _ = getrandom::fill(&mut random);
    full - full * u32::from(random[0]) / 1024
}
