//! What a starting gateway needs to know of the threads it served before.

use rusqlite::Row;

use super::Sqlite;
use crate::store::StoreError;

/// Where a thread stood. Hashes and ids only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSeed {
    /// Run.
    pub run_id: String,
    /// Where the run's name came from.
    pub run_source: String,
    /// Thread.
    pub thread_id: String,
    /// The thread that started it.
    pub parent_thread: Option<String>,
    /// The client's name of the agent.
    pub agent: Option<String>,
    /// The highest turn number given.
    pub turn: u32,
    /// Keyed hash of tools and system.
    pub root: Option<String>,
    /// Keyed chain hash at the last block.
    pub chain: Option<String>,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// Start of the turn that the seed describes, UTC milliseconds.
    pub started_ms: i64,
    /// Application.
    pub app: Option<String>,
    /// Blocks of its request.
    pub blocks: u32,
    /// Messages of its request.
    pub messages: u32,
    /// Upstream.
    pub upstream: String,
    /// Keyed hash of the credential.
    pub credential: Option<String>,
    /// Model asked for.
    pub model_requested: Option<String>,
    /// Model that answered.
    pub model_served: Option<String>,
    /// The rules that bind the thread, as the newest turn that tells them has them; see
    /// [`crate::trace::GuardRecord`].
    pub policy: Option<String>,
}

/// The newest turn that was answered stands for its thread; the newest one at all if none was.
///
/// What binds a thread binds it for ever, so that a turn which says nothing of it (one that was
/// refused before anybody looked) does not unbind it. `policy` goes with the row of the maximum.
const NEWEST: &str = "\
    WITH bound AS (SELECT run_id, thread_id, json_extract(guard, '$.policy') AS policy, MAX(seq) \
        FROM turns WHERE guard IS NOT NULL AND kind = 'turn' AND started_ms >= ?1 \
            AND json_extract(guard, '$.policy') IS NOT NULL GROUP BY run_id, thread_id) \
    SELECT n.run_id, n.run_source, n.thread_id, n.parent_thread, n.agent, n.highest, n.root, \
        n.chain, n.response_id, n.started_ms, n.app, n.blocks, n.messages, n.upstream, \
        n.credential, n.model_requested, n.model_served, bound.policy \
    FROM (SELECT seq, run_id, run_source, thread_id, parent_thread, agent, root, chain, \
            response_id, started_ms, app, blocks, messages, upstream, credential, \
            model_requested, model_served, MAX(turn) OVER thread AS highest, MAX(started_ms) OVER thread AS active_ms, \
            ROW_NUMBER() OVER ( \
                PARTITION BY run_id, thread_id \
                ORDER BY response_id IS NOT NULL DESC, turn DESC, seq DESC) AS place \
        FROM turns WHERE kind = 'turn' AND started_ms >= ?1 \
        WINDOW thread AS (PARTITION BY run_id, thread_id)) n \
        LEFT JOIN bound ON bound.run_id = n.run_id AND bound.thread_id = n.thread_id \
    WHERE n.place = 1 ORDER BY n.active_ms DESC, n.seq DESC LIMIT ?2";

impl Sqlite {
    /// The newest turn of each thread that was active since `since_ms` (UTC milliseconds), the
    /// most recently active threads first, at most `limit` of them.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn recent_threads(
        &self,
        limit: usize,
        since_ms: i64,
    ) -> Result<Vec<ThreadSeed>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with(|c| {
            c.prepare(NEWEST)?
                .query_map((since_ms, limit), read)?
                .collect()
        })
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<ThreadSeed> {
    Ok(ThreadSeed {
        run_id: row.get(0)?,
        run_source: row.get(1)?,
        thread_id: row.get(2)?,
        parent_thread: row.get(3)?,
        agent: row.get(4)?,
        turn: row.get(5)?,
        root: row.get(6)?,
        chain: row.get(7)?,
        response_id: row.get(8)?,
        started_ms: row.get(9)?,
        app: row.get(10)?,
        blocks: row.get(11)?,
        messages: row.get(12)?,
        upstream: row.get(13)?,
        credential: row.get(14)?,
        model_requested: row.get(15)?,
        model_served: row.get(16)?,
        policy: row.get(17)?,
    })
}
