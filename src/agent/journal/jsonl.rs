//! A line of JSON for each event, below a first line that says what this is.
//!
//! A last line without its end is what a crash has left of an event that has not happened; it is
//! taken off. Any other line that cannot be read is an error, and stays as it is.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::checkpoint::{self, Covers, sync_directory};
use super::directory::private;
use super::{Fsync, Journal, JournalError, go_on, lock};
use crate::agent::machine::{AgentRun, Happened};

/// What the first line calls it.
const FORMAT: &str = "prefixgate agent journal";
/// The version of the lines that is written here, and the newest that can be read.
const VERSION: u32 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
}

impl Head {
    fn line() -> io::Result<Vec<u8>> {
        let head = Self {
            format: FORMAT.to_owned(),
            version: VERSION,
        };
        let mut line = serde_json::to_vec(&head)?;
        line.push(b'\n');
        Ok(line)
    }

    /// The file is new, or the program was killed while it began it.
    fn is_unfinished(bytes: &[u8]) -> bool {
        Self::line().is_ok_and(|line| line.starts_with(bytes) && bytes.len() < line.len())
    }
}

/// A journal in a file. Nobody else writes it while this is open.
pub struct JsonLines {
    path: PathBuf,
    file: File,
    fsync: Fsync,
    /// There are events that are to be on the disk before anything follows from them.
    unsettled: bool,
    /// What the file is known to hold.
    covers: Covers,
    hash: Xxh3,
    /// A half-written line could not be taken back, or the disk has lost some: nothing may follow.
    spoilt: bool,
}

impl fmt::Debug for JsonLines {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("JsonLines");
        out.field("path", &self.path)
            .field("covers", &self.covers)
            .finish_non_exhaustive()
    }
}

impl JsonLines {
    /// Opens a journal, or begins one. A last line that was cut is taken off.
    ///
    /// # Errors
    /// It cannot be opened or locked, or is no journal.
    pub fn open(path: &Path, fsync: Fsync) -> Result<Self, JournalError> {
        Self::with(path, fsync, true)
    }

    /// Opens a journal that is there.
    pub(super) fn existing(path: &Path, fsync: Fsync) -> Result<Self, JournalError> {
        Self::with(path, fsync, false)
    }

    fn with(path: &Path, fsync: Fsync, create: bool) -> Result<Self, JournalError> {
        let failed = |source| failed(path, source);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(create);
        private(&mut options);
        let mut file = options.open(path).map_err(failed)?;
        // Before reading: what looks like a cut line may be one that another process is writing.
        if !lock::take(&file).map_err(failed)? {
            return Err(JournalError::Busy(path.display().to_string()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        if Head::is_unfinished(&bytes) {
            let head = Head::line().map_err(failed)?;
            file.set_len(0).map_err(failed)?;
            file.write_all(&head).map_err(failed)?;
            if fsync != Fsync::Never {
                file.sync_all().map_err(failed)?;
                path.parent()
                    .map_or(Ok(()), sync_directory)
                    .map_err(failed)?;
            }
            bytes = head;
        }
        let lines = Lines::of(path, &bytes)?;
        let whole = lines.whole.len();
        let events = lines.count();
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        let mut hash = Xxh3::new();
        hash.update(&bytes[..whole]);
        Ok(Self {
            path: path.to_owned(),
            file,
            fsync,
            unsettled: false,
            covers: Covers {
                events,
                bytes: whole as u64,
                hash: hash.digest(),
            },
            hash,
            spoilt: false,
        })
    }

    /// Whether no event is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.covers.events == 0
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.spoilt {
            return Err(io::Error::other(
                "an earlier event was not written as a whole",
            ));
        }
        let written = self.file.write_all(line);
        if written.is_err() {
            self.spoilt = self.file.set_len(self.covers.bytes).is_err();
        }
        written
    }

    fn bytes(&self) -> Result<Vec<u8>, JournalError> {
        let mut bytes = Vec::new();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.read_to_end(&mut bytes))
            .map_err(|error| failed(&self.path, error))?;
        Ok(bytes)
    }
}

impl Journal for JsonLines {
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError> {
        let failed = |error| failed(&self.path, error);
        let mut line = serde_json::to_vec(happened).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.write(&line)
            .map_err(|error| self::failed(&self.path, error))?;
        self.unsettled |= self.fsync.after(&happened.event);
        self.hash.update(&line);
        self.covers = Covers {
            events: self.covers.events + 1,
            bytes: self.covers.bytes + line.len() as u64,
            hash: self.hash.digest(),
        };
        Ok(())
    }

    fn settle(&mut self) -> Result<(), JournalError> {
        if std::mem::take(&mut self.unsettled)
            && let Err(error) = self.file.sync_data()
        {
            // A second attempt may report success for pages that the first has given up.
            self.spoilt = true;
            return Err(failed(&self.path, error));
        }
        Ok(())
    }

    fn checkpoint(&mut self, run: &AgentRun) -> Result<(), JournalError> {
        let failed = |error| failed(&self.path, error);
        let sync = self.fsync != Fsync::Never;
        if sync {
            // It must not outlive an event that it stands for.
            self.file.sync_data().map_err(failed)?;
            self.unsettled = false;
        }
        checkpoint::write(&beside(&self.path), self.covers, run, sync).map_err(failed)
    }

    fn load(&mut self) -> Result<Option<AgentRun>, JournalError> {
        let bytes = self.bytes()?;
        Lines::of(&self.path, &bytes)?.run(checkpoint::read(&beside(&self.path)))
    }

    fn events(&mut self) -> Result<Vec<Happened>, JournalError> {
        Lines::of(&self.path, &self.bytes()?)?.events(0).collect()
    }
}

/// Where the checkpoint of a journal is.
pub(super) fn beside(path: &Path) -> PathBuf {
    path.with_extension("checkpoint")
}

fn failed(path: &Path, source: io::Error) -> JournalError {
    JournalError::Io {
        path: path.display().to_string(),
        source,
    }
}

/// The whole lines of a journal.
pub(super) struct Lines<'a> {
    path: &'a Path,
    whole: &'a [u8],
    /// Bytes of the first line.
    head: usize,
}

impl<'a> Lines<'a> {
    /// Looks at the bytes of a journal.
    pub(super) fn of(path: &'a Path, bytes: &'a [u8]) -> Result<Self, JournalError> {
        let end = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        let whole = &bytes[..end];
        let head = memchr::memchr(b'\n', whole).map_or(0, |at| at + 1);
        let lines = Self { path, whole, head };
        if Head::is_unfinished(bytes) {
            return Ok(lines);
        }
        let first: Option<Head> = serde_json::from_slice(&whole[..head]).ok();
        match first.filter(|first| first.format == FORMAT) {
            Some(first) if first.version == VERSION => Ok(lines),
            Some(first) => Err(lines.unreadable(
                1,
                format!(
                    "version {}, this program knows version {VERSION}",
                    first.version
                ),
            )),
            None => Err(lines.unreadable(1, "this is no journal of a run".to_owned())),
        }
    }

    /// How many events they are.
    fn count(&self) -> u64 {
        memchr::memchr_iter(b'\n', &self.whole[self.head..]).count() as u64
    }

    /// The events after the first `skip`.
    pub(super) fn events(
        &self,
        skip: usize,
    ) -> impl Iterator<Item = Result<Happened, JournalError>> {
        let lines = self.whole[self.head..].split_inclusive(|byte| *byte == b'\n');
        lines.enumerate().skip(skip).map(|(at, line)| {
            serde_json::from_slice(line).map_err(|error| self.unreadable(at + 2, error.to_string()))
        })
    }

    /// The newest event.
    pub(super) fn last(&self) -> Option<Result<Happened, JournalError>> {
        let skip = self.count().checked_sub(1)?;
        self.events(usize::try_from(skip).ok()?).next()
    }

    /// The state, with the help of a checkpoint if it is one of these lines.
    pub(super) fn run(
        &self,
        checkpoint: Option<(Covers, AgentRun)>,
    ) -> Result<Option<AgentRun>, JournalError> {
        let known = checkpoint.filter(|(covers, _)| {
            let bytes = usize::try_from(covers.bytes).unwrap_or(usize::MAX);
            let covered = self.whole.get(..bytes);
            covered.is_some_and(|covered| xxh3_64(covered) == covers.hash)
        });
        let (skip, run) = known.map_or((0, None), |(covers, run)| (covers.events, Some(run)));
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        go_on(run, self.events(skip), || {
            self.unreadable(2, "the first event is no beginning of a run".to_owned())
        })
    }

    fn unreadable(&self, line: usize, reason: String) -> JournalError {
        JournalError::Unreadable {
            path: self.path.display().to_string(),
            line,
            reason,
        }
    }
}
