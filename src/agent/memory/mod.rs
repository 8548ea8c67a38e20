//! Notes that outlive a run.
//!
//! What is remembered gets into a prompt by the tool ([`tool`]) or in a first text of the user
//! ([`recalled`]), never into the system prompt: that stays as it is for a whole run, or the cache
//! would be lost.

mod files;
mod redis;
mod sqlite;
mod tool;

use futures_util::future::BoxFuture;

pub use self::redis::Redis;
pub use files::Files;
pub use sqlite::Sqlite;
pub use tool::tool;

/// Longest text of a note, in bytes.
pub const MAX_NOTE: usize = 32 << 10;
/// Most notes.
pub const MAX_NOTES: usize = 256;
/// Longest name of a note, in bytes.
pub const MAX_NAME: usize = 64;

/// A note as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// Its name.
    pub name: String,
    /// Length of its text.
    pub bytes: u64,
}

/// Why something could not be remembered.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// No such note.
    #[error("there is no note {0:?}")]
    Missing(String),
    /// What cannot be a name.
    #[error(
        "{0:?} cannot be the name of a note: letters, digits, `-`, `_`, `.`, at most {MAX_NAME}, \
         the first a letter or a digit"
    )]
    Name(String),
    /// The text of a note would be longer than [`MAX_NOTE`].
    #[error("the note would be {0} bytes long, and at most {MAX_NOTE} are kept")]
    TooLong(usize),
    /// There are [`MAX_NOTES`] notes.
    #[error("there are {MAX_NOTES} notes already, and no more are kept")]
    Full,
    /// Where the notes are cannot be read or written.
    #[error("{place}: {reason}")]
    Broken {
        /// Where they are.
        place: String,
        /// What happened.
        reason: String,
    },
}

/// What a memory gives.
pub type Remembered<T> = Result<T, MemoryError>;

/// Named notes. Each operation happens whole or not at all, whoever else works on the same notes.
pub trait Memory: Send + Sync {
    /// All notes, by name.
    ///
    /// # Errors
    /// They cannot be read.
    fn list(&self) -> BoxFuture<'_, Remembered<Vec<Note>>>;

    /// The text of a note.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be read.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<String>>;

    /// Gives a note a text, in the place of any it had.
    ///
    /// # Errors
    /// The name or the size is not allowed, or it cannot be written.
    fn write<'a>(&'a self, name: &'a str, text: &'a str) -> BoxFuture<'a, Remembered<()>>;

    /// Adds to the end of a note, which begins with this where there was none.
    ///
    /// # Errors
    /// The name or the size is not allowed, or it cannot be written.
    fn append<'a>(&'a self, name: &'a str, text: &'a str) -> BoxFuture<'a, Remembered<()>>;

    /// Forgets a note.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be written.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<()>>;
}

/// The text of a note, nothing where there is none.
///
/// # Errors
/// It cannot be read.
pub async fn find(memory: &dyn Memory, name: &str) -> Remembered<Option<String>> {
    match memory.read(name).await {
        Ok(text) => Ok(Some(text)),
        Err(MemoryError::Missing(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A task with what is remembered of it before it: the first text of a user.
#[must_use]
pub fn recalled(task: &str, remembered: Option<&str>) -> String {
    match remembered.map(str::trim).filter(|text| !text.is_empty()) {
        None => task.to_owned(),
        Some(text) => format!(
            "What is remembered from earlier attempts at this task:\n\n<memory>\n{text}\n</memory>\n\n{task}"
        ),
    }
}

fn check_name(name: &str) -> Remembered<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let first = name.bytes().next();
    let good = name.len() <= MAX_NAME
        && first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && name.bytes().all(plain);
    good.then_some(())
        .ok_or_else(|| MemoryError::Name(name.to_owned()))
}

fn check_size(bytes: usize) -> Remembered<()> {
    match bytes <= MAX_NOTE {
        true => Ok(()),
        false => Err(MemoryError::TooLong(bytes)),
    }
}

/// Does what blocks a thread on a thread that may.
async fn blocking<T: Send + 'static>(
    place: String,
    work: impl FnOnce() -> Remembered<T> + Send + 'static,
) -> Remembered<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(MemoryError::Broken {
            place,
            reason: "broke down".to_owned(),
        })
    })
}
