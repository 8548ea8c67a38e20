//! How long captured content stays: by days and by bytes, the oldest first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::read::{SUFFIX, day};

/// How files end that are being written.
pub(super) const TEMPORARY: &str = "part";
/// When there is too much, this share of the limit is made free, so that not each turn is a reason
/// to look through all of it again.
const SLACK: u64 = 16;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What stays.
#[derive(Debug)]
pub(super) struct Keep {
    /// Days from this one on.
    pub(super) since: String,
    /// Below this size in all.
    pub(super) bytes: u64,
}

/// The first day of which nothing is too old.
pub(super) fn oldest_day(now_ms: i64, days: u32) -> String {
    day(now_ms
        .saturating_sub(i64::from(days).saturating_mul(DAY_MS))
        .max(0))
}

/// Removes what does not stay. Returns the bytes that are left. What is none of ours is not touched.
pub(super) fn sweep(root: &Path, keep: &Keep) -> io::Result<u64> {
    let mut days = Vec::new();
    for entry in entries(root)? {
        let name = name(&entry);
        if is_day(&name) {
            days.push((name, entry));
        }
    }
    days.sort_unstable();
    let mut total = 0;
    let mut left: Vec<(PathBuf, u64)> = Vec::new();
    for (name, path) in days {
        // Within a day the names, which begin with the time, are in order as well.
        let mut files = entries(&path)?;
        files.sort_unstable();
        for file in files {
            let ours = self::name(&file).ends_with(SUFFIX);
            // The thread that writes is this one: what it has not finished, an earlier one has left.
            let leftover = file.extension().is_some_and(|end| end == TEMPORARY);
            if leftover || (ours && name < keep.since) {
                remove(fs::remove_file(&file))?;
            } else if ours {
                // It may have gone meanwhile.
                let bytes = fs::metadata(&file).map_or(0, |found| found.len());
                total += bytes;
                left.push((file, bytes));
            }
        }
        // Fails while something is in it.
        let _ = fs::remove_dir(&path);
    }
    if total <= keep.bytes {
        return Ok(total);
    }
    let enough = keep.bytes - keep.bytes / SLACK;
    for (file, bytes) in left {
        if total <= enough {
            break;
        }
        remove(fs::remove_file(&file))?;
        total = total.saturating_sub(bytes);
        if let Some(day) = file.parent() {
            let _ = fs::remove_dir(day);
        }
    }
    Ok(total)
}

/// What is gone need not be removed.
fn remove(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn is_day(name: &str) -> bool {
    let sound = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    name.len() == 10 && name.bytes().enumerate().all(sound)
}
