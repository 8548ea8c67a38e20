//! The tools that come with it: files below one directory, and commands.

mod files;

use std::path::PathBuf;
use std::sync::Arc;

use super::Tool;

/// The directory that file tools may see.
#[derive(Debug, Clone)]
pub struct Root(pub(super) PathBuf);

impl Root {
    /// A directory that exists.
    ///
    /// # Errors
    /// It does not, or cannot be read.
    pub fn new(path: &std::path::Path) -> std::io::Result<Self> {
        path.canonicalize().map(Self)
    }
}

/// All of them, for this directory.
#[must_use]
pub fn builtin(root: &Root) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(files::ReadFile(root.clone()))]
}
