//! Something that happened, as a row.

use rusqlite::{Row, Statement};
use uuid::Uuid;

use super::{Binder, Reader};
use crate::trace::{EventKind, EventRecord};

/// The columns of `events` in the order in which [`bind`] goes through them.
const COLUMNS: &str = "id, at_ms, kind, name, run_id, thread_id, turn_id, app, scope, action, \
    value, limit_value, level, pico, tools";

/// The statement for [`bind`].
pub(in crate::store::sqlite) fn insert() -> String {
    let marks = vec!["?"; COLUMNS.split(',').count()].join(",");
    format!("INSERT INTO events ({COLUMNS}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING")
}

/// Binds an event to the statement of [`insert`].
pub(in crate::store::sqlite) fn bind(
    statement: &mut Statement<'_>,
    event: &EventRecord,
) -> rusqlite::Result<()> {
    Binder::new(statement)
        .put(event.id.as_bytes())?
        .put(event.at_ms)?
        .put(event.kind.as_str())?
        .put(&event.name)?
        .put(&event.run_id)?
        .put(&event.thread_id)?
        .put(event.turn_id.map(Uuid::into_bytes))?
        .put(&event.app)?
        .put(&event.scope)?
        .put(&event.action)?
        .known(event.value)?
        .known(event.limit)?
        .put(event.level)?
        .known(event.pico)?
        .json(&event.tools)?;
    Ok(())
}

/// The start of a statement whose rows [`read_with_seq`] understands.
pub(in crate::store::sqlite) fn select_with_seq() -> String {
    format!("SELECT {COLUMNS}, seq FROM events")
}

/// Reads a row of [`select_with_seq`]: the event, and the number of its row.
pub(in crate::store::sqlite) fn read_with_seq(
    row: &Row<'_>,
) -> rusqlite::Result<(EventRecord, i64)> {
    let mut from = Reader::new(row);
    let event = EventRecord {
        id: Uuid::from_bytes(from.take()?),
        at_ms: from.take()?,
        kind: from.word("kind", EventKind::from_word)?,
        name: from.take()?,
        run_id: from.take()?,
        thread_id: from.take()?,
        turn_id: from.id()?,
        app: from.take()?,
        scope: from.take()?,
        action: from.take()?,
        value: from.known()?,
        limit: from.known()?,
        level: from.take()?,
        pico: from.known()?,
        tools: from.json("tools")?,
    };
    Ok((event, from.take()?))
}

/// Every event in the order of writing: the answers are sums, and a test wants the whole.
#[cfg(test)]
pub(in crate::store::sqlite) fn all(
    connection: &rusqlite::Connection,
) -> rusqlite::Result<Vec<EventRecord>> {
    connection
        .prepare(&format!("{} ORDER BY seq", select_with_seq()))?
        .query_map([], |row| Ok(read_with_seq(row)?.0))?
        .collect()
}
