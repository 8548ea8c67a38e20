//! Brings the tables to this version's schema. Several gateways may do so at once: each statement
//! can be run twice, and a migration is noted only when all of its statements are done.

use clickhouse::{Client, Row};
use serde::Deserialize;

use super::QUERY_TIMEOUT;
use super::failure::{Class, Failure, PATIENCE, judge};
use super::schema::{AGEING, Dialect, MIGRATIONS, VERSION, literal};

/// Longest part of the server's own words about a statement that is passed on, in bytes.
const MAX_WORDS: usize = 300;

/// A table or view as the server describes it.
#[derive(Debug, Row, Deserialize)]
struct Described {
    name: String,
    definition: String,
}

/// See the module.
pub(super) async fn migrate(client: &Client, dialect: &Dialect) -> Result<(), Failure> {
    let mut found = described(client, dialect).await?;
    let noted = has(&found, "schema_migrations");
    if !noted {
        make_room(client, dialect).await?;
    }
    let from = refuse_newer(client, dialect).await?;
    let missing = dialect.objects().iter().any(|name| !has(&found, name));
    // Of tables that somebody has dropped all steps are run again, whatever is noted.
    if from < VERSION || missing {
        for migration in MIGRATIONS {
            if migration.version <= from && !missing {
                continue;
            }
            for statement in dialect.statements(migration) {
                run(client, dialect, &statement).await?;
            }
            run(client, dialect, &dialect.note(migration)).await?;
        }
        // Another, newer gateway may have been faster.
        refuse_newer(client, dialect).await?;
        found = described(client, dialect).await?;
    }
    for (view, column) in AGEING {
        let table = dialect.local(view);
        let kept = found.iter().find(|described| described.name == table);
        if kept.is_none_or(|kept| !kept.definition.contains(&dialect.ttl(column))) {
            run(client, dialect, &dialect.change_ttl(view, column)).await?;
        }
    }
    client.clear_cached_metadata().await;
    Ok(())
}

fn has(found: &[Described], name: &str) -> bool {
    found.iter().any(|described| described.name == name)
}

/// Everything in the database; nothing when there is no such database.
async fn described(client: &Client, dialect: &Dialect) -> Result<Vec<Described>, Failure> {
    let sql = format!(
        "SELECT name, create_table_query AS definition FROM system.tables WHERE database = {}",
        literal(dialect.database())
    );
    timed(client.query_raw(&sql).fetch_all()).await
}

/// The database and the table of migrations. A user without the right to make databases may use
/// one that is there.
async fn make_room(client: &Client, dialect: &Dialect) -> Result<(), Failure> {
    let sql = format!(
        "SELECT count() FROM system.databases WHERE name = {}",
        literal(dialect.database())
    );
    let there: u64 = timed(client.query_raw(&sql).fetch_one()).await?;
    if there == 0 || dialect.is_cluster() {
        run(client, dialect, &dialect.create_database()).await?;
    }
    run(client, dialect, &dialect.create_migrations()).await
}

/// The newest migration that was done.
async fn refuse_newer(client: &Client, dialect: &Dialect) -> Result<u32, Failure> {
    let sql = format!(
        "SELECT max(version) FROM {}",
        dialect.name("schema_migrations")
    );
    let found: u32 = timed(client.query_raw(&sql).fetch_one()).await?;
    if found > VERSION {
        return Err(Failure::Later {
            why: format!(
                "the tables have schema {found}, this prefixgate knows up to {VERSION}: \
                 use the newer prefixgate that made them, or another [clickhouse] database"
            ),
            after: Some(PATIENCE),
        });
    }
    Ok(found)
}

/// Runs a statement that has no answer. The server's words about it hold no data of a record.
async fn run(client: &Client, dialect: &Dialect, statement: &str) -> Result<(), Failure> {
    let mut query = client.query_raw(statement);
    if dialect.is_cluster() {
        // A node that is down does the statement when it is back.
        query = query.with_setting("distributed_ddl_output_mode", "none_only_active");
    }
    timed(query.execute()).await
}

/// The answer to a statement of the schema. Nothing of it is the fault of a batch.
async fn timed<T>(
    asked: impl Future<Output = Result<T, clickhouse::error::Error>>,
) -> Result<T, Failure> {
    let error = match tokio::time::timeout(QUERY_TIMEOUT, asked).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error,
        Err(_) => clickhouse::error::Error::TimedOut,
    };
    let judged = judge(&error);
    let mut why = format!("the tables cannot be made: {}", judged.why);
    if !matches!(judged.class, Class::Passing | Class::Pressure) {
        let words = error.to_string();
        let words = crate::text::prefix(&words, MAX_WORDS);
        why = format!("{why}. The server says: {words}");
    }
    let after = match judged.class {
        Class::Passing | Class::Pressure => None,
        _ => Some(PATIENCE),
    };
    Err(Failure::Later { why, after })
}
