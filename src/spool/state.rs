//! What writer and reader share: which segments there are, who has which records, what was counted.
//!
//! Under one lock, which is held for moments: over small writes of the cursor, never over a segment's
//! data, a wait for the disk or an await.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use super::counters::{Counters, Reason};
use super::cursor::{Claim, CursorFile, Position};
use super::disk::Disk;
use super::format::HEADER;
use super::{Full, Limits};
use crate::clock::Clock;

/// A segment on disk.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub path: PathBuf,
    /// Its first sequence number.
    pub first: u64,
    /// The number behind its last.
    pub end: u64,
    /// Its size, as far as it is whole.
    pub bytes: u64,
    /// Seed of its checksums.
    pub seed: u64,
    /// When its first record was appended.
    pub first_ms: Option<i64>,
}

/// When the reader wants to be woken: at so much that is not claimed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wake {
    pub records: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub segments: VecDeque<Segment>,
    /// The last segment is being written to.
    pub active: bool,
    pub base: u64,
    pub next: u64,
    pub head: u64,
    /// Where `head` lies in its segment, if that begins before it.
    pub head_at: u64,
    pub floor: u64,
    pub claim: Option<Claim>,
    /// Bytes of what is claimed.
    pub claim_bytes: u64,
    /// Bytes of all segments.
    pub total: u64,
    /// Bytes that are not claimed.
    pub unclaimed: u64,
    /// When the oldest that waits was appended.
    pub oldest_ms: Option<i64>,
    pub wake: Wake,
    pub cursor: CursorFile,
}

/// What waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Records, those that are on their way included.
    pub records: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// When the oldest was appended, Unix milliseconds, as far as known.
    pub oldest_ms: Option<i64>,
}

impl State {
    pub(super) fn unclaimed_records(&self) -> u64 {
        self.next - self.head
    }

    pub(super) fn waiting(&self) -> Waiting {
        let claimed = self.claim.map_or(0, |claim| claim.end - claim.done);
        let records = self.unclaimed_records() + claimed;
        Waiting {
            records,
            bytes: self.unclaimed + self.claim_bytes,
            oldest_ms: self.oldest_ms.filter(|_| records > 0),
        }
    }

    /// The segment in which a record lies, or the next one behind it.
    pub(super) fn segment_of(&self, sequence: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.end > sequence)
    }

    /// Counts again what is not claimed.
    pub(super) fn recount(&mut self) {
        let bytes = |segment: &Segment| {
            let begun = segment.first < self.head;
            let from = if begun { self.head_at } else { HEADER as u64 };
            segment.bytes.saturating_sub(from)
        };
        let ahead = self.segments.iter().filter(|s| s.end > self.head);
        self.unclaimed = ahead.map(bytes).sum();
    }

    /// The number before which nothing is needed any more.
    fn low(&self) -> u64 {
        self.claim.map_or(self.head, |claim| claim.done)
    }

    /// Takes out of the list what nobody needs any more.
    fn retire(&mut self) -> Vec<PathBuf> {
        let low = self.low();
        let mut gone = Vec::new();
        while self.segments.front().is_some_and(|front| front.end <= low)
            && (self.segments.len() > 1 || !self.active)
        {
            if let Some(front) = self.segments.pop_front() {
                self.total -= front.bytes;
                gone.push(front.path);
            }
        }
        gone
    }
}

/// What writer, reader and those who watch hold together. The lock on the directory ends with it.
#[derive(Debug)]
pub(super) struct Shared {
    pub dir: PathBuf,
    pub id: Uuid,
    pub limits: Limits,
    pub clock: Clock,
    pub disk: Arc<dyn Disk>,
    pub counters: Arc<Counters>,
    pub more: Notify,
    pub cursor: File,
    pub state: Mutex<State>,
    pub _lock: File,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the cursor as it is now.
    pub(super) fn persist(&self, state: &mut State) -> io::Result<()> {
        let position = Position {
            spool: self.id,
            base: state.base,
            next: state.next,
            head: state.head,
            floor: state.floor,
            claim: state.claim,
            counted: self.counters.now(),
        };
        state.cursor.write(&self.cursor, &position, &*self.disk)
    }

    /// Counts records that cannot be read. Those before the floor were removed to make room.
    pub(super) fn lose(&self, state: &State, first: u64, end: u64) {
        let border = state.floor.clamp(first, end);
        self.counters.add_dropped(Reason::Full, border - first);
        self.counters.add_dropped(Reason::Damaged, end - border);
        if end > border {
            tracing::warn!(
                spool = %self.dir.display(),
                records = end - border,
                first = border,
                "records of the spool cannot be read and are lost"
            );
        }
    }

    /// Settles what the claim still holds before `to`.
    pub(super) fn settle(&self, to: u64, count: impl FnOnce(&Counters, u64)) {
        let mut state = self.state();
        let Some(claim) = state.claim.as_mut() else {
            return;
        };
        let to = to.clamp(claim.done, claim.end);
        let (settled, left) = (to - claim.done, claim.end - to);
        claim.done = to;
        count(&self.counters, settled);
        if left == 0 {
            state.claim = None;
            state.claim_bytes = 0;
        } else {
            // The sizes of single records are forgotten by now; close is good enough for a gauge.
            state.claim_bytes = state.claim_bytes / (left + settled) * left;
        }
        self.release(state);
    }

    /// Writes the cursor, and then removes the segments that it leaves behind.
    pub(super) fn release(&self, mut state: MutexGuard<'_, State>) {
        // Only what a later process will not look for may go.
        if self.persist(&mut state).is_err() {
            return;
        }
        let gone = state.retire();
        drop(state);
        self.remove(&gone);
    }

    fn remove(&self, gone: &[PathBuf]) {
        for path in gone {
            // One that stays is removed at the next opening.
            if let Err(error) = self.disk.remove(path) {
                tracing::debug!(segment = %path.display(), %error, "a segment was not removed");
            }
        }
    }

    /// Whether `bytes` have room, if need be by removing the oldest segments, and how many records
    /// that has cost. The segment that is being written to is never removed.
    pub(super) fn make_room(&self, bytes: u64) -> (bool, u64) {
        let mut state = self.state();
        let fits = |state: &State| state.total + bytes <= self.limits.max_bytes;
        if fits(&state) || self.limits.full == Full::DropNewest {
            return (fits(&state), 0);
        }
        let (mut gone, mut dropped) = (Vec::new(), 0);
        while !fits(&state) && (state.segments.len() > 1 || !state.active) {
            let Some(front) = state.segments.pop_front() else {
                break;
            };
            state.total -= front.bytes;
            // What is claimed is in the reader's hands and counted by what becomes of it.
            if front.end > state.head {
                let there = front.first.max(state.head);
                self.lose(&state, state.head, there);
                self.counters.add_dropped(Reason::Full, front.end - there);
                dropped += front.end - there;
                state.head = front.end;
                if state.claim.is_none() {
                    state.oldest_ms = state.segments.front().and_then(|s| s.first_ms);
                }
            }
            state.floor = state.floor.max(front.end);
            gone.push(front.path);
        }
        if !gone.is_empty() {
            state.recount();
            // First the count, then the loss: a kill in between must not hide it.
            if let Err(error) = self.persist(&mut state) {
                tracing::debug!(%error, "the spool's cursor was not written");
            }
        }
        let room = fits(&state);
        drop(state);
        self.remove(&gone);
        (room, dropped)
    }

    /// Makes records known that were written to the last segment, or to a new one at `fresh`.
    pub(super) fn publish(&self, fresh: Option<&PathBuf>, seed: u64, written: &Written) {
        let mut state = self.state();
        let first = state.next;
        if let Some(path) = fresh {
            state.segments.push_back(Segment {
                path: path.clone(),
                first,
                end: first,
                bytes: 0,
                seed,
                first_ms: Some(written.ms),
            });
            state.active = true;
        }
        if state.waiting().records == 0 {
            state.oldest_ms = Some(written.ms);
        }
        state.next += written.records;
        let next = state.next;
        if let Some(last) = state.segments.back_mut() {
            last.end = next;
            last.bytes += written.bytes;
            last.first_ms = last.first_ms.or(Some(written.ms));
        }
        state.total += written.bytes;
        state.unclaimed += written.bytes - if fresh.is_some() { HEADER as u64 } else { 0 };
        self.counters.add_appended(written.records);
        let before = state.unclaimed_records() - written.records;
        let wake = before == 0
            || state.unclaimed_records() >= state.wake.records
            || state.unclaimed >= state.wake.bytes;
        drop(state);
        if wake {
            self.more.notify_one();
        }
    }
}

/// What one write has added.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub records: u64,
    /// With the header, if the segment is new.
    pub bytes: u64,
    pub ms: i64,
}

/// Watches a spool from beside. Cheap to clone; the directory stays locked as long as one is left.
#[derive(Debug, Clone)]
pub struct Monitor(pub(super) Arc<Shared>);

impl Monitor {
    /// What waits now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.0.state().waiting()
    }

    /// Bytes of all segments, those included of which a part is settled.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.0.state().total
    }

    /// The counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.0.counters)
    }
}
