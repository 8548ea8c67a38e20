//! What a spool holds, told without touching it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use uuid::Uuid;

use super::format::HEADER;
use super::state::Waiting;
use super::survey::{Survey, survey};
use super::{Counted, open, set_aside};

/// What is to be known of a spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its id; `None` if nothing was ever written to it.
    pub spool: Option<Uuid>,
    /// A process is using it now.
    pub in_use: bool,
    /// What waits, claimed records included.
    pub waiting: Waiting,
    /// When the newest record was appended, Unix milliseconds, as far as known.
    pub newest_ms: Option<i64>,
    /// Records of the batch that is on its way.
    pub claimed: u64,
    /// What became of all records so far. Beside a live process the counts of the last second or so
    /// can be missing.
    pub counted: Counted,
    /// Refused records that lie set aside, and the bytes of their file.
    pub set_aside: (u64, u64),
    /// Segments and their bytes.
    pub segments: (usize, u64),
    /// Segments that cannot be read. The next process that opens the spool sets them aside.
    pub unreadable: usize,
}

/// Looks at a spool, also while a process is using it.
///
/// # Errors
/// There is no such directory, or it cannot be read.
pub fn status(dir: &Path) -> io::Result<Status> {
    let found = survey(dir)?;
    let lines = set_aside::lines(dir)?.len() as u64;
    let bytes = std::fs::metadata(set_aside::path(dir)).map_or(0, |file| file.len());
    let position = &found.position;
    let claimed = position.claim.map_or(0, |claim| claim.end - claim.done);
    let records = position.next - position.head + claimed;
    Ok(Status {
        spool: (!found.empty).then_some(position.spool),
        in_use: in_use(dir)?,
        waiting: Waiting {
            records,
            bytes: waiting_bytes(&found),
            oldest_ms: found.oldest_ms.filter(|_| records > 0),
        },
        newest_ms: found.newest_ms,
        claimed,
        counted: open::counted(&found),
        set_aside: (lines, bytes),
        segments: (
            found.segments.len(),
            found.segments.iter().map(|segment| segment.bytes).sum(),
        ),
        unreadable: found.unreadable.len(),
    })
}

/// From the oldest record that waits to the end.
fn waiting_bytes(found: &Survey) -> u64 {
    let position = &found.position;
    let low = position.claim.map_or(position.head, |claim| claim.done);
    let ahead = found.segments.iter().filter(|segment| segment.end > low);
    let begun = |first: u64| {
        if first < low {
            found.low_at
        } else {
            HEADER as u64
        }
    };
    ahead
        .map(|segment| segment.bytes.saturating_sub(begun(segment.first)))
        .sum()
}

fn in_use(dir: &Path) -> io::Result<bool> {
    let file = match File::open(dir.join(open::LOCK)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
