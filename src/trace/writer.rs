//! The store's side: one thread that gathers records into transactions.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::recorder::{Counts, Message};
use super::{CallResult, DropReason, EventRecord, ToolCallRecord, TurnRecord};

/// Most records of one transaction.
const MAX_BATCH: usize = 1_000;
/// How long the first record of a batch waits for company: a commit costs as much as many rows.
const LINGER: Duration = Duration::from_millis(20);
/// Pauses before a batch that failed is tried again; after the last it is dropped and counted.
const RETRY_AFTER: &[Duration] = &[
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
];
/// Retention is looked at again after this many records ...
const RETAIN_EVERY_RECORDS: usize = 5_000;
/// ... or when the records' clock has moved on by this much, in milliseconds.
const RETAIN_EVERY_MS: i64 = 60_000;
/// Memory that is kept for encoding from one batch to the next, in bytes.
const KEPT_BUFFER: usize = 1 << 20;
/// Troubles are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// One thing to write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A request.
    Turn(Box<TurnRecord>),
    /// A tool call of an answer.
    Call(Box<ToolCallRecord>),
    /// The result of an earlier tool call.
    Result(Box<CallResult>),
    /// Something that happened beside the turns.
    Event(Box<EventRecord>),
}

impl Entry {
    /// When it happened, UTC milliseconds; `None` where the entry does not say.
    #[must_use]
    pub fn at_ms(&self) -> Option<i64> {
        match self {
            Self::Turn(turn) => Some(turn.started_ms),
            Self::Call(call) => Some(call.asked_ms),
            Self::Event(event) => Some(event.at_ms),
            Self::Result(_) => None,
        }
    }
}

/// How much is kept. Whatever is older or beyond it is removed, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Records older than this many days.
    pub days: u32,
    /// Size of the store in bytes.
    pub bytes: u64,
}

/// Why a store did not take a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteError {
    /// The bounded word under which the loss is counted.
    pub reason: DropReason,
    /// For people.
    pub message: String,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.as_str(), self.message)
    }
}

impl std::error::Error for WriteError {}

/// A store as the writer sees it. All calls come from one thread and may block.
pub trait Sink: Send + 'static {
    /// Writes all of `batch` or nothing of it. When nothing is left to do but to make it last,
    /// `pass_on` is told the tool calls as they stand after the results in the batch: whatever
    /// lasts here has been passed on before, however the process ends.
    ///
    /// # Errors
    /// Nothing was written. The writer tries again a few times.
    fn write_and_tell(
        &mut self,
        batch: &[Entry],
        pass_on: &mut dyn FnMut(&[ToolCallRecord]),
    ) -> Result<(), WriteError>;

    /// Writes all of `batch` or nothing of it.
    ///
    /// # Errors
    /// As [`Sink::write_and_tell`].
    fn write(&mut self, batch: &[Entry]) -> Result<(), WriteError> {
        self.write_and_tell(batch, &mut |_| {})
    }

    /// Does a bounded piece of removing what `keep` no longer covers at `now_ms`; `true` when
    /// there is more to do.
    ///
    /// # Errors
    /// The piece could not be done; it is tried again at the next occasion.
    fn retain(&mut self, now_ms: i64, keep: &Retention) -> Result<bool, WriteError>;
}

/// Where records go beside the store: what waits there for a store elsewhere.
pub trait Outlet: Send + 'static {
    /// Takes records in their order, each as [`Entry::encode`] writes it. May block for as long as
    /// a file takes; whatever is not taken, the outlet counts.
    fn take(&mut self, records: &[&[u8]]);
}

/// The outlets, and the buffer in which records are encoded once for all of them.
pub(super) struct Outlets {
    outlets: Vec<Box<dyn Outlet>>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Outlets {
    pub(super) fn new(outlets: Vec<Box<dyn Outlet>>) -> Self {
        Self {
            outlets,
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Passes a batch on, with the calls that its results have brought up to date in their place.
    fn pass_on(&mut self, batch: &[Entry], calls: Option<&[ToolCallRecord]>) {
        if self.outlets.is_empty() {
            return;
        }
        self.bytes.clear();
        self.ends.clear();
        for entry in batch {
            if calls.is_none() || !matches!(entry, Entry::Result(_)) {
                self.encode(entry);
            }
        }
        for call in calls.unwrap_or_default() {
            self.encode(&Entry::Call(Box::new(call.clone())));
        }
        let mut start = 0;
        let records: Vec<&[u8]> = (self.ends.iter())
            .map(|end| &self.bytes[std::mem::replace(&mut start, *end)..*end])
            .collect();
        for outlet in &mut self.outlets {
            outlet.take(&records);
        }
        self.bytes.shrink_to(KEPT_BUFFER);
    }

    fn encode(&mut self, entry: &Entry) {
        let start = self.bytes.len();
        match entry.encode(&mut self.bytes) {
            Ok(()) => self.ends.push(self.bytes.len()),
            Err(error) => {
                self.bytes.truncate(start);
                tracing::error!(%error, "a record cannot be passed on: a fault of this program");
            }
        }
    }
}

/// How patient the writer is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) linger: Duration,
    pub(super) retry_after: &'static [Duration],
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            linger: LINGER,
            retry_after: RETRY_AFTER,
        }
    }
}

/// The state of the writer thread.
pub(super) struct Writer<S> {
    store: S,
    outlets: Outlets,
    counts: Arc<Counts>,
    keep: Retention,
    pace: Pace,
    batch: Vec<Entry>,
    flushes: Vec<SyncSender<()>>,
    closing: bool,
    /// Newest time seen in a record: the clock of the age limit.
    clock_ms: Option<i64>,
    retained_ms: Option<i64>,
    written_since_retain: usize,
    retaining: bool,
    logged: Option<Instant>,
    queue_drops_logged: u64,
}

impl<S: Sink> Writer<S> {
    pub(super) fn new(
        store: S,
        outlets: Outlets,
        counts: Arc<Counts>,
        keep: Retention,
        pace: Pace,
    ) -> Self {
        Self {
            store,
            outlets,
            counts,
            keep,
            pace,
            batch: Vec::with_capacity(MAX_BATCH),
            flushes: Vec::new(),
            closing: false,
            clock_ms: None,
            retained_ms: None,
            written_since_retain: 0,
            retaining: false,
            logged: None,
            queue_drops_logged: 0,
        }
    }

    /// Runs until it is told to close or the last sender is gone, and the queue is empty.
    pub(super) fn run(&mut self, queue: &Receiver<Message>) {
        let mut behind = false;
        loop {
            // With removals left to do an empty queue is no reason to wait.
            let first = if self.closing || self.retaining {
                queue.try_recv().ok()
            } else {
                match queue.recv() {
                    Ok(message) => Some(message),
                    Err(_) => return,
                }
            };
            match first {
                Some(message) => {
                    self.take(message);
                    // Parked, not waiting on the queue: so that senders need not wake anybody.
                    if !behind && !self.closing && self.flushes.is_empty() {
                        std::thread::park_timeout(self.pace.linger);
                    }
                }
                None if self.closing => return,
                None => {}
            }
            while self.batch.len() < MAX_BATCH {
                match queue.try_recv() {
                    Ok(message) => self.take(message),
                    Err(_) => break,
                }
            }
            behind = self.batch.len() >= MAX_BATCH;
            self.write();
            self.retain();
            for done in self.flushes.drain(..) {
                // Whoever asked may have gone.
                let _ = done.try_send(());
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Entry(envelope) => {
                if let Some(entry) = envelope.open() {
                    self.clock_ms = self.clock_ms.max(entry.at_ms());
                    self.batch.push(entry);
                }
            }
            Message::Flush(done) => self.flushes.push(done),
            Message::Close => self.closing = true,
        }
    }

    fn write(&mut self) {
        if !self.batch.is_empty() {
            match self.write_with_retries() {
                Ok(()) => self.counts.add_written(self.batch.len()),
                Err(error) => {
                    self.counts.add_dropped(error.reason, self.batch.len());
                    if self.may_log() {
                        tracing::warn!(reason = error.reason.as_str(), records = self.batch.len(),
                            error = %error.message, "records dropped, the store did not take them");
                    }
                }
            }
            self.written_since_retain += self.batch.len();
            self.batch.clear();
        }
        let queue_drops = self.counts.dropped_for(DropReason::QueueFull);
        if queue_drops > self.queue_drops_logged && self.may_log() {
            tracing::warn!(
                records = queue_drops - self.queue_drops_logged,
                "records dropped, the queue was full"
            );
            self.queue_drops_logged = queue_drops;
        }
    }

    fn write_with_retries(&mut self) -> Result<(), WriteError> {
        let mut pauses = self.pace.retry_after.iter();
        let mut passed_on = false;
        loop {
            let written = self.store.write_and_tell(&self.batch, &mut |calls| {
                // Once, also when the store then fails and is tried again.
                if !std::mem::replace(&mut passed_on, true) {
                    self.outlets.pass_on(&self.batch, Some(calls));
                }
            });
            match written {
                Ok(()) => return Ok(()),
                Err(error) => match pauses.next() {
                    Some(pause) => std::thread::sleep(*pause),
                    None => {
                        // Other stores must not lose what this one has lost.
                        if !passed_on {
                            self.outlets.pass_on(&self.batch, None);
                        }
                        return Err(error);
                    }
                },
            }
        }
    }

    /// One piece of removing, if it is time or work is left. Never delays the end.
    fn retain(&mut self) {
        let Some(now_ms) = self.clock_ms else { return };
        let due = self.written_since_retain >= RETAIN_EVERY_RECORDS
            || self
                .retained_ms
                .is_none_or(|at| now_ms.saturating_sub(at) >= RETAIN_EVERY_MS);
        if self.closing || !(due || self.retaining) {
            return;
        }
        if due {
            self.retained_ms = Some(now_ms);
            self.written_since_retain = 0;
        }
        self.retaining = match self.store.retain(now_ms, &self.keep) {
            Ok(more) => more,
            Err(error) => {
                if self.may_log() {
                    tracing::warn!(error = %error, "old records could not be removed");
                }
                false
            }
        };
    }

    fn may_log(&mut self) -> bool {
        let now = Instant::now();
        let may = self.logged.is_none_or(|at| now - at >= LOG_EVERY);
        if may {
            self.logged = Some(now);
        }
        may
    }
}
