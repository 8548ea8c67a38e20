//! All files below a directory, in order.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::Root;
use crate::agent::tools::ToolError;

/// Files and directories that are looked at in one call.
pub(super) const MAX_VISITED: usize = 200_000;
/// Deepest directory, counted from where it starts.
const MAX_DEPTH: usize = 64;

/// What stands below a directory. Links are listed but not followed: they may lead in circles.
pub(super) struct Walk<'a> {
    start: PathBuf,
    hidden: bool,
    deep: bool,
    cancelled: &'a CancellationToken,
    /// To be visited, the next one last.
    todo: Vec<Found>,
    visited: usize,
    /// Something was left out since there was too much.
    pub cut_short: bool,
}

/// Something that stands there.
pub(super) struct Found {
    pub full: PathBuf,
    pub is_dir: bool,
    pub is_file: bool,
    depth: usize,
}

impl<'a> Walk<'a> {
    /// Everything in a directory, or, if `deep`, also in those below it.
    pub fn new(
        root: &Root,
        path: &str,
        hidden: bool,
        deep: bool,
        cancelled: &'a CancellationToken,
    ) -> Result<Self, ToolError> {
        let start = root.resolve(path)?;
        let about = start
            .metadata()
            .map_err(|error| root.trouble(path, &error))?;
        let mut walk = Self {
            start: start.clone(),
            hidden,
            deep,
            cancelled,
            todo: Vec::new(),
            visited: 0,
            cut_short: false,
        };
        if about.is_dir() {
            let read = std::fs::read_dir(&start).map_err(|error| root.trouble(path, &error))?;
            walk.push(read, 1);
        } else {
            walk.start = start.parent().unwrap_or(root.path()).to_owned();
            walk.todo.push(Found {
                full: start,
                is_dir: false,
                is_file: about.is_file(),
                depth: 0,
            });
        }
        Ok(walk)
    }

    /// The path of something, as it is seen from where the walk began.
    pub fn below(&self, full: &Path) -> String {
        full.strip_prefix(&self.start)
            .unwrap_or(full)
            .to_string_lossy()
            .into_owned()
    }

    fn push(&mut self, read: std::fs::ReadDir, depth: usize) {
        let room = MAX_VISITED.saturating_sub(self.visited);
        let mut found: Vec<Found> = read
            .flatten()
            .take(room)
            .filter(|at| {
                let name = at.file_name();
                let name = name.as_encoded_bytes();
                name != b".git" && (self.hidden || !name.starts_with(b"."))
            })
            .filter_map(|at| {
                let kind = at.file_type().ok()?;
                Some(Found {
                    full: at.path(),
                    is_dir: kind.is_dir(),
                    is_file: kind.is_file(),
                    depth,
                })
            })
            .collect();
        self.visited += found.len();
        self.cut_short |= self.visited >= MAX_VISITED;
        found.sort_by(|one, other| other.full.cmp(&one.full));
        self.todo.append(&mut found);
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if self.cancelled.is_cancelled() {
            return None;
        }
        let found = self.todo.pop()?;
        if found.is_dir && self.deep {
            if found.depth >= MAX_DEPTH {
                self.cut_short = true;
            } else if let Ok(read) = std::fs::read_dir(&found.full) {
                // A directory that cannot be read is listed, and empty.
                self.push(read, found.depth + 1);
            }
        }
        Some(found)
    }
}
