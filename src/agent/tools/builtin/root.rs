//! The directory that tools see.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use crate::agent::tools::ToolError;

/// Largest file that is read whole, in bytes.
pub(super) const MAX_FILE: u64 = 20 << 20;
/// Where a zero byte makes a file no text.
const MAX_PROBE: usize = 8 << 10;

/// The directory that tools see. Paths are taken relative to it; absolute ones are allowed where
/// they lead into it. Links are followed, and what counts is where they lead.
///
/// This keeps a model that is mistaken or misled from leaving the directory. It is no sandbox: a
/// program that exchanges directories for links between the check and the use gets past it, and
/// hard links cannot be told from files.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// A directory that exists.
    ///
    /// # Errors
    /// It does not, or cannot be read.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        let path = path.canonicalize()?;
        match path.is_dir() {
            true => Ok(Self(path)),
            false => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a path leads, links followed; its last parts need not exist.
    ///
    /// # Errors
    /// It leads out of the directory, or nowhere.
    pub fn resolve(&self, path: &str) -> Result<PathBuf, ToolError> {
        if path.contains('\0') {
            return Err(ToolError::failed(
                "invalid_path",
                "a path has no zero bytes",
            ));
        }
        let mut at = PathBuf::from("/");
        // Always without links, so that `..` means the directory above.
        for part in self.0.join(path).components() {
            match part {
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => {
                    at.pop();
                }
                Component::Normal(name) => {
                    at.push(name);
                    let link = at.symlink_metadata().is_ok_and(|found| found.is_symlink());
                    if link {
                        at = at.canonicalize().map_err(|_| outside(path))?;
                    }
                }
            }
        }
        match at.starts_with(&self.0) {
            true => Ok(at),
            false => Err(outside(path)),
        }
    }

    /// How a path below the directory is told.
    #[must_use]
    pub fn shown(&self, full: &Path) -> String {
        let path = full.strip_prefix(&self.0).unwrap_or(full);
        match path.as_os_str().is_empty() {
            true => ".".to_owned(),
            false => path.to_string_lossy().into_owned(),
        }
    }

    /// Reads a file that is not too large.
    ///
    /// # Errors
    /// It leads outside, does not exist, is no file, is too large or cannot be read.
    pub(super) fn read(&self, path: &str) -> Result<(PathBuf, Vec<u8>), ToolError> {
        let full = self.resolve(path)?;
        let about = full
            .metadata()
            .map_err(|error| self.trouble(path, &error))?;
        if about.is_dir() {
            return Err(
                ToolError::failed("is_directory", format!("{path} is a directory"))
                    .hint("list_files says what is in it"),
            );
        }
        // Reading a pipe or a device may never end.
        if !about.is_file() {
            return Err(ToolError::failed(
                "not_a_file",
                format!("{path} is no regular file"),
            ));
        }
        if about.len() > MAX_FILE {
            let message = format!("{path} has {} bytes, more than {MAX_FILE}", about.len());
            return Err(ToolError::failed("too_large", message)
                .hint("search_files finds lines in files of any size"));
        }
        let bytes = std::fs::read(&full).map_err(|error| self.trouble(path, &error))?;
        Ok((full, bytes))
    }

    /// An error of the file system in words that the model can use: a missing file comes with the
    /// names that are there.
    pub(super) fn trouble(&self, path: &str, error: &std::io::Error) -> ToolError {
        let kind = match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => "not_found",
            ErrorKind::PermissionDenied => "permission_denied",
            _ => "io",
        };
        let failed = ToolError::failed(kind, format!("{path}: {error}"));
        match (kind, self.near(path)) {
            ("not_found", Some(near)) => failed.hint(near),
            _ => failed,
        }
    }

    fn near(&self, path: &str) -> Option<String> {
        const NAMES: usize = 5;
        let full = self.resolve(path).ok()?;
        let wanted = full.file_name()?.to_string_lossy().into_owned();
        let above = full.ancestors().skip(1).find(|above| above.is_dir())?;
        let read = std::fs::read_dir(above).ok()?;
        let names: Vec<OsString> = read
            .flatten()
            .take(10_000)
            .map(|at| at.file_name())
            .collect();
        let mut names: Vec<String> = names
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names.sort_by_cached_key(|name| strsim::damerau_levenshtein(name, &wanted));
        names.truncate(NAMES);
        let above = self.shown(above);
        Some(match names.is_empty() {
            true => format!("{above} is empty"),
            false => format!("nearest names in {above}: {}", names.join(", ")),
        })
    }
}

/// Whether bytes are no text.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(MAX_PROBE)].contains(&0)
}

fn outside(path: &str) -> ToolError {
    ToolError::failed(
        "outside",
        format!("{path} leads out of the working directory"),
    )
    .hint("use a path relative to the working directory")
}
