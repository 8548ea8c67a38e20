//! The tables, and how an older database becomes a current one.
//!
//! A released migration is never edited; a change is a new one at the end. Times are UTC
//! milliseconds since 1970, durations microseconds unless the name says otherwise, money is
//! pico-USD (1e-12 USD), NULL is "unknown". UUIDs are 16-byte BLOBs: `lower(hex(id))` shows them.
//! Words are those of [`crate::trace`]. There is no column for content but `excerpt_before` and
//! `excerpt_after`, which are empty unless capture is on.

use rusqlite::TransactionBehavior;

use super::Sqlite;
use crate::store::StoreError;

/// The steps from an empty file to the current schema; `user_version` counts those done.
const MIGRATIONS: &[&str] = &[TURNS_AND_CALLS, CACHE, GUARD, CONTEXT, LIFETIMES];

pub(super) const TURNS_AND_CALLS: &str = r"
CREATE TABLE turns (
    seq                INTEGER PRIMARY KEY,  -- order of writing
    id                 BLOB    NOT NULL,
    kind               TEXT    NOT NULL,     -- only 'turn' is a turn of the run
    run_id             TEXT    NOT NULL,
    run_source         TEXT    NOT NULL,
    thread_id          TEXT    NOT NULL,
    parent_thread      TEXT,
    agent              TEXT,
    parent_agent       TEXT,
    turn               INTEGER NOT NULL,     -- 1-based in the thread
    attempt            INTEGER NOT NULL,     -- above 1: a client's retry of the same turn
    app                TEXT,
    client             TEXT,
    upstream           TEXT    NOT NULL,
    credential         TEXT,                 -- keyed hash
    method             TEXT    NOT NULL,
    path               TEXT    NOT NULL,
    model_requested    TEXT,
    model_served       TEXT,
    started_ms         INTEGER NOT NULL,
    overhead_us        INTEGER,
    head_us            INTEGER,
    first_token_us     INTEGER,
    duration_us        INTEGER NOT NULL,
    status             INTEGER,
    outcome            TEXT    NOT NULL,
    stop_reason        TEXT,
    error_type         TEXT,
    error_message      TEXT,
    streamed           INTEGER NOT NULL,
    uncached           INTEGER,              -- input tokens, in kinds that do not overlap
    read               INTEGER,
    write_5m           INTEGER,
    write_1h           INTEGER,
    output             INTEGER,
    reasoning          INTEGER,              -- part of output
    web_searches       INTEGER,
    split_inferred     INTEGER NOT NULL,
    usage_complete     INTEGER NOT NULL,
    usage_estimated    INTEGER NOT NULL,
    cost_pico          INTEGER,
    cost_no_cache_pico INTEGER,
    price_version      TEXT,
    inspection         TEXT    NOT NULL,
    inspection_reason  TEXT,
    request_bytes      INTEGER NOT NULL,
    sent_bytes         INTEGER NOT NULL,
    response_bytes     INTEGER NOT NULL,
    blocks             INTEGER NOT NULL,
    messages           INTEGER NOT NULL,
    tools              INTEGER NOT NULL,
    markers_client     INTEGER NOT NULL,
    markers_added      TEXT    NOT NULL,     -- JSON: [{path, ttl, offset}]
    dry_run            INTEGER NOT NULL,
    root               TEXT,                 -- keyed hashes
    chain              TEXT,
    response_id        TEXT,
    request_id         TEXT,
    native_diagnosis   TEXT,
    warnings           TEXT    NOT NULL      -- JSON: [word]
) STRICT;
-- Fixed at creation: a record that is written again is not another row.
CREATE UNIQUE INDEX turns_by_id ON turns (id);
-- Ranges of time, days, removal of the oldest.
CREATE INDEX turns_by_start ON turns (started_ms);
-- Runs and their turns; the newest runs without touching a row.
CREATE INDEX turns_by_run ON turns (run_id, kind, started_ms);

CREATE TABLE tool_calls (
    seq          INTEGER PRIMARY KEY,
    turn_id      BLOB    NOT NULL,           -- the turn whose answer asked for it
    run_id       TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    call_id      TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    input_hash   TEXT    NOT NULL,           -- keyed hash
    input_bytes  INTEGER NOT NULL,
    asked_ms     INTEGER NOT NULL,
    status       TEXT    NOT NULL,
    latency_ms   INTEGER,
    result_bytes INTEGER
) STRICT;
CREATE UNIQUE INDEX tool_calls_by_turn ON tool_calls (turn_id, call_id);
CREATE INDEX tool_calls_by_start ON tool_calls (asked_ms);
CREATE INDEX tool_calls_by_run ON tool_calls (run_id, thread_id, call_id);
";

/// What the prompt-cache engine says. Rows from before have NULL throughout: nothing was judged.
/// What sums are made of comes first, since a long row goes on in pages of its own.
pub(super) const CACHE: &str = r"
ALTER TABLE turns ADD COLUMN verdict              TEXT;    -- status; NULL: not judged
ALTER TABLE turns ADD COLUMN verdict_reason       TEXT;
ALTER TABLE turns ADD COLUMN lost_tokens          INTEGER;
ALTER TABLE turns ADD COLUMN lost_pico            INTEGER;
ALTER TABLE turns ADD COLUMN what                 TEXT;
ALTER TABLE turns ADD COLUMN whose                TEXT;
ALTER TABLE turns ADD COLUMN first_changed        TEXT;    -- JSON path
ALTER TABLE turns ADD COLUMN first_changed_offset INTEGER;
ALTER TABLE turns ADD COLUMN unjudged             TEXT;    -- why there is no verdict
ALTER TABLE turns ADD COLUMN policy               TEXT;
ALTER TABLE turns ADD COLUMN expected_read        INTEGER;
ALTER TABLE turns ADD COLUMN read_of              BLOB;    -- the turn that wrote what was read
ALTER TABLE turns ADD COLUMN premium_pico         INTEGER;
ALTER TABLE turns ADD COLUMN duplicate_of         BLOB;    -- the turn that wrote the same meanwhile
ALTER TABLE turns ADD COLUMN duplicate_tokens     INTEGER;
ALTER TABLE turns ADD COLUMN duplicate_pico       INTEGER;
ALTER TABLE turns ADD COLUMN native_agrees        INTEGER;
ALTER TABLE turns ADD COLUMN helper               TEXT;
ALTER TABLE turns ADD COLUMN helper_tokens        INTEGER;
ALTER TABLE turns ADD COLUMN helper_pico          INTEGER; -- negative: it cost more
ALTER TABLE turns ADD COLUMN verdict_detail       TEXT;
ALTER TABLE turns ADD COLUMN excerpt_before       TEXT;    -- content; NULL unless captured
ALTER TABLE turns ADD COLUMN excerpt_after        TEXT;
ALTER TABLE turns ADD COLUMN trail                BLOB;    -- hashes and sizes of the blocks
-- Culprits and losses.
CREATE INDEX turns_by_break ON turns (started_ms)
    WHERE verdict IN ('partial', 'miss') OR lost_tokens > 0;
-- Whether what a turn wrote was read.
CREATE INDEX turns_by_read_of ON turns (read_of, kind, started_ms) WHERE read_of IS NOT NULL;
CREATE INDEX turns_by_duplicate ON turns (started_ms) WHERE duplicate_of IS NOT NULL;
CREATE INDEX turns_by_diagnosis ON turns (started_ms)
    WHERE native_diagnosis IS NOT NULL OR native_agrees IS NOT NULL;
";

/// What the guards say. Rows from before have NULL: nothing was looked at.
const GUARD: &str = r"
ALTER TABLE turns ADD COLUMN guard TEXT;           -- JSON; NULL: nothing to say
-- The rules that bind a thread, without going through healthy rows.
CREATE INDEX turns_by_guard ON turns (started_ms) WHERE guard IS NOT NULL;
ALTER TABLE tool_calls ADD COLUMN wrong TEXT;      -- what is wrong with the call itself
ALTER TABLE tool_calls ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;

CREATE TABLE events (
    seq         INTEGER PRIMARY KEY,
    id          BLOB    NOT NULL,
    at_ms       INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    name        TEXT    NOT NULL,     -- the detector, the cap, or the alert's name
    run_id      TEXT    NOT NULL,     -- empty: it concerns none
    thread_id   TEXT    NOT NULL,     -- the same
    turn_id     BLOB,
    app         TEXT,
    scope       TEXT    NOT NULL,     -- of a cap
    action      TEXT    NOT NULL,
    value       INTEGER,              -- in the cap's unit, or the count of a loop
    limit_value INTEGER,
    level       INTEGER,              -- per cent of a cap
    pico        INTEGER,              -- what a loop has cost so far
    tools       TEXT    NOT NULL      -- JSON: [name]
) STRICT;
CREATE UNIQUE INDEX events_by_id ON events (id);
CREATE INDEX events_by_start ON events (at_ms);
CREATE INDEX events_by_run ON events (run_id, at_ms);
";

/// The trace that the client told. Rows from before have NULL: not looked at.
const CONTEXT: &str = r"
ALTER TABLE turns ADD COLUMN traceparent TEXT;
";

/// Writes with the lifetimes of OpenAI's cache.
const LIFETIMES: &str = r"
ALTER TABLE turns ADD COLUMN write_30m INTEGER;
ALTER TABLE turns ADD COLUMN write_12h INTEGER;
";

/// The schema of this version.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Brings the database up to date; several processes may do so at once.
pub(super) fn migrate(store: &mut Sqlite) -> Result<(), StoreError> {
    if found(store)? < VERSION {
        run_missing(store)?;
    }
    // Also after the migration, which another, newer process may have overtaken.
    check(store)
}

fn run_missing(store: &mut Sqlite) -> Result<(), StoreError> {
    let done = (|| {
        let step = store
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let from: i64 = step.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for missing in MIGRATIONS
            .iter()
            .skip(usize::try_from(from).unwrap_or_default())
        {
            step.execute_batch(missing)?;
        }
        if from < VERSION {
            step.pragma_update(None, "user_version", VERSION)?;
        }
        step.commit()
    })();
    done.map_err(|source| store.error(source))
}

/// Whether the database has the schema of this version.
pub(super) fn check(store: &Sqlite) -> Result<(), StoreError> {
    let path = store.path.clone();
    match refuse_newer(store)? {
        // A gateway that has only just made the file.
        0 => Err(StoreError::Missing { path }),
        VERSION => Ok(()),
        found => Err(StoreError::Older {
            path,
            found,
            known: VERSION,
        }),
    }
}

/// The schema of the database, unless a newer prefixgate has written it.
pub(super) fn refuse_newer(store: &Sqlite) -> Result<i64, StoreError> {
    match found(store)? {
        found if found > VERSION => Err(StoreError::Newer {
            path: store.path.clone(),
            found,
            known: VERSION,
        }),
        found => Ok(found),
    }
}

fn found(store: &Sqlite) -> Result<i64, StoreError> {
    store.with(|c| c.pragma_query_value(None, "user_version", |row| row.get(0)))
}
