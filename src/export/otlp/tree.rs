//! Records as a tree: run, thread, turn, tool call.
//!
//! A turn hangs under its thread, a thread under the one that started it, threads that nobody
//! started under the run; the run's span is that of its main thread. (Which tool call started a
//! thread is not in the records.) Under a trace of the client's there are neither runs nor threads
//! of ours: turns are children of the client's span, which stands for them.
//!
//! Turns and tool calls are sent as they come. What is not over yet is kept:
//!
//! - the spans of runs and threads, until they have been silent for a while. One that goes on later
//!   is sent again under the same id, longer;
//! - an attempt that failed and has used nothing, until the thread goes on: the conventions want one
//!   span for a call with all its retries. It becomes an event in the span of the attempt after it,
//!   or a span of its own when none follows. One that has used tokens is a span of its own at once,
//!   so that the sum over all spans is what was paid.
//!
//! [`Tree::plan`] changes nothing, so that a batch which is delivered a second time gives the same
//! spans; [`Tree::commit`] takes over what became of it.

use std::collections::HashMap;

use opentelemetry_proto::tonic::trace::v1::Span;
use uuid::Uuid;

use super::attr::nanos;
use super::naming::Naming;
use super::span::{self, Agent, Place, Times, Tried};
use crate::bounded::Bounded;
use crate::trace::ids::{self, Context, MAIN};
use crate::trace::{Entry, EventRecord, Outcome, RequestKind, ToolCallRecord, TurnRecord};
use crate::usage::Usage;

/// Runs and threads whose spans are remembered. What has to go is sent as it stands.
pub const OPEN_SPANS: usize = 8_192;
/// Failed attempts that wait for the next one. What has to go is sent as it stands.
pub const HELD_ATTEMPTS: usize = 4_096;
/// Requests with a trace of the client's that are remembered for the sake of their tool calls.
pub const CLIENT_TURNS: usize = 16_384;
/// Runs with a trace of the client's that are remembered for the sake of their events.
pub const CLIENT_RUNS: usize = 4_096;
/// Earlier attempts told in one span.
const MAX_TRIED: usize = 16;
/// Steps up from a thread to its run.
const MAX_DEPTH: usize = 16;

/// A thread of a run.
type Key = (String, String);

/// The span of a run or a thread, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Open {
    agent: Agent,
    parent: Option<String>,
    times: Times,
    touched_ms: i64,
    /// There is more than was sent.
    dirty: bool,
}

/// A failed attempt that may be followed by another.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    turn: TurnRecord,
    tried: Vec<Tried>,
    since_ms: i64,
}

/// What a batch gives and would change.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) spans: Vec<Span>,
    open: HashMap<Key, Open>,
    held: HashMap<Key, Option<Held>>,
    contexts: HashMap<Uuid, Context>,
    starts: HashMap<Uuid, u64>,
    client_runs: HashMap<String, Context>,
}

/// Something that is kept and can be sent now.
#[derive(Debug)]
pub(super) enum Due {
    /// The span of a run or a thread.
    Agent(Key),
    /// A failed attempt.
    Attempt(Key),
    /// One of those that had to go.
    Overdue,
}

/// What is not over yet.
#[derive(Debug)]
pub(super) struct Tree {
    naming: Naming,
    open: Bounded<Key, Open>,
    held: Bounded<Key, Held>,
    client_turns: Bounded<Uuid, Context>,
    client_runs: Bounded<String, Context>,
    overdue: Vec<Span>,
}

/// All spans of these records, those of runs and threads among them.
#[must_use]
pub fn spans(entries: &[Entry], naming: &Naming) -> Vec<Span> {
    let mut tree = Tree::new(naming.clone());
    let mut plan = tree.plan(entries, 0);
    let mut spans = std::mem::take(&mut plan.spans);
    tree.commit(plan);
    spans.extend(tree.due(0, 0, true).into_iter().map(|(_, span)| span));
    newest(spans)
}

impl Tree {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            open: Bounded::new(OPEN_SPANS),
            held: Bounded::new(HELD_ATTEMPTS),
            client_turns: Bounded::new(CLIENT_TURNS),
            client_runs: Bounded::new(CLIENT_RUNS),
            overdue: Vec::new(),
        }
    }

    /// The spans of a batch that arrives at `now_ms`.
    pub(super) fn plan(&self, entries: &[Entry], now_ms: i64) -> Plan {
        let mut plan = Plan::default();
        for entry in entries {
            if let Entry::Turn(turn) = entry
                && is_sent(turn)
            {
                // Events of a turn are recorded before it.
                plan.contexts.insert(turn.id, self.context(turn));
                plan.starts.insert(turn.id, nanos(turn.started_ms));
            }
        }
        for entry in entries {
            match entry {
                Entry::Turn(turn) if is_sent(turn) => self.turn(&mut plan, turn, now_ms),
                Entry::Call(call) => self.call(&mut plan, call, now_ms),
                Entry::Event(event) => self.event(&mut plan, event, now_ms),
                // A result alone does not say which turn has asked.
                Entry::Turn(_) | Entry::Result(_) => {}
            }
        }
        plan.spans = newest(std::mem::take(&mut plan.spans));
        plan
    }

    /// Takes over what a batch changes, once it has arrived.
    pub(super) fn commit(&mut self, plan: Plan) {
        for (id, context) in plan.contexts {
            if context.client.is_some() {
                self.client_turns.insert(id, context);
            }
        }
        for (run, context) in plan.client_runs {
            self.client_runs.insert(run, context);
        }
        for (key, held) in plan.held {
            match held {
                None => drop(self.held.remove(&key)),
                Some(held) => {
                    if let Some((_, gone)) = self.held.insert(key, held) {
                        self.overdue.push(self.attempt(&gone));
                    }
                }
            }
        }
        for (key, open) in plan.open {
            if let Some((_, gone)) = self.open.insert(key, open)
                && gone.dirty
            {
                self.overdue.push(self.agent(&gone));
            }
        }
    }

    /// What is over at `now_ms`, with its span; everything when the end has come.
    pub(super) fn due(&self, now_ms: i64, idle_ms: i64, ending: bool) -> Vec<(Due, Span)> {
        let over = |since: i64| ending || now_ms.saturating_sub(since) >= idle_ms;
        let overdue = self.overdue.iter().map(|span| (Due::Overdue, span.clone()));
        let held = (self.held.iter())
            .filter(|(_, held)| over(held.since_ms))
            .map(|(key, held)| (Due::Attempt(key.clone()), self.attempt(held)));
        let open = (self.open.iter())
            .filter(|(_, open)| open.dirty && over(open.touched_ms))
            .map(|(key, open)| (Due::Agent(key.clone()), self.agent(open)));
        overdue.chain(held).chain(open).collect()
    }

    /// These have been sent, or never will be.
    pub(super) fn settle(&mut self, due: &[Due]) {
        let overdue = due.iter().filter(|due| matches!(due, Due::Overdue)).count();
        self.overdue.drain(..overdue.min(self.overdue.len()));
        for due in due {
            match due {
                Due::Overdue => {}
                Due::Attempt(key) => drop(self.held.remove(key)),
                Due::Agent(key) => {
                    if let Some(open) = self.open.get_mut(key) {
                        open.dirty = false;
                    }
                }
            }
        }
    }

    fn context(&self, turn: &TurnRecord) -> Context {
        let ppm = self.naming.sample_ppm;
        Context::of(turn.traceparent.as_deref(), &turn.run_id, turn.id, ppm)
    }

    fn turn(&self, plan: &mut Plan, turn: &TurnRecord, now_ms: i64) {
        let context = self.context(turn);
        let key = (turn.run_id.clone(), turn.thread_id.clone());
        if context.client.is_some() && ids::is_placed(&turn.run_id) {
            plan.client_runs.insert(turn.run_id.clone(), context);
        }
        if !context.sampled {
            return;
        }
        let mut tried = Vec::new();
        if let Some(held) = plan
            .held
            .get(&key)
            .cloned()
            .unwrap_or_else(|| self.held.get(&key).cloned())
        {
            plan.held.insert(key.clone(), None);
            let follows = held.turn.turn == turn.turn
                && held.turn.attempt < turn.attempt
                && self.context(&held.turn).trace == context.trace;
            if follows {
                tried = held.tried;
                tried.push(Tried::of(&held.turn));
                tried.drain(..tried.len().saturating_sub(MAX_TRIED));
            } else if held.turn.id == turn.id {
                tried = held.tried;
            } else {
                plan.spans.push(self.attempt(&held));
            }
        }
        let (mut start, end) = span::times(turn);
        start = tried.iter().map(|tried| tried.start).fold(start, u64::min);
        self.touch(plan, turn, context, (start, end), now_ms);
        let held = Held {
            turn: turn.clone(),
            tried,
            since_ms: now_ms,
        };
        if may_be_retried(turn) {
            plan.held.insert(key, Some(held));
        } else {
            plan.spans.push(self.attempt(&held));
        }
    }

    fn call(&self, plan: &mut Plan, call: &ToolCallRecord, now_ms: i64) {
        let Some(times) = span::call_times(call) else {
            return;
        };
        let context = self.context_of(plan, call.turn_id, &call.run_id, false);
        if !context.sampled {
            return;
        }
        let times = not_before(times, plan.starts.get(&call.turn_id));
        let place = Place {
            trace: context.trace,
            parent: Some(ids::span_of_turn(call.turn_id)),
            remote: false,
        };
        plan.spans.push(span::call(call, place, times));
        if context.client.is_none() {
            self.extend(plan, &call.run_id, &call.thread_id, times, now_ms);
        }
    }

    fn event(&self, plan: &mut Plan, event: &EventRecord, now_ms: i64) {
        let id = event.turn_id.unwrap_or(event.id);
        let context = self.context_of(plan, id, &event.run_id, true);
        if !context.sampled {
            return;
        }
        let start = event.turn_id.and_then(|turn| plan.starts.get(&turn));
        let times = not_before((nanos(event.at_ms), nanos(event.at_ms)), start);
        let thread = Some(event.thread_id.as_str()).filter(|thread| !thread.is_empty());
        let thread = thread.unwrap_or(MAIN);
        let placed = ids::is_placed(&event.run_id);
        let parent = match event.turn_id {
            Some(turn) => Some(ids::span_of_turn(turn)),
            None if context.client.is_some() => context.client,
            None => placed.then(|| ids::span_of_thread(&event.run_id, thread)),
        };
        let place = Place {
            trace: context.trace,
            parent,
            remote: event.turn_id.is_none() && context.client.is_some(),
        };
        if placed && context.client.is_none() {
            if event.turn_id.is_none() {
                // Its parent has to exist, and nothing else may ever be seen of it.
                let agent = Agent {
                    run: event.run_id.clone(),
                    thread: thread.to_owned(),
                    agent: None,
                    app: event.app.clone(),
                    upstream: None,
                };
                self.open(plan, agent, None, times, now_ms);
            } else {
                self.extend(plan, &event.run_id, thread, times, now_ms);
            }
        }
        plan.spans.push(span::event(event, place, times.0));
    }

    /// Where what belongs to a request hangs; `guess` takes the trace of the run's newest request
    /// where the request itself is not known.
    fn context_of(&self, plan: &Plan, turn: Uuid, run: &str, guess: bool) -> Context {
        let known = plan
            .contexts
            .get(&turn)
            .or_else(|| self.client_turns.get(&turn));
        let of_run = || {
            let run = plan
                .client_runs
                .get(run)
                .or_else(|| self.client_runs.get(run));
            run.filter(|_| guess)
        };
        known
            .or_else(of_run)
            .copied()
            .unwrap_or_else(|| Context::derived(run, turn, self.naming.sample_ppm))
    }

    /// A request has shown that its thread, and what stands above it, lives.
    fn touch(
        &self,
        plan: &mut Plan,
        turn: &TurnRecord,
        context: Context,
        times: Times,
        now_ms: i64,
    ) {
        if context.client.is_some() || !ids::is_placed(&turn.run_id) {
            return;
        }
        let agent = Agent {
            run: turn.run_id.clone(),
            thread: turn.thread_id.clone(),
            agent: turn.agent.clone(),
            app: turn.app.clone(),
            upstream: Some(turn.upstream.clone()),
        };
        self.open(plan, agent, turn.parent_thread.as_deref(), times, now_ms);
    }

    /// Opens or extends the span of a thread and those above it. What stands above is opened as well
    /// when nothing is known of it, as after a restart: a span whose parent never comes is lost in
    /// most displays.
    fn open(&self, plan: &mut Plan, agent: Agent, parent: Option<&str>, times: Times, now_ms: i64) {
        let (run, thread) = (agent.run.clone(), agent.thread.clone());
        let above = parent.filter(|parent| *parent != thread && thread != MAIN);
        for above in [Some(MAIN), above].into_iter().flatten() {
            let key = (run.clone(), above.to_owned());
            if above != thread && !plan.open.contains_key(&key) {
                let known = self.open.get(&key).cloned();
                let open = known.unwrap_or_else(|| {
                    let agent = Agent {
                        thread: above.to_owned(),
                        agent: None,
                        ..agent.clone()
                    };
                    Open::new(agent, None, times, now_ms)
                });
                plan.open.insert(key, open);
            }
        }
        let key = (run.clone(), thread.clone());
        let known = plan.open.get(&key).or_else(|| self.open.get(&key)).cloned();
        let mut open = known.unwrap_or_else(|| Open::new(agent.clone(), parent, times, now_ms));
        open.learn(&agent, parent);
        // All of it: which thread stands above may have become known only now.
        let times = covering(open.times, times);
        plan.open.insert(key, open);
        self.extend(plan, &run, &thread, times, now_ms);
    }

    /// Extends the span of a thread and those above it, as far as they are known.
    fn extend(&self, plan: &mut Plan, run: &str, thread: &str, times: Times, now_ms: i64) {
        let mut at = Some(thread.to_owned());
        for step in 0..=MAX_DEPTH {
            let Some(mut thread) = at else { return };
            // Threads that name each other as parents never lead to the run.
            if step == MAX_DEPTH {
                thread = MAIN.to_owned();
            }
            let key = (run.to_owned(), thread);
            let known = plan
                .open
                .remove(&key)
                .or_else(|| self.open.get(&key).cloned());
            let Some(mut open) = known else {
                at = (key.1 != MAIN).then(|| MAIN.to_owned());
                continue;
            };
            open.times = covering(open.times, times);
            open.touched_ms = open.touched_ms.max(now_ms);
            open.dirty = true;
            at = open.above().map(str::to_owned);
            plan.open.insert(key, open);
        }
    }

    fn attempt(&self, held: &Held) -> Span {
        let turn = &held.turn;
        let context = self.context(turn);
        let thread = || ids::span_of_thread(&turn.run_id, &turn.thread_id);
        let place = Place {
            trace: context.trace,
            parent: (context.client).or_else(|| ids::is_placed(&turn.run_id).then(thread)),
            remote: context.client.is_some(),
        };
        span::turn(turn, &held.tried, &self.naming, place)
    }

    fn agent(&self, open: &Open) -> Span {
        let run = &open.agent.run;
        let place = Place {
            trace: Context::derived(run, Uuid::nil(), self.naming.sample_ppm).trace,
            parent: open.above().map(|above| ids::span_of_thread(run, above)),
            remote: false,
        };
        span::agent(&open.agent, &self.naming, place, open.times)
    }
}

impl Open {
    fn new(agent: Agent, parent: Option<&str>, times: Times, now_ms: i64) -> Self {
        Self {
            agent,
            parent: parent.map(str::to_owned),
            times,
            touched_ms: now_ms,
            dirty: true,
        }
    }

    /// What was not known when it was opened.
    fn learn(&mut self, agent: &Agent, parent: Option<&str>) {
        let fill = |mine: &mut Option<String>, theirs: Option<&String>| {
            if mine.is_none() {
                *mine = theirs.cloned();
            }
        };
        fill(&mut self.agent.agent, agent.agent.as_ref());
        fill(&mut self.agent.app, agent.app.as_ref());
        fill(&mut self.agent.upstream, agent.upstream.as_ref());
        fill(&mut self.parent, parent.map(str::to_owned).as_ref());
    }

    /// The thread above; `None` for the run itself.
    fn above(&self) -> Option<&str> {
        if self.agent.thread == MAIN {
            return None;
        }
        let parent = self.parent.as_deref();
        Some(
            parent
                .filter(|parent| *parent != self.agent.thread)
                .unwrap_or(MAIN),
        )
    }
}

/// Of spans with the same id the newest: a tool call may come twice in a batch, as it stood first and
/// as it stands now.
fn newest(spans: Vec<Span>) -> Vec<Span> {
    let mut last: HashMap<Vec<u8>, usize> = HashMap::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        last.insert(span.span_id.clone(), index);
    }
    let kept = spans.into_iter().enumerate();
    kept.filter(|(index, span)| last.get(&span.span_id) == Some(index))
        .map(|(_, span)| span)
        .collect()
}

/// Requests to a model are sent, those of our own that keep a prefix warm among them, since they
/// cost. Counting tokens, lists of models and the like are not.
fn is_sent(turn: &TurnRecord) -> bool {
    matches!(turn.kind, RequestKind::Turn | RequestKind::KeepWarm)
}

/// Nothing was used, and a client would try again.
fn may_be_retried(turn: &TurnRecord) -> bool {
    let failed = matches!(
        turn.outcome,
        Outcome::UpstreamError | Outcome::UpstreamUnreachable | Outcome::UpstreamCut
    );
    let lasting = matches!(turn.status, Some(400..=407 | 410..=428));
    failed
        && !lasting
        && turn.kind == RequestKind::Turn
        && turn.usage == Usage::default()
        && ids::is_placed(&turn.run_id)
}

fn covering(one: Times, other: Times) -> Times {
    (one.0.min(other.0), one.1.max(other.1))
}

/// A child begins no earlier than its parent, whatever two clocks said.
fn not_before(times: Times, parent: Option<&u64>) -> Times {
    let start = times.0.max(parent.copied().unwrap_or(0));
    (start, times.1.max(start))
}

#[cfg(test)]
mod tests;
