//! What a person does to a spool that no process is using.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::set_aside::{self, Line};
use super::{Full, Limits, open, open::discard_all};

/// Drops everything that waits and counts it as discarded: how many records that were. What was set
/// aside stays.
///
/// # Errors
/// A process is using the spool (`WouldBlock`), there is none, or the disk fails.
pub fn discard(dir: &Path) -> io::Result<u64> {
    std::fs::metadata(dir)?;
    let (mut writer, _reader) = open::open(dir, Limits::new(u64::MAX, Full::DropNewest))?;
    writer.seal();
    let records = discard_all(writer.shared())?;
    writer.close()?;
    Ok(records)
}

/// What became of the records that had been set aside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requeued {
    /// Records that wait again, as new ones with new numbers.
    pub appended: u64,
    /// Records that stay set aside: there is no room for them, or their line cannot be read.
    pub left: u64,
}

/// Appends the records that were set aside once more, each once. They stay counted as refused, and
/// count as accepted anew.
///
/// If it is ended in the middle, the next call appends them again.
///
/// # Errors
/// A process is using the spool (`WouldBlock`), there is none, or the disk fails.
pub fn requeue(dir: &Path, limits: Limits) -> io::Result<Requeued> {
    std::fs::metadata(dir)?;
    // Nothing that waits is given up for them.
    let limits = Limits {
        full: Full::DropNewest,
        ..limits
    };
    let (mut writer, _reader) = open::open(dir, limits)?;
    let mut done = Requeued::default();
    let mut left = Vec::new();
    let mut seen = HashSet::new();
    for line in set_aside::lines(dir)? {
        let record = line.as_ref().ok().and_then(Line::bytes);
        let (Ok(line), Some(record)) = (&line, record) else {
            left.push(match line {
                Ok(line) => serde_json::to_string(&line)?,
                Err(text) => text,
            });
            continue;
        };
        // A kill between setting aside and counting leaves the same line twice.
        let twin = (line.sequence, xxh3_128(&record));
        if seen.contains(&twin) {
            continue;
        }
        if writer.has_room(record.len()) && writer.append(&[&record]).stored == 1 {
            seen.insert(twin);
            done.appended += 1;
        } else {
            left.push(serde_json::to_string(line)?);
        }
    }
    done.left = left.len() as u64;
    writer.close()?;
    replace(dir, &left)?;
    Ok(done)
}

fn replace(dir: &Path, lines: &[String]) -> io::Result<()> {
    let path = set_aside::path(dir);
    if lines.is_empty() {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let next = path.with_extension("jsonl.next");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)?;
    for line in lines {
        writeln!(file, "{line}")?;
    }
    file.sync_all()?;
    std::fs::rename(next, path)
}
