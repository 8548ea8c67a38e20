//! A line of JSON for each event. A line that a crash has cut is no event.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::{Journal, JournalError};
use crate::agent::machine::{AgentRun, Happened};

/// A journal in a file.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
    /// Each event is also on the disk itself before it counts as written.
    fsync: bool,
}

impl JsonLines {
    /// Opens a journal, or begins one. A last line that was cut is taken off.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path, fsync: bool) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io {
            path: path.display().to_string(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(io)?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            fsync,
        })
    }

    fn io(&self, source: std::io::Error) -> JournalError {
        JournalError::Io {
            path: self.path.display().to_string(),
            source,
        }
    }
}

impl Journal for JsonLines {
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError> {
        let mut line = serde_json::to_vec(happened).map_err(|e| self.io(e.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| self.io(e))?;
        if self.fsync {
            self.file.sync_data().map_err(|e| self.io(e))?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, _run: &AgentRun) -> Result<(), JournalError> {
        Ok(())
    }

    fn load(&mut self) -> Result<Option<AgentRun>, JournalError> {
        Ok(AgentRun::fold(&self.events()?))
    }

    fn events(&mut self) -> Result<Vec<Happened>, JournalError> {
        let text = std::fs::read_to_string(&self.path).map_err(|e| self.io(e))?;
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        lines
            .enumerate()
            .map(|(at, line)| {
                serde_json::from_str(line).map_err(|error| JournalError::Unreadable {
                    path: self.path.display().to_string(),
                    line: at + 1,
                    reason: error.to_string(),
                })
            })
            .collect()
    }
}
