//! The memory of lineages: which thread a request continues, and what is known of that thread.
//!
//! A thread is found, in this order: by the id of the answer it continues; by the agent it names
//! inside its run; by content, as the thread whose last request is the longest proper prefix of
//! this one; as a rewritten history of a thread with the same root. What fits nowhere opens a new
//! thread, in the run the client named, in the run of the tool call whose prompt it starts with,
//! or in a run named after its first message.
//!
//! Here is the registry with its lock. What it remembers is in `memory`; a request comes as an
//! `arrival`, its thread is looked for (`find`), it takes its `seat`, and its `answer` is reported.
//! `restore` takes up what earlier processes knew.

mod answer;
mod arrival;
mod find;
mod memory;
mod restore;
mod seat;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::answer::{Answered, AskedCall, SettledCall};
pub use self::arrival::{Arrival, NoSearch, Search};
pub use self::find::UNPLACED;
use self::memory::State;
pub use self::restore::Seed;
pub use self::seat::{Rules, Seat};

/// Threads remembered at a time, over all runs.
pub const MAX_THREADS: usize = 16_384;

/// All live lineages. Bounded; what was not touched longest is forgotten first.
#[derive(Debug)]
pub struct Registry {
    state: Mutex<State>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(MAX_THREADS)
    }
}

impl Registry {
    /// An empty registry for at most `threads` threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            state: Mutex::new(State::new(threads)),
        }
    }

    /// Finds or opens the place of a request.
    pub fn arrive(&self, arrival: &Arrival<'_>, search: &impl Search) -> Seat {
        let state = &mut *self.lock();
        let root_seen = arrival.model_root.is_some_and(|root| {
            let seen = state.roots.get(&root).is_some();
            state.roots.insert(root, ());
            seen
        });
        let found = state.find(arrival, search);
        let mut seat = state.take_seat(arrival, &found);
        seat.root_seen = root_seen;
        seat
    }

    /// Threads remembered now.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.lock().threads.len()
    }

    /// A panic while the lock was held leaves a map that is still a map.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
