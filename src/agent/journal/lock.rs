//! One writer at a time. The system unlocks a file when the process that has locked it ends, however
//! it ends.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Who only looks whether there is a writer holds the lock for a moment: so often and so long is
/// it tried again.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file for writing; `false` where another writer has it.
pub fn take(file: &File) -> io::Result<bool> {
    for attempt in 1.. {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if attempt == TRIES => break,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    }
    Ok(false)
}

/// Whether somebody writes now.
pub fn is_taken(path: &Path) -> bool {
    let taken = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(path).is_ok_and(taken)
}
