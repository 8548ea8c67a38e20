//! What a run or a key has used so far, for its caps.

use rusqlite::Row;

use super::Sqlite;
use crate::guard::caps::Amounts;
use crate::store::StoreError;

/// Whose turns are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of<'a> {
    /// Those of a run.
    Run(&'a str),
    /// Those that were sent with a credential.
    Credential {
        /// Its keyed hash; `None`: without one.
        credential: Option<&'a str>,
        /// Started at or after, UTC milliseconds.
        since_ms: i64,
        /// Started before, UTC milliseconds.
        until_ms: i64,
        /// Only those whose client did not name a run.
        unnamed_only: bool,
    },
}

/// What has been used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Answered turns, their tokens, and the cost of everything that has one. What is not known
    /// counts as what was booked in its place, else as nothing.
    pub spent: Amounts,
    /// Start of the first request of any kind, UTC milliseconds.
    pub first_ms: Option<i64>,
}

/// Kind, whether it was answered, start, money, input in its kinds, output.
const COLUMNS: &str = "\
    t.kind, \
    t.status BETWEEN 200 AND 299 AND t.outcome <> 'refused', \
    t.started_ms, \
    COALESCE(t.cost_pico, CAST(json_extract(t.guard, '$.booked_pico') AS INTEGER), 0), \
    t.uncached, t.read, t.write_5m, t.write_1h, t.write_30m, t.write_12h, \
    t.output";
/// Where [`COLUMNS`] has the output.
const OUTPUT: usize = 10;
/// Sources of a run's id that are not the client's word for it.
const UNNAMED: &str = "('content', 'chain', 'trace', 'none')";

impl Sqlite {
    /// What was used, as far as it has been written.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn spent(&self, of: Of<'_>) -> Result<Spent, StoreError> {
        let mut sum = Spent::default();
        self.with(|c| match of {
            Of::Run(id) => {
                let sql = format!("SELECT {COLUMNS} FROM turns t WHERE t.run_id = ?1");
                let mut statement = c.prepare_cached(&sql)?;
                let mut rows = statement.query([id])?;
                while let Some(row) = rows.next()? {
                    add(&mut sum, row)?;
                }
                Ok(())
            }
            Of::Credential {
                credential,
                since_ms,
                until_ms,
                unnamed_only,
            } => {
                let sources = if unnamed_only {
                    format!("AND t.run_source IN {UNNAMED}")
                } else {
                    String::new()
                };
                let sql = format!(
                    "SELECT {COLUMNS} FROM turns t \
                     WHERE t.started_ms >= ?1 AND t.started_ms < ?2 AND t.credential IS ?3 {sources}"
                );
                let mut statement = c.prepare_cached(&sql)?;
                let mut rows = statement.query((since_ms, until_ms, credential))?;
                while let Some(row) = rows.next()? {
                    add(&mut sum, row)?;
                }
                Ok(())
            }
        })?;
        Ok(sum)
    }
}

/// Adds a row. Sums are made here, since money outgrows the integers of SQLite.
fn add(sum: &mut Spent, row: &Row<'_>) -> rusqlite::Result<()> {
    let started_ms: i64 = row.get(2)?;
    sum.first_ms = Some(
        sum.first_ms
            .map_or(started_ms, |first| first.min(started_ms)),
    );
    let known = |column: usize| -> rusqlite::Result<u64> {
        let value: Option<i64> = row.get(column)?;
        Ok(value.and_then(|v| u64::try_from(v).ok()).unwrap_or(0))
    };
    let turn = match row.get_ref(0)?.as_str()? {
        "turn" => true,
        "keep_warm" => false,
        _ => return Ok(()),
    };
    let spent = &mut sum.spent;
    // Also of a turn that was not answered: what it may have cost was booked.
    spent.pico = spent.pico.saturating_add(known(3)?);
    let answered: Option<bool> = row.get(1)?;
    if turn && answered == Some(true) {
        spent.turns = spent.turns.saturating_add(1);
        for column in 4..OUTPUT {
            spent.input = spent.input.saturating_add(known(column)?);
        }
        spent.output = spent.output.saturating_add(known(OUTPUT)?);
    }
    Ok(())
}
