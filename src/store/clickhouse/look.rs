//! What a server says before anything is written to it: for a person who asks whether it will work.

use std::time::Duration;

use super::ClickHouseSink;
use super::failure::{Class, judge};
use super::schema::{VERSION, literal};

/// What is in the database that the settings name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// There is no such database.
    NoDatabase,
    /// It has no tables of ours.
    NoTables,
    /// An earlier version made them, or some are missing. They are made with the first delivery.
    Behind {
        /// The schema they have.
        found: u32,
    },
    /// Those of this version.
    Current,
    /// A later version made them: nothing is written to them.
    Newer {
        /// The schema they have.
        found: u32,
    },
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The server's version.
    pub server: String,
    /// What is in the database.
    pub schema: Schema,
}

/// Why nothing was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// In one line.
    pub why: String,
    /// The settings or the rights of the user are at fault; else the server or the way there.
    pub settings: bool,
}

/// The newest schema that this version knows.
pub const SCHEMA: u32 = VERSION;

impl ClickHouseSink {
    /// Looks at the server and at the database, and changes nothing.
    ///
    /// # Errors
    /// It does not answer within `patience`, or refuses.
    pub async fn look(&self, patience: Duration) -> Result<Look, Unseen> {
        let looked = async {
            let server: String = self
                .client
                .query_raw("SELECT version()")
                .fetch_one()
                .await?;
            let schema = self.schema().await?;
            Ok(Look { server, schema })
        };
        let error = match tokio::time::timeout(patience, looked).await {
            Ok(Ok(look)) => return Ok(look),
            Ok(Err(error)) => error,
            Err(_) => clickhouse::error::Error::TimedOut,
        };
        let judged = judge(&error);
        Err(Unseen {
            why: judged.why,
            settings: judged.class == Class::Setting,
        })
    }

    async fn schema(&self) -> Result<Schema, clickhouse::error::Error> {
        let database = literal(self.dialect.database());
        let sql = format!("SELECT count() FROM system.databases WHERE name = {database}");
        let there: u64 = self.client.query_raw(&sql).fetch_one().await?;
        if there == 0 {
            return Ok(Schema::NoDatabase);
        }
        let sql = format!("SELECT name FROM system.tables WHERE database = {database}");
        let tables: Vec<String> = self.client.query_raw(&sql).fetch_all().await?;
        let has = |name: &str| tables.iter().any(|table| table == name);
        if !has("schema_migrations") {
            return Ok(Schema::NoTables);
        }
        let sql = format!(
            "SELECT max(version) FROM {}",
            self.dialect.name("schema_migrations")
        );
        let found: u32 = self.client.query_raw(&sql).fetch_one().await?;
        let whole = self.dialect.objects().iter().all(|name| has(name));
        Ok(match found {
            found if found > VERSION => Schema::Newer { found },
            found if found < VERSION || !whole => Schema::Behind { found },
            _ => Schema::Current,
        })
    }
}
