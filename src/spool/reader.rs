//! The claiming side: batches in order, each with borders that outlive the process.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::counters::{Counters, Reason};
use super::cursor::Claim;
use super::format::HEADER;
use super::source::{Source, locate};
use super::state::{Monitor, Segment, Shared, Wake};
use super::{Batch, set_aside};

/// After so many failures in a row to read the same segment, what is left of it is given up.
const STRIKES: u32 = 3;

/// When a batch is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// At so many records.
    pub records: usize,
    /// At so many bytes of records. One record is taken, however long it is.
    pub bytes: usize,
    /// When the first of them has waited for so long since the reader has seen it.
    pub wait: Duration,
}

/// A batch that has been handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// What is left of it to deliver.
    pub batch: Batch,
    /// Its first number when it was claimed. If that is before [`Batch::first`], the records between
    /// have been settled, so it was being delivered in parts.
    pub from: u64,
}

/// Claims batches from a spool and settles them, one after the other.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    /// Its calls block, and wait for the disk.
    desk: Arc<Mutex<Desk>>,
    /// Since when records have been waiting for company.
    lingering: Option<Instant>,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let desk = Desk {
            shared: Arc::clone(&shared),
            place: None,
            strikes: 0,
        };
        Self {
            shared,
            desk: Arc::new(Mutex::new(desk)),
            lingering: None,
        }
    }

    /// Waits until there is something to claim and claims it. The borders of the batch are on the disk
    /// before it is returned: until it is settled, it is claimed again, by later processes too.
    ///
    /// # Errors
    /// The disk refuses to read or to note the claim. To be tried again.
    pub async fn claim(&mut self, most: &Most) -> io::Result<Claimed> {
        loop {
            self.ready(most).await;
            if let Some(claimed) = self.take(most).await? {
                return Ok(claimed);
            }
        }
    }

    /// Waits until there is a batch: one that is not settled, or records as `most` has it. Can be
    /// dropped and called again without their waiting longer.
    pub async fn ready(&mut self, most: &Most) {
        loop {
            let more = self.shared.more.notified();
            let until = {
                let mut state = self.shared.state();
                if state.claim.is_some() {
                    return;
                }
                let (records, bytes) = (state.unclaimed_records(), state.unclaimed);
                let wanted = Wake {
                    records: most.records as u64,
                    bytes: most.bytes as u64,
                };
                if records == 0 {
                    self.lingering = None;
                    None
                } else if records >= wanted.records || bytes >= wanted.bytes {
                    return;
                } else {
                    state.wake = wanted;
                    Some(*self.lingering.get_or_insert_with(Instant::now) + most.wait)
                }
            };
            match until {
                None => more.await,
                Some(until) => tokio::select! {
                    () = more => {}
                    () = tokio::time::sleep_until(until) => return,
                },
            }
        }
    }

    /// Claims what is there, without waiting for more. `None` if there is nothing.
    ///
    /// # Errors
    /// As [`Reader::claim`].
    pub async fn take(&mut self, most: &Most) -> io::Result<Option<Claimed>> {
        self.lingering = None;
        let most = *most;
        self.at_desk(move |desk| desk.take(&most)).await?
    }

    /// The records of the claimed batch before `end` have been delivered. The batch is settled when
    /// `end` is its end.
    pub async fn ack(&mut self, end: u64) {
        let done = self.at_desk(move |desk| desk.settle(end, Counters::add_delivered));
        // Without its thread the process is ending, and the batch will be claimed again.
        let _ = done.await;
    }

    /// The store will never take this record, which is the next one of the claimed batch: it is set
    /// aside with the reason and counted.
    pub async fn refuse(&mut self, sequence: u64, record: Bytes, why: String) {
        let done = self.at_desk(move |desk| {
            set_aside::append(&desk.shared, sequence, &record, &why);
            desk.settle(sequence + 1, |counters, records| {
                counters.add_dropped(Reason::Refused, records);
            });
        });
        let _ = done.await;
    }

    /// Watches the spool.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    async fn at_desk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> T + Send + 'static,
    ) -> io::Result<T> {
        let desk = Arc::clone(&self.desk);
        let work = move || work(&mut desk.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(work)
            .await
            .map_err(io::Error::other)
    }

    /// The same from where blocking is allowed.
    #[cfg(test)]
    pub(super) fn blocking<T>(&self, work: impl FnOnce(&mut Desk) -> T) -> T {
        work(&mut self.desk.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where the reading stands.
#[derive(Debug)]
struct Place {
    source: Source,
    /// First number of the segment.
    segment: u64,
    /// The next number, and where it is expected.
    sequence: u64,
    at: u64,
}

/// The blocking half of the reader.
#[derive(Debug)]
pub(super) struct Desk {
    shared: Arc<Shared>,
    place: Option<Place>,
    strikes: u32,
}

/// Records that follow each other.
#[derive(Debug, Default)]
struct Gathered {
    /// Number of the first. Those between the start and it are lost.
    first: u64,
    records: Vec<Bytes>,
    /// Their bytes on disk.
    frames: u64,
    first_ms: Option<i64>,
    /// Where the last one ends.
    at: u64,
}

impl Gathered {
    fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

/// What lies at a number.
enum Look {
    Here(super::source::Record),
    /// Nothing that can be read before that number.
    Gap(u64),
    /// The segment was removed meanwhile.
    Gone,
}

impl Desk {
    /// Claims what is there; the same batch as long as it is not settled.
    pub(super) fn take(&mut self, most: &Most) -> io::Result<Option<Claimed>> {
        loop {
            let (claim, head, next) = {
                let state = self.shared.state();
                (state.claim, state.head, state.next)
            };
            let taken = match claim {
                Some(claim) => self.again(claim)?,
                None if head < next => self.fresh(head, next, most)?,
                None => return Ok(None),
            };
            if taken.is_some() {
                return Ok(taken);
            }
        }
    }

    pub(super) fn settle(&mut self, end: u64, count: impl FnOnce(&Counters, u64)) {
        self.shared.settle(end, count);
        let head = {
            let state = self.shared.state();
            if state.claim.is_some() || state.head == state.next {
                return;
            }
            state.head
        };
        let oldest = match self.look(head) {
            Ok(Look::Here(record)) => Some(record.ms),
            Ok(Look::Gap(_) | Look::Gone) | Err(_) => None,
        };
        let mut state = self.shared.state();
        if state.head == head {
            state.oldest_ms = oldest.or_else(|| state.segment_of(head).and_then(|s| s.first_ms));
        }
    }

    /// A new batch.
    fn fresh(&mut self, head: u64, next: u64, most: &Most) -> io::Result<Option<Claimed>> {
        let got = self.gather(head, next, most.records.max(1), most.bytes)?;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        if state.head != head {
            // Dropped meanwhile to make room.
            return Ok(None);
        }
        shared.lose(&state, head, got.first);
        state.head = got.first;
        state.head_at = got.at;
        if got.records.is_empty() {
            state.recount();
            shared.release(state);
            return Ok(None);
        }
        let before = (state.oldest_ms, state.claim_bytes);
        state.claim = Some(Claim {
            first: got.first,
            end: got.end(),
            done: got.first,
        });
        state.head = got.end();
        state.oldest_ms = got.first_ms;
        state.claim_bytes = got.frames;
        state.recount();
        if let Err(error) = shared.persist(&mut state) {
            state.claim = None;
            state.head = got.first;
            (state.oldest_ms, state.claim_bytes) = before;
            state.unclaimed += got.frames;
            return Err(error);
        }
        drop(state);
        self.sync_cursor();
        Ok(Some(self.claimed(got.first, got)))
    }

    /// The batch that is claimed already.
    fn again(&mut self, claim: Claim) -> io::Result<Option<Claimed>> {
        let got = self.gather(claim.done, claim.end, usize::MAX, usize::MAX)?;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        shared.lose(&state, claim.done, got.first);
        let end = got.end();
        if end < claim.end {
            // Something behind is missing: that is for a batch of its own.
            if state.head == claim.end {
                state.head = end;
                state.head_at = got.at;
            } else {
                shared.lose(&state, end, claim.end);
            }
        }
        state.claim = (!got.records.is_empty()).then_some(Claim {
            first: claim.first,
            end,
            done: got.first,
        });
        state.claim_bytes = got.frames;
        state.recount();
        if got.records.is_empty() {
            shared.release(state);
            return Ok(None);
        }
        shared.persist(&mut state)?;
        drop(state);
        self.sync_cursor();
        Ok(Some(self.claimed(claim.first, got)))
    }

    fn claimed(&self, from: u64, got: Gathered) -> Claimed {
        Claimed {
            batch: Batch {
                spool: self.shared.id,
                first: got.first,
                records: got.records,
            },
            from,
        }
    }

    /// Reads records from `start` on, up to the first gap behind one. What was read is on the medium
    /// afterwards.
    fn gather(
        &mut self,
        start: u64,
        limit: u64,
        records: usize,
        bytes: usize,
    ) -> io::Result<Gathered> {
        let mut got = Gathered {
            first: start,
            at: HEADER as u64,
            ..Gathered::default()
        };
        let mut size = 0;
        while got.end() < limit && got.records.len() < records {
            let record = match self.look(got.end())? {
                Look::Here(record) => record,
                Look::Gone => {
                    self.place = None;
                    continue;
                }
                Look::Gap(_) if !got.records.is_empty() => break,
                Look::Gap(end) => {
                    got.first = end.min(limit);
                    continue;
                }
            };
            if !got.records.is_empty() && size + record.bytes.len() > bytes {
                break;
            }
            size += record.bytes.len();
            got.first_ms = got.first_ms.or(Some(record.ms));
            got.at = record.behind;
            if let Some(place) = self.place.as_mut() {
                got.frames += record.behind - place.at;
                place.at = record.behind;
                place.sequence = record.sequence + 1;
            }
            got.records.push(record.bytes);
        }
        self.sync();
        Ok(got)
    }

    /// Looks at one number.
    fn look(&mut self, sequence: u64) -> io::Result<Look> {
        let (segment, next) = {
            let state = self.shared.state();
            (state.segment_of(sequence).cloned(), state.next)
        };
        let Some(segment) = segment else {
            return Ok(Look::Gap(next));
        };
        if segment.first > sequence {
            return Ok(Look::Gap(segment.first));
        }
        match self.read(&segment, sequence) {
            Ok(look) => {
                self.strikes = 0;
                Ok(look)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let state = self.shared.state();
                let listed = state.segments.iter().any(|s| s.first == segment.first);
                Ok(if listed {
                    Look::Gap(segment.end)
                } else {
                    Look::Gone
                })
            }
            Err(error) => {
                self.place = None;
                self.strikes += 1;
                if self.strikes < STRIKES {
                    return Err(error);
                }
                self.strikes = 0;
                tracing::warn!(segment = %segment.path.display(), %error,
                    "a segment of the spool cannot be read, and is given up");
                Ok(Look::Gap(segment.end))
            }
        }
    }

    fn read(&mut self, segment: &Segment, sequence: u64) -> io::Result<Look> {
        let here = |place: &Place| place.segment == segment.first && place.sequence == sequence;
        if !self.place.as_ref().is_some_and(here) {
            // Whoever leaves a segment with records of a batch makes sure of them.
            self.sync();
            let mut source = Source::open(&segment.path, segment.seed)?;
            let (at, _) = if sequence == segment.first {
                (HEADER as u64, None)
            } else {
                locate(&mut source, segment.first, sequence, segment.bytes)?
            };
            self.place = Some(Place {
                source,
                segment: segment.first,
                sequence,
                at,
            });
        }
        let Some(place) = self.place.as_mut() else {
            return Ok(Look::Gone);
        };
        let wanted = sequence..segment.end;
        let found = place.source.next(place.at, &wanted, segment.bytes)?;
        Ok(match found {
            Some(record) if record.sequence == sequence => Look::Here(record),
            Some(record) => Look::Gap(record.sequence),
            None => Look::Gap(segment.end),
        })
    }

    /// A failure costs safety from a loss of power, no more.
    fn sync_cursor(&self) {
        if let Err(error) = self.shared.disk.sync(&self.shared.cursor) {
            tracing::debug!(%error, "the spool's cursor was not synced");
        }
    }

    /// As above.
    fn sync(&self) {
        if let Some(place) = &self.place
            && let Err(error) = self.shared.disk.sync(&place.source.file)
        {
            tracing::debug!(%error, "a segment of the spool was not synced");
        }
    }
}
