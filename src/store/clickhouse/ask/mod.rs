//! The answers of ClickHouse. The server groups by what decides how a request counts (see
//! [`facts`]), and only sums come here, however many months it holds; what counts is said in
//! [`crate::store::totals`] for every store.

use std::time::Duration;

use clickhouse::{Client, Row, RowOwned, RowRead};
use jiff::tz::TimeZone;
use serde::Deserialize;
use tokio::runtime::{Builder, Handle, Runtime};
use uuid::Uuid;

use super::client;
use super::failure::{Class, judge};
use super::schema::{Dialect, VERSION};
use crate::config::ClickHouse;
use crate::store::audit::{Agreement, CulpritBy, Culprits, Duplicates, Unreads, Verdicts};
use crate::store::guards::{CapSeen, LoopSeen, ToolSeen};
use crate::store::questions::{By, Filter, Questions, RunSummary, Spend, ThreadSummary};
use crate::store::{Savings, StoreError};
use crate::trace::TurnRecord;

mod audit;
mod culprits;
mod facts;
mod guards;
mod runs;
mod savings;
mod spend;
mod wanted;

/// How long an answer may take: months of records are more work than an insert.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// Rows in the order of their start, as SQL: as SQLite orders ids, by their bytes.
const ORDER: &str = "(t.started, UUIDToNum(t.id))";

/// Asks the tables of a server. For a thread that may wait: it has no runtime and must not be in one.
pub struct ClickHouseAnswers {
    client: Client,
    dialect: Dialect,
    url: String,
    /// There until it is dropped.
    runtime: Option<Runtime>,
}

impl ClickHouseAnswers {
    /// Looks whether the tables are there. Nothing is changed, so that a user who may only read is
    /// enough.
    ///
    /// # Errors
    /// The server cannot be asked, has no traces, or they are those of another version.
    pub fn open(settings: &ClickHouse) -> Result<Self, StoreError> {
        if Handle::try_current().is_ok() {
            return Err(StoreError::MustNotWait);
        }
        let url = settings.url.clone();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::ClickHouse {
            url: url.clone(),
            why: format!("no connection can be made on this machine: {error}"),
        })?;
        let store = Self {
            client: client(settings),
            dialect: Dialect::of(settings),
            url,
            runtime: Some(runtime),
        };
        store.check()?;
        Ok(store)
    }

    fn check(&self) -> Result<(), StoreError> {
        #[derive(Row, Deserialize)]
        struct Found {
            version: u32,
        }
        let sql = format!(
            "SELECT max(version) AS version FROM {}",
            self.dialect.name("schema_migrations")
        );
        let not_there = || StoreError::NotThere {
            url: self.url.clone(),
            database: self.dialect.database().to_owned(),
        };
        let mut found = 0;
        self.read(&sql, |row: Found| {
            found = row.version;
            Ok(())
        })
        .map_err(|why| match why {
            Why::Server(error) if judge(&error).class == Class::Schema => not_there(),
            why => self.error(why),
        })?;
        match found {
            VERSION => Ok(()),
            0 => Err(not_there()),
            found => Err(StoreError::OtherTables {
                url: self.url.clone(),
                found,
                known: VERSION,
            }),
        }
    }

    /// Goes through the rows of an answer.
    fn each<T: RowOwned + RowRead>(
        &self,
        sql: &str,
        row_of: impl FnMut(T) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.read(sql, row_of).map_err(|why| self.error(why))
    }

    /// All rows of an answer.
    fn all<T: RowOwned + RowRead>(&self, sql: &str) -> Result<Vec<T>, StoreError> {
        let mut rows = Vec::new();
        self.each(sql, |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }

    fn read<T: RowOwned + RowRead>(
        &self,
        sql: &str,
        mut row_of: impl FnMut(T) -> Result<(), StoreError>,
    ) -> Result<(), Why> {
        let runtime = self.runtime.as_ref().ok_or(StoreError::MustNotWait)?;
        if Handle::try_current().is_ok() {
            return Err(StoreError::MustNotWait.into());
        }
        let rows = async {
            let mut rows = self.client.query_raw(sql).fetch::<T>()?;
            while let Some(row) = rows.next().await? {
                row_of(row)?;
            }
            Ok(())
        };
        runtime.block_on(async {
            match tokio::time::timeout(ANSWER_TIMEOUT, rows).await {
                Ok(done) => done,
                Err(_) => Err(clickhouse::error::Error::TimedOut.into()),
            }
        })
    }

    fn error(&self, why: Why) -> StoreError {
        match why {
            Why::Store(error) => error,
            Why::Server(error) => StoreError::ClickHouse {
                url: self.url.clone(),
                why: judge(&error).why,
            },
        }
    }

    /// A view, with the name under which conditions know its rows.
    fn rows_of(&self, view: &str) -> String {
        format!("{} AS t", self.dialect.name(view))
    }
}

impl Drop for ClickHouseAnswers {
    fn drop(&mut self) {
        // Dropping a runtime waits, which panics where one must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for ClickHouseAnswers {
    /// Without the client, which holds the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClickHouseAnswers")
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer.
enum Why {
    Server(clickhouse::error::Error),
    Store(StoreError),
}

impl From<clickhouse::error::Error> for Why {
    fn from(error: clickhouse::error::Error) -> Self {
        Self::Server(error)
    }
}

impl From<StoreError> for Why {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// An id that the server has told as text.
fn id(column: &'static str, text: &str) -> Result<Uuid, StoreError> {
    text.parse().map_err(|_| StoreError::Value {
        column,
        value: text.to_owned(),
    })
}

/// The end of a statement that cuts its rows; nothing for a limit that no answer reaches.
fn limit(filter: &Filter) -> String {
    match u32::try_from(filter.limit) {
        Ok(limit) => format!("LIMIT {limit}"),
        Err(_) => String::new(),
    }
}

impl Questions for ClickHouseAnswers {
    fn runs(&self, filter: &Filter) -> Result<Vec<RunSummary>, StoreError> {
        self.ask_runs(filter)
    }

    fn turns(
        &self,
        run: &str,
        filter: &Filter,
        every_kind: bool,
    ) -> Result<Vec<TurnRecord>, StoreError> {
        self.ask_turns(run, filter, every_kind)
    }

    fn tree(&self, run: &str, filter: &Filter) -> Result<Vec<ThreadSummary>, StoreError> {
        self.ask_tree(run, filter)
    }

    fn spend(&self, by: By, filter: &Filter, zone: &TimeZone) -> Result<Vec<Spend>, StoreError> {
        self.ask_spend(by, filter, zone)
    }

    fn culprits(
        &self,
        by: CulpritBy,
        filter: &Filter,
        zone: &TimeZone,
    ) -> Result<Culprits, StoreError> {
        self.ask_culprits(by, filter, zone)
    }

    fn unread(&self, filter: &Filter, now_ms: i64) -> Result<Unreads, StoreError> {
        self.ask_unread(filter, now_ms)
    }

    fn duplicates(&self, filter: &Filter) -> Result<Duplicates, StoreError> {
        self.ask_duplicates(filter)
    }

    fn agreement(&self, filter: &Filter) -> Result<Agreement, StoreError> {
        self.ask_agreement(filter)
    }

    fn verdicts(&self, filter: &Filter) -> Result<Verdicts, StoreError> {
        self.ask_verdicts(filter)
    }

    fn savings(&self, filter: &Filter) -> Result<Savings, StoreError> {
        self.ask_savings(filter)
    }

    fn loops(&self, filter: &Filter) -> Result<Vec<LoopSeen>, StoreError> {
        self.ask_loops(filter)
    }

    fn caps(&self, filter: &Filter) -> Result<Vec<CapSeen>, StoreError> {
        self.ask_caps(filter)
    }

    fn tools(&self, filter: &Filter) -> Result<Vec<ToolSeen>, StoreError> {
        self.ask_tools(filter)
    }
}
