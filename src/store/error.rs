//! What can go wrong with a store, and what to do about it.

use std::path::PathBuf;

use crate::trace::DropReason;

/// Why a store could not be opened, written or asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is nothing to read.
    #[error(
        "no trace database at {}: start `prefixgate serve` with this data directory first, \
         or name another one with --data-dir", path.display()
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The data directory cannot be made or used.
    #[error("the data directory {} cannot be used: choose another one with --data-dir", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A newer prefixgate has written it.
    #[error(
        "the trace database {} has schema {found}, this prefixgate knows up to {known}: \
         use the newer prefixgate that wrote it, or another data directory", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// An older prefixgate has written it, and it was opened for reading only.
    #[error(
        "the trace database {} has schema {found}, this prefixgate reads {known}: \
         start `prefixgate serve` on it once, which brings it up to date", path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The one needed here.
        known: i64,
    },
    /// A stored value that no version of prefixgate has written.
    #[error("the trace database holds `{value}` as {column}, which this prefixgate does not know")]
    Value {
        /// The column.
        column: &'static str,
        /// What stands there.
        value: String,
    },
    /// There is nothing to read on the server.
    #[error(
        "no traces in the database `{database}` of ClickHouse at {url}: \
         start `prefixgate serve` with --clickhouse first, or name another database"
    )]
    NotThere {
        /// The server.
        url: String,
        /// The database on it.
        database: String,
    },
    /// The tables on the server are not those of this version.
    #[error(
        "the tables of ClickHouse at {url} have schema {found}, this prefixgate reads {known}: {}",
        if found > known {
            "use the newer prefixgate that made them"
        } else {
            "start `prefixgate serve` with it once, which brings them up to date"
        }
    )]
    OtherTables {
        /// The server.
        url: String,
        /// Their schema.
        found: u32,
        /// The one needed here.
        known: u32,
    },
    /// ClickHouse does not answer.
    #[error("ClickHouse at {url}: {why}")]
    ClickHouse {
        /// The server.
        url: String,
        /// Whose fault it is, and what helps.
        why: String,
    },
    /// ClickHouse was asked where waiting for it would stop others: a fault of this program.
    #[error("ClickHouse is asked from inside an asynchronous task, which must not wait")]
    MustNotWait,
    /// SQLite refused.
    #[error("the trace database {} {}", path.display(), advice(source))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
}

/// Whose fault it is and what helps, in the words that follow the name of the file.
fn advice(source: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode as Code;
    match source.sqlite_error_code() {
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
            "is held by another process: wait for it or stop it"
        }
        Some(Code::DiskFull) => "cannot grow: the disk is full",
        Some(Code::NotADatabase) => "is not an SQLite database: move the file away",
        Some(Code::DatabaseCorrupt) => {
            "is damaged: move it away, together with its -wal and -shm files"
        }
        Some(Code::ReadOnly | Code::PermissionDenied | Code::CannotOpen) => {
            "cannot be opened: check the owner and the rights of the file and its directory"
        }
        Some(Code::SystemIoFailure) => "cannot be read or written: check the disk",
        _ => "gave an error",
    }
}

/// The bounded word under which records are counted that SQLite did not take.
pub(super) fn drop_reason(source: &rusqlite::Error) -> DropReason {
    use rusqlite::ErrorCode as Code;
    match source.sqlite_error_code() {
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => DropReason::Locked,
        Some(Code::DiskFull) => DropReason::DiskFull,
        _ => DropReason::StoreFailed,
    }
}
