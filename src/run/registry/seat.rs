//! A request takes its seat in the thread that was found: its turn and attempt, and what is known
//! of the thread.

use std::sync::Arc;

use super::find::Found;
use super::memory::{State, Thread};
use super::{Arrival, UNPLACED};
use crate::guard::loops::Policy;
use crate::prompt_cache::chain::Hash;
use crate::provider::view::History;

/// Requests of one thread that are under way at once; more are still served, but not told apart.
const MAX_IN_FLIGHT: usize = 64;

/// Which rules about loops hold for a thread. Text that its model has seen has to stay where it
/// was, so a thread keeps the rules that it was begun with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rules {
    /// Those of the settings.
    #[default]
    Current,
    /// Those of the settings, without hints: it was begun when there were none.
    WithoutHints,
    /// Those it was begun with.
    Kept(Arc<Policy>),
}

/// A request's place.
#[derive(Debug, Clone)]
pub struct Seat {
    /// The run.
    pub run_id: Arc<str>,
    /// Where its name came from.
    pub run_source: &'static str,
    /// The thread inside the run.
    pub thread_id: Arc<str>,
    /// The thread that started it.
    pub parent_thread: Option<Arc<str>>,
    /// 1-based number of the turn in the thread.
    pub turn: u32,
    /// 1 for the first try.
    pub attempt: u32,
    /// Number of leading blocks that the thread's previous request already had, where content shows it.
    pub previous_end: Option<usize>,
    /// Chain hash to go on from when the provider holds the history.
    pub base: Option<Hash>,
    /// False when the history is held by the provider and not remembered here.
    pub history_seen: bool,
    /// It names a parent that is not known, and was taken for a child of the run's first agent.
    pub unknown_parent: bool,
    /// These tools and this system were seen before, for this model.
    pub root_seen: bool,
    /// Markers of ours were refused in this thread before.
    pub insertion_off: bool,
    /// Bytes of body per 1000 tokens of prompt, as this thread's exact usage showed.
    pub bytes_per_token_milli: Option<u32>,
    /// Exact tokens of the thread's newest prompt together with its answer.
    pub last_tokens: Option<u64>,
    /// How many agents stand between it and the one that began the run; 0 for that one.
    pub depth: u32,
    /// Which rules about loops hold for it.
    pub rules: Rules,
    pub(super) key: u64,
    pub(super) body: u128,
}

impl State {
    pub(super) fn take_seat(&mut self, a: &Arrival<'_>, found: &Found) -> Seat {
        if let Some(&end) = a.chain.last()
            && !matches!(a.history, History::Continues(_))
        {
            self.ends.insert(end, found.key);
            if let Some(first) = a.first {
                self.firsts.insert(first, found.key);
            }
            if let Some(newest) = a.newest {
                self.newest.insert(newest, found.key);
            }
        }
        let mut seat = Seat {
            run_id: UNPLACED.into(),
            run_source: found.source,
            thread_id: "main".into(),
            parent_thread: None,
            turn: 1,
            attempt: 1,
            previous_end: found.previous_end,
            base: found.base,
            history_seen: found.history_seen,
            unknown_parent: found.unknown_parent,
            root_seen: false,
            insertion_off: false,
            bytes_per_token_milli: None,
            last_tokens: None,
            depth: 0,
            rules: Rules::Current,
            key: found.key,
            body: a.body,
        };
        let Some(thread) = self.threads.touch(&found.key) else {
            return seat;
        };
        if !matches!(a.history, History::Continues(_)) {
            thread.root = a.root.or(thread.root);
            thread.first = a.first.or(thread.first);
        }
        thread.last_ms = a.now_ms;
        thread.compacting = a.identity.compaction;
        thread.restored = false;
        (seat.turn, seat.attempt) = thread.number(a.body, a.identity.retries);
        seat.run_id = thread.run.clone();
        seat.thread_id = thread.id.clone();
        seat.parent_thread = thread.parent.clone();
        seat.insertion_off = thread.insertion_off || thread.suspended;
        seat.bytes_per_token_milli = thread.bytes_per_token_milli;
        seat.last_tokens = thread.last_tokens;
        seat.depth = thread.depth;
        seat.rules = thread.rules.clone();
        if let Some(run) = self.runs.remove(&seat.run_id) {
            // Renews the run beside its thread.
            self.runs.insert(seat.run_id.clone(), run);
        }
        seat
    }
}

impl Thread {
    /// Turn and attempt of the request that this one repeats: the same bytes while the first is
    /// under way or after it has failed, or after it was answered if the client says that it
    /// tries again.
    pub(super) fn earlier(&self, body: u128, retries: u32) -> Option<(u32, u32)> {
        let under_way = self.in_flight.iter().rev().find(|entry| entry.0 == body);
        let ended = self
            .last
            .filter(|last| last.body == body && (!last.ok || retries > 0));
        under_way
            .map(|entry| (entry.1, entry.2))
            .or_else(|| ended.map(|last| (last.turn, last.attempt)))
    }

    /// Turn and attempt of a request, and takes note of it. A first attempt that nobody here has
    /// seen leaves this one to stand for its turn.
    fn number(&mut self, body: u128, retries: u32) -> (u32, u32) {
        let (turn, attempt) = match self.earlier(body, retries) {
            Some((turn, attempt)) => (
                turn,
                attempt.saturating_add(1).max(retries.saturating_add(1)),
            ),
            None => {
                let mut turns: Vec<u32> = self.in_flight.iter().map(|entry| entry.1).collect();
                turns.sort_unstable();
                turns.dedup();
                let under_way = u32::try_from(turns.len()).unwrap_or(u32::MAX);
                (self.answered.saturating_add(under_way).saturating_add(1), 1)
            }
        };
        if self.in_flight.len() < MAX_IN_FLIGHT {
            self.in_flight.push((body, turn, attempt));
        }
        (turn, attempt)
    }
}
