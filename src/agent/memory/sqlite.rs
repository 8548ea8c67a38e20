//! Notes in a table of SQLite.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::{MAX_NOTES, Memory, MemoryError, Note, Remembered, blocking, check_name, check_size};

/// How long a change waits for one of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const TABLE: &str = "create table if not exists agent_notes \
                     (name text primary key, note text not null) without rowid, strict";

/// Notes in a database. It may be one that holds other things too.
#[derive(Debug, Clone)]
pub struct Sqlite(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Sqlite {
    /// Opens a database, or begins one.
    ///
    /// # Errors
    /// It cannot be opened, or is no database.
    pub fn open(path: &Path) -> Remembered<Self> {
        let fault = |error| broken(path, &error);
        let connection = Connection::open(path).map_err(fault)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(fault)?;
        connection
            .pragma_update(None, "journal_mode", "wal")
            .map_err(fault)?;
        connection.execute(TABLE, []).map_err(fault)?;
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            connection: Mutex::new(connection),
        })))
    }

    async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Remembered<T>> + Send + 'static,
    ) -> Remembered<T> {
        let inner = Arc::clone(&self.0);
        blocking(inner.path.display().to_string(), move || inner.on(work)).await
    }
}

fn broken(path: &Path, error: &rusqlite::Error) -> MemoryError {
    MemoryError::Broken {
        place: path.display().to_string(),
        reason: error.to_string(),
    }
}

impl Inner {
    /// Does work in a transaction of its own, which is undone unless all of it worked.
    fn on<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Remembered<T>>,
    ) -> Remembered<T> {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fault = |error| broken(&self.path, &error);
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(fault)?;
        let done = work(&transaction).map_err(fault)??;
        transaction.commit().map_err(fault)?;
        Ok(done)
    }
}

fn text(on: &Transaction<'_>, name: &str) -> rusqlite::Result<Option<String>> {
    let mut find = on.prepare_cached("select note from agent_notes where name = ?1")?;
    find.query_row([name], |row| row.get(0)).optional()
}

fn put(on: &Transaction<'_>, name: &str, note: &str) -> rusqlite::Result<Remembered<()>> {
    if let Err(error) = check_size(note.len()) {
        return Ok(Err(error));
    }
    let others = "select count(*) from agent_notes where name <> ?1";
    let others: u32 = on.query_row(others, [name], |row| row.get(0))?;
    if others as usize >= MAX_NOTES {
        return Ok(Err(MemoryError::Full));
    }
    let put = "insert or replace into agent_notes (name, note) values (?1, ?2)";
    on.execute(put, params![name, note])?;
    Ok(Ok(()))
}

impl Memory for Sqlite {
    fn list(&self) -> BoxFuture<'_, Remembered<Vec<Note>>> {
        Box::pin(self.on(|on| {
            let all = "select name, length(cast(note as blob)) from agent_notes order by name";
            let mut all = on.prepare_cached(all)?;
            let notes = all.query_map([], |row| {
                Ok(Note {
                    name: row.get(0)?,
                    bytes: row.get::<_, u32>(1)?.into(),
                })
            })?;
            notes.collect::<rusqlite::Result<_>>().map(Ok)
        }))
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<String>> {
        let name = name.to_owned();
        Box::pin(async move {
            check_name(&name)?;
            self.on(move |on| Ok(text(on, &name)?.ok_or(MemoryError::Missing(name))))
                .await
        })
    }

    fn write<'a>(&'a self, name: &'a str, note: &'a str) -> BoxFuture<'a, Remembered<()>> {
        let (name, note) = (name.to_owned(), note.to_owned());
        Box::pin(async move {
            check_name(&name)?;
            self.on(move |on| put(on, &name, &note)).await
        })
    }

    fn append<'a>(&'a self, name: &'a str, note: &'a str) -> BoxFuture<'a, Remembered<()>> {
        let (name, note) = (name.to_owned(), note.to_owned());
        Box::pin(async move {
            check_name(&name)?;
            self.on(move |on| {
                let old = text(on, &name)?.unwrap_or_default();
                put(on, &name, &(old + &note))
            })
            .await
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Remembered<()>> {
        let name = name.to_owned();
        Box::pin(async move {
            check_name(&name)?;
            self.on(move |on| {
                let gone = on.execute("delete from agent_notes where name = ?1", [&name])?;
                Ok(if gone == 0 {
                    Err(MemoryError::Missing(name))
                } else {
                    Ok(())
                })
            })
            .await
        })
    }
}
