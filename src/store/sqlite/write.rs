//! Writing: the [`Sink`] of the recorder's thread.

use rusqlite::{Statement, Transaction};

use super::row::{self, Binder, event};
use super::{Sqlite, retain};
use crate::store::error::drop_reason;
use crate::trace::{CallResult, Entry, Retention, Sink, ToolCallRecord, WriteError};

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
const UPDATE_CALL: &str = "\
    UPDATE tool_calls SET status = ?, latency_ms = ?, result_bytes = ?, retries = ? \
    WHERE seq = ( \
        SELECT seq FROM tool_calls WHERE run_id = ? AND thread_id = ? AND call_id = ? \
            AND status IN ('pending', 'incomplete') \
        ORDER BY seq DESC LIMIT 1)";

impl Sink for Sqlite {
    fn write(&mut self, batch: &[Entry]) -> Result<(), WriteError> {
        let early = self.write_all(batch).map_err(|e| failed(&e))?;
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
    fn write_all(&mut self, batch: &[Entry]) -> rusqlite::Result<Vec<(CallResult, u8)>> {
        let transaction = self.connection.transaction()?;
        let mut waiting = self.early.clone();
        write_entries(&transaction, batch, &mut waiting)?;
        // Also those of this batch: their call may stand behind them in it.
        let mut early = Vec::new();
        if !waiting.is_empty() {
            let mut update = transaction.prepare_cached(UPDATE_CALL)?;
            for (result, batches) in waiting {
                if !update_call(&mut update, &result)? && batches < EARLY_BATCHES {
                    early.push((result, batches + 1));
                }
            }
        }
        early.truncate(MAX_EARLY);
        transaction.commit()?;
        Ok(early)
    }
}

fn write_entries(
    transaction: &Transaction<'_>,
    batch: &[Entry],
    early: &mut Vec<(CallResult, u8)>,
) -> rusqlite::Result<()> {
    let mut turns = transaction.prepare_cached(&row::insert())?;
    let mut calls = transaction.prepare_cached(INSERT_CALL)?;
    let mut results = transaction.prepare_cached(UPDATE_CALL)?;
    let mut events = transaction.prepare_cached(&event::insert())?;
    for entry in batch {
        match entry {
            Entry::Turn(turn) => {
                row::bind(&mut turns, turn)?;
                turns.raw_execute()?;
            }
            Entry::Call(call) => insert_call(&mut calls, call)?,
            Entry::Result(result) => {
                if !update_call(&mut results, result)? {
                    early.push((CallResult::clone(result), 0));
                }
            }
            Entry::Event(happened) => {
                event::bind(&mut events, happened)?;
                events.raw_execute()?;
            }
        }
    }
    Ok(())
}

fn insert_call(statement: &mut Statement<'_>, call: &ToolCallRecord) -> rusqlite::Result<()> {
    Binder::new(statement)
        .put(call.turn_id.as_bytes())?
        .put(&call.run_id)?
        .put(&call.thread_id)?
        .put(&call.call_id)?
        .put(&call.name)?
        .put(&call.input_hash)?
        .number(call.input_bytes)?
        .put(call.asked_ms)?
        .put(call.status.as_str())?
        .known(call.latency_ms)?
        .known(call.result_bytes)?
        .put(call.wrong)?
        .put(call.retries)?;
    statement.raw_execute()?;
    Ok(())
}

/// `false` when no call is waiting for this result.
fn update_call(statement: &mut Statement<'_>, result: &CallResult) -> rusqlite::Result<bool> {
    Binder::new(statement)
        .put(result.status.as_str())?
        .known(result.latency_ms)?
        .known(result.result_bytes)?
        .put(result.retries)?
        .put(&result.run_id)?
        .put(&result.thread_id)?
        .put(&result.call_id)?;
    Ok(statement.raw_execute()? > 0)
}
