//! The flags that runs were begun with, so that `agent resume RUN` needs none. No key is in them.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::settings::Common;

/// Where they are, below the data directory.
const DIRECTORY: &str = "agent-flags";

fn file(data_dir: &Path, run: &str) -> PathBuf {
    data_dir.join(DIRECTORY).join(format!("{run}.json"))
}

/// Keeps the flags of a run.
///
/// # Errors
/// They cannot be written.
pub fn keep(data_dir: &Path, run: &str, common: &Common) -> anyhow::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let path = file(data_dir, run);
    let place = || path.display().to_string();
    let mut directories = std::fs::DirBuilder::new();
    directories.recursive(true).mode(0o700);
    directories.create(data_dir.join(DIRECTORY)).with_context(place)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&path).with_context(place)?;
    let text = serde_json::to_vec_pretty(common)?;
    file.write_all(&text).with_context(place)
}

/// The flags of a run; none where they are not known.
///
/// # Errors
/// They are there and cannot be read.
pub fn flags(data_dir: &Path, run: &str) -> anyhow::Result<Common> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !run.bytes().all(plain) {
        return Ok(Common::default());
    }
    let path = file(data_dir, run);
    let place = || path.display().to_string();
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(place),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Common::default()),
        Err(error) => Err(error).with_context(place),
    }
}
