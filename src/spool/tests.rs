//! Spools in temporary directories, on disks that fail when they are told to.

mod damage;
mod forwarding;
mod kill;
mod measure;
mod property;
mod reading;
mod tools;
mod writing;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use super::disk::Disk;
use super::open::open_on;
use super::{Claimed, Counted, Full, Limits, Monitor, Most, Reader, Reason, Writer};
use crate::clock::Clock;

/// A batch of whatever is there.
const ALL: Most = most(usize::MAX, usize::MAX);

const fn most(records: usize, bytes: usize) -> Most {
    Most {
        records,
        bytes,
        wait: Duration::ZERO,
    }
}

const fn limits(max_bytes: u64, full: Full, segment_bytes: u64) -> Limits {
    Limits {
        max_bytes,
        full,
        segment_bytes,
    }
}

/// Small segments, and room for everything.
const ROOMY: Limits = limits(1 << 30, Full::DropOldest, 2_000);

/// What a disk does wrong.
#[derive(Debug, Default)]
struct Faults {
    /// Bytes that may still be appended.
    room: Option<usize>,
    cannot_truncate: bool,
    cannot_write_cursor: bool,
    appends: u64,
    cursor_writes: u64,
    syncs: u64,
}

/// Never waits for the medium, and fails as it is told.
#[derive(Debug, Clone, Default)]
struct Faulty(Arc<Mutex<Faults>>);

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl Disk for Faulty {
    fn append(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        use std::io::Write as _;

        let mut faults = self.0.lock().unwrap();
        faults.appends += 1;
        let fits = faults.room.unwrap_or(usize::MAX).min(bytes.len());
        file.write_all(&bytes[..fits])?;
        if let Some(room) = faults.room.as_mut() {
            *room -= fits;
        }
        if fits == bytes.len() {
            Ok(())
        } else {
            Err(full())
        }
    }

    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        use std::os::unix::fs::FileExt as _;

        let mut faults = self.0.lock().unwrap();
        faults.cursor_writes += 1;
        if faults.cannot_write_cursor {
            return Err(full());
        }
        file.write_all_at(bytes, offset)
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        if self.0.lock().unwrap().cannot_truncate {
            return Err(full());
        }
        file.set_len(len)
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        self.0.lock().unwrap().syncs += 1;
        Ok(())
    }
}

impl Faulty {
    fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.0.lock().unwrap());
    }
}

/// An open spool.
struct Spool {
    writer: Writer,
    reader: Reader,
    disk: Faulty,
}

fn open(dir: &Path, limits: Limits) -> Spool {
    open_with(dir, limits, Clock::Real)
}

fn open_with(dir: &Path, limits: Limits, clock: Clock) -> Spool {
    let disk = Faulty::default();
    let (writer, reader) = open_on(dir, limits, clock, Arc::new(disk.clone())).unwrap();
    Spool {
        writer,
        reader,
        disk,
    }
}

impl Spool {
    fn append(&mut self, records: &[impl AsRef<[u8]>]) -> usize {
        let records: Vec<&[u8]> = records.iter().map(AsRef::as_ref).collect();
        let appended = self.writer.append(&records);
        assert_eq!(appended.stored + appended.dropped, records.len());
        appended.stored
    }

    fn take(&mut self, most: Most) -> Option<Claimed> {
        self.reader.blocking(|desk| desk.take(&most)).unwrap()
    }

    fn ack(&mut self, end: u64) {
        self.reader
            .blocking(|desk| desk.settle(end, super::Counters::add_delivered));
    }

    /// Takes and settles everything: records with their numbers.
    fn drain(&mut self) -> Vec<(u64, String)> {
        let mut all = Vec::new();
        while let Some(claimed) = self.take(most(7, 1_000)) {
            all.extend(numbered(&claimed));
            self.ack(claimed.batch.end());
        }
        all
    }

    fn monitor(&self) -> Monitor {
        self.writer.monitor()
    }

    fn counted(&self) -> Counted {
        self.writer.counters().now()
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.counted().dropped_for(reason)
    }

    /// Whatever has happened: accepted = delivered + waiting + dropped.
    fn check(&self) {
        let (counted, waiting) = (self.counted(), self.monitor().waiting());
        assert_eq!(
            counted.accepted(),
            counted.delivered + waiting.records + counted.dropped_total(),
            "{counted:?} {waiting:?}"
        );
    }
}

fn numbered(claimed: &Claimed) -> Vec<(u64, String)> {
    let text = |record: &bytes::Bytes| String::from_utf8(record.to_vec()).unwrap();
    let records = claimed.batch.records.iter().map(text);
    (claimed.batch.first..).zip(records).collect()
}

fn texts(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(text).collect()
}

/// About a hundred bytes.
fn text(n: u64) -> String {
    format!("record {n:04} {}", "x".repeat(90))
}

/// The numbers and texts of records that were appended as such.
fn expected(range: std::ops::Range<u64>) -> Vec<(u64, String)> {
    range.map(|n| (n, text(n))).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|f| f.extension().is_some_and(|ending| ending == "seg"))
        .collect();
    files.sort();
    files
}

fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}
