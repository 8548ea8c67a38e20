//! The gateway's planner, asked as the gateway asks it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;

use super::choose::{client, short};
use super::{Request, Seen, Traffic};
use crate::prompt_cache::chain::Hash;
use crate::prompt_cache::habits::{Arrival, Habits, Kind, Question, Stop, Transition};
use crate::prompt_cache::plan::{self, Situation};
use crate::prompt_cache::trail::{Mark, Step, Trail};
use crate::provider::view::{
    Block, BlockKind, Form, Marker, MarkerSpelling, Message, RequestView, Role, Section, Span,
    Spelling, Ttl,
};

/// Two blocks at one place whose sizes differ by no more bytes are taken for one text in which a
/// clock, a counter or an id has moved on. The gateway looks at the texts.
const VOLATILE_BYTES: u32 = 16;

/// The planner, with what the gateway would have remembered.
#[derive(Debug, Default)]
pub(super) struct Fill {
    habits: Habits,
    threads: HashMap<u32, Thread>,
    roots: HashSet<u32>,
    /// Answers that have not been reported: when they began, and the request's number. Until when
    /// they went on is not known.
    answers: BinaryHeap<Reverse<(i64, usize)>>,
    /// App of each request so far.
    apps: Vec<u64>,
    /// Why each answer ended, once asked for.
    stops: Vec<Stop>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    /// Number of its newest request.
    last: usize,
    turns: u32,
    /// The lifetime of our marker in its newest request's conversation.
    ttl: Option<Ttl>,
}

impl Fill {
    /// The client's markers and ours.
    pub(super) fn marks(
        &mut self,
        traffic: &Traffic,
        request: &Request,
        seen: &Seen<'_>,
    ) -> Vec<Mark> {
        if self.stops.is_empty() {
            self.stops = stops(traffic);
        }
        let trail = &request.recorded.trail;
        let now_ms = request.recorded.at_ms;
        self.answered(traffic, now_ms);
        let known = self.threads.get(&request.recorded.thread).copied();
        let before = known.and_then(|thread| traffic.requests().get(thread.last));
        let kept = before.map(|before| transition(trail, &before.recorded.trail));
        let mut thread = known.unwrap_or_default();
        thread.turns += 1;
        thread.last = self.apps.len();
        let head = (trail.head as usize).checked_sub(1);
        let root = head.and_then(|block| request.position_of(block));
        let root = root.map_or(super::ROOT, |at| request.positions[at].node);
        let root_seen = !self.roots.insert(root);
        let app = app(request);
        self.apps.push(app);
        self.answers.push(Reverse((request.begins_ms, thread.last)));
        let mut marks = client(request);
        let view = view_of(request, &marks);
        let hash = root_hash(root);
        let id = u64::from(request.recorded.thread);
        self.habits.arrived(Arrival {
            app,
            root: hash,
            thread: id,
            turn: thread.turns,
            bytes: trail.steps.iter().map(|step| u64::from(step.len)).sum(),
            shared: kept,
            now_ms,
        });
        let plan = plan::plan(&Situation {
            outlook: self.habits.outlook(&Question {
                app,
                root: hash,
                thread: id,
                turn: thread.turns,
                kind: Kind::of(&view),
                forced: request.recorded.forced,
                root_seen,
                now_ms,
            }),
            rates: request.recorded.rates,
            min_tokens: request.recorded.min_tokens,
            bytes_per_token_milli: request.bytes_per_token_milli(),
            previous_end: before.and_then(|before| grown_from(trail, &before.recorded.trail)),
            read_at: seen.read_at.and_then(|at| u32::try_from(at).ok()),
            pending_at: seen.pending_at.and_then(|at| u32::try_from(at).ok()),
            ttl: thread.ttl,
            head_ttl: seen.head_ttl,
            ..Situation::new(&[], &view)
        });
        let in_talk = plan
            .placed
            .iter()
            .rfind(|(at, _)| *at >= trail.head as usize);
        thread.ttl = in_talk.map(|(_, ttl)| *ttl);
        self.threads.insert(request.recorded.thread, thread);
        marks.extend(plan.placed.into_iter().map(|(block, ttl)| Mark {
            ttl: Some(ttl),
            ..short(block)
        }));
        marks.sort_by_key(|mark| mark.at);
        marks
    }

    /// Reports the answers that had begun by then.
    fn answered(&mut self, traffic: &Traffic, now_ms: i64) {
        while let Some(Reverse((at_ms, number))) = self.answers.peek().copied()
            && at_ms <= now_ms
        {
            self.answers.pop();
            if let (Some(request), Some(app), Some(stop)) = (
                traffic.requests().get(number),
                self.apps.get(number),
                self.stops.get(number),
            ) {
                let thread = u64::from(request.recorded.thread);
                self.habits.ended(*app, thread, *stop, at_ms);
            }
        }
    }
}

/// Why each answer ended, by what the thread's next request brings. The answer to a forced call is
/// that call; of other last answers nothing is known, and most are the end of something.
fn stops(traffic: &Traffic) -> Vec<Stop> {
    let mut next: HashMap<u32, &Trail> = HashMap::new();
    let requests = traffic.requests().iter().rev();
    let mut stops: Vec<Stop> = requests
        .map(|request| {
            let recorded = &request.recorded;
            let results = |trail: &&Trail| {
                let own = trail.steps.iter().rev();
                let mut own = own.take_while(|step| step.role != Some(Role::Assistant));
                own.any(|step| step.kind == BlockKind::ToolResult)
            };
            match next.insert(recorded.thread, &recorded.trail) {
                Some(follower) if results(&follower) => Stop::ToolUse,
                None if recorded.forced => Stop::ToolUse,
                _ => Stop::Other,
            }
        })
        .collect();
    stops.reverse();
    stops
}

/// What tells apps apart: who asks, with which tools in whatever order. The gateway takes the tools'
/// names and the client's, which are not recorded everywhere.
fn app(request: &Request) -> u64 {
    let tools = tools_of(&request.recorded.trail);
    let mut all: Vec<u64> = tools.map(|step| step.hash).collect();
    all.sort_unstable();
    all.push(request.recorded.scope);
    let bytes: Vec<u8> = all.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    xxh3_64(&bytes)
}

fn tools_of(trail: &Trail) -> impl Iterator<Item = &Step> {
    let steps = trail.steps.iter();
    steps.take_while(|step| step.section == Section::Tools)
}

fn root_hash(node: u32) -> Hash {
    let mut hash = Hash::default();
    hash[..4].copy_from_slice(&node.to_le_bytes());
    hash
}

/// How much of the previous request is kept.
fn transition(now: &Trail, before: &Trail) -> Transition {
    let shared = now.shared(before);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let tools = tools_of(before).count();
    let reordered = shared.theirs < tools && {
        let sorted = |trail| {
            let mut hashes: Vec<u64> = tools_of(trail).map(|step| step.hash).collect();
            hashes.sort_unstable();
            hashes
        };
        sorted(before) == sorted(now)
    };
    let volatile = match (before.steps.get(shared.theirs), now.steps.get(shared.mine)) {
        (Some(then), Some(now)) => {
            (then.section, then.kind, then.role) == (now.section, now.kind, now.role)
                && then.len.abs_diff(now.len) <= VOLATILE_BYTES
        }
        _ => false,
    };
    Transition {
        prev_len: count(before.steps.len()),
        shared: count(shared.theirs),
        tools_len: count(tools),
        head_len: before.head,
        volatile: volatile || reordered,
    }
}

/// Index of the last block of the previous request, where this one goes on from it.
fn grown_from(now: &Trail, before: &Trail) -> Option<usize> {
    let shared = now.shared(before);
    let grown = shared.theirs == before.steps.len();
    if grown {
        shared.mine.checked_sub(1)
    } else {
        None
    }
}

/// Markers are only counted here, never written.
static UNWRITTEN: MarkerSpelling = {
    const NOTHING: Spelling = Spelling {
        member: b"",
        wrap_open: b"",
        wrap_close: b"",
    };
    MarkerSpelling {
        m5: NOTHING,
        h1: NOTHING,
        results_inside: false,
    }
};

/// A request as the planner wants to see it, made from its trail. Blocks of one speaker in a row
/// are one message, as the provider joins them.
fn view_of(request: &Request, client: &[Mark]) -> RequestView {
    let steps = &request.recorded.trail.steps;
    let mut view = RequestView {
        model: Some(request.recorded.trail.model.to_string()),
        spelling: Some(&UNWRITTEN),
        anthropic_rules: true,
        ..RequestView::default()
    };
    let nowhere = Span { start: 0, end: 0 };
    let mut start = 0_u32;
    for (index, step) in steps.iter().enumerate() {
        let span = Span {
            start,
            end: start.saturating_add(step.len),
        };
        start = span.end;
        let at = u32::try_from(index).unwrap_or(u32::MAX);
        if step.section == Section::Tools {
            view.tools += 1;
        }
        if let Some(role) = step.role {
            match view.messages.last_mut() {
                Some(message) if message.role == role && message.blocks.end == at => {
                    message.blocks.end = at + 1;
                }
                _ => view.messages.push(Message {
                    role,
                    span: nowhere,
                    blocks: at..at + 1,
                }),
            }
        }
        let outer = match step.section {
            Section::Messages => u32::try_from(view.messages.len()).unwrap_or(u32::MAX),
            _ => at,
        };
        view.blocks.push(Block {
            section: step.section,
            kind: step.kind,
            form: Form::Object,
            outer: outer.saturating_sub(u32::from(step.section == Section::Messages)),
            inner: 0,
            place: outer,
            span,
            marker: None,
            unmarkable: request.unmarkable.get(index).copied().flatten(),
            call_id: None,
            name: None,
            is_error: None,
            content: None,
            plain: None,
            marker_member: None,
            compact: true,
        });
    }
    for mark in client {
        if let Some(block) = view.blocks.get_mut(mark.at as usize) {
            block.marker = Some(Marker {
                span: nowhere,
                ttl: mark.ttl,
            });
        }
    }
    view
}
