//! The memory of lineages: which thread a request continues, and what is known of that thread.
//!
//! A thread is found, in this order: by the id of the answer it continues; by the agent it names
//! inside its run; by content, as the thread whose last request is the longest proper prefix of
//! this one; as a rewritten history of a thread with the same root. What fits nowhere opens a new
//! thread, in the run the client named, in the run of the tool call whose prompt it starts with,
//! or in a run named after its first message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::identify::Identity;
use crate::bounded::Bounded;
use crate::guard::loops::Policy;
use crate::prompt_cache::chain::Hash;
use crate::provider::view::History;

/// Threads remembered at a time, over all runs.
pub const MAX_THREADS: usize = 16_384;
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
const MAX_MEMBERS: usize = 256;
/// Requests of one thread that are under way at once; more are still served, but not told apart.
const MAX_IN_FLIGHT: usize = 64;
/// Turns of a thread whose costs are remembered, for what a loop has cost.
const MAX_COSTS: usize = 256;
/// Bytes per token in thousandths that text can have. Pictures and documents in a body show other
/// ratios, which say nothing about its text.
const PLAUSIBLE_RATIOS: std::ops::RangeInclusive<u32> = 1_000..=8_000;
/// A rewritten history is attributed to a thread with the same root only while that is this young.
const REWRITE_WINDOW_MS: i64 = 60 * 60 * 1000;

/// A request as the registry sees it.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// What the client said about itself.
    pub identity: &'a Identity,
    /// Run id from trace context, the weakest hint.
    pub trace: Option<String>,
    /// Chain hash after each block; empty when the body was not inspected.
    pub chain: &'a [Hash],
    /// Number of blocks up to and including each message.
    pub borders: &'a [usize],
    /// Chain hash after tools and system.
    pub root: Option<Hash>,
    /// The root within its model's cache.
    pub model_root: Option<Hash>,
    /// Hash of the first message alone, whatever stands before it: a clock in the system prompt
    /// must not tear a conversation apart.
    pub first: Option<Hash>,
    /// Hash of the newest message alone, where it is long enough to stand for its conversation.
    pub newest: Option<Hash>,
    /// The model has spoken before in this conversation.
    pub has_history: bool,
    /// Who holds the history.
    pub history: &'a History,
    /// Hash of the body as it came; equal bodies are retries.
    pub body: u128,
    /// UTC milliseconds.
    pub now_ms: i64,
}

/// What costs too much to be computed for every request: asked for only when the request fits no
/// known thread by its prefix.
pub trait Search {
    /// Hashes of the texts of the first message, as pending prompts are hashed.
    fn opening_texts(&self) -> Vec<Hash>;
    /// Hashes of the messages, newest first, as [`Arrival::newest`]; those that are too short to
    /// stand for a conversation left out.
    fn messages(&self) -> Vec<Hash>;
}

/// For a body that has nothing to be found by, or could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSearch;

impl Search for NoSearch {
    fn opening_texts(&self) -> Vec<Hash> {
        Vec::new()
    }
    fn messages(&self) -> Vec<Hash> {
        Vec::new()
    }
}

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
    key: u64,
    body: u128,
}

/// A tool call that an answer asks for.
#[derive(Debug, Clone)]
pub struct AskedCall {
    /// The provider's id of the call.
    pub id: String,
    /// Hashes of the strings in its input that may be a sub-agent's prompt.
    pub prompts: Vec<Hash>,
}

/// How a request ended, for the thread.
#[derive(Debug, Default)]
pub struct Answered {
    /// A whole answer was delivered.
    pub ok: bool,
    /// Chain hash at the end of the request.
    pub end: Option<Hash>,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// The id of the conversation that it became a part of, as [`History::Continues`] names it.
    pub conversation: Option<String>,
    /// The turn's id in the records.
    pub turn_id: Uuid,
    /// Calls the answer asks for.
    pub calls: Vec<AskedCall>,
    /// Exact tokens of the prompt and the bytes of the body they came from.
    pub prompt: Option<(u64, u64)>,
    /// Exact tokens of the answer.
    pub output: Option<u64>,
    /// UTC milliseconds.
    pub now_ms: i64,
}

/// A tool call whose result has been seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledCall {
    /// Run of the call.
    pub run_id: Arc<str>,
    /// Thread of the call.
    pub thread_id: Arc<str>,
    /// The turn whose answer asked for it.
    pub turn_id: Uuid,
    /// From the end of the answer to the request with the result.
    pub latency_ms: u64,
}

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

/// The run of what names none and cannot be read.
pub const UNPLACED: &str = "unplaced";

#[derive(Debug)]
struct Thread {
    run: Arc<str>,
    id: Arc<str>,
    parent: Option<Arc<str>>,
    agent: Option<String>,
    root: Option<Hash>,
    first: Option<Hash>,
    answered: u32,
    in_flight: Vec<(u128, u32, u32)>,
    last: Option<Last>,
    insertion_off: bool,
    /// Insertion waits for a request that is answered.
    suspended: bool,
    bytes_per_token_milli: Option<u32>,
    last_tokens: Option<u64>,
    depth: u32,
    rules: Rules,
    /// Costs of its newest answered turns in pico-USD, where known.
    costs: VecDeque<Option<u64>>,
    last_ms: i64,
    /// Its newest request was the client's own summing-up.
    compacting: bool,
    /// No request of it has come in this process yet.
    restored: bool,
}

/// The newest request that has ended.
#[derive(Debug, Clone, Copy)]
struct Last {
    body: u128,
    turn: u32,
    attempt: u32,
    ok: bool,
}

#[derive(Debug)]
struct State {
    next_key: u64,
    threads: Bounded<u64, Thread>,
    runs: Bounded<Arc<str>, Run>,
    ends: Bounded<Hash, u64>,
    answers: Bounded<String, (u64, Option<Hash>)>,
    /// Pending calls by thread and id: small models number their calls anew in each conversation.
    calls: Bounded<(u64, String), (Uuid, i64)>,
    prompts: Bounded<Hash, u64>,
    roots: Bounded<Hash, ()>,
    /// The newest thread of each first message, for clients that name nothing.
    firsts: Bounded<Hash, u64>,
    /// The thread of each newest message.
    newest: Bounded<Hash, u64>,
    /// How many runs were named after each first message.
    openings: Bounded<Hash, u32>,
}

/// The threads of a run, oldest first.
#[derive(Debug, Clone, Default)]
struct Run {
    members: Vec<u64>,
    /// Number of the newest thread without a name of its own.
    numbered: usize,
}

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
        let state = State {
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
        };
        Self {
            state: Mutex::new(state),
        }
    }

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

    /// Reports the end of a request.
    pub fn answered(&self, seat: &Seat, end: Answered) {
        let state = &mut *self.lock();
        let Some(thread) = state.threads.touch(&seat.key) else {
            return;
        };
        thread
            .in_flight
            .retain(|(body, turn, _)| (*body, *turn) != (seat.body, seat.turn));
        thread.last_ms = end.now_ms;
        if end.ok {
            thread.answered = thread.answered.max(seat.turn);
            thread.suspended = false;
        }
        thread.last = Some(Last {
            body: seat.body,
            turn: seat.turn,
            attempt: seat.attempt,
            ok: end.ok,
        });
        if let Some((tokens, bytes)) = end.prompt
            && let Some(milli) = bytes.saturating_mul(1000).checked_div(tokens)
            && let Ok(milli) = u32::try_from(milli)
            && PLAUSIBLE_RATIOS.contains(&milli)
        {
            thread.bytes_per_token_milli = Some(milli);
        }
        if let (Some((prompt, _)), Some(output)) = (end.prompt, end.output) {
            thread.last_tokens = Some(prompt.saturating_add(output));
        }
        for id in [end.response_id, end.conversation].into_iter().flatten() {
            state.answers.insert(id, (seat.key, end.end));
        }
        for call in end.calls {
            for prompt in call.prompts {
                state.prompts.insert(prompt, seat.key);
            }
            let asked = (end.turn_id, end.now_ms);
            state.calls.insert((seat.key, call.id), asked);
        }
    }

    /// Takes note that a tool result was seen by the request in `seat`; `None` for a call that is
    /// not pending in its thread or another one of its run.
    pub fn settle(&self, seat: &Seat, call_id: &str, now_ms: i64) -> Option<SettledCall> {
        let state = &mut *self.lock();
        let siblings = state.runs.get(&seat.run_id).map(|run| run.members.clone());
        let mut call = (seat.key, call_id.to_owned());
        let found = std::iter::once(seat.key)
            .chain(siblings.into_iter().flatten().rev())
            .find_map(|key| {
                call.0 = key;
                Some((key, state.calls.remove(&call)?))
            });
        let (key, (turn_id, asked_ms)) = found?;
        let thread = state.threads.get(&key)?;
        Some(SettledCall {
            run_id: thread.run.clone(),
            thread_id: thread.id.clone(),
            turn_id,
            latency_ms: u64::try_from(now_ms - asked_ms).unwrap_or(0),
        })
    }

    /// Takes note of what an answered turn of a thread has cost, in pico-USD.
    pub fn paid(&self, seat: &Seat, pico: Option<u64>) {
        if let Some(thread) = self.lock().threads.get_mut(&seat.key) {
            if thread.costs.len() >= MAX_COSTS {
                thread.costs.pop_front();
            }
            thread.costs.push_back(pico);
        }
    }

    /// What the newest answered turns of a thread have cost, in pico-USD; `None` where that is not
    /// known of all of them.
    #[must_use]
    pub fn cost_of(&self, seat: &Seat, turns: usize) -> Option<u64> {
        let state = self.lock();
        let costs = &state.threads.get(&seat.key)?.costs;
        let first = costs.len().checked_sub(turns)?;
        costs
            .iter()
            .skip(first)
            .try_fold(0_u64, |sum, cost| sum.checked_add((*cost)?))
    }

    /// Switches the insertion of markers off for a thread.
    pub fn insertion_off(&self, seat: &Seat) {
        if let Some(thread) = self.lock().threads.get_mut(&seat.key) {
            thread.insertion_off = true;
        }
    }

    /// Suspends the insertion of markers for a thread until a request of it is answered: it was
    /// refused with markers and without, so that nothing is known of them, and sending every
    /// further try twice would not tell more.
    pub fn suspend_insertion(&self, seat: &Seat) {
        if let Some(thread) = self.lock().threads.get_mut(&seat.key) {
            thread.suspended = true;
        }
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

/// A thread, and what the search showed on the way.
struct Found {
    key: u64,
    source: &'static str,
    /// Blocks shared with the thread's earlier request.
    previous_end: Option<usize>,
    base: Option<Hash>,
    history_seen: bool,
    /// It names a parent that nobody knows.
    unknown_parent: bool,
}

impl State {
    fn find<S: Search>(&mut self, a: &Arrival<'_>, search: &S) -> Found {
        let mut found = Found {
            key: 0,
            source: "content",
            previous_end: None,
            base: None,
            history_seen: true,
            unknown_parent: false,
        };

        if let History::Continues(answer) = a.history {
            if let Some(&(key, end)) = self.answers.get(answer.as_str())
                && self.threads.get(&key).is_some()
            {
                let named = a.identity.run.as_ref().map(|(_, source)| *source);
                return Found {
                    key,
                    source: named.unwrap_or("chain"),
                    base: end,
                    ..found
                };
            }
            found.history_seen = false;
        }

        if let Some((run, source)) = &a.identity.run {
            found.source = source;
            self.find_in_run(&Arc::from(run.as_str()), a, Some(search), &mut found);
            return found;
        }

        if let Some((key, blocks, whole)) = self.longest(a, |_| true) {
            let retries = a.identity.retries;
            let retry = self
                .threads
                .get(&key)
                .is_some_and(|t| t.earlier(a.body, retries).is_some());
            if !whole || retry {
                found.key = key;
                found.previous_end = (!whole).then_some(blocks);
                return found;
            }
            // The same opening once more after an answer: another run of the same script.
        } else if let Some(parent) = self.parent_by_prompt(Some(search)) {
            let run = self
                .threads
                .get(&parent)
                .map(|t| (t.run.clone(), t.id.clone()));
            if let Some((run, id)) = run {
                found.key = self.open(run, a.identity.agent.clone(), Some(id), None);
                return found;
            }
        } else if a.has_history
            && let Some(key) = self
                .rewritten(a)
                .or_else(|| self.by_message(search, |t| t.agent == a.identity.agent))
        {
            found.key = key;
            return found;
        }

        if let Some(trace) = &a.trace {
            found.source = "trace";
            self.find_in_run(&Arc::from(trace.as_str()), a, None::<&S>, &mut found);
            return found;
        }
        let run = self.content_run(a);
        found.key = self.open(run, a.identity.agent.clone(), None, None);
        found
    }

    fn find_in_run(
        &mut self,
        run: &Arc<str>,
        a: &Arrival<'_>,
        search: Option<&impl Search>,
        found: &mut Found,
    ) {
        let members = self.runs.get(run).cloned().unwrap_or_default().members;
        let agent = &a.identity.agent;
        let mine = |t: &Thread| t.run == *run && t.agent == *agent;

        let by_content = self.longest(a, mine);
        if let Some((key, blocks, whole)) = by_content {
            found.key = key;
            found.previous_end = (!whole).then_some(blocks);
            return;
        }
        let candidates: Vec<u64> = members
            .iter()
            .copied()
            .filter(|key| self.threads.get(key).is_some_and(mine))
            .collect();
        let thread_where = |is: &dyn Fn(&Thread) -> bool| {
            candidates
                .iter()
                .copied()
                .rfind(|key| self.threads.get(key).is_some_and(is))
        };
        let same_opening = thread_where(&|t| a.first.is_some() && t.first == a.first);
        let same_root = || {
            let rewritten = a.root.is_some() && a.has_history;
            thread_where(&|t| rewritten && t.root == a.root)
        };
        // An agent that names itself is one thread, whatever its prompt; so is a body that could
        // not be read.
        let any = (agent.is_some() || a.root.is_none())
            .then(|| candidates.last().copied())
            .flatten();
        // A client that says so has summed up its conversation, which begins anew.
        let compacted = || thread_where(&|t| t.compacting && !a.has_history && t.root == a.root);
        // Of a thread of an earlier process only the end is known. If the run had no other, a
        // conversation that has gone on is its.
        let restored = || {
            let mut known = candidates.iter().filter_map(|key| self.threads.get(key));
            let only = known.next().is_some_and(|t| t.restored) && known.next().is_none();
            (only && a.has_history).then(|| candidates.first().copied())?
        };
        let by_message = || self.by_message(search.filter(|_| a.has_history)?, mine);
        let known = same_opening
            .or_else(by_message)
            .or_else(same_root)
            .or_else(compacted)
            .or_else(restored);
        if let Some(key) = known.or(any) {
            found.key = key;
            return;
        }

        let parent = match &a.identity.parent_agent {
            // A parent that never gave its own name is the one the run began with.
            Some(name) => {
                let known = members.iter().copied().find(|key| {
                    let thread = self.threads.get(key);
                    thread.is_some_and(|t| t.agent.as_ref() == Some(name))
                });
                // Codex names the first agent as it names the session.
                found.unknown_parent = known.is_none() && **name != **run;
                known.or_else(|| members.first().copied())
            }
            None => self
                .parent_by_prompt(search)
                .or_else(|| agent.is_some().then(|| members.first().copied()).flatten()),
        };
        let parent = parent
            .and_then(|key| self.threads.get(&key))
            .map(|t| t.id.clone());
        found.key = self.open(run.clone(), agent.clone(), parent, None);
    }

    /// The thread with the longest prefix of this request, the number of blocks of that prefix, and
    /// whether it is the whole request.
    fn longest(
        &self,
        a: &Arrival<'_>,
        fits: impl Fn(&Thread) -> bool,
    ) -> Option<(u64, usize, bool)> {
        let last = a.borders.len().checked_sub(1)?;
        a.borders
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, &blocks)| {
                let hash = a.chain.get(blocks.checked_sub(1)?)?;
                let key = *self.ends.get(hash)?;
                fits(self.threads.get(&key)?).then_some((key, blocks, index == last))
            })
    }

    fn parent_by_prompt(&self, search: Option<&impl Search>) -> Option<u64> {
        search?.opening_texts().iter().find_map(|hash| {
            let key = *self.prompts.get(hash)?;
            self.threads.get(&key).map(|_| key)
        })
    }

    /// The thread whose newest message stands in this request, though something before it is
    /// another: an edited history.
    fn by_message(&self, search: &impl Search, fits: impl Fn(&Thread) -> bool) -> Option<u64> {
        search.messages().iter().find_map(|hash| {
            let key = *self.newest.get(hash)?;
            fits(self.threads.get(&key)?).then_some(key)
        })
    }

    /// A thread with the same first message whose history or system this request has rewritten.
    fn rewritten(&self, a: &Arrival<'_>) -> Option<u64> {
        let key = *self.firsts.get(&a.first?)?;
        let thread = self.threads.get(&key)?;
        (a.now_ms - thread.last_ms <= REWRITE_WINDOW_MS).then_some(key)
    }

    /// A run named after the conversation's opening, so that a restarted gateway names it alike;
    /// numbered when the same opening has begun another run before.
    fn content_run(&mut self, a: &Arrival<'_>) -> Arc<str> {
        let Some(first) = a.first else {
            return UNPLACED.into();
        };
        let name = content_name(first);
        // Counted, because thousands may begin alike and a search would take longer for each.
        let begun = self.openings.get(&first).copied().unwrap_or(0);
        let free = (begun.saturating_add(1)..=u32::MAX)
            .map(|n| match n {
                1 => (n, name.clone()),
                _ => (n, format!("{name}-{n}")),
            })
            .find(|(_, name)| self.runs.get(name.as_str()).is_none());
        let (n, name) = free.unwrap_or((u32::MAX, name));
        self.openings.insert(first, n);
        name.into()
    }

    fn open(
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

    fn take_seat(&mut self, a: &Arrival<'_>, found: &Found) -> Seat {
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
    fn earlier(&self, body: u128, retries: u32) -> Option<(u32, u32)> {
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

fn content_name(first: Hash) -> String {
    let hex: String = first.iter().take(6).map(|b| format!("{b:02x}")).collect();
    format!("c-{hex}")
}

#[cfg(test)]
mod tests;
