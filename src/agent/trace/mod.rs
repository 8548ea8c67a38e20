//! Spans of a run, for traces: what an agent, a turn and a call of a tool were, and where they hang.
//!
//! [`Tracer`] listens to the run and hands finished spans on, through a bounded queue, to whoever
//! sends them. It names the span of the turn in the `traceparent` of each request, so that what a
//! gateway traces of it hangs below. Nothing of a conversation is in a span: no prompt, no tool
//! data, no words of a provider.
//!
//! | span | hangs below |
//! |---|---|
//! | an agent | the call or the agent that started it; the first below what `TRACEPARENT` names |
//! | a turn, over all its attempts, or a compaction | its agent |
//! | a call of a tool | the turn that asked for it |

mod span;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{HeaderName, HeaderValue};
use tokio::sync::mpsc;

use super::machine::AgentRun;
use super::model::Headers;
use super::notice::{Listener, Notice};
use crate::clock::Clock;
use crate::trace::ids::{Context, SpanId, TraceId};

use span::{AgentFacts, TurnFacts};
pub use span::{Span, What};

/// Finished spans that may wait to be sent. More are dropped, and counted.
pub const MAX_WAITING: usize = 8_192;
/// Agents of one run whose spans are open. What comes beyond has none.
const MAX_AGENTS: usize = 256;
/// Calls of one agent whose spans are open.
const MAX_CALLS: usize = 256;
/// Failed attempts that the span of a turn tells.
const MAX_ATTEMPTS: usize = 16;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An agent whose span is open.
#[derive(Debug)]
struct Open {
    id: SpanId,
    facts: AgentFacts,
    start_ns: u64,
    /// Number of its newest turn, for the keys of calls.
    turn: Option<Turn>,
    /// The turn that asked for calls, once it is over.
    asked: SpanId,
    calls: HashMap<String, Call>,
}

/// A turn that is under way.
#[derive(Debug)]
struct Turn {
    id: SpanId,
    start_ns: u64,
    facts: TurnFacts,
}

#[derive(Debug)]
struct Call {
    id: SpanId,
    parent: SpanId,
    start_ns: u64,
    name: String,
    input_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    trace: Option<Context>,
    /// The first agent, also when it has ended: attempts and steps after it hang below.
    first: Option<SpanId>,
    agents: HashMap<String, Open>,
}

/// Makes spans of what it is told.
#[derive(Debug)]
pub struct Tracer {
    state: Mutex<State>,
    to: mpsc::Sender<Span>,
    dropped: Arc<AtomicU64>,
    clock: Clock,
    /// Of the process that started this one.
    parent: Option<String>,
    app: Option<String>,
    sample_ppm: u32,
}

/// Finished spans, for the one who sends them.
#[derive(Debug)]
pub struct Spans {
    /// The spans. It closes when the tracer is gone.
    pub receiver: mpsc::Receiver<Span>,
    /// Those that found no room.
    pub dropped: Arc<AtomicU64>,
}

impl Tracer {
    /// A tracer and the other end of its queue. `parent` is a `traceparent` under which the run
    /// stands, `app` the application, `sample_ppm` the share of runs that are traced, in
    /// millionths, where `parent` does not decide it.
    #[must_use]
    pub fn new(
        clock: Clock,
        parent: Option<String>,
        app: Option<String>,
        sample_ppm: u32,
    ) -> (Self, Spans) {
        let (to, receiver) = mpsc::channel(MAX_WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let spans = Spans {
            receiver,
            dropped: Arc::clone(&dropped),
        };
        let tracer = Self {
            state: Mutex::default(),
            to,
            dropped,
            clock,
            parent,
            app,
            sample_ppm,
        };
        (tracer, spans)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ms().saturating_mul(1_000_000)
    }

    fn send(&self, context: Context, span: Span) {
        if context.sampled && self.to.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn began(&self, state: &mut State, agent: &str, run: &AgentRun) {
        let setup = run.setup();
        let context = *state.trace.get_or_insert_with(|| {
            Context::of(
                self.parent.as_deref(),
                &setup.run,
                uuid::Uuid::nil(),
                self.sample_ppm,
            )
        });
        let above = setup
            .parent
            .as_deref()
            .and_then(|name| state.agents.get(name));
        // A sub-agent belongs to the call that started it, if only one can have.
        let call = above.and_then(|above| {
            let mut calls = above.calls.values();
            let call = calls.next()?;
            calls.next().is_none().then_some(call.id)
        });
        let parent = call.or(above.map(|above| above.id)).or(state.first);
        let (parent, remote) = match parent {
            Some(parent) => (Some(parent), false),
            None => (context.client, true),
        };
        if state.agents.len() >= MAX_AGENTS {
            return;
        }
        let open = Open {
            id: new_id(),
            facts: AgentFacts {
                run: setup.run.clone(),
                agent: agent.to_owned(),
                model: setup.model.clone(),
                app: self.app.clone(),
                depth: setup.depth,
                parent,
                remote: remote && parent.is_some(),
            },
            start_ns: self.now_ns(),
            turn: None,
            asked: SpanId::default(),
            calls: HashMap::new(),
        };
        state.first.get_or_insert(open.id);
        state.agents.insert(agent.to_owned(), open);
    }

    fn told(&self, open: &mut Open, context: Context, notice: Notice<'_>) {
        let now_ns = self.now_ns();
        match notice {
            // A later attempt belongs to the same turn.
            Notice::Asked { attempt, .. } if attempt > 1 && open.turn.is_some() => {}
            Notice::Asked { turn, .. } => open.begin(Some(turn), now_ns),
            Notice::Compacting { .. } if open.turn.is_none() => open.begin(None, now_ns),
            Notice::Reset { bill, wait, .. } => {
                let Some(turn) = &mut open.turn else { return };
                turn.facts.add(bill);
                if turn.facts.failed_ns.len() < MAX_ATTEMPTS {
                    turn.facts.failed_ns.push(now_ns);
                }
                if wait.is_none() {
                    turn.facts.error = Some("attempts_failed");
                    self.close_turn(open, context, now_ns);
                }
            }
            Notice::Answered { bill, stop, .. } => {
                if let Some(turn) = &mut open.turn {
                    turn.facts.add(bill);
                    turn.facts.stop = Some(span::stop_word(stop));
                }
                self.close_turn(open, context, now_ns);
            }
            Notice::Compacted(outcome) => {
                if let Some(turn) = &mut open.turn {
                    match outcome {
                        Ok(bill) => turn.facts.add(bill),
                        Err(_) => turn.facts.error = Some("compaction_failed"),
                    }
                }
                self.close_turn(open, context, now_ns);
            }
            Notice::CallBegan { call, .. } if open.calls.len() < MAX_CALLS => {
                let parent = open.turn.as_ref().map_or(open.asked, |turn| turn.id);
                let new = Call {
                    id: new_id(),
                    parent,
                    start_ns: now_ns,
                    name: call.name.clone(),
                    input_bytes: call.input.len() as u64,
                };
                open.calls.insert(call.id.clone(), new);
            }
            Notice::CallEnded { result, took } => {
                let Some(call) = open.calls.remove(&result.call) else {
                    return;
                };
                // A call that was cut off has no time of its own.
                let took = match u64::try_from(took.as_nanos()) {
                    Ok(0) => now_ns.saturating_sub(call.start_ns),
                    Ok(took) => took,
                    Err(_) => u64::MAX,
                };
                let span = Span {
                    trace: context.trace,
                    id: call.id,
                    parent: Some(call.parent).filter(|id| *id != SpanId::default()),
                    remote: false,
                    start_ns: call.start_ns,
                    end_ns: call.start_ns.saturating_add(took),
                    what: What::Call {
                        run: open.facts.run.clone(),
                        agent: open.facts.agent.clone(),
                        name: call.name,
                        call: result.call.clone(),
                        failed: result.is_error,
                        input_bytes: call.input_bytes,
                        result_bytes: result.text.len() as u64,
                    },
                };
                self.send(context, span);
            }
            _ => {}
        }
    }

    fn close_turn(&self, open: &mut Open, context: Context, now_ns: u64) {
        let Some(turn) = open.turn.take() else { return };
        open.asked = turn.id;
        let span = Span {
            trace: context.trace,
            id: turn.id,
            parent: Some(open.id),
            remote: false,
            start_ns: turn.start_ns,
            end_ns: now_ns,
            what: What::Turn(Box::new(turn.facts)),
        };
        self.send(context, span);
    }

    fn ended(&self, mut open: Open, context: Context, outcome: &'static str, turns: u32) {
        let now_ns = self.now_ns();
        if let Some(turn) = &mut open.turn {
            turn.facts.error = Some("cancelled");
            self.close_turn(&mut open, context, now_ns);
        }
        let span = Span {
            trace: context.trace,
            id: open.id,
            parent: open.facts.parent,
            remote: open.facts.remote,
            start_ns: open.start_ns,
            end_ns: now_ns,
            what: What::Agent {
                facts: open.facts,
                outcome,
                turns,
            },
        };
        self.send(context, span);
    }
}

impl Open {
    fn begin(&mut self, number: Option<u32>, now_ns: u64) {
        self.turn = Some(Turn {
            id: new_id(),
            start_ns: now_ns,
            facts: TurnFacts {
                run: self.facts.run.clone(),
                agent: self.facts.agent.clone(),
                app: self.facts.app.clone(),
                model: self.facts.model.clone(),
                number,
                ..TurnFacts::default()
            },
        });
    }
}

impl Listener for Tracer {
    fn notice(&self, agent: &str, notice: Notice<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Notice::Began(run) = notice {
            return self.began(&mut state, agent, run);
        }
        let Some(context) = state.trace else { return };
        if let Notice::Ended { outcome, run } = notice {
            if let Some(open) = state.agents.remove(agent) {
                self.ended(open, context, outcome.as_str(), run.turns());
            }
        } else if let Some(open) = state.agents.get_mut(agent) {
            self.told(open, context, notice);
        }
    }

    fn headers(&self, agent: &str) -> Headers {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = state.agents.get(agent).and_then(|open| open.turn.as_ref());
        let (Some(context), Some(turn)) = (state.trace, turn) else {
            return Headers::new();
        };
        let value = traceparent(context.trace, turn.id, context.sampled);
        let header = HeaderValue::from_str(&value).ok();
        header
            .map(|value| (TRACEPARENT, value))
            .into_iter()
            .collect()
    }
}

fn traceparent(trace: TraceId, span: SpanId, sampled: bool) -> String {
    let trace = u128::from_be_bytes(trace);
    let span = u64::from_be_bytes(span);
    format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(sampled))
}

/// A new one for each span: a run that is resumed has spans of its own beside those before.
fn new_id() -> SpanId {
    let mut id = SpanId::default();
    let [.., a, b, c, d, e, f, g, h] = uuid::Uuid::new_v4().into_bytes();
    id.copy_from_slice(&[a, b, c, d, e, f, g, h]);
    id
}
