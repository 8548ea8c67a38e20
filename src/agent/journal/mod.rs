//! What has happened to a run, on disk: it can be killed at any point and goes on from there.

mod jsonl;

use super::machine::{AgentRun, Happened};

pub use jsonl::JsonLines;

/// Why a journal could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: String,
        /// What.
        source: std::io::Error,
    },
    /// What is in it is no journal, or not one of this version.
    #[error("{path}, line {line}: {reason}")]
    Unreadable {
        /// Where.
        path: String,
        /// Line, from 1.
        line: usize,
        /// What.
        reason: String,
    },
}

/// A journal of one agent.
pub trait Journal: Send {
    /// Adds an event. When this returns, the event outlives a crash of the process.
    ///
    /// # Errors
    /// It could not be written; then it has not happened.
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError>;

    /// Keeps the state as it follows from all events so far, so that they need not be read again.
    ///
    /// # Errors
    /// It could not be written. Nothing is lost: the events are there.
    fn checkpoint(&mut self, run: &AgentRun) -> Result<(), JournalError>;

    /// The state that the journal holds; `None` where it is empty.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&mut self) -> Result<Option<AgentRun>, JournalError>;

    /// All events, oldest first.
    ///
    /// # Errors
    /// They cannot be read.
    fn events(&mut self) -> Result<Vec<Happened>, JournalError>;
}

/// A journal that keeps its events in memory only.
#[derive(Debug, Default)]
pub struct InMemory(Vec<Happened>);

impl Journal for InMemory {
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError> {
        self.0.push(happened.clone());
        Ok(())
    }

    fn checkpoint(&mut self, _run: &AgentRun) -> Result<(), JournalError> {
        Ok(())
    }

    fn load(&mut self) -> Result<Option<AgentRun>, JournalError> {
        Ok(AgentRun::fold(&self.0))
    }

    fn events(&mut self) -> Result<Vec<Happened>, JournalError> {
        Ok(self.0.clone())
    }
}
