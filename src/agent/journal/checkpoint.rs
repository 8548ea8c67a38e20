//! A checkpoint as it is written down: the state, and which events it stands for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::agent::machine::AgentRun;

/// A state is what one version of the program makes of the events; the next may make more of them.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Which events a checkpoint stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covers {
    /// Their number.
    pub events: u64,
    /// Their bytes in the journal.
    pub bytes: u64,
    /// A hash of those.
    pub hash: u64,
}

#[derive(Serialize)]
struct Sealed<'a> {
    version: &'a str,
    covers: Covers,
    run: &'a AgentRun,
}

#[derive(Deserialize)]
struct Opened {
    version: String,
    covers: Covers,
    run: AgentRun,
}

/// Writes a checkpoint in the place of the one before, so that a crash leaves one or the other.
pub fn write(path: &Path, covers: Covers, run: &AgentRun, sync: bool) -> io::Result<()> {
    let sealed = Sealed {
        version: VERSION,
        covers,
        run,
    };
    let bytes = serde_json::to_vec(&sealed)?;
    let beside = path.with_extension("tmp");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    super::directory::private(&mut options);
    let mut file = options.open(&beside)?;
    file.write_all(&bytes)?;
    if sync {
        file.sync_data()?;
    }
    drop(file);
    fs::rename(&beside, path)?;
    if sync && let Some(directory) = path.parent() {
        sync_directory(directory)?;
    }
    Ok(())
}

/// Reads a checkpoint; `None` for whatever is not a whole one of this version.
pub fn read(path: &Path) -> Option<(Covers, AgentRun)> {
    let opened: Opened = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (opened.version == VERSION).then_some((opened.covers, opened.run))
}

/// Forces the names in a directory onto the disk.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    // Elsewhere a directory is no file that could be synced.
    if cfg!(unix) {
        File::open(path)?.sync_all()?;
    }
    Ok(())
}
