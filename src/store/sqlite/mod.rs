//! The default store: one SQLite file in the data directory.
//!
//! WAL mode, so that reports read while a gateway writes; `synchronous = NORMAL`, so that a crash
//! of the process loses nothing that was committed and a crash of the machine at worst the last
//! moments, never the file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::StoreError;
use super::error::drop_reason;
use crate::trace::DropReason;

mod ask;
mod audit;
mod guards;
mod pages;
mod retain;
mod row;
mod savings;
mod schema;
mod seed;
mod spent;
#[cfg(test)]
pub(super) mod tests;
mod write;

pub(in crate::store) use pages::Kept;
pub use seed::ThreadSeed;
pub use spent::{Of, Spent};

/// Name of the database inside the data directory.
pub const FILE_NAME: &str = "prefixgate.db";
/// How long one statement waits for another process before it gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before an opening that found the file locked is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 32;
/// The write-ahead log is cut back to this many bytes after a checkpoint.
const WAL_BYTES: u32 = 8 << 20;

/// A connection to the trace database. For the writer, or for questions.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    /// Results whose call has not been written yet, with the batches they have waited.
    early: Vec<(crate::trace::CallResult, u8)>,
}

impl Sqlite {
    /// Opens the database in `data_dir` for writing. Makes the directory (readable by its owner
    /// only) and the file, and brings an older schema up to date.
    ///
    /// # Errors
    /// The directory or file cannot be used, or a newer prefixgate has written it.
    pub fn open(data_dir: &Path) -> Result<Self, StoreError> {
        make_private(data_dir).map_err(|source| StoreError::Directory {
            path: data_dir.into(),
            source,
        })?;
        patiently(|| Self::open_once(data_dir))
    }

    fn open_once(data_dir: &Path) -> Result<Self, StoreError> {
        let mut store = Self::connect(data_dir, OpenFlags::SQLITE_OPEN_CREATE)?;
        schema::refuse_newer(&store)?;
        store.with(|c| {
            // Takes effect only before the first table, and must precede WAL.
            c.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            c.pragma_update(None, "journal_mode", "WAL")?;
            c.pragma_update(None, "synchronous", "NORMAL")?;
            c.pragma_update(None, "journal_size_limit", WAL_BYTES)
        })?;
        schema::migrate(&mut store)?;
        // What is written is looked up by the same index whatever the values: without this, statements
        // that are kept are compiled anew with other values.
        store.with(|c| c.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true))?;
        Ok(store)
    }

    /// Opens the database in `data_dir` for questions only, also while a gateway writes to it.
    ///
    /// # Errors
    /// There is none, it cannot be read, or its schema is not this version's.
    pub fn open_read(data_dir: &Path) -> Result<Self, StoreError> {
        let path = data_dir.join(FILE_NAME);
        if !path.exists() {
            return Err(StoreError::Missing { path });
        }
        patiently(|| {
            // Not read-only for SQLite, which has to touch the files beside a WAL database.
            let store = Self::connect(data_dir, OpenFlags::empty())?;
            store.with(|c| c.pragma_update(None, "query_only", true))?;
            schema::check(&store)?;
            Ok(store)
        })
    }

    fn connect(data_dir: &Path, extra: OpenFlags) -> Result<Self, StoreError> {
        let path = data_dir.join(FILE_NAME);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | extra;
        match Connection::open_with_flags(&path, flags) {
            Ok(connection) => {
                let store = Self {
                    connection,
                    path,
                    early: Vec::new(),
                };
                store
                    .connection
                    .set_prepared_statement_cache_capacity(STATEMENTS);
                store.with(|c| c.busy_timeout(BUSY_TIMEOUT))?;
                Ok(store)
            }
            Err(source) => Err(StoreError::Sqlite { path, source }),
        }
    }

    /// Runs `work` and names the file in its error.
    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&self.connection).map_err(|source| self.error(source))
    }

    fn error(&self, source: rusqlite::Error) -> StoreError {
        // A value that was not understood travels through SQLite's error; see `row`.
        match row::unknown_value(source) {
            Ok(error) => error,
            Err(source) => StoreError::Sqlite {
                path: self.path.clone(),
                source,
            },
        }
    }
}

/// Tries again while another process holds the file. SQLite's own patience does not cover the
/// change to WAL mode and the end of the last connection.
fn patiently(open: impl Fn() -> Result<Sqlite, StoreError>) -> Result<Sqlite, StoreError> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(StoreError::Sqlite { source, .. })
                if drop_reason(&source) == DropReason::Locked && begun.elapsed() < BUSY_TIMEOUT =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Makes a directory that only its owner can enter: records say who did what, when.
fn make_private(dir: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
