//! A turn as a row: the one list of columns, and both directions beside each other.

use rusqlite::types::{FromSql, Type};
use rusqlite::{Row, Statement, ToSql};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::StoreError;
use crate::store::placed::PlacedJson;
use crate::trace::{Inspection, Outcome, Placed, RequestKind, TurnRecord, intern};
use crate::usage::Usage;

mod cache;
pub(super) mod call;
pub(super) mod event;
mod guard;

/// The columns of `turns` in the order in which [`bind`] and [`read`] go through them.
pub(super) const COLUMNS: &[&str] = &[
    "id",
    "kind",
    "run_id",
    "run_source",
    "thread_id",
    "parent_thread",
    "agent",
    "parent_agent",
    "turn",
    "attempt",
    "app",
    "client",
    "upstream",
    "credential",
    "method",
    "path",
    "model_requested",
    "model_served",
    "started_ms",
    "overhead_us",
    "head_us",
    "first_token_us",
    "duration_us",
    "status",
    "outcome",
    "stop_reason",
    "error_type",
    "error_message",
    "streamed",
    "uncached",
    "read",
    "write_5m",
    "write_1h",
    "output",
    "reasoning",
    "web_searches",
    "split_inferred",
    "usage_complete",
    "usage_estimated",
    "cost_pico",
    "cost_no_cache_pico",
    "price_version",
    "inspection",
    "inspection_reason",
    "request_bytes",
    "sent_bytes",
    "response_bytes",
    "blocks",
    "messages",
    "tools",
    "markers_client",
    "markers_added",
    "dry_run",
    "root",
    "chain",
    "response_id",
    "request_id",
    "native_diagnosis",
    "warnings",
    "verdict",
    "verdict_reason",
    "lost_tokens",
    "lost_pico",
    "what",
    "whose",
    "first_changed",
    "first_changed_offset",
    "unjudged",
    "policy",
    "expected_read",
    "read_of",
    "premium_pico",
    "duplicate_of",
    "duplicate_tokens",
    "duplicate_pico",
    "native_agrees",
    "helper",
    "helper_tokens",
    "helper_pico",
    "verdict_detail",
    "excerpt_before",
    "excerpt_after",
    "trail",
    "guard",
    "traceparent",
    "write_30m",
    "write_12h",
];

/// The statement for [`bind`].
pub(super) fn insert() -> String {
    let marks = vec!["?"; COLUMNS.len()].join(",");
    format!(
        "INSERT INTO turns ({}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING",
        COLUMNS.join(",")
    )
}

/// The start of a statement whose rows [`read`] understands.
pub(super) fn select() -> String {
    format!("SELECT {} FROM turns ", COLUMNS.join(","))
}

/// Binds parameters one after the other.
pub(super) struct Binder<'a, 'c> {
    statement: &'a mut Statement<'c>,
    next: usize,
}

impl<'a, 'c> Binder<'a, 'c> {
    pub(super) fn new(statement: &'a mut Statement<'c>) -> Self {
        Self { statement, next: 1 }
    }

    pub(super) fn put(&mut self, value: impl ToSql) -> rusqlite::Result<&mut Self> {
        self.statement.raw_bind_parameter(self.next, value)?;
        self.next += 1;
        Ok(self)
    }

    /// A number that is known; SQLite ends at 2^63-1, which no size or duration reaches.
    pub(super) fn number(&mut self, value: u64) -> rusqlite::Result<&mut Self> {
        self.put(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// Tokens or money: what SQLite cannot hold is nonsense from the wire, and unknown.
    pub(super) fn known(&mut self, value: Option<u64>) -> rusqlite::Result<&mut Self> {
        self.put(value.and_then(|v| i64::try_from(v).ok()))
    }

    fn json(&mut self, items: &[impl Serialize]) -> rusqlite::Result<&mut Self> {
        if items.is_empty() {
            return self.put("[]");
        }
        let text = serde_json::to_string(items)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
        self.put(text)
    }
}

/// Binds a turn to the statement of [`insert`].
pub(super) fn bind(statement: &mut Statement<'_>, turn: &TurnRecord) -> rusqlite::Result<()> {
    let usage = &turn.usage;
    let added: Vec<PlacedJson<'_>> = turn.markers_added.iter().map(PlacedJson::from).collect();
    let mut to = Binder::new(statement);
    to.put(turn.id.as_bytes())?
        .put(turn.kind.as_str())?
        .put(&turn.run_id)?
        .put(turn.run_source)?
        .put(&turn.thread_id)?
        .put(&turn.parent_thread)?
        .put(&turn.agent)?
        .put(&turn.parent_agent)?
        .put(turn.turn)?
        .put(turn.attempt)?
        .put(&turn.app)?
        .put(&turn.client)?
        .put(&turn.upstream)?
        .put(&turn.credential)?
        .put(&turn.method)?
        .put(&turn.path)?
        .put(&turn.model_requested)?
        .put(&turn.model_served)?
        .put(turn.started_ms)?
        .known(turn.overhead_us)?
        .known(turn.head_us)?
        .known(turn.first_token_us)?
        .number(turn.duration_us)?
        .put(turn.status)?
        .put(turn.outcome.as_str())?
        .put(&turn.stop_reason)?
        .put(&turn.error_type)?
        .put(&turn.error_message)?
        .put(turn.streamed)?
        .known(usage.uncached)?
        .known(usage.read)?
        .known(usage.write_5m)?
        .known(usage.write_1h)?
        .known(usage.output)?
        .known(usage.reasoning)?
        .known(usage.web_searches)?
        .put(usage.split_inferred)?
        .put(turn.usage_complete)?
        .put(turn.usage_estimated)?
        .known(turn.cost_pico)?
        .known(turn.cost_no_cache_pico)?
        .put(&turn.price_version)?
        .put(turn.inspection.as_str())?
        .put(turn.inspection.reason())?
        .number(turn.request_bytes)?
        .number(turn.sent_bytes)?
        .number(turn.response_bytes)?
        .put(turn.blocks)?
        .put(turn.messages)?
        .put(turn.tools)?
        .put(turn.markers_client)?
        .json(&added)?
        .put(turn.dry_run)?
        .put(&turn.root)?
        .put(&turn.chain)?
        .put(&turn.response_id)?
        .put(&turn.request_id)?
        .put(&turn.native_diagnosis)?
        .json(&turn.warnings)?;
    cache::bind(&mut to, &turn.cache)?;
    guard::bind(&mut to, &turn.guard)?;
    to.put(&turn.traceparent)?;
    to.known(usage.write_30m)?.known(usage.write_12h)?;
    Ok(())
}

/// Reads a row of [`select`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<TurnRecord> {
    let mut from = Reader::new(row);
    let mut turn = TurnRecord {
        id: Uuid::from_bytes(from.take()?),
        kind: from.word("kind", RequestKind::from_word)?,
        run_id: from.take()?,
        run_source: intern(&from.take::<String>()?),
        thread_id: from.take()?,
        parent_thread: from.take()?,
        agent: from.take()?,
        parent_agent: from.take()?,
        turn: from.take()?,
        attempt: from.take()?,
        app: from.take()?,
        client: from.take()?,
        upstream: from.take()?,
        credential: from.take()?,
        method: from.take()?,
        path: from.take()?,
        model_requested: from.take()?,
        model_served: from.take()?,
        started_ms: from.take()?,
        overhead_us: from.known()?,
        head_us: from.known()?,
        first_token_us: from.known()?,
        duration_us: from.number()?,
        status: from.take()?,
        outcome: from.word("outcome", Outcome::from_word)?,
        stop_reason: from.take()?,
        error_type: from.take()?,
        error_message: from.take()?,
        streamed: from.take()?,
        usage: Usage {
            uncached: from.known()?,
            read: from.known()?,
            write_5m: from.known()?,
            write_1h: from.known()?,
            // They stand at the end, where later versions of the schema add their columns.
            write_30m: None,
            write_12h: None,
            output: from.known()?,
            reasoning: from.known()?,
            web_searches: from.known()?,
            split_inferred: from.take()?,
        },
        usage_complete: from.take()?,
        usage_estimated: from.take()?,
        cost_pico: from.known()?,
        cost_no_cache_pico: from.known()?,
        price_version: from.take()?,
        inspection: from.inspection()?,
        request_bytes: from.number()?,
        sent_bytes: from.number()?,
        response_bytes: from.number()?,
        blocks: from.take()?,
        messages: from.take()?,
        tools: from.take()?,
        markers_client: from.take()?,
        markers_added: from.placed()?,
        dry_run: from.take()?,
        root: from.take()?,
        chain: from.take()?,
        response_id: from.take()?,
        request_id: from.take()?,
        native_diagnosis: from.take()?,
        warnings: from.json("warnings")?,
        cache: from.cache()?,
        guard: from.guard()?,
        traceparent: from.take()?,
    };
    turn.usage.write_30m = from.known()?;
    turn.usage.write_12h = from.known()?;
    Ok(turn)
}

/// Reads columns one after the other.
pub(super) struct Reader<'a, 'r> {
    row: &'a Row<'r>,
    next: usize,
}

impl<'a, 'r> Reader<'a, 'r> {
    pub(super) fn new(row: &'a Row<'r>) -> Self {
        Self { row, next: 0 }
    }

    pub(super) fn take<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        let value = self.row.get(self.next);
        self.next += 1;
        value
    }

    /// What [`Binder::number`] has put.
    pub(super) fn number(&mut self) -> rusqlite::Result<u64> {
        let value: i64 = self.take()?;
        u64::try_from(value)
            .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(self.next - 1, value))
    }

    /// What [`Binder::known`] has put.
    pub(super) fn known(&mut self) -> rusqlite::Result<Option<u64>> {
        let value: Option<i64> = self.take()?;
        Ok(value.and_then(|v| u64::try_from(v).ok()))
    }

    pub(super) fn word<T>(
        &mut self,
        column: &'static str,
        known: impl Fn(&str) -> Option<T>,
    ) -> rusqlite::Result<T> {
        let word: String = self.take()?;
        known(&word).ok_or_else(|| unknown(column, word))
    }

    fn inspection(&mut self) -> rusqlite::Result<Inspection> {
        let word: String = self.take()?;
        let reason: Option<String> = self.take()?;
        Inspection::from_words(&word, reason.as_deref()).ok_or_else(|| unknown("inspection", word))
    }

    /// A word that may be missing.
    pub(super) fn word_or_null<T>(
        &mut self,
        column: &'static str,
        known: impl Fn(&str) -> Option<T>,
    ) -> rusqlite::Result<Option<T>> {
        let word: Option<String> = self.take()?;
        word.map(|word| known(&word).ok_or_else(|| unknown(column, word)))
            .transpose()
    }

    /// A word of the program's own, whose list is open.
    pub(super) fn interned(&mut self) -> rusqlite::Result<Option<&'static str>> {
        let word: Option<String> = self.take()?;
        Ok(word.as_deref().map(intern))
    }

    fn id(&mut self) -> rusqlite::Result<Option<Uuid>> {
        let id: Option<[u8; 16]> = self.take()?;
        Ok(id.map(Uuid::from_bytes))
    }

    pub(super) fn json<T: for<'de> Deserialize<'de>>(
        &mut self,
        column: &'static str,
    ) -> rusqlite::Result<Vec<T>> {
        let text: String = self.take()?;
        serde_json::from_str(&text).map_err(|_| unknown(column, text))
    }

    fn placed(&mut self) -> rusqlite::Result<Vec<Placed>> {
        let items: Vec<PlacedJson<'static>> = self.json("markers_added")?;
        Ok(items.into_iter().map(Placed::from).collect())
    }
}

/// An error for a value that no prefixgate of this schema writes.
#[derive(Debug, thiserror::Error)]
#[error("unknown value in {column}")]
struct Unknown {
    column: &'static str,
    value: String,
}

pub(super) fn unknown(column: &'static str, value: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(Unknown { column, value }))
}

/// Takes an [`unknown`] out of SQLite's error again, or gives that error back.
pub(super) fn unknown_value(error: rusqlite::Error) -> Result<StoreError, rusqlite::Error> {
    match error {
        rusqlite::Error::FromSqlConversionFailure(index, kind, source) => source
            .downcast::<Unknown>()
            .map(|found| StoreError::Value {
                column: found.column,
                value: found.value,
            })
            .map_err(|source| rusqlite::Error::FromSqlConversionFailure(index, kind, source)),
        error => Err(error),
    }
}
