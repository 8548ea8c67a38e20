//! Removing the oldest, in pieces small enough that writing goes on in between.

use rusqlite::Connection;

use crate::trace::Retention;

/// Rows of a table that one piece removes.
const ROWS: u32 = 2_000;
/// The fewest rows that a piece removes for the sake of size, so that it comes to an end.
const FEW_ROWS: u32 = 50;
/// Pages that one piece gives back to the file system.
const PAGES: u32 = 2_000;
/// Milliseconds of a day of age.
const DAY_MS: i64 = 86_400_000;

/// One piece of work; `true` when there may be more.
pub(super) fn step(
    connection: &mut Connection,
    now_ms: i64,
    keep: &Retention,
) -> rusqlite::Result<bool> {
    let cutoff = now_ms.saturating_sub(i64::from(keep.days) * DAY_MS);
    let too_old = remove_before(connection, cutoff)?;
    let used = Pages::of(connection)?.used_bytes();
    let excess = used.saturating_sub(target(keep.bytes));
    let removed = if !too_old && excess > 0 {
        let rows = rows_for(connection, used, excess)?;
        remove_oldest(connection, rows)?
    } else {
        false
    };
    let pages = Pages::of(connection)?;
    // New rows fill what is free; only a good part of the file is worth giving back.
    let slack = pages.free > pages.all / 8;
    if slack {
        give_back(connection)?;
    }
    Ok(too_old || removed || slack)
}

/// A tenth below the limit, because the limit is only looked at now and then.
fn target(bytes: u64) -> u64 {
    bytes - bytes / 10
}

/// Removes rows from before `cutoff_ms`; `true` when there may be more of them.
fn remove_before(connection: &mut Connection, cutoff_ms: i64) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let turns = transaction
        .prepare_cached(
            "DELETE FROM turns WHERE seq IN (SELECT seq FROM turns WHERE started_ms < ?1 \
             ORDER BY started_ms LIMIT ?2)",
        )?
        .execute((cutoff_ms, ROWS))?;
    let calls = transaction
        .prepare_cached(
            "DELETE FROM tool_calls WHERE seq IN (SELECT seq FROM tool_calls WHERE asked_ms < ?1 \
             ORDER BY asked_ms LIMIT ?2)",
        )?
        .execute((cutoff_ms, ROWS))?;
    let events = transaction
        .prepare_cached(
            "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at_ms < ?1 \
             ORDER BY at_ms LIMIT ?2)",
        )?
        .execute((cutoff_ms, ROWS))?;
    transaction.commit()?;
    Ok(turns.max(calls).max(events) >= ROWS as usize)
}

/// About as many of the oldest turns as take up `excess` bytes of the `used` ones, within what a
/// piece may remove. Rows with long trails would else go by far more than they have to.
fn rows_for(connection: &Connection, used: u64, excess: u64) -> rusqlite::Result<u32> {
    // Numbers are given in order, so that this is the number of rows without counting them.
    let sql = "SELECT COALESCE((SELECT MAX(seq) FROM turns) - (SELECT MIN(seq) FROM turns) + 1, 0)";
    let rows: i64 = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    let share = u128::from(excess) * u128::from(rows.unsigned_abs()) / u128::from(used.max(1));
    Ok(u32::try_from(share).unwrap_or(ROWS).clamp(FEW_ROWS, ROWS))
}

/// Removes the oldest turns, and the calls and events from before what is left; `false` when
/// nothing is left.
fn remove_oldest(connection: &mut Connection, rows: u32) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let turns = transaction
        .prepare_cached(
            "DELETE FROM turns WHERE seq IN (SELECT seq FROM turns ORDER BY started_ms LIMIT ?1)",
        )?
        .execute([rows])?;
    let calls = transaction
        .prepare_cached(
            "DELETE FROM tool_calls WHERE seq IN (SELECT seq FROM tool_calls WHERE asked_ms < \
             (SELECT COALESCE(MIN(started_ms), 9223372036854775807) FROM turns) \
             ORDER BY asked_ms LIMIT 4 * ?1)",
        )?
        .execute([ROWS])?;
    let events = transaction
        .prepare_cached(
            "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at_ms < \
             (SELECT COALESCE(MIN(started_ms), 9223372036854775807) FROM turns) \
             ORDER BY at_ms LIMIT 4 * ?1)",
        )?
        .execute([ROWS])?;
    transaction.commit()?;
    Ok(turns + calls + events > 0)
}

fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
    // Every step of this statement frees one page.
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// How the file is filled.
struct Pages {
    all: u64,
    free: u64,
    size: u64,
}

impl Pages {
    fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let number = |name| {
            connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map(i64::unsigned_abs)
        };
        Ok(Self {
            all: number("page_count")?,
            free: number("freelist_count")?,
            size: number("page_size")?,
        })
    }

    fn used_bytes(&self) -> u64 {
        self.all.saturating_sub(self.free) * self.size
    }
}
