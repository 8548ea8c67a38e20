//! Taking possession of a spool's directory, and repairing what a kill or a loss of power has left.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::counters::Counters;
use super::cursor::{self, CursorFile};
use super::disk::{Disk, Real};
use super::reader::Reader;
use super::state::{Shared, State, Wake};
use super::survey::{Survey, survey};
use super::writer::Writer;
use super::{Counted, Limits};
use crate::clock::Clock;

/// The file that is locked while a process uses the spool.
pub(super) const LOCK: &str = "lock";
/// Tries to get the lock, and the time between them: whoever looks at the status of a spool holds it
/// for an instant.
const TRIES: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(20);

/// Opens the spool in `dir`, which is made if it is missing.
///
/// # Errors
/// The directory cannot be used, or another process uses it (`WouldBlock`).
pub fn open(dir: &Path, limits: Limits) -> io::Result<(Writer, Reader)> {
    open_at(dir, limits, Clock::Real)
}

/// The same with a clock of one's own.
///
/// # Errors
/// As [`open`].
pub fn open_at(dir: &Path, limits: Limits, clock: Clock) -> io::Result<(Writer, Reader)> {
    open_on(dir, limits, clock, Arc::new(Real))
}

pub(super) fn open_on(
    dir: &Path,
    limits: Limits,
    clock: Clock,
    disk: Arc<dyn Disk>,
) -> io::Result<(Writer, Reader)> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)?;
    let lock = lock(dir)?;
    let mut found = survey(dir)?;
    set_aside(dir, &found, &clock)?;
    if let Some((path, whole)) = &found.torn {
        tracing::warn!(segment = %path.display(), "a record that was not wholly written is cut off");
        disk.truncate(&OpenOptions::new().write(true).open(path)?, *whole)?;
    }
    for path in &found.stale {
        disk.remove(path)?;
    }
    let position = &mut found.position;
    position.counted.appended = position.next - position.base;
    let (cursor, cursor_file) =
        CursorFile::open(dir, found.generation.unwrap_or(0), position, &*disk)?;
    let active = match (&found.appendable, found.segments.last()) {
        (Some(end), Some(last)) => {
            let file = OpenOptions::new().append(true).open(&last.path)?;
            Some((file, end.good))
        }
        _ => None,
    };
    let counters = Arc::new(Counters::starting_with(&position.counted));
    let state = state(found, cursor, active.is_some());
    let shared = Arc::new(Shared {
        dir: dir.to_owned(),
        id: state.0,
        limits,
        clock,
        disk,
        counters,
        more: Notify::new(),
        cursor: cursor_file,
        state: Mutex::new(state.1),
        _lock: lock,
    });
    Ok((
        Writer::new(Arc::clone(&shared), active),
        Reader::new(shared),
    ))
}

fn state(found: Survey, cursor: CursorFile, active: bool) -> (uuid::Uuid, State) {
    let position = found.position;
    let mut state = State {
        total: found.segments.iter().map(|segment| segment.bytes).sum(),
        segments: found.segments.into(),
        active,
        base: position.base,
        next: position.next,
        head: position.head,
        head_at: found.head_at,
        floor: position.floor,
        claim: position.claim,
        claim_bytes: 0,
        unclaimed: 0,
        oldest_ms: found.oldest_ms,
        wake: Wake {
            records: 1,
            bytes: 1,
        },
        cursor,
    };
    state.recount();
    (position.spool, state)
}

/// Makes sure that no other process works here.
pub(super) fn lock(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join(LOCK))?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::WouldBlock,
        format!("another process uses the spool {}", dir.display()),
    ))
}

/// Renames what cannot be read, so that nobody trips over it again. The records in it are counted
/// where the reader finds them missing.
fn set_aside(dir: &Path, found: &Survey, clock: &Clock) -> io::Result<()> {
    let aside = |path: &Path| -> PathBuf {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".aside-{}", clock.now_ms()));
        path.with_file_name(name)
    };
    for (path, why) in &found.unreadable {
        let to = aside(path);
        tracing::warn!(segment = %path.display(), %why, set_aside_as = %to.display(),
            "a segment of the spool cannot be read");
        std::fs::rename(path, to)?;
    }
    if found.cursor_unreadable {
        let path = dir.join(cursor::FILE);
        let to = aside(&path);
        tracing::warn!(set_aside_as = %to.display(),
            "the spool's cursor cannot be read: everything that is left is delivered again");
        std::fs::rename(path, to)?;
    }
    Ok(())
}

/// Begins anew behind everything that waits: how many records that were.
pub(super) fn discard_all(shared: &Shared) -> io::Result<u64> {
    let mut state = shared.state();
    let records = state.waiting().records;
    shared
        .counters
        .add_dropped(super::Reason::Discarded, records);
    state.claim = None;
    state.claim_bytes = 0;
    state.head = state.next;
    state.recount();
    shared.persist(&mut state)?;
    shared.disk.sync(&shared.cursor)?;
    shared.release(state);
    Ok(records)
}

/// The counts that a position stands for.
pub(super) fn counted(found: &Survey) -> Counted {
    let position = &found.position;
    Counted {
        appended: position.next - position.base,
        ..position.counted
    }
}
