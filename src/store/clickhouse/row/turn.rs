//! A turn as a row. The names are those of SQLite's columns, but for the start, which is a time.

use clickhouse::Row;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Blob, word, word_or_none};
use crate::prompt_cache::verdict::{Excerpt, Reason, Status, Verdict, What, Whose};
use crate::store::{StoreError, placed};
use crate::trace::{
    CacheRecord, GuardRecord, Inspection, Outcome, RequestKind, TurnRecord, intern,
};
use crate::usage::Usage;

/// A row of `turns_raw`.
#[derive(Debug, Clone, PartialEq, Row, Serialize, Deserialize)]
pub(in crate::store::clickhouse) struct TurnRow {
    #[serde(with = "clickhouse::serde::uuid")]
    id: Uuid,
    kind: String,
    run_id: String,
    run_source: String,
    thread_id: String,
    parent_thread: Option<String>,
    agent: Option<String>,
    parent_agent: Option<String>,
    turn: u32,
    attempt: u32,
    app: Option<String>,
    client: Option<String>,
    upstream: String,
    credential: Option<String>,
    method: String,
    path: String,
    model_requested: Option<String>,
    model_served: Option<String>,
    started: i64,
    overhead_us: Option<u64>,
    head_us: Option<u64>,
    first_token_us: Option<u64>,
    duration_us: u64,
    status: Option<u16>,
    outcome: String,
    stop_reason: Option<String>,
    error_type: Option<String>,
    error_message: Option<String>,
    streamed: bool,
    uncached: Option<u64>,
    read: Option<u64>,
    write_5m: Option<u64>,
    write_1h: Option<u64>,
    write_30m: Option<u64>,
    write_12h: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    web_searches: Option<u64>,
    split_inferred: bool,
    usage_complete: bool,
    usage_estimated: bool,
    cost_pico: Option<u64>,
    cost_no_cache_pico: Option<u64>,
    price_version: Option<String>,
    inspection: String,
    inspection_reason: Option<String>,
    request_bytes: u64,
    sent_bytes: u64,
    response_bytes: u64,
    blocks: u32,
    messages: u32,
    tools: u32,
    markers_client: u32,
    markers_added: String,
    dry_run: bool,
    root: Option<String>,
    chain: Option<String>,
    response_id: Option<String>,
    request_id: Option<String>,
    native_diagnosis: Option<String>,
    warnings: Vec<String>,
    verdict: Option<String>,
    verdict_reason: Option<String>,
    lost_tokens: Option<u64>,
    lost_pico: Option<u64>,
    what: Option<String>,
    whose: Option<String>,
    first_changed: Option<String>,
    first_changed_offset: Option<u32>,
    unjudged: Option<String>,
    policy: Option<String>,
    expected_read: Option<u64>,
    #[serde(with = "clickhouse::serde::uuid::option")]
    read_of: Option<Uuid>,
    premium_pico: Option<u64>,
    #[serde(with = "clickhouse::serde::uuid::option")]
    duplicate_of: Option<Uuid>,
    duplicate_tokens: Option<u64>,
    duplicate_pico: Option<u64>,
    native_agrees: Option<bool>,
    helper: Option<String>,
    helper_tokens: Option<u64>,
    helper_pico: Option<i64>,
    verdict_detail: Option<String>,
    excerpt_before: Option<String>,
    excerpt_after: Option<String>,
    trail: Option<Blob>,
    guard: Option<String>,
    traceparent: Option<String>,
    batch: u64,
}

impl TurnRow {
    /// The row of a turn that comes with a delivery.
    ///
    /// # Errors
    /// Breakpoints or findings cannot be written as JSON: a fault of this program.
    pub(in crate::store::clickhouse) fn new(
        turn: &TurnRecord,
        batch: u64,
    ) -> Result<Self, serde_json::Error> {
        let cache = &turn.cache;
        let verdict = cache.verdict.as_ref();
        let excerpt = verdict.and_then(|v| v.excerpt.as_ref());
        let owned = |word: Option<&str>| word.map(str::to_owned);
        let guard = if turn.guard.is_empty() {
            None
        } else {
            Some(serde_json::to_string(&turn.guard)?)
        };
        Ok(Self {
            id: turn.id,
            kind: turn.kind.as_str().to_owned(),
            run_id: turn.run_id.clone(),
            run_source: turn.run_source.to_owned(),
            thread_id: turn.thread_id.clone(),
            parent_thread: turn.parent_thread.clone(),
            agent: turn.agent.clone(),
            parent_agent: turn.parent_agent.clone(),
            turn: turn.turn,
            attempt: turn.attempt,
            app: turn.app.clone(),
            client: turn.client.clone(),
            upstream: turn.upstream.clone(),
            credential: turn.credential.clone(),
            method: turn.method.clone(),
            path: turn.path.clone(),
            model_requested: turn.model_requested.clone(),
            model_served: turn.model_served.clone(),
            started: turn.started_ms,
            overhead_us: turn.overhead_us,
            head_us: turn.head_us,
            first_token_us: turn.first_token_us,
            duration_us: turn.duration_us,
            status: turn.status,
            outcome: turn.outcome.as_str().to_owned(),
            stop_reason: turn.stop_reason.clone(),
            error_type: turn.error_type.clone(),
            error_message: turn.error_message.clone(),
            streamed: turn.streamed,
            uncached: turn.usage.uncached,
            read: turn.usage.read,
            write_5m: turn.usage.write_5m,
            write_1h: turn.usage.write_1h,
            write_30m: turn.usage.write_30m,
            write_12h: turn.usage.write_12h,
            output: turn.usage.output,
            reasoning: turn.usage.reasoning,
            web_searches: turn.usage.web_searches,
            split_inferred: turn.usage.split_inferred,
            usage_complete: turn.usage_complete,
            usage_estimated: turn.usage_estimated,
            cost_pico: turn.cost_pico,
            cost_no_cache_pico: turn.cost_no_cache_pico,
            price_version: turn.price_version.clone(),
            inspection: turn.inspection.as_str().to_owned(),
            inspection_reason: turn.inspection.reason().map(str::to_owned),
            request_bytes: turn.request_bytes,
            sent_bytes: turn.sent_bytes,
            response_bytes: turn.response_bytes,
            blocks: turn.blocks,
            messages: turn.messages,
            tools: turn.tools,
            markers_client: turn.markers_client,
            markers_added: placed::text(&turn.markers_added)?,
            dry_run: turn.dry_run,
            root: turn.root.clone(),
            chain: turn.chain.clone(),
            response_id: turn.response_id.clone(),
            request_id: turn.request_id.clone(),
            native_diagnosis: turn.native_diagnosis.clone(),
            warnings: turn.warnings.clone(),
            verdict: owned(verdict.map(|v| v.status.as_str())),
            verdict_reason: owned(verdict.and_then(|v| v.reason).map(Reason::as_str)),
            lost_tokens: verdict.and_then(|v| v.lost_tokens),
            lost_pico: verdict.and_then(|v| v.lost_pico),
            what: owned(verdict.and_then(|v| v.what).map(What::as_str)),
            whose: owned(verdict.and_then(|v| v.whose).map(Whose::as_str)),
            first_changed: verdict.and_then(|v| v.first_changed.clone()),
            first_changed_offset: verdict.and_then(|v| v.offset),
            unjudged: owned(cache.unjudged),
            policy: owned(cache.policy),
            expected_read: cache.expected_read,
            read_of: cache.read_of,
            premium_pico: cache.premium_pico,
            duplicate_of: cache.duplicate_of,
            duplicate_tokens: cache.duplicate_tokens,
            duplicate_pico: cache.duplicate_pico,
            native_agrees: cache.native_agrees,
            helper: owned(cache.helper),
            helper_tokens: cache.helper_tokens,
            helper_pico: cache.helper_pico,
            verdict_detail: verdict.map(|v| v.detail.clone()),
            excerpt_before: excerpt.map(|e| e.before.clone()),
            excerpt_after: excerpt.map(|e| e.after.clone()),
            trail: (!cache.trail.is_empty()).then(|| Blob(cache.trail.clone())),
            guard,
            traceparent: turn.traceparent.clone(),
            batch,
        })
    }

    /// What the row says of the prompt cache.
    fn take_cache(&mut self) -> Result<CacheRecord, StoreError> {
        let status = word_or_none("verdict", self.verdict.as_deref(), Status::from_word)?;
        let reason = self.verdict_reason.as_deref();
        let reason = word_or_none("verdict_reason", reason, Reason::from_word)?;
        let what = word_or_none("what", self.what.as_deref(), What::from_word)?;
        let whose = word_or_none("whose", self.whose.as_deref(), Whose::from_word)?;
        let (before, after) = (self.excerpt_before.take(), self.excerpt_after.take());
        let verdict = status.map(|status| Verdict {
            status,
            reason,
            first_changed: self.first_changed.take(),
            offset: self.first_changed_offset,
            what,
            detail: self.verdict_detail.take().unwrap_or_default(),
            whose,
            lost_tokens: self.lost_tokens,
            lost_pico: self.lost_pico,
            excerpt: before
                .zip(after)
                .map(|(before, after)| Excerpt { before, after }),
        });
        Ok(CacheRecord {
            verdict,
            unjudged: self.unjudged.as_deref().map(intern),
            policy: self.policy.as_deref().map(intern),
            expected_read: self.expected_read,
            read_of: self.read_of,
            premium_pico: self.premium_pico,
            duplicate_of: self.duplicate_of,
            duplicate_tokens: self.duplicate_tokens,
            duplicate_pico: self.duplicate_pico,
            native_agrees: self.native_agrees,
            helper: self.helper.as_deref().map(intern),
            helper_tokens: self.helper_tokens,
            helper_pico: self.helper_pico,
            trail: self.trail.take().map(|blob| blob.0).unwrap_or_default(),
        })
    }
}

impl TryFrom<TurnRow> for TurnRecord {
    type Error = StoreError;

    fn try_from(mut row: TurnRow) -> Result<Self, StoreError> {
        let cache = row.take_cache()?;
        let guard = match row.guard.take() {
            None => GuardRecord::default(),
            Some(text) => serde_json::from_str(&text).map_err(|_| StoreError::Value {
                column: "guard",
                value: text,
            })?,
        };
        Ok(Self {
            id: row.id,
            kind: word("kind", &row.kind, RequestKind::from_word)?,
            run_id: row.run_id,
            run_source: intern(&row.run_source),
            thread_id: row.thread_id,
            parent_thread: row.parent_thread,
            agent: row.agent,
            parent_agent: row.parent_agent,
            turn: row.turn,
            attempt: row.attempt,
            app: row.app,
            client: row.client,
            upstream: row.upstream,
            credential: row.credential,
            method: row.method,
            path: row.path,
            model_requested: row.model_requested,
            model_served: row.model_served,
            started_ms: row.started,
            overhead_us: row.overhead_us,
            head_us: row.head_us,
            first_token_us: row.first_token_us,
            duration_us: row.duration_us,
            status: row.status,
            outcome: word("outcome", &row.outcome, Outcome::from_word)?,
            stop_reason: row.stop_reason,
            error_type: row.error_type,
            error_message: row.error_message,
            streamed: row.streamed,
            usage: Usage {
                uncached: row.uncached,
                read: row.read,
                write_5m: row.write_5m,
                write_1h: row.write_1h,
                write_30m: row.write_30m,
                write_12h: row.write_12h,
                output: row.output,
                reasoning: row.reasoning,
                web_searches: row.web_searches,
                split_inferred: row.split_inferred,
            },
            usage_complete: row.usage_complete,
            usage_estimated: row.usage_estimated,
            cost_pico: row.cost_pico,
            cost_no_cache_pico: row.cost_no_cache_pico,
            price_version: row.price_version,
            inspection: Inspection::from_words(&row.inspection, row.inspection_reason.as_deref())
                .ok_or(StoreError::Value {
                column: "inspection",
                value: row.inspection,
            })?,
            request_bytes: row.request_bytes,
            sent_bytes: row.sent_bytes,
            response_bytes: row.response_bytes,
            blocks: row.blocks,
            messages: row.messages,
            tools: row.tools,
            markers_client: row.markers_client,
            markers_added: placed::read(&row.markers_added).map_err(|_| StoreError::Value {
                column: "markers_added",
                value: row.markers_added,
            })?,
            dry_run: row.dry_run,
            root: row.root,
            chain: row.chain,
            response_id: row.response_id,
            request_id: row.request_id,
            native_diagnosis: row.native_diagnosis,
            warnings: row.warnings,
            traceparent: row.traceparent,
            cache,
            guard,
        })
    }
}
