//! What is remembered: threads, their runs, and by what later requests find them.

use std::collections::VecDeque;
use std::sync::Arc;

use uuid::Uuid;

use super::{MAX_THREADS, Rules};
use crate::bounded::Bounded;
use crate::prompt_cache::chain::Hash;

/// Ends of requests by which later requests find their thread.
const MAX_ENDS: usize = 4 * MAX_THREADS;
/// Tool calls whose result has not been seen.
const MAX_CALLS: usize = 65_536;
/// Prompts of pending tool calls.
const MAX_PROMPTS: usize = 16_384;
/// Roots (tools + system of a model) that have been seen.
const MAX_ROOTS: usize = 16_384;
/// Threads of one run that are searched for a rewritten history, a parent or a free name. A client
/// that gives all its conversations one id must not make each request search them all; by content
/// they are found whatever their number.
pub(super) const MAX_MEMBERS: usize = 256;

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) run: Arc<str>,
    pub(super) id: Arc<str>,
    pub(super) parent: Option<Arc<str>>,
    pub(super) agent: Option<String>,
    pub(super) root: Option<Hash>,
    pub(super) first: Option<Hash>,
    pub(super) answered: u32,
    pub(super) in_flight: Vec<(u128, u32, u32)>,
    pub(super) last: Option<Last>,
    pub(super) insertion_off: bool,
    /// Insertion waits for a request that is answered.
    pub(super) suspended: bool,
    pub(super) bytes_per_token_milli: Option<u32>,
    pub(super) last_tokens: Option<u64>,
    pub(super) depth: u32,
    pub(super) rules: Rules,
    /// Costs of its newest answered turns in pico-USD, where known.
    pub(super) costs: VecDeque<Option<u64>>,
    pub(super) last_ms: i64,
    /// Its newest request was the client's own summing-up.
    pub(super) compacting: bool,
    /// No request of it has come in this process yet.
    pub(super) restored: bool,
}

/// The newest request that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    pub(super) body: u128,
    pub(super) turn: u32,
    pub(super) attempt: u32,
    pub(super) ok: bool,
}

#[derive(Debug)]
pub(super) struct State {
    next_key: u64,
    pub(super) threads: Bounded<u64, Thread>,
    pub(super) runs: Bounded<Arc<str>, Run>,
    pub(super) ends: Bounded<Hash, u64>,
    pub(super) answers: Bounded<String, (u64, Option<Hash>)>,
    /// Pending calls by thread and id: small models number their calls anew in each conversation.
    pub(super) calls: Bounded<(u64, String), (Uuid, i64)>,
    pub(super) prompts: Bounded<Hash, u64>,
    pub(super) roots: Bounded<Hash, ()>,
    /// The newest thread of each first message, for clients that name nothing.
    pub(super) firsts: Bounded<Hash, u64>,
    /// The thread of each newest message.
    pub(super) newest: Bounded<Hash, u64>,
    /// How many runs were named after each first message.
    pub(super) openings: Bounded<Hash, u32>,
}

/// The threads of a run, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pub(super) members: Vec<u64>,
    /// Number of the newest thread without a name of its own.
    numbered: usize,
}

impl State {
    /// Nothing, with room for `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            next_key: 0,
            threads: Bounded::new(threads),
            runs: Bounded::new(threads),
            ends: Bounded::new(MAX_ENDS.min(4 * threads)),
            answers: Bounded::new(threads),
            calls: Bounded::new(MAX_CALLS),
            prompts: Bounded::new(MAX_PROMPTS),
            roots: Bounded::new(MAX_ROOTS),
            firsts: Bounded::new(threads),
            newest: Bounded::new(threads),
            openings: Bounded::new(threads),
        }
    }

    pub(super) fn open(
        &mut self,
        run: Arc<str>,
        agent: Option<String>,
        parent: Option<Arc<str>>,
        id: Option<Arc<str>>,
    ) -> u64 {
        self.next_key += 1;
        let key = self.next_key;
        let mut siblings = self.runs.remove(&run).unwrap_or_default();
        siblings
            .members
            .retain(|key| self.threads.get(key).is_some());
        if siblings.members.len() >= MAX_MEMBERS {
            // Never the first: it is the parent of all that name none.
            siblings.members.remove(1);
        }
        let taken = |id: &str| {
            siblings
                .members
                .iter()
                .any(|key| self.threads.get(key).is_some_and(|t| &*t.id == id))
        };
        let count = siblings.members.len().max(siblings.numbered);
        let mut numbered = count + 1;
        let id = id.unwrap_or_else(|| match &agent {
            Some(agent) if !taken(agent) => agent.as_str().into(),
            None if count == 0 => "main".into(),
            _ => {
                let free = (count + 1..).find(|n| !taken(&format!("t{n}")));
                numbered = free.unwrap_or(numbered);
                format!("t{numbered}").into()
            }
        });
        let depth = parent.as_ref().map_or(0, |parent| {
            let mut threads = siblings
                .members
                .iter()
                .filter_map(|key| self.threads.get(key));
            let parent = threads.find(|thread| thread.id == *parent);
            parent.map_or(1, |parent| parent.depth.saturating_add(1))
        });
        siblings.members.push(key);
        siblings.numbered = numbered;
        self.runs.insert(run.clone(), siblings);
        let thread = Thread {
            run,
            id,
            parent,
            agent,
            root: None,
            first: None,
            answered: 0,
            in_flight: Vec::new(),
            last: None,
            insertion_off: false,
            suspended: false,
            bytes_per_token_milli: None,
            last_tokens: None,
            depth,
            rules: Rules::Current,
            costs: VecDeque::new(),
            last_ms: 0,
            compacting: false,
            restored: false,
        };
        self.threads.insert(key, thread);
        key
    }
}
