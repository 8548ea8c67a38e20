//! Reading a segment: record by record, over damage.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;
use memchr::memmem;

use super::format::{self, FRAME, FRAME_MAGIC, Frame, HEADER};

/// Bytes that are read at a time.
const WINDOW: u64 = 1 << 20;

/// A record as it was found.
#[derive(Debug)]
pub(super) struct Record {
    pub sequence: u64,
    pub ms: i64,
    pub bytes: Bytes,
    /// Where the next frame is expected.
    pub behind: u64,
}

/// A segment that is being read. Bounds are passed in: a live segment grows.
#[derive(Debug)]
pub(super) struct Source {
    pub file: File,
    seed: u64,
    window: Bytes,
    window_at: u64,
}

impl Source {
    pub(super) fn open(path: &Path, seed: u64) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            seed,
            window: Bytes::new(),
            window_at: 0,
        })
    }

    /// The first record at or behind `at` whose number lies in `wanted`, if one begins before `len`.
    /// If it is not at `at`, what lies between cannot be read.
    pub(super) fn next(
        &mut self,
        at: u64,
        wanted: &Range<u64>,
        len: u64,
    ) -> io::Result<Option<Record>> {
        let mut bytes = self.bytes(at, FRAME as u64, len)?;
        if let Frame::Short { need, .. } = format::frame(&bytes, self.seed) {
            bytes = self.bytes(at, need as u64, len)?;
        }
        if let Some(record) = self.record(&bytes, 0, at, wanted) {
            return Ok(Some(record));
        }
        // Damage is rare, and a segment small: the rest of it in one piece.
        let rest = self.bytes(at, len.saturating_sub(at), len)?;
        let mut places = memmem::find_iter(&rest, &FRAME_MAGIC);
        Ok(places.find_map(|place| self.record(&rest, place, at, wanted)))
    }

    fn record(&self, bytes: &Bytes, place: usize, at: u64, wanted: &Range<u64>) -> Option<Record> {
        let from = &bytes[place..];
        // First what is cheap.
        if !format::claimed_sequence(from).is_some_and(|claimed| wanted.contains(&claimed)) {
            return None;
        }
        match format::frame(from, self.seed) {
            Frame::Sound { sequence, ms, size } => Some(Record {
                sequence,
                ms,
                bytes: bytes.slice(place + FRAME..place + size),
                behind: at + (place + size) as u64,
            }),
            Frame::Short { .. } | Frame::Bad => None,
        }
    }

    /// What lies from `at` on, `need` bytes or more where the file has them before `len`.
    fn bytes(&mut self, at: u64, need: u64, len: u64) -> io::Result<Bytes> {
        let need = need.min(len.saturating_sub(at));
        let end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + need > end {
            let size = need.max(WINDOW.min(len.saturating_sub(at)));
            let mut fresh = vec![0; usize::try_from(size).map_err(io::Error::other)?];
            let read = read_at(&self.file, at, &mut fresh)?;
            fresh.truncate(read);
            self.window = fresh.into();
            self.window_at = at;
        }
        let from = usize::try_from(at - self.window_at).map_err(io::Error::other)?;
        // What the file had beyond `len` when it was read is not known to be whole.
        let most = usize::try_from(len.saturating_sub(self.window_at)).unwrap_or(usize::MAX);
        let to = self.window.len().min(most);
        Ok(self.window.slice(from.min(to)..to))
    }
}

fn read_at(file: &File, at: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// The end of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// The number behind its last record.
    pub next: u64,
    /// Where the last record that can be read ends.
    pub good: u64,
    /// Time of that record.
    pub last_ms: Option<i64>,
    /// What follows is more than a write that did not come to its end.
    pub damaged: bool,
}

/// Walks through a segment.
pub(super) fn tail(source: &mut Source, first: u64, len: u64) -> io::Result<Tail> {
    let mut tail = Tail {
        next: first,
        good: (HEADER as u64).min(len),
        last_ms: None,
        damaged: false,
    };
    while let Some(record) = source.next(tail.good, &(tail.next..u64::MAX), len)? {
        tail.next = record.sequence + 1;
        tail.good = record.behind;
        tail.last_ms = Some(record.ms);
    }
    let rest = source.bytes(tail.good, len.saturating_sub(tail.good), len)?;
    let torn = match format::frame(&rest, source.seed) {
        Frame::Short { sequence, .. } => sequence.is_none_or(|claimed| claimed == tail.next),
        Frame::Sound { .. } | Frame::Bad => false,
    };
    // Blocks that were given to the file and never filled read as zeros.
    tail.damaged = !torn && rest.iter().any(|byte| *byte != 0);
    if tail.damaged {
        // At least one record was there.
        tail.next += 1;
    }
    Ok(tail)
}

/// Where the record `sequence` is to be looked for in a segment, and its time if it is there.
pub(super) fn locate(
    source: &mut Source,
    first: u64,
    sequence: u64,
    len: u64,
) -> io::Result<(u64, Option<i64>)> {
    let (mut at, mut expected) = (HEADER as u64, first);
    while let Some(record) = source.next(at, &(expected..u64::MAX), len)? {
        if record.sequence >= sequence {
            return Ok((at, (record.sequence == sequence).then_some(record.ms)));
        }
        (at, expected) = (record.behind, record.sequence + 1);
    }
    Ok((at, None))
}
