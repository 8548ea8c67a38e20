//! Writing: the [`Sink`] of the recorder's thread.

use rusqlite::{CachedStatement, Transaction};

use super::row::{self, Binder, event};
use super::{Sqlite, retain};
use crate::store::error::drop_reason;
use crate::trace::{CallResult, CallStatus, Entry, Retention, Sink, ToolCallRecord, WriteError};

/// Results that may wait for their call.
const MAX_EARLY: usize = 256;
/// Batches that a result waits for its call before it is given up.
const EARLY_BATCHES: u8 = 3;

const INSERT_CALL: &str = "\
    INSERT INTO tool_calls (turn_id, run_id, thread_id, call_id, name, input_hash, input_bytes, \
        asked_ms, status, latency_ms, result_bytes, wrong, retries) \
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) \
    ON CONFLICT (turn_id, call_id) DO UPDATE SET status = excluded.status, \
        latency_ms = excluded.latency_ms, result_bytes = excluded.result_bytes, \
        wrong = COALESCE(excluded.wrong, wrong), retries = excluded.retries";

/// The first result counts: clients send their history again and again. Of calls with the same id
/// (scripted models number theirs anew in every answer) the newest is meant.
const FIND_CALL: &str = "\
    SELECT turn_id, run_id, thread_id, call_id, name, input_hash, input_bytes, \
        asked_ms, status, latency_ms, result_bytes, wrong, retries, seq \
    FROM tool_calls WHERE run_id = ? AND thread_id = ? AND call_id = ? \
        AND status IN ('pending', 'incomplete') \
    ORDER BY seq DESC LIMIT 1";

const UPDATE_CALL: &str = "\
    UPDATE tool_calls SET status = ?, latency_ms = ?, result_bytes = ?, retries = ? WHERE seq = ?";

impl Sink for Sqlite {
    fn write_and_tell(
        &mut self,
        batch: &[Entry],
        pass_on: &mut dyn FnMut(&[ToolCallRecord]),
    ) -> Result<(), WriteError> {
        let early = self.write_all(batch, pass_on).map_err(|e| failed(&e))?;
        self.early = early;
        Ok(())
    }

    fn retain(&mut self, now_ms: i64, keep: &Retention) -> Result<bool, WriteError> {
        retain::step(&mut self.connection, now_ms, keep).map_err(|e| failed(&e))
    }
}

fn failed(source: &rusqlite::Error) -> WriteError {
    WriteError {
        reason: drop_reason(source),
        message: source.to_string(),
    }
}

impl Sqlite {
    /// Writes a batch in one transaction; what comes back are the results without their call yet.
    fn write_all(
        &mut self,
        batch: &[Entry],
        pass_on: &mut dyn FnMut(&[ToolCallRecord]),
    ) -> rusqlite::Result<Vec<(CallResult, u8)>> {
        let transaction = self.connection.transaction()?;
        let mut waiting = self.early.clone();
        let mut answered = Vec::new();
        write_entries(&transaction, batch, &mut waiting, &mut answered)?;
        // Also those of this batch: their call may stand behind them in it.
        let mut early = Vec::new();
        if !waiting.is_empty() {
            let mut results = Results::new(&transaction)?;
            for (result, batches) in waiting {
                match results.write(&result)? {
                    Some(call) => answered.push(call),
                    None if batches < EARLY_BATCHES => early.push((result, batches + 1)),
                    None => {}
                }
            }
        }
        early.truncate(MAX_EARLY);
        pass_on(&answered);
        transaction.commit()?;
        Ok(early)
    }
}

fn write_entries(
    transaction: &Transaction<'_>,
    batch: &[Entry],
    early: &mut Vec<(CallResult, u8)>,
    answered: &mut Vec<ToolCallRecord>,
) -> rusqlite::Result<()> {
    let mut turns = transaction.prepare_cached(&row::insert())?;
    let mut calls = transaction.prepare_cached(INSERT_CALL)?;
    let mut results = Results::new(transaction)?;
    let mut events = transaction.prepare_cached(&event::insert())?;
    for entry in batch {
        match entry {
            Entry::Turn(turn) => {
                row::bind(&mut turns, turn)?;
                turns.raw_execute()?;
            }
            Entry::Call(call) => {
                row::call::bind(&mut calls, call)?;
                calls.raw_execute()?;
            }
            Entry::Result(result) => match results.write(result)? {
                Some(call) => answered.push(call),
                None if may_follow(result) => early.push((CallResult::clone(result), 0)),
                None => {}
            },
            Entry::Event(happened) => {
                event::bind(&mut events, happened)?;
                events.raw_execute()?;
            }
        }
    }
    Ok(())
}

/// Whether the call of a result may still be on its way here. It is not when this process has not seen
/// it asked: how long it took is unknown then, unless it was never answered.
fn may_follow(result: &CallResult) -> bool {
    result.latency_ms.is_some() || result.status == CallStatus::Unanswered
}

/// Writes results to their calls. In two steps: `RETURNING` makes SQLite set up a table of its own for
/// each result, which costs more than all else here.
struct Results<'t> {
    find: CachedStatement<'t>,
    update: CachedStatement<'t>,
}

impl<'t> Results<'t> {
    fn new(transaction: &'t Transaction<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            find: transaction.prepare_cached(FIND_CALL)?,
            update: transaction.prepare_cached(UPDATE_CALL)?,
        })
    }

    /// The call as it stands with the result; `None` when none is waiting for it.
    fn write(&mut self, result: &CallResult) -> rusqlite::Result<Option<ToolCallRecord>> {
        Binder::new(&mut self.find)
            .put(&result.run_id)?
            .put(&result.thread_id)?
            .put(&result.call_id)?;
        let mut rows = self.find.raw_query();
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let mut call = row::call::read(row)?;
        let seq: i64 = row.get("seq")?;
        drop(rows);
        call.status = result.status;
        call.latency_ms = result.latency_ms;
        call.result_bytes = result.result_bytes;
        call.retries = result.retries;
        Binder::new(&mut self.update)
            .put(call.status.as_str())?
            .known(call.latency_ms)?
            .known(call.result_bytes)?
            .put(call.retries)?
            .put(seq)?;
        self.update.raw_execute()?;
        Ok(Some(call))
    }
}
