//! Captured content as it lies on disk, and the way back.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Body;
use crate::redact::Counts;

/// Where captured content lies in the data directory: a directory for each day (UTC), in it a file
/// for each turn.
pub const DIRECTORY: &str = "bodies";
/// Version of the files.
pub(super) const VERSION: u32 = 1;
/// How the files are named, after the turn.
pub(super) const SUFFIX: &str = ".json.gz";
/// Largest file that is read, unpacked: a bound against a file that is none of ours.
const MAX_BYTES: u64 = 1 << 30;

/// The content of one turn.
#[derive(Debug, Serialize, Deserialize)]
pub struct Content {
    /// Version of the format.
    pub version: u32,
    /// The turn.
    pub turn: Uuid,
    /// Its run.
    pub run: String,
    /// Its thread.
    pub thread: String,
    /// The application.
    pub app: Option<String>,
    /// Start of the request, UTC milliseconds.
    pub started_ms: i64,
    /// `redacted` or `full`.
    pub mode: String,
    /// What the client sent, as it wrote it.
    pub request: Body,
    /// What it was answered; `None` where the upstream did not answer.
    pub response: Option<Response>,
    /// How often each rule has replaced something.
    pub replaced: Counts,
}

/// What the client was answered.
#[derive(Debug, Serialize, Deserialize)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// The answer came to its end.
    pub complete: bool,
    /// Its body; of a stream the message that it tells.
    pub body: Body,
}

/// The day of a time, as the directories are named.
pub(super) fn day(ms: i64) -> String {
    let at = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::UTC).date().to_string()
}

/// Where the content of a turn lies.
pub(super) fn path(data_dir: &Path, started_ms: i64, turn: Uuid) -> PathBuf {
    let root = data_dir.join(DIRECTORY);
    root.join(day(started_ms)).join(format!("{turn}{SUFFIX}"))
}

/// The content of a turn that started then; `None` if nothing was captured, or not any more.
///
/// # Errors
/// The file cannot be read, or is not one of ours.
pub fn content(data_dir: &Path, started_ms: i64, turn: Uuid) -> io::Result<Option<Content>> {
    let file = match File::open(path(data_dir, started_ms, turn)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    GzDecoder::new(BufReader::new(file))
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)?;
    let content = serde_json::from_slice(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(content))
}
