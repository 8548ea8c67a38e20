//! Journals as rows of one SQLite database.
//!
//! An event is a row and a commit. Nobody writes a journal but who holds the lock of it, a file
//! beside the database that the system unlocks when its process ends; and were a lock to fail (some
//! network file systems have none), two writers would meet at the same number of an event, which the
//! second is refused.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};

use super::directory::{private, private_directory};
use super::{
    Fsync, Happened, Journal, JournalError, Journals, MAIN, Summary, checkpoint, go_on, lock,
    main_first, named,
};
use crate::agent::machine::AgentRun;

/// The schema that is made and read here.
const SCHEMA: i64 = 1;
/// How long a statement waits for another process.
const PATIENCE: Duration = Duration::from_secs(5);

const TABLES: &str = "
CREATE TABLE events (
    run   TEXT    NOT NULL,
    agent TEXT    NOT NULL,
    seq   INTEGER NOT NULL,  -- from 0
    event TEXT    NOT NULL,  -- JSON
    PRIMARY KEY (run, agent, seq)
);
CREATE TABLE checkpoints (
    run     TEXT    NOT NULL,
    agent   TEXT    NOT NULL,
    version TEXT    NOT NULL,  -- of the program
    events  INTEGER NOT NULL,  -- how many it stands for
    state   TEXT    NOT NULL,  -- JSON
    PRIMARY KEY (run, agent)
);
";

/// The journals of one database. Clones are the same.
#[derive(Debug, Clone)]
pub struct Database {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
    fsync: Fsync,
}

impl Database {
    /// Opens the database in a file, or makes it, readable by its owner only.
    ///
    /// # Errors
    /// It cannot be opened, or a newer program has made it.
    pub fn open(path: &Path, fsync: Fsync) -> Result<Self, JournalError> {
        let path = path.to_owned();
        let io = |source| JournalError::Io {
            path: path.display().to_string(),
            source,
        };
        private_directory(&locks(&path)).map_err(io)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        private(&mut options);
        options.open(&path).map_err(io)?;
        let connection = Connection::open(&path);
        let connection = connection.and_then(|connection| {
            connection.busy_timeout(PATIENCE)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", synchronous(fsync, true))?;
            Ok(connection)
        });
        let sql = |source| sql(&path, source);
        let mut connection = connection.map_err(sql)?;
        let schema = migrate(&mut connection).map_err(sql)?;
        if schema != SCHEMA {
            return Err(JournalError::Unreadable {
                path: path.display().to_string(),
                line: 0,
                reason: format!("schema {schema}, this program knows schema {SCHEMA}"),
            });
        }
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
            path,
            fsync,
        })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        work(&self.connection()).map_err(|error| sql(&self.path, error))
    }

    /// Takes the lock of a journal; `None` where another has it.
    fn lock(&self, run: &str, agent: &str) -> Result<Option<File>, JournalError> {
        let path = self.lock_of(run, agent);
        let io = |source| JournalError::Io {
            path: path.display().to_string(),
            source,
        };
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        private(&mut options);
        let file = options.open(&path).map_err(io)?;
        Ok(lock::take(&file).map_err(io)?.then_some(file))
    }

    fn lock_of(&self, run: &str, agent: &str) -> PathBuf {
        // `@` is in no name.
        locks(&self.path).join(format!("{run}@{agent}"))
    }

    fn count(&self, run: &str, agent: &str) -> Result<i64, JournalError> {
        self.with(|connection| {
            let newest = "SELECT max(seq) FROM events WHERE run = ?1 AND agent = ?2";
            let newest: Option<i64> =
                connection.query_row(newest, params![run, agent], |row| row.get(0))?;
            Ok(newest.map_or(0, |seq| seq + 1))
        })
    }

    /// The events from this number on, with that number for what cannot be read.
    fn rows(&self, run: &str, agent: &str, from: i64) -> Result<Vec<Happened>, JournalError> {
        let rows: Vec<(i64, String)> = self.with(|connection| {
            let mut rows = connection.prepare_cached(
                "SELECT seq, event FROM events WHERE run = ?1 AND agent = ?2 AND seq >= ?3
                 ORDER BY seq",
            )?;
            let rows = rows.query_map(params![run, agent, from], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            rows.collect()
        })?;
        let read = |(at, (seq, json)): (usize, (i64, String))| {
            let expected = from + i64::try_from(at).unwrap_or(i64::MAX);
            if seq != expected {
                return Err(self.unreadable(run, agent, expected, "it is missing".to_owned()));
            }
            serde_json::from_str(&json)
                .map_err(|error| self.unreadable(run, agent, seq, error.to_string()))
        };
        rows.into_iter().enumerate().map(read).collect()
    }

    fn state(&self, run: &str, agent: &str) -> Result<Option<AgentRun>, JournalError> {
        let known: Option<(i64, String)> = self.with(|connection| {
            let row = "SELECT events, state FROM checkpoints
                       WHERE run = ?1 AND agent = ?2 AND version = ?3";
            connection
                .query_row(row, params![run, agent, checkpoint::VERSION], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()
        })?;
        let count = self.count(run, agent)?;
        let known = known
            .filter(|(events, _)| (1..=count).contains(events))
            .and_then(|(events, state)| Some((events, serde_json::from_str(&state).ok()?)));
        let (from, state) = known.map_or((0, None), |(events, state)| (events, Some(state)));
        let events = self.rows(run, agent, from)?;
        go_on(state, events.into_iter().map(Ok), || {
            self.unreadable(run, agent, 0, "it is no beginning of a run".to_owned())
        })
    }

    fn json(&self, error: serde_json::Error) -> JournalError {
        JournalError::Io {
            path: self.path.display().to_string(),
            source: error.into(),
        }
    }

    fn unreadable(&self, run: &str, agent: &str, seq: i64, reason: String) -> JournalError {
        JournalError::Unreadable {
            path: format!("{}, {run}/{agent}", self.path.display()),
            line: usize::try_from(seq + 1).unwrap_or(0),
            reason,
        }
    }

    fn take(&self, run: &str, agent: &str, lock: File, next: i64) -> Box<dyn Journal> {
        Box::new(Rows {
            database: self.clone(),
            run: run.to_owned(),
            agent: agent.to_owned(),
            next,
            _lock: lock,
        })
    }
}

impl Journals for Database {
    fn create(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError> {
        named([run, agent])?;
        let exists = || JournalError::Exists(format!("{run}/{agent}"));
        let lock = self.lock(run, agent)?.ok_or_else(exists)?;
        match self.count(run, agent)? {
            0 => Ok(self.take(run, agent, lock, 0)),
            _ => Err(exists()),
        }
    }

    fn open(&self, run: &str, agent: &str) -> Result<Box<dyn Journal>, JournalError> {
        named([run, agent])?;
        if self.count(run, agent)? == 0 {
            return Err(JournalError::Missing(run.to_owned()));
        }
        let busy = || JournalError::Busy(format!("{run}/{agent}"));
        let lock = self.lock(run, agent)?.ok_or_else(busy)?;
        // Counted again, now that nobody else writes.
        let next = self.count(run, agent)?;
        Ok(self.take(run, agent, lock, next))
    }

    fn events(&self, run: &str, agent: &str) -> Result<Vec<Happened>, JournalError> {
        named([run, agent])?;
        let events = self.rows(run, agent, 0)?;
        match events.is_empty() {
            true => Err(JournalError::Missing(run.to_owned())),
            false => Ok(events),
        }
    }

    fn summary(&self, run: &str) -> Result<Summary, JournalError> {
        let events = self.events(run, MAIN)?;
        let under_way = lock::is_taken(&self.lock_of(run, MAIN));
        Summary::of_events(&events, under_way)
            .ok_or_else(|| self.unreadable(run, MAIN, 0, "it is no beginning of a run".to_owned()))
    }

    fn agents(&self, run: &str) -> Result<Vec<String>, JournalError> {
        let agents = self.with(|connection| {
            let agents = "SELECT DISTINCT agent FROM events WHERE run = ?1";
            let mut agents = connection.prepare_cached(agents)?;
            agents.query_map([run], |row| row.get(0))?.collect()
        })?;
        Ok(main_first(agents))
    }

    fn runs(&self) -> Result<Vec<String>, JournalError> {
        self.with(|connection| {
            let runs = "SELECT DISTINCT run FROM events WHERE agent = ?1";
            let mut runs = connection.prepare_cached(runs)?;
            runs.query_map([MAIN], |row| row.get(0))?.collect()
        })
    }
}

/// The rows of one agent.
struct Rows {
    database: Database,
    run: String,
    agent: String,
    /// Number of the next event.
    next: i64,
    _lock: File,
}

impl Journal for Rows {
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError> {
        let json = serde_json::to_string(happened).map_err(|error| self.database.json(error))?;
        let fsync = self.database.fsync;
        let synchronous = synchronous(fsync, fsync.after(&happened.event));
        let connection = self.database.connection();
        let written = connection
            .pragma_update(None, "synchronous", synchronous)
            .and_then(|()| {
                let mut insert = connection.prepare_cached(
                    "INSERT INTO events (run, agent, seq, event) VALUES (?1, ?2, ?3, ?4)",
                )?;
                insert.execute(params![self.run, self.agent, self.next, json])
            });
        drop(connection);
        match written {
            Ok(_) => {
                self.next += 1;
                Ok(())
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Err(JournalError::Busy(format!("{}/{}", self.run, self.agent)))
            }
            Err(error) => Err(sql(&self.database.path, error)),
        }
    }

    /// Each commit is forced onto the disk, or not, by itself.
    fn settle(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn checkpoint(&mut self, run: &AgentRun) -> Result<(), JournalError> {
        let state = serde_json::to_string(run).map_err(|error| self.database.json(error))?;
        self.database.with(|connection| {
            let mut put = connection.prepare_cached(
                "INSERT OR REPLACE INTO checkpoints (run, agent, version, events, state)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            put.execute(params![
                self.run,
                self.agent,
                checkpoint::VERSION,
                self.next,
                state
            ])?;
            Ok(())
        })
    }

    fn load(&mut self) -> Result<Option<AgentRun>, JournalError> {
        self.database.state(&self.run, &self.agent)
    }

    fn events(&mut self) -> Result<Vec<Happened>, JournalError> {
        self.database.rows(&self.run, &self.agent, 0)
    }
}

/// Makes the tables if there are none; the version of those that are there.
fn migrate(connection: &mut Connection) -> rusqlite::Result<i64> {
    // Taken at once, so that two processes do not both make them.
    let work = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let mut schema: i64 = work.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if schema == 0 {
        work.execute_batch(TABLES)?;
        work.pragma_update(None, "user_version", SCHEMA)?;
        schema = SCHEMA;
    }
    work.commit()?;
    Ok(schema)
}

/// How much of a commit is forced onto the disk: in WAL mode FULL is all so far, NORMAL nothing
/// until the log is moved into the file.
const fn synchronous(fsync: Fsync, now: bool) -> &'static str {
    match (fsync, now) {
        (Fsync::Never, _) => "OFF",
        (_, true) => "FULL",
        (_, false) => "NORMAL",
    }
}

/// Directory of the lock files of a database.
fn locks(path: &Path) -> PathBuf {
    path.with_extension("locks")
}

fn sql(path: &Path, source: rusqlite::Error) -> JournalError {
    JournalError::Sql {
        path: path.display().to_string(),
        source,
    }
}
