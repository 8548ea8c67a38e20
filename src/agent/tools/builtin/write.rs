//! Writing a whole file.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::root::MAX_FILE;
use super::{Root, on_files};
use crate::agent::tools::{Manners, Tool, ToolError, ToolResult};

const DESCRIPTION: &str = "Writes a text file: makes a new one, with the directories above it, or \
replaces all of an old one. Use it for new files and for small ones that change from top to \
bottom. To change a part of a file use edit_file. Example: {\"path\": \"notes/todo.md\", \
\"content\": \"- first\\n\"}. Gives the number of bytes, and whether the file is new.";

#[derive(Deserialize, JsonSchema)]
struct Input {
    /// Path of the file, relative to the working directory
    path: String,
    /// The whole new text
    content: String,
}

/// The tool `write_file`.
#[must_use]
pub fn write_file(root: &Root) -> Arc<dyn Tool> {
    on_files(root, "write_file", DESCRIPTION, Manners::SETS, write)
}

fn write(root: &Root, input: Input, _: &CancellationToken) -> ToolResult {
    let Input { path, content } = input;
    let full = root.resolve(&path)?;
    let new = !full.exists();
    replace(root, &path, &full, content.as_bytes())?;
    let what = if new { "new file" } else { "replaced" };
    let lines = content.lines().count();
    Ok(format!(
        "wrote {} bytes, {lines} lines to {path} ({what})",
        content.len()
    ))
}

/// Replaces a file, or makes it: readers see the old text or the new one, never a part, also when
/// the machine stops. The mode of an old file stays, its owner may not.
pub(super) fn replace(
    root: &Root,
    path: &str,
    full: &Path,
    content: &[u8],
) -> Result<(), ToolError> {
    if content.len() as u64 > MAX_FILE {
        let message = format!("{} bytes are more than a file may have", content.len());
        return Err(ToolError::failed("too_large", message));
    }
    if full.is_dir() {
        return Err(ToolError::failed(
            "is_directory",
            format!("{path} is a directory"),
        ));
    }
    let attempt = || {
        let above = full.parent().unwrap_or(root.path());
        std::fs::create_dir_all(above)?;
        let beside = Beside::new(above, full)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&beside.0)?;
        file.write_all(content)?;
        match full.metadata() {
            // Devices and pipes are not replaced by files.
            Ok(old) if !old.is_file() => return Err(std::io::ErrorKind::InvalidInput.into()),
            Ok(old) => file.set_permissions(old.permissions())?,
            Err(_) => {}
        }
        file.sync_all()?;
        std::fs::rename(&beside.0, full)?;
        // The name is on disk once its directory is; where that cannot be had it comes later.
        let _ = File::open(above).and_then(|above| above.sync_all());
        Ok(())
    };
    attempt().map_err(|error| root.trouble(path, &error))
}

/// A file beside another one that goes away unless it takes its place.
struct Beside(PathBuf);

impl Beside {
    fn new(above: &Path, full: &Path) -> std::io::Result<Self> {
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let random = u64::from_ne_bytes(random);
        let name = full.file_name().unwrap_or_default().to_string_lossy();
        let name = crate::text::prefix(&name, 100);
        Ok(Self(above.join(format!(".{name}.{random:016x}.tmp"))))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // After the rename there is nothing of this name.
        let _ = std::fs::remove_file(&self.0);
    }
}
