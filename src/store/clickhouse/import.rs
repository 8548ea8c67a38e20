//! Moves what SQLite has to the server.
//!
//! A page of records at a time, of which only what the server lacks is sent. It can be stopped and
//! begun again at any point. Records that wait in the spool of a running gateway are not on the
//! server yet and would be sent by both: the views show them once all the same, the sums by hour
//! would not. So it ends at `until_ms`, which the caller sets before the oldest of those.

use std::collections::VecDeque;
use std::time::Duration;

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3Default;

use super::present::{MAX_IDS, Range};
use super::{ClickHouseSink, Error, Failure, row};
use crate::store::Sqlite;
use crate::store::sqlite::Kept;
use crate::trace::Entry;

/// Records of a page: as many as a question to the server may name.
const PAGE: usize = MAX_IDS;
/// Pauses before something that failed is tried again; after the last it is given up.
const PAUSES: &[Duration] = &[
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(8),
];

/// What became of the records of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Sent.
    pub sent: u64,
    /// There already.
    pub present: u64,
    /// Older than what the server keeps, or not before `until_ms`.
    pub outside: u64,
    /// Not taken by the server.
    pub refused: u64,
}

/// What was moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Requests.
    pub turns: Moved,
    /// Tool calls.
    pub calls: Moved,
    /// Events.
    pub events: Moved,
}

/// Moves the records of `from` that started before `until_ms` and are no older than the retention
/// at `now_ms`, UTC milliseconds both. Reading blocks: not for a thread that serves requests.
///
/// # Errors
/// SQLite cannot be read, or the server does not take the records within a few tries.
pub async fn import(
    sink: &mut ClickHouseSink,
    from: &mut Sqlite,
    until_ms: i64,
    now_ms: i64,
) -> Result<Imported, Error> {
    patiently(sink, async |sink| sink.prepare().await).await?;
    let oldest_ms = sink.dialect.oldest_ms(now_ms);
    let mut imported = Imported::default();
    // Turns last, as in a batch: calls of a turn that is not there hurt less than the reverse.
    for (of, moved) in [
        (Kept::Events, &mut imported.events),
        (Kept::Calls, &mut imported.calls),
        (Kept::Turns, &mut imported.turns),
    ] {
        let mut after = 0;
        while let Some((mut page, last)) = from.page(of, after, PAGE)? {
            after = last;
            let all = page.len();
            page.retain(|entry| {
                let at = entry.at_ms();
                at.is_some_and(|at| at >= oldest_ms && at < until_ms)
            });
            moved.outside += count(all - page.len());
            let inside = page.len();
            let missing = patiently(sink, async |sink| missing(sink, of, &page).await).await?;
            let mut missing = missing.into_iter();
            page.retain(|_| missing.next().unwrap_or(true));
            moved.present += count(inside - page.len());
            send(sink, page, moved).await?;
        }
    }
    Ok(imported)
}

fn count(n: usize) -> u64 {
    n as u64
}

/// For each entry whether the server lacks it.
async fn missing(sink: &ClickHouseSink, of: Kept, page: &[Entry]) -> Result<Vec<bool>, Failure> {
    let times = || page.iter().filter_map(Entry::at_ms);
    let (Some(from_ms), Some(to_ms)) = (times().min(), times().max()) else {
        return Ok(Vec::new());
    };
    let range = Range { from_ms, to_ms };
    let mut ids: Vec<Uuid> = page.iter().filter_map(id).collect();
    if of == Kept::Calls {
        ids.dedup();
        let present = sink.calls_present(range, &ids).await?;
        let lacks = |entry: &Entry| match entry {
            Entry::Call(call) => present
                .get(&(call.turn_id, call.call_id.clone()))
                .is_none_or(|version| *version < row::version(call.status)),
            _ => true,
        };
        return Ok(page.iter().map(lacks).collect());
    }
    let present = match of {
        Kept::Turns => sink.turns_present(range, &ids).await?,
        _ => sink.events_present(range, &ids).await?,
    };
    let lacks = |entry| id(entry).is_none_or(|id| !present.contains(&id));
    Ok(page.iter().map(lacks).collect())
}

/// The id of a turn or an event; of a call that of its turn.
fn id(entry: &Entry) -> Option<Uuid> {
    match entry {
        Entry::Turn(turn) => Some(turn.id),
        Entry::Call(call) => Some(call.turn_id),
        Entry::Event(event) => Some(event.id),
        Entry::Result(_) => None,
    }
}

/// Sends entries; those that are refused are halved until the one at fault is left out.
async fn send(
    sink: &mut ClickHouseSink,
    entries: Vec<Entry>,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let mut waiting = VecDeque::from([entries.as_slice()]);
    while let Some(part) = waiting.pop_front() {
        if part.is_empty() {
            continue;
        }
        let token = token(part);
        match patiently(sink, async |sink| sink.insert(&token, part).await).await {
            Ok(()) => moved.sent += count(part.len()),
            Err(Failure::Refused { .. }) if part.len() > 1 => {
                let (front, back) = part.split_at(part.len() / 2);
                waiting.push_front(back);
                waiting.push_front(front);
            }
            Err(Failure::Refused { why }) => {
                tracing::warn!(%why, "a record was not taken by ClickHouse");
                moved.refused += 1;
            }
            Err(later) => return Err(later),
        }
    }
    Ok(())
}

/// The same for the same records in the same order and state.
fn token(entries: &[Entry]) -> String {
    let mut hash = Xxh3Default::new();
    for entry in entries {
        if let Some(id) = id(entry) {
            hash.update(id.as_bytes());
        }
        if let Entry::Call(call) = entry {
            hash.update(call.call_id.as_bytes());
            hash.update(&[0, row::version(call.status)]);
        }
    }
    format!("import-{:032x}-{}", hash.digest128(), entries.len())
}

/// Does something a few times before it is given up.
async fn patiently<T>(
    sink: &mut ClickHouseSink,
    mut work: impl AsyncFnMut(&mut ClickHouseSink) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut pauses = PAUSES.iter();
    loop {
        match work(sink).await {
            Err(Failure::Later { why, after }) => match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(Failure::Later { why, after }),
            },
            done => return done,
        }
    }
}
