//! Threads of earlier processes, taken up from their records.

use std::sync::Arc;

use super::{Registry, Rules};
use crate::guard::loops::Policy;
use crate::prompt_cache::chain::Hash;

/// What a restarted gateway knows of a thread from its records.
#[derive(Debug, Clone)]
pub struct Seed {
    /// Run.
    pub run_id: String,
    /// Thread.
    pub thread_id: String,
    /// The thread that started it.
    pub parent_thread: Option<String>,
    /// The client's name of the agent.
    pub agent: Option<String>,
    /// Turns answered.
    pub turns: u32,
    /// Root of its newest request.
    pub root: Option<Hash>,
    /// Chain at the end of its newest request.
    pub chain: Option<Hash>,
    /// Id of its newest answer.
    pub response_id: Option<String>,
    /// Start of its newest request.
    pub last_ms: i64,
    /// The rules about loops that bind it, as [`Policy::code`] spells them; `None` where no hints
    /// were among them.
    pub policy: Option<String>,
}

impl Registry {
    /// Takes up threads of earlier processes, oldest first.
    pub fn restore(&self, seeds: impl IntoIterator<Item = Seed>) {
        let state = &mut *self.lock();
        for seed in seeds {
            let key = state.open(
                seed.run_id.into(),
                seed.agent,
                seed.parent_thread.map(Into::into),
                Some(seed.thread_id.into()),
            );
            if let Some(thread) = state.threads.get_mut(&key) {
                thread.root = seed.root;
                thread.answered = seed.turns;
                thread.last_ms = seed.last_ms;
                thread.restored = true;
                let kept = seed.policy.as_deref().and_then(Policy::from_code);
                thread.rules = match kept {
                    Some(policy) => Rules::Kept(Arc::new(policy)),
                    None => Rules::WithoutHints,
                };
            }
            if let Some(end) = seed.chain {
                state.ends.insert(end, key);
            }
            if let Some(id) = seed.response_id {
                state.answers.insert(id, (key, seed.chain));
            }
        }
    }
}
