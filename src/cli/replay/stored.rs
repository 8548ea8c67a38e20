//! Recorded traffic from the trace database: hashes and sizes of blocks.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use anyhow::bail;

use super::{Gathered, Source, Taken};
use crate::prompt_cache::trail::Trail;
use crate::prompt_cache::trail::code::{self, Reason};
use crate::store::{Filter, Questions, Sqlite};
use crate::trace::TurnRecord;

/// Most runs and most turns of a run that are read.
const MAX_ROWS: usize = 1_000_000;
/// Trails of a thread that later records may build on: requests that overlap end in another order
/// than they started.
const KEPT: usize = 16;

/// Reads the turns of one run, or of all.
///
/// # Errors
/// There is no trace database, it cannot be read, or it does not know the run.
pub(super) fn gather(
    data_dir: &Path,
    run: Option<&str>,
    since_ms: Option<i64>,
) -> anyhow::Result<Gathered> {
    let store = Sqlite::open_read(data_dir)?;
    let runs = match run {
        Some(run) => vec![run.to_owned()],
        None => {
            let filter = Filter {
                since_ms,
                ..Filter::all(MAX_ROWS)
            };
            let mut found = store.runs(&filter)?;
            found.sort_by(|a, b| (a.started_ms, &a.id).cmp(&(b.started_ms, &b.id)));
            found.into_iter().map(|run| run.id).collect()
        }
    };
    let mut threads = HashMap::new();
    let mut gathered = Gathered::default();
    let mut source = Source {
        name: data_dir.display().to_string(),
        ..Source::default()
    };
    let mut reasons: Vec<(Reason, u64)> = Vec::new();
    for run in runs {
        // From its beginning on, since each record builds on the one before it.
        let turns = store.turns(&run, &Filter::all(MAX_ROWS), false)?;
        if turns.is_empty() {
            bail!("no turns of a run `{run}`: `prefixgate report runs` lists the runs");
        }
        let number = u32::try_from(gathered.runs.len()).unwrap_or(u32::MAX);
        let mut trails: HashMap<String, VecDeque<(u64, Trail)>> = HashMap::new();
        for turn in &turns {
            let kept = trails.entry(turn.thread_id.clone()).or_default();
            let trail = match read(&turn.cache.trail, kept) {
                Ok(trail) => trail,
                Err(reason) => {
                    if since_ms.is_none_or(|since| turn.started_ms >= since) {
                        source.bad += 1;
                        match reasons.iter_mut().find(|(known, _)| *known == reason) {
                            Some((_, count)) => *count += 1,
                            None => reasons.push((reason, 1)),
                        }
                    }
                    continue;
                }
            };
            if since_ms.is_some_and(|since| turn.started_ms < since) {
                continue;
            }
            if !turn
                .status
                .is_some_and(|status| (200..300).contains(&status))
            {
                source.skipped += 1;
                continue;
            }
            source.requests += 1;
            let next = u32::try_from(threads.len()).unwrap_or(u32::MAX);
            let thread = (number, turn.thread_id.clone());
            let thread = *threads.entry(thread).or_insert(next);
            gathered.requests.push(taken(turn, trail, number, thread));
        }
        gathered.runs.push(run);
    }
    for (reason, count) in reasons {
        let turns = if count == 1 { "turn" } else { "turns" };
        gathered
            .notes
            .push(format!("{count} {turns} left out: {reason}"));
    }
    gathered.sources.push(source);
    Ok(gathered)
}

/// Reads a trail after the one it builds on, and keeps it for the next.
fn read(bytes: &[u8], kept: &mut VecDeque<(u64, Trail)>) -> Result<Trail, Reason> {
    let base = code::base(bytes)?;
    let previous = base.and_then(|sum| kept.iter().rev().find(|(known, _)| *known == sum));
    let trail = code::decode(bytes, previous.map(|(_, trail)| trail))?;
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back((code::checksum(&trail), trail.clone()));
    Ok(trail)
}

fn taken(turn: &TurnRecord, trail: Trail, run: u32, thread: u32) -> Taken {
    let scope = format!(
        "{}\n{}",
        turn.upstream,
        turn.credential.as_deref().unwrap_or_default()
    );
    let head = turn.head_us.and_then(|us| i64::try_from(us / 1000).ok());
    let exact = turn.usage_complete && !turn.usage_estimated;
    Taken {
        at_ms: turn.started_ms,
        begins_ms: head.map(|ms| turn.started_ms.saturating_add(ms)),
        scope: xxhash_rust::xxh3::xxh3_64(scope.as_bytes()),
        run,
        thread,
        trail,
        unmarkable: None,
        // The trail has a hash of the setting only.
        forced: false,
        prompt_tokens: turn.usage.prompt().filter(|_| exact),
    }
}

#[cfg(test)]
mod tests;
