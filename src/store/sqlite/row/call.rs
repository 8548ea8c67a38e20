//! A tool call as a row: both directions.

use rusqlite::{Row, Statement};
use uuid::Uuid;

use super::{Binder, Reader};
use crate::trace::{CallStatus, ToolCallRecord};

/// Binds a call to a statement with its columns in the order of the table.
pub(in super::super) fn bind(
    statement: &mut Statement<'_>,
    call: &ToolCallRecord,
) -> rusqlite::Result<()> {
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
    Ok(())
}

/// Reads a row of these columns.
pub(in super::super) fn read(row: &Row<'_>) -> rusqlite::Result<ToolCallRecord> {
    let mut from = Reader::new(row);
    Ok(ToolCallRecord {
        turn_id: Uuid::from_bytes(from.take()?),
        run_id: from.take()?,
        thread_id: from.take()?,
        call_id: from.take()?,
        name: from.take()?,
        input_hash: from.take()?,
        input_bytes: from.number()?,
        asked_ms: from.take()?,
        status: from.word("status", CallStatus::from_word)?,
        latency_ms: from.known()?,
        result_bytes: from.known()?,
        wrong: from.interned()?,
        retries: from.take()?,
    })
}
