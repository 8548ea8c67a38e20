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
    AgentRun, Event, Happened, Outcome, Setup, Situation, Spent, Step, Stop, ToDo,
};
use super::model::{Ask, Attempt, Endpoint, Failure, Headers, Piece, Reply};
use super::notice::{Listener, Notice};
use super::talk::{CallResult, ToolCall};
use super::tools::{Batch, CANCEL_GRACE, Toolbox};
use crate::clock::Clock;

/// First and longest wait before another attempt.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// How long the results of cancelled calls are waited for.
const PATIENCE: Duration = CANCEL_GRACE.saturating_add(Duration::from_millis(50));

/// What a call is answered with of which nobody knows how far it came.
pub const INTERRUPTED: &str = "interrupted, outcome unknown: the program was stopped while this \
                               ran. Look at what it has done before doing it again.";
const NOT_MADE: &str = "not run: the run had come to an end before";
const CANCELLED: &str = "cancelled by the user while it ran, outcome unknown";

/// What a conversation is summed up with.
pub(super) const SUM_UP: &str = "Write a summary of the conversation so far, to go on from in its place. Keep: \
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

/// What is asked beside the conversation.
#[derive(Debug, Clone, Copy)]
struct Aside<'a> {
    text: &'a str,
    /// How many entries of the conversation stand before it.
    upto: usize,
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
                    self.checkpoint();
                }
                if self.run.open_calls().next().is_none() {
                    // What began of an answer that was not kept: nobody waits for it any more.
                    self.batch = None;
                    self.live.clear();
                }
                Ok(())
            }
            Err(attempt) => self.failed(attempt, max_tokens).await,
        }
    }

    /// Asks the model something beside the conversation, by its next request with a text behind it:
    /// all before that is read from the cache. The answer is kept ([`AgentRun::aside`]), and no part
    /// of the conversation. `None` where the model gave no text. No cap but cancelling is looked at.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn aside(&mut self, text: &str) -> Result<Option<String>, JournalError> {
        let open: Vec<String> = self.run.open_calls().map(|call| call.id.clone()).collect();
        for id in open {
            // Every call needs its result before anything else is said.
            self.answer(CallResult::failed(&id, NOT_MADE), Duration::ZERO)?;
        }
        let upto = self.run.entries().len();
        let max_tokens = self.run.setup().max_tokens;
        let options = self.parts.options.attempts;
        for attempt in 1..=options {
            if self.parts.cancelled.is_cancelled() {
                break;
            }
            let aside = Aside { text, upto };
            let failed = match self.ask(Some(aside), max_tokens, false).await? {
                Ok(Reply { whole, bill }) => {
                    let answer = whole.answer.text();
                    self.record(Event::Aside {
                        answer: answer.clone(),
                        bill,
                    })?;
                    return Ok(Some(answer).filter(|answer| !answer.trim().is_empty()));
                }
                Err(failed) => failed,
            };
            let wait = match failed.failure {
                Failure::Again(after) if attempt < options => {
                    Some(after.unwrap_or_else(|| backoff(attempt)))
                }
                _ => None,
            };
            self.abandoned(&failed, wait)?;
            let Some(wait) = wait else { break };
            pause(&self.parts.cancelled, wait).await;
        }
        Ok(None)
    }

    /// Asks the model. The outer error is the journal's.
    async fn ask(
        &mut self,
        aside: Option<Aside<'_>>,
        max_tokens: u32,
        eager: bool,
    ) -> Result<Result<Reply, Attempt>, JournalError> {
        let endpoint = Arc::clone(&self.parts.endpoint);
        let model = self.run.setup().model.clone();
        let entries = self.run.entries();
        let upto = aside.map_or(entries.len(), |aside| aside.upto);
        let body = endpoint.format.request(&Ask {
            setup: self.run.setup(),
            entries: entries.get(..upto).unwrap_or(entries),
            aside: aside.map(|aside| aside.text),
            max_tokens,
        });
        let newest = self.parts.listener.headers(&self.run.setup().agent);
        let mut headers = self.parts.options.headers.clone();
        headers.retain(|(name, _)| newest.iter().all(|(newer, _)| newer != name));
        headers.extend(newest);
        let cancelled = self.parts.cancelled.clone();
        let mut trouble = Ok(());
        let silent = aside.is_some();
        let mut on_piece = |piece: Piece| {
            if trouble.is_ok() && !silent {
                trouble = self.piece(piece, eager);
            }
        };
        let reply = endpoint
            .ask_until(&model, body, &headers, &cancelled, &mut on_piece)
            .await;
        trouble.map(|()| reply)
    }

    fn piece(&mut self, piece: Piece, eager: bool) -> Result<(), JournalError> {
        match piece {
            Piece::Text(text) => self.tell(Notice::Text(&text)),
            Piece::Thinking => self.tell(Notice::Thinking),
            Piece::CallOpened(name) => self.tell(Notice::CallOpened(&name)),
            Piece::Call(call) if eager && self.may_begin(&call) => {
                let key = self.run.coming_key(&call.id);
                self.start(call, key)?;
            }
            Piece::Call(_) => {}
        }
        Ok(())
    }

    fn may_begin(&self, call: &ToolCall) -> bool {
        let whole = self.parts.budget.spent();
        let situation = Situation {
            now_ms: self.parts.clock.utc_ms(),
            whole_run: Some(&whole),
        };
        self.run.may_begin(call, situation)
    }

    async fn failed(&mut self, attempt: Attempt, max_tokens: u32) -> Result<(), JournalError> {
        let started = self.batch.take().is_some();
        self.live.clear();
        let wait = match attempt.failure {
            Failure::Again(after) if !started && self.attempts < self.parts.options.attempts => {
                Some(after.unwrap_or_else(|| backoff(self.attempts)))
            }
            _ => None,
        };
        self.abandoned(&attempt, wait)?;
        if self.parts.cancelled.is_cancelled() {
            return Ok(());
        }
        if let Some(wait) = wait {
            pause(&self.parts.cancelled, wait).await;
            return Ok(());
        }
        self.attempts = 0;
        let raised = max_tokens > self.run.setup().max_tokens;
        self.record(match attempt.failure {
            Failure::TooLong => Event::TooLong,
            // The model has no room for twice the limit.
            Failure::Final if raised && attempt.reason.contains("_tokens") => {
                Event::Ended(Outcome::Truncated)
            }
            _ => Event::Ended(Outcome::ProviderError(attempt.reason)),
        })
    }

    fn abandoned(&mut self, attempt: &Attempt, wait: Option<Duration>) -> Result<(), JournalError> {
        self.tell(Notice::Reset {
            reason: &attempt.reason,
            bill: &attempt.bill,
            wait,
        });
        self.record(Event::Abandoned {
            reason: attempt.reason.clone(),
            bill: (*attempt.bill).clone(),
        })
    }

    async fn compact(&mut self, from: usize) -> Result<(), JournalError> {
        self.attempts += 1;
        self.tell(Notice::Compacting {
            tokens: self.run.size(),
        });
        let max_tokens = self.run.setup().max_tokens;
        let aside = Aside {
            text: SUM_UP,
            upto: self.run.to_sum_up(from).len(),
        };
        let answer = self.ask(Some(aside), max_tokens, false).await?;
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
            // Not the compaction has failed: the next one starts anew.
            Err(attempt) if self.parts.cancelled.is_cancelled() => {
                self.attempts = 0;
                return self.abandoned(&attempt, None);
            }
            Err(attempt) => {
                let again = matches!(attempt.failure, Failure::Again(_));
                if again && self.attempts < self.parts.options.attempts {
                    return self.failed(attempt, max_tokens).await;
                }
                (attempt.reason, *attempt.bill)
            }
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
        // Cancelled calls get a moment to end in order, and sub-agents to tell what they have used.
        let patience = async move {
            cancelled.cancelled().await;
            tokio::time::sleep(PATIENCE).await;
        };
        tokio::pin!(patience);
        while let Some(batch) = self.batch.as_mut().filter(|_| !open.is_empty()) {
            let end = tokio::select! {
                biased;
                end = batch.next() => end,
                () = &mut patience => None,
            };
            let Some(end) = end else { break };
            open.remove(&end.result.call);
            self.book_delegated()?;
            self.answer(end.result, end.took)?;
            exception = exception.or(end.exception);
        }
        self.batch = None;
        self.live.clear();
        self.book_delegated()?;
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
        for (call, spent) in new
            .into_iter()
            .filter(|(_, spent)| *spent != Spent::default())
        {
            self.record(Event::Delegated { call, spent })?;
        }
        Ok(())
    }
}

async fn pause(cancelled: &CancellationToken, wait: Duration) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        () = cancelled.cancelled() => {}
    }
}

/// Doubles from attempt to attempt, less up to a quarter, so that clients do not come back together.
pub(super) fn backoff(attempts: u32) -> Duration {
    let full = FIRST_WAIT.saturating_mul(1 << attempts.saturating_sub(1).min(8));
    let full = full.min(LONGEST_WAIT);
    let mut random = [0u8; 1];
    // Without randomness it only comes back a little later.
    let _ = getrandom::fill(&mut random);
    full - full * u32::from(random[0]) / 1024
}
