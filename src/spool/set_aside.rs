//! Records that the store will never take, with its reason: one JSON object a line.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::state::Shared;
use crate::text;

/// Its name in the spool's directory.
pub(super) const FILE: &str = "set_aside.jsonl";
/// It does not grow beyond this; what would is only counted.
const MAX_BYTES: u64 = 16 << 20;
/// Bytes of a reason that are kept.
const MAX_REASON: usize = 2_000;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// When it was set aside, Unix milliseconds.
    pub time_ms: i64,
    pub sequence: u64,
    pub error: String,
    /// The record, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The record in hexadecimal, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_hex: Option<String>,
}

impl Line {
    fn new(time_ms: i64, sequence: u64, record: &[u8], why: &str) -> Self {
        let text = std::str::from_utf8(record).ok().map(str::to_owned);
        Self {
            time_ms,
            sequence,
            error: text::prefix(why, MAX_REASON).to_owned(),
            record_hex: text.is_none().then(|| hex(record)),
            record: text,
        }
    }

    /// The record as it was; `None` if the line was tampered with.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match (&self.record, &self.record_hex) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(digits)) => unhex(digits),
            (None, None) => None,
        }
    }
}

/// Sets a record aside, if there is room and the disk takes it.
pub(super) fn append(shared: &Shared, sequence: u64, record: &[u8], why: &str) {
    let line = Line::new(shared.clock.utc_ms(), sequence, record, why);
    match write(shared, &line) {
        Ok(true) => {}
        Ok(false) => tracing::debug!(sequence, "no room to set a refused record aside"),
        Err(error) => tracing::debug!(sequence, %error, "a refused record was not set aside"),
    }
}

fn write(shared: &Shared, line: &Line) -> io::Result<bool> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(shared.dir.join(FILE))?;
    let before = file.metadata()?.len();
    if before + bytes.len() as u64 > MAX_BYTES {
        return Ok(false);
    }
    if let Err(error) = shared.disk.append(&file, &bytes) {
        // Half a line would make the next one unreadable as well.
        shared.disk.truncate(&file, before)?;
        return Err(error);
    }
    Ok(true)
}

/// The lines, in order; `Err` holds one that cannot be read as it is. Nothing if there is no file.
pub(super) fn lines(dir: &Path) -> io::Result<Vec<Result<Line, String>>> {
    let file = match File::open(path(dir)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let parsed = |line: Vec<u8>| {
        let unread = |_| String::from_utf8_lossy(&line).into_owned();
        serde_json::from_slice(&line).map_err(unread)
    };
    let lines = BufReader::new(file).split(b'\n');
    lines.map(|line| line.map(parsed)).collect()
}

/// Why records were refused that lie set aside, with how many for each reason, the most frequent
/// first; at most `most` reasons.
///
/// # Errors
/// The file cannot be read. That there is none is no error.
pub fn refusals(dir: &Path, most: usize) -> io::Result<Vec<(String, usize)>> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for line in lines(dir)? {
        let why = line.map_or_else(|_| "its line cannot be read".to_owned(), |line| line.error);
        *counts.entry(why).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
    counts.truncate(most);
    Ok(counts)
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    pairs.map(byte).collect()
}
