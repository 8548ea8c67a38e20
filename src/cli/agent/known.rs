//! What runs were begun with, so that `agent resume RUN` needs nothing else. No key is in it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::settings::Common;

/// Where it is, below the data directory.
const DIRECTORY: &str = "agent-begun";

/// What a run was begun with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Begun {
    /// Its flags.
    pub flags: Common,
    /// Its task. A pattern of several agents tells it to each of them.
    pub task: String,
}

fn file(data_dir: &Path, run: &str) -> PathBuf {
    data_dir.join(DIRECTORY).join(format!("{run}.json"))
}

/// Keeps what a run was begun with.
///
/// # Errors
/// It cannot be written.
pub fn keep(data_dir: &Path, run: &str, begun: &Begun) -> anyhow::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let path = file(data_dir, run);
    let place = || path.display().to_string();
    let mut directories = std::fs::DirBuilder::new();
    directories.recursive(true).mode(0o700);
    directories
        .create(data_dir.join(DIRECTORY))
        .with_context(place)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&path).with_context(place)?;
    let text = serde_json::to_vec_pretty(begun)?;
    file.write_all(&text).with_context(place)
}

/// What a run was begun with; nothing where that is not known.
///
/// # Errors
/// It is there and cannot be read.
pub fn begun(data_dir: &Path, run: &str) -> anyhow::Result<Begun> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !run.bytes().all(plain) {
        return Ok(Begun::default());
    }
    let path = file(data_dir, run);
    let place = || path.display().to_string();
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(place),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Begun::default()),
        Err(error) => Err(error).with_context(place),
    }
}
