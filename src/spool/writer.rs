//! The appending side.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::counters::{Counters, Reason};
use super::format::{self, FRAME, HEADER, MAX_RECORD};
use super::state::{Monitor, Shared, Written};
use super::{Full, survey};

/// The same trouble is logged once in so many milliseconds.
const QUIET_MS: i64 = 60_000;
/// A buffer that has grown beyond this is given back after use.
const KEEP_BUFFER: usize = 1 << 20;

/// What became of the records of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    /// Records that are in the spool now.
    pub stored: usize,
    /// Records that were dropped and counted.
    pub dropped: usize,
}

/// The segment that is being written to.
#[derive(Debug)]
struct Active {
    file: File,
    len: u64,
}

/// Appends to a spool. Blocks for the length of a write to the page cache, and for a moment more when
/// a segment is full and has to reach the medium.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    active: Option<Active>,
    seed: u64,
    /// Records of this call that were turned away, by reason; counted together at its end.
    turned_away: [u64; Reason::ALL.len()],
    buffer: Vec<u8>,
    full: Quiet,
    disk: Quiet,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, active: Option<(File, u64)>) -> Self {
        let seed = format::seed(shared.id);
        Self {
            shared,
            active: active.map(|(file, len)| Active { file, len }),
            seed,
            turned_away: [0; Reason::ALL.len()],
            buffer: Vec::new(),
            full: Quiet::default(),
            disk: Quiet::default(),
        }
    }

    /// Appends records in order, with one write (two where a segment ends between them). What cannot
    /// be kept is dropped and counted.
    pub fn append(&mut self, records: &[&[u8]]) -> Appended {
        let ms = self.shared.clock.utc_ms();
        let mut appended = Appended::default();
        let mut rest = records;
        while !rest.is_empty() {
            let (taken, stored) = self.write_some(rest, ms);
            if stored {
                appended.stored += taken;
            } else {
                appended.dropped += taken;
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
        if appended.dropped > 0 {
            self.count_turned_away();
        }
        if self.buffer.capacity() > KEEP_BUFFER {
            self.buffer = Vec::new();
        }
        appended
    }

    /// Writes the first of `records`, as many as fit together: how many, and whether they were stored.
    fn write_some(&mut self, records: &[&[u8]], ms: i64) -> (usize, bool) {
        let Some(first) = records.first() else {
            return (0, true);
        };
        if first.len() > MAX_RECORD || !self.room_for(first.len()) {
            self.turned_away[Reason::Full as usize] += 1;
            return (1, false);
        }
        let segment = self.shared.limits.segment();
        let frame = |record: &[u8]| (FRAME + record.len()) as u64;
        let full = |active: &Active| active.len + frame(first) > segment;
        if self.active.as_ref().is_some_and(full) {
            self.end_segment();
        }
        let begun = self.active.as_ref().map_or(0, |active| active.len);
        let (sequence, room) = {
            let state = self.shared.state();
            let room = self.shared.limits.max_bytes.saturating_sub(state.total);
            (state.next, room)
        };
        self.buffer.clear();
        if begun == 0 {
            let header = format::header(self.shared.id, sequence);
            self.buffer.extend_from_slice(&header);
        }
        let mut taken = 0;
        for record in records {
            let after = self.buffer.len() as u64 + frame(record);
            let fits = begun + after <= segment && after <= room;
            if taken > 0 && (!fits || record.len() > MAX_RECORD) {
                break;
            }
            let sequence = sequence + taken as u64;
            format::push_frame(&mut self.buffer, self.seed, sequence, ms, record);
            taken += 1;
        }
        let stored = self.write(sequence, taken, ms);
        if !stored {
            self.turned_away[Reason::Disk as usize] += taken as u64;
        }
        (taken, stored)
    }

    /// Whether a record has room; it may begin a segment.
    fn room_for(&mut self, record: usize) -> bool {
        let need = (HEADER + FRAME + record) as u64;
        if need > self.shared.limits.max_bytes {
            return false;
        }
        if self.make_room(need) {
            return true;
        }
        // Nothing is left but the segment being written to: end it, and it can go as well.
        self.shared.limits.full == Full::DropOldest && {
            self.end_segment();
            self.make_room(need)
        }
    }

    fn make_room(&mut self, need: u64) -> bool {
        let (room, dropped) = self.shared.make_room(need);
        if dropped > 0 {
            self.say_full("the spool is full: its oldest records are dropped");
        }
        room
    }

    fn say_full(&mut self, what: &'static str) {
        let spool = self.shared.dir.display();
        self.full.trouble(self.shared.clock.utc_ms(), || {
            tracing::warn!(%spool, "{what}");
        });
    }

    /// One write of the buffer. If it fails, nothing of it is left.
    fn write(&mut self, sequence: u64, records: usize, ms: i64) -> bool {
        let disk = Arc::clone(&self.shared.disk);
        let (fresh, written) = if let Some(active) = &self.active {
            let written = disk.append(&active.file, &self.buffer);
            if written.is_err() && disk.truncate(&active.file, active.len).is_err() {
                // What is behind its end now is never published, and ignored by later processes,
                // since the next segment begins with the same number.
                self.end_segment();
            }
            (None, written)
        } else {
            let path = self.shared.dir.join(survey::segment_name(sequence));
            let written = disk.create(&path).and_then(|file| {
                let active = Active { file, len: 0 };
                disk.append(&active.file, &self.buffer)?;
                self.active = Some(active);
                Ok(())
            });
            if written.is_err() {
                // If it stays, the next attempt empties it.
                let _ = disk.remove(&path);
            }
            (Some(path), written)
        };
        if let Err(error) = written {
            self.disk.trouble(self.shared.clock.utc_ms(), || {
                tracing::warn!(
                    spool = %self.shared.dir.display(), %error,
                    "the spool cannot be written: records are dropped"
                );
            });
            return false;
        }
        self.disk.over(|| {
            tracing::info!(spool = %self.shared.dir.display(), "the spool is written again");
        });
        if let Some(active) = self.active.as_mut() {
            active.len += self.buffer.len() as u64;
        }
        let written = Written {
            records: records as u64,
            bytes: self.buffer.len() as u64,
            ms,
        };
        self.shared.publish(fresh.as_ref(), self.seed, &written);
        true
    }

    /// Ends the segment: it is brought to the medium and never written again.
    fn end_segment(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        if let Err(error) = self.shared.disk.sync(&active.file) {
            tracing::debug!(%error, "a segment of the spool was not synced");
        }
        self.shared.state().active = false;
    }

    fn count_turned_away(&mut self) {
        let turned_away = std::mem::take(&mut self.turned_away);
        if turned_away[Reason::Full as usize] > 0 {
            self.say_full("the spool is full: records are dropped");
        }
        let mut state = self.shared.state();
        for reason in Reason::ALL {
            let records = turned_away[reason as usize];
            self.shared.counters.add_turned_away(reason, records);
        }
        if let Err(error) = self.shared.persist(&mut state) {
            tracing::debug!(%error, "the spool's cursor was not written");
        }
    }

    /// The counts, which go on growing.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Watches the spool.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Brings everything to the medium and ends. A writer that is dropped instead loses nothing either,
    /// unless the machine loses its power.
    ///
    /// # Errors
    /// The disk did not take it; what was appended is still in the page cache.
    pub fn close(mut self) -> io::Result<()> {
        self.end_segment();
        let mut state = self.shared.state();
        self.shared.persist(&mut state)?;
        drop(state);
        self.shared.disk.sync(&self.shared.cursor)
    }
}

/// Says a thing once in a while.
#[derive(Debug, Default)]
struct Quiet {
    said: Option<i64>,
    /// The last trouble was said, and its end was not.
    open: bool,
}

impl Quiet {
    fn trouble(&mut self, now_ms: i64, say: impl FnOnce()) {
        let due = self
            .said
            .is_none_or(|said| now_ms.abs_diff(said) >= QUIET_MS.unsigned_abs());
        if due {
            (self.said, self.open) = (Some(now_ms), true);
            say();
        }
    }

    fn over(&mut self, say: impl FnOnce()) {
        if std::mem::take(&mut self.open) {
            say();
        }
    }
}

/// For those who need to know where a record would go.
impl Writer {
    pub(super) fn has_room(&self, record: usize) -> bool {
        let need = (HEADER + FRAME + record) as u64;
        self.shared.state().total + need <= self.shared.limits.max_bytes
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn seal(&mut self) {
        self.end_segment();
    }
}
