//! A tool call as a row.

use clickhouse::Row;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{word, word_or_none};
use crate::store::StoreError;
use crate::trace::{CallStatus, ToolCallRecord, intern};

/// A row of `tool_calls_raw`.
#[derive(Debug, Clone, PartialEq, Row, Serialize, Deserialize)]
pub(in crate::store::clickhouse) struct CallRow {
    #[serde(with = "clickhouse::serde::uuid")]
    turn_id: Uuid,
    run_id: String,
    thread_id: String,
    call_id: String,
    name: String,
    input_hash: String,
    input_bytes: u64,
    asked: i64,
    status: String,
    latency_ms: Option<u64>,
    result_bytes: Option<u64>,
    wrong: Option<String>,
    retries: u32,
    version: u8,
}

/// Of several rows of a call the one with the highest version counts. The first result stands, as
/// in SQLite: what answers a call comes once.
pub(in crate::store::clickhouse) fn version(status: CallStatus) -> u8 {
    match status {
        CallStatus::Pending => 0,
        CallStatus::Incomplete => 1,
        CallStatus::Ok | CallStatus::Failed | CallStatus::Unanswered => 2,
    }
}

impl From<&ToolCallRecord> for CallRow {
    fn from(call: &ToolCallRecord) -> Self {
        Self {
            turn_id: call.turn_id,
            run_id: call.run_id.clone(),
            thread_id: call.thread_id.clone(),
            call_id: call.call_id.clone(),
            name: call.name.clone(),
            input_hash: call.input_hash.clone(),
            input_bytes: call.input_bytes,
            asked: call.asked_ms,
            status: call.status.as_str().to_owned(),
            latency_ms: call.latency_ms,
            result_bytes: call.result_bytes,
            wrong: call.wrong.map(str::to_owned),
            retries: call.retries,
            version: version(call.status),
        }
    }
}

impl TryFrom<CallRow> for ToolCallRecord {
    type Error = StoreError;

    fn try_from(row: CallRow) -> Result<Self, StoreError> {
        Ok(Self {
            turn_id: row.turn_id,
            run_id: row.run_id,
            thread_id: row.thread_id,
            call_id: row.call_id,
            name: row.name,
            input_hash: row.input_hash,
            input_bytes: row.input_bytes,
            asked_ms: row.asked,
            status: word("status", &row.status, CallStatus::from_word)?,
            latency_ms: row.latency_ms,
            result_bytes: row.result_bytes,
            wrong: word_or_none("wrong", row.wrong.as_deref(), |w| Some(intern(w)))?,
            retries: row.retries,
        })
    }
}
