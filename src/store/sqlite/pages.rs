//! Records in the order of writing, a page at a time, for moving them to another store.

use super::Sqlite;
use super::row::{self, event};
use crate::store::StoreError;
use crate::trace::Entry;

/// What a page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Kept {
    Turns,
    Calls,
    Events,
}

/// Tool calls as [`row::call::read`] reads them.
const CALLS: &str = "\
    SELECT turn_id, run_id, thread_id, call_id, name, input_hash, input_bytes, asked_ms, status, \
        latency_ms, result_bytes, wrong, retries, seq FROM tool_calls";
/// Where [`CALLS`] has the number of the row.
const CALL_SEQ: usize = 13;

impl Sqlite {
    /// At most `most` records that were written after the one with the number `after` (0: from the
    /// beginning), and the number of the last of them; `None` when there are no more.
    pub(in crate::store) fn page(
        &self,
        of: Kept,
        after: i64,
        most: usize,
    ) -> Result<Option<(Vec<Entry>, i64)>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let select = match of {
            Kept::Turns => format!("SELECT {}, seq FROM turns", row::COLUMNS.join(",")),
            Kept::Calls => CALLS.to_owned(),
            Kept::Events => event::select_with_seq(),
        };
        let sql = format!("{select} WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let rows = self.with(|c| {
            c.prepare_cached(&sql)?
                .query_map((after, most), |row| match of {
                    Kept::Turns => {
                        let seq: i64 = row.get(row::COLUMNS.len())?;
                        Ok((Entry::Turn(Box::new(row::read(row)?)), seq))
                    }
                    Kept::Calls => {
                        let seq: i64 = row.get(CALL_SEQ)?;
                        Ok((Entry::Call(Box::new(row::call::read(row)?)), seq))
                    }
                    Kept::Events => {
                        let (event, seq) = event::read_with_seq(row)?;
                        Ok((Entry::Event(Box::new(event)), seq))
                    }
                })?
                .collect::<rusqlite::Result<Vec<(Entry, i64)>>>()
        })?;
        let Some(last) = rows.last().map(|(_, seq)| *seq) else {
            return Ok(None);
        };
        Ok(Some((
            rows.into_iter().map(|(entry, _)| entry).collect(),
            last,
        )))
    }
}
