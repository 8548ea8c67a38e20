//! What waits on disk for a remote store: records in order, bounded in bytes, over restarts.
//!
//! ```text
//!  append ──▶ writer ──▶ segment files ──▶ reader ──▶ forward ──▶ the store
//!                │                            │           │
//!                └────── cursor file ◀────────┴───────────┘ refused records ──▶ set_aside.jsonl
//! ```
//!
//! A spool is a directory of its own, used by one process at a time. Records are opaque bytes; each
//! gets the next sequence number, for ever without a gap. They lie in append-only segments (`format`),
//! written with one call for each append and read back by the [`Reader`] of the same process or a later
//! one. The cursor file (`cursor`) says where the reader is, which batch it has claimed and what has been
//! counted, so that at any time, also after a kill,
//!
//! ```text
//!  accepted = delivered + waiting + dropped
//! ```
//!
//! holds exactly. What a process had appended survives its end by whatever signal. After a loss of
//! power the newest records can be missing, since an append does not wait for the disk; but no record
//! goes to a store before it, its number and the borders of its batch are on the disk, so that a token
//! never stands for two different batches.
//!
//! Nothing here can fail a caller: what cannot be kept is dropped and counted by its [`Reason`].

mod counters;
mod cursor;
mod disk;
pub mod format;
mod forward;
mod open;
mod reader;
mod set_aside;
mod source;
mod state;
mod status;
mod survey;
mod tools;
mod writer;

use bytes::Bytes;
use uuid::Uuid;

pub use counters::{Counted, Counters, Reason};
pub use forward::{
    Change, Deliver, Failure, Failures, Forwarder, Hooks, Jitter, OnChange, Progress, Settings,
    View, forward,
};
pub use open::{open, open_at};
pub use reader::{Claimed, Most, Reader};
pub use set_aside::refusals;
pub use state::{Monitor, Waiting};
pub use status::{Status, status};
pub use tools::{Requeued, discard, requeue};
pub use writer::{Appended, Writer};

#[cfg(test)]
mod tests;

/// What is given up when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Full {
    /// Whole segments of what has waited longest.
    DropOldest,
    /// What comes.
    DropNewest,
}

/// Bounds of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of all segments together. Cursor (8 KiB) and records that were set aside (16 MiB at
    /// most) come on top.
    pub max_bytes: u64,
    /// What is given up beyond that.
    pub full: Full,
    /// A segment that would grow beyond this is ended; a quarter of `max_bytes` at most.
    pub segment_bytes: u64,
}

impl Limits {
    /// Segments of 8 MiB.
    #[must_use]
    pub const fn new(max_bytes: u64, full: Full) -> Self {
        Self {
            max_bytes,
            full,
            segment_bytes: 8 << 20,
        }
    }

    /// What `segment_bytes` amounts to.
    pub(crate) fn segment(&self) -> u64 {
        self.segment_bytes.min(self.max_bytes / 4)
    }
}

/// Records that go to the store together. They follow each other without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The spool they come from.
    pub spool: Uuid,
    /// Sequence number of the first.
    pub first: u64,
    /// The records, in order.
    pub records: Vec<Bytes>,
}

impl Batch {
    /// Names exactly these records, for ever: a store that has seen it has seen them.
    #[must_use]
    pub fn token(&self) -> String {
        format!("{}-{}-{}", self.spool, self.first, self.records.len())
    }

    /// The sequence number behind the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Those of the records that lie in `first..end`.
    fn part(&self, first: u64, end: u64) -> Self {
        let place = |seq: u64| {
            let at = seq.saturating_sub(self.first);
            usize::try_from(at).map_or(self.records.len(), |at| at.min(self.records.len()))
        };
        let (from, to) = (place(first), place(end));
        Self {
            spool: self.spool,
            first: self.first + from as u64,
            records: self.records.get(from..to).unwrap_or_default().to_vec(),
        }
    }
}
