//! What has happened to a run, on disk: it can be killed at any point and goes on from there.
//!
//! [`Journal`] is the journal of one agent, [`Journals`] those of many runs:
//!
//! | kind | where |
//! |---|---|
//! | [`Directory`] | `<data dir>/agent/<run>/<agent>.jsonl`, a line for each event; checkpoints beside it |
//! | [`Database`] | one SQLite file |
//! | [`Scratch`] | memory, for runs that need not outlive the process |
//!
//! The events are the truth. A checkpoint only saves reading all of them again, and one that is
//! missing, damaged, of another version or of other events is as good as none.

mod checkpoint;
mod database;
mod directory;
mod fork;
mod jsonl;
mod lock;
mod memory;
mod summary;

use super::machine::{AgentRun, Event, Happened, Spent};

pub use database::Database;
pub use directory::Directory;
pub use fork::fork;
pub use jsonl::JsonLines;
pub use memory::{InMemory, Scratch};
pub use summary::{Listed, Summary};

/// Name of the outermost agent of a run.
pub const MAIN: &str = "main";

/// Longest name of a run or an agent.
const MAX_NAME: usize = 128;

/// When events are forced onto the disk itself. A killed process loses nothing either way; this is
/// about a machine that loses its power.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fsync {
    /// All events, before anything follows from them. No call is then ever made twice unseen.
    #[default]
    Always,
    /// With each answer of the model. The calls of the newest one may be forgotten, and be made
    /// again.
    Turn,
    /// When the system likes.
    Never,
}

impl Fsync {
    /// Whether this event is not to be lost, nor any before it.
    const fn after(self, event: &Event) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Turn => !matches!(
                event,
                Event::CallBegan { .. } | Event::CallEnded { .. } | Event::Delegated { .. }
            ),
        }
    }
}

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
    /// The database.
    #[error("{path}: {source}")]
    Sql {
        /// Where.
        path: String,
        /// What.
        source: rusqlite::Error,
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
    /// Another process, or another agent of this one, writes it.
    #[error("{0}: the run is under way in another process")]
    Busy(String),
    /// There is none.
    #[error("there is no run {0}")]
    Missing(String),
    /// There is one already.
    #[error("{0} has begun already")]
    Exists(String),
    /// No name of a run or an agent: 1 to 128 letters, digits, `-`, `_`, `.`, the first no `.`.
    #[error("{0:?} is no name of a run or an agent")]
    Name(String),
    /// A run cannot be forked there; why.
    #[error("run {run} cannot be forked at turn {turn}: {reason}")]
    Fork {
        /// The run.
        run: String,
        /// Where it was to be forked.
        turn: u32,
        /// What stands against it.
        reason: &'static str,
    },
}

/// A journal of one agent.
pub trait Journal: Send {
    /// Adds an event. When this returns, the event outlives a crash of the process.
    ///
    /// # Errors
    /// It could not be written; then it has not happened.
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError>;

    /// Before anything follows from the events so far: forces them onto the disk, as far as
    /// [`Fsync`] asks for it.
    ///
    /// # Errors
    /// It is not known what the disk holds of them.
    fn settle(&mut self) -> Result<(), JournalError>;

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

/// The journals of many runs, each with those of its agents. The agent of a run that began it is
/// [`MAIN`]. A journal that is open for writing is nobody else's until it is dropped.
pub trait Journals: Send + Sync {
    /// Begins a journal.
    ///
    /// # Errors
    /// There is one, or it cannot be written.
    fn create(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError>;

    /// Opens a journal to go on with it.
    ///
    /// # Errors
    /// There is none, it is under way elsewhere, or cannot be read or written.
    fn open(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError>;

    /// The events of a journal as they stand, without opening it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    fn events(&self, run: &str, agent: &str) -> Result<Vec<Happened>, JournalError>;

    /// What there is to say about a run, without opening it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    fn summary(&self, run: &str) -> Result<Summary, JournalError>;

    /// The agents of a run, [`MAIN`] first.
    ///
    /// # Errors
    /// They cannot be read.
    fn agents(&self, run: &str) -> Result<Vec<String>, JournalError>;

    /// Ids of all runs, in no order.
    ///
    /// # Errors
    /// They cannot be read.
    fn runs(&self) -> Result<Vec<String>, JournalError>;

    /// What all agents of a run have used.
    ///
    /// # Errors
    /// A journal cannot be read.
    fn spent(&self, run: &str) -> Result<Spent, JournalError> {
        let mut spent = Spent::default();
        for agent in self.agents(run)? {
            for happened in self.events(run, &agent)? {
                spent.add(&happened.event.spent());
            }
        }
        Ok(spent)
    }

    /// All runs, those that were last at work first. One that cannot be read is listed as such.
    ///
    /// # Errors
    /// The ids of the runs cannot be read.
    fn list(&self) -> Result<Vec<Listed>, JournalError> {
        Ok(summary::listed(self.runs()?, |run| self.summary(run)))
    }
}

/// Refuses names that could leave the directory, or that no file system takes.
fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), JournalError> {
    for name in names {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let whole = !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(good);
        if !whole || name.starts_with('.') {
            return Err(JournalError::Name(name.to_owned()));
        }
    }
    Ok(())
}

/// Sorts agents as [`Journals::agents`] promises.
fn main_first(mut agents: Vec<String>) -> Vec<String> {
    agents.sort_unstable_by(|a, b| (a != MAIN, a).cmp(&(b != MAIN, b)));
    agents
}

/// Goes on from a checkpoint, or from the start, with the events after it.
fn go_on(
    run: Option<AgentRun>,
    events: impl Iterator<Item = Result<Happened, JournalError>>,
    no_beginning: impl FnOnce() -> JournalError,
) -> Result<Option<AgentRun>, JournalError> {
    let mut events = events;
    let mut run = match run {
        Some(run) => run,
        None => match events.next().transpose()? {
            None => return Ok(None),
            Some(first) => AgentRun::fold([&first]).ok_or_else(no_beginning)?,
        },
    };
    for happened in events {
        run.apply(&happened?);
    }
    Ok(Some(run))
}
