//! An event as a row.

use clickhouse::Row;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::word;
use crate::store::StoreError;
use crate::trace::{EventKind, EventRecord};

/// A row of `events_raw`.
#[derive(Debug, Clone, PartialEq, Row, Serialize, Deserialize)]
pub(in crate::store::clickhouse) struct EventRow {
    #[serde(with = "clickhouse::serde::uuid")]
    id: Uuid,
    at: i64,
    kind: String,
    name: String,
    run_id: String,
    thread_id: String,
    #[serde(with = "clickhouse::serde::uuid::option")]
    turn_id: Option<Uuid>,
    app: Option<String>,
    scope: String,
    action: String,
    value: Option<u64>,
    limit_value: Option<u64>,
    level: Option<u32>,
    pico: Option<u64>,
    tools: Vec<String>,
}

impl From<&EventRecord> for EventRow {
    fn from(event: &EventRecord) -> Self {
        Self {
            id: event.id,
            at: event.at_ms,
            kind: event.kind.as_str().to_owned(),
            name: event.name.clone(),
            run_id: event.run_id.clone(),
            thread_id: event.thread_id.clone(),
            turn_id: event.turn_id,
            app: event.app.clone(),
            scope: event.scope.clone(),
            action: event.action.clone(),
            value: event.value,
            limit_value: event.limit,
            level: event.level,
            pico: event.pico,
            tools: event.tools.clone(),
        }
    }
}

impl TryFrom<EventRow> for EventRecord {
    type Error = StoreError;

    fn try_from(row: EventRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id,
            at_ms: row.at,
            kind: word("kind", &row.kind, EventKind::from_word)?,
            name: row.name,
            run_id: row.run_id,
            thread_id: row.thread_id,
            turn_id: row.turn_id,
            app: row.app,
            scope: row.scope,
            action: row.action,
            value: row.value,
            limit: row.limit_value,
            level: row.level,
            pico: row.pico,
            tools: row.tools,
        })
    }
}
