//! The request path's side: hand a record over and go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::writer::{Outlet, Outlets, Pace, Retention, Sink, Writer};
use super::{CallResult, Entry, EventRecord, ToolCallRecord, TurnRecord};

/// Why a record was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The writer was further behind than the queue is long.
    QueueFull,
    /// The recorder had been closed.
    Closed,
    /// No room on the disk.
    DiskFull,
    /// Another process held the store for too long.
    Locked,
    /// Any other failure of the store.
    StoreFailed,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::QueueFull,
        Self::Closed,
        Self::DiskFull,
        Self::Locked,
        Self::StoreFailed,
    ];

    /// The stable word, for labels and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Closed => "closed",
            Self::DiskFull => "disk_full",
            Self::Locked => "locked",
            Self::StoreFailed => "store_failed",
        }
    }
}

/// What became of the records that were handed over.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Entries in the queue.
    waiting: AtomicUsize,
    written: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl Counts {
    pub(super) fn add_written(&self, records: usize) {
        self.written.fetch_add(records as u64, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, reason: DropReason, records: usize) {
        self.dropped[reason as usize].fetch_add(records as u64, Ordering::Relaxed);
    }

    pub(super) fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }
}

/// An entry on its way. One that is thrown away unread, whatever the cause, counts as dropped.
#[derive(Debug)]
pub(super) struct Envelope {
    entry: Option<Entry>,
    counts: Arc<Counts>,
}

impl Envelope {
    /// An entry on its way into the queue; gives it back when `room` others wait there.
    fn new(entry: Entry, counts: &Arc<Counts>, room: usize) -> Result<Self, Entry> {
        if counts.waiting.fetch_add(1, Ordering::Relaxed) >= room {
            counts.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(entry);
        }
        Ok(Self {
            entry: Some(entry),
            counts: Arc::clone(counts),
        })
    }

    /// Opens it; from here on the reader answers for the entry.
    pub(super) fn open(mut self) -> Option<Entry> {
        self.entry.take()
    }
}

impl Drop for Envelope {
    fn drop(&mut self) {
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.entry.is_some() {
            self.counts.add_dropped(DropReason::Closed, 1);
        }
    }
}

/// What travels to the writer.
#[derive(Debug)]
pub(super) enum Message {
    /// A record.
    Entry(Envelope),
    /// Write what came before, then answer.
    Flush(SyncSender<()>),
    /// Write what is there, then end.
    Close,
}

/// Takes records without ever blocking or failing. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// Grows as it needs to: a queue with its bound built in takes the memory of a full one at once.
    queue: Sender<Message>,
    /// Most entries that wait in it.
    room: usize,
    counts: Arc<Counts>,
}

impl Recorder {
    /// Records a request. If the queue is full the record is dropped and counted.
    pub fn turn(&self, record: impl Into<Box<TurnRecord>>) {
        self.offer(Entry::Turn(record.into()));
    }

    /// Records a tool call of an answer. A second record of the same turn and call id replaces
    /// what the first said of the result.
    pub fn call(&self, record: ToolCallRecord) {
        self.offer(Entry::Call(Box::new(record)));
    }

    /// Records the result of a tool call that was recorded earlier, by this process or another.
    pub fn call_result(&self, result: CallResult) {
        self.offer(Entry::Result(Box::new(result)));
    }

    /// Records something that happened beside the turns.
    pub fn event(&self, record: EventRecord) {
        self.offer(Entry::Event(Box::new(record)));
    }

    /// Records that were dropped, for whatever reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        DropReason::ALL.iter().map(|r| self.dropped_for(*r)).sum()
    }

    /// Records that were dropped for one reason.
    #[must_use]
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.counts.dropped_for(reason)
    }

    /// Records that the store has confirmed: turns, tool calls, results and
    /// events.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    fn offer(&self, entry: Entry) {
        match Envelope::new(entry, &self.counts, self.room) {
            // A closed queue needs no case: the envelope counts itself.
            Ok(envelope) => drop(self.queue.send(Message::Entry(envelope))),
            Err(_entry) => self.counts.add_dropped(DropReason::QueueFull, 1),
        }
    }
}

/// The owner's side: ends the writer. If it is dropped instead, the writer ends with the last
/// [`Recorder`], after it has written everything.
#[derive(Debug)]
pub struct RecorderHandle {
    queue: Sender<Message>,
    thread: JoinHandle<()>,
}

impl RecorderHandle {
    /// Writes everything that was handed over and ends the writer. Blocks until that is done,
    /// which takes some seconds at worst when the store refuses. Records that come later are
    /// dropped and counted.
    pub fn close(self) {
        // An error means that the writer is gone already, and then there is nothing to wait for.
        let _ = self.queue.send(Message::Close);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the record writer ended by a panic");
        }
    }

    /// Blocks until everything that was handed over before is written or counted as dropped.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            self.thread.thread().unpark();
            let _ = wait.recv();
        }
    }
}

/// Starts the writer thread over `store`, with room for `queue` records that wait; `outlets` are given
/// the same records.
///
/// # Errors
/// The system does not give a thread.
pub fn start(
    store: impl Sink,
    outlets: Vec<Box<dyn Outlet>>,
    queue: usize,
    retention: Retention,
) -> std::io::Result<(Recorder, RecorderHandle)> {
    start_paced(store, outlets, queue, retention, Pace::default())
}

pub(super) fn start_paced(
    store: impl Sink,
    outlets: Vec<Box<dyn Outlet>>,
    queue: usize,
    retention: Retention,
    pace: Pace,
) -> std::io::Result<(Recorder, RecorderHandle)> {
    let counts = Arc::new(Counts::default());
    let (sender, receiver) = channel();
    let outlets = Outlets::new(outlets);
    let mut writer = Writer::new(store, outlets, Arc::clone(&counts), retention, pace);
    let thread = std::thread::Builder::new()
        .name("records".into())
        .spawn(move || writer.run(&receiver))?;
    let recorder = Recorder {
        queue: sender.clone(),
        room: queue.max(1),
        counts,
    };
    let handle = RecorderHandle {
        queue: sender,
        thread,
    };
    Ok((recorder, handle))
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
