//! Where each policy puts its breakpoints.

use std::collections::{HashMap, HashSet};

use super::{Request, Seen, Traffic};
use crate::prompt_cache::habits::{Kind, Outlook};
use crate::prompt_cache::plan::{self, Situation};
use crate::prompt_cache::trail::{Mark, Trail};
use crate::provider::view::{
    Block, Form, Marker, MarkerSpelling, Message, RequestView, Section, Span, Spelling, Ttl,
};

/// After this many turns in a row that wrote and read nothing, a thread gets no more markers ...
const UNREAD_WRITES_MAX: u32 = 2;
/// ... but for one turn in this many. Both as the gateway does it.
const UNREAD_PROBE_TURNS: u32 = 16;

/// The client's own.
pub(super) fn client(request: &Request) -> Vec<Mark> {
    let marks = request.recorded.trail.marks.iter();
    marks.filter(|mark| !mark.ours).copied().collect()
}

/// One on the last block that may carry one.
pub(super) fn automatic(request: &Request) -> Vec<Mark> {
    let blocks = request.recorded.trail.steps.len();
    let last = (0..blocks).rfind(|block| request.markable(*block));
    last.map(short).into_iter().collect()
}

/// One at the end of what comes before the conversation, one on its newest block.
pub(super) fn system_tail(request: &Request) -> Vec<Mark> {
    let steps = &request.recorded.trail.steps;
    let last = |section| {
        (0..steps.len()).rfind(|at| steps[*at].section == section && request.markable(*at))
    };
    let head = last(Section::System).or_else(|| last(Section::Tools));
    let tail = last(Section::Messages);
    head.into_iter().chain(tail).map(short).collect()
}

fn short(block: usize) -> Mark {
    Mark {
        at: u32::try_from(block).unwrap_or(u32::MAX),
        ttl: Some(Ttl::M5),
        ours: true,
    }
}

/// The gateway's planner, with what it would have remembered of each thread.
#[derive(Debug, Default)]
pub(super) struct Fill {
    threads: HashMap<u32, Thread>,
    roots: HashSet<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    /// Index of its newest request.
    last: usize,
    turns: u32,
    /// Its newest turns in a row that wrote and read nothing.
    unread_writes: u32,
}

impl Fill {
    /// The client's markers and ours.
    pub(super) fn marks(
        &mut self,
        traffic: &Traffic,
        request: &Request,
        seen: &Seen<'_>,
    ) -> Vec<Mark> {
        let trail = &request.recorded.trail;
        let known = self.threads.get(&request.recorded.thread).copied();
        let previous = known.and_then(|thread| Some((thread, seen.earlier.get(thread.last)?)));
        let mut thread = known.unwrap_or_default();
        if let Some((_, tally)) = previous {
            thread.unread_writes = match (tally.read, tally.written()) {
                (1.., _) => 0,
                (0, 1..) => thread.unread_writes.saturating_add(1),
                (0, 0) => thread.unread_writes,
            };
        }
        let before = known.and_then(|thread| traffic.requests().get(thread.last));
        let previous_end = before.and_then(|before| grown_from(trail, &before.recorded.trail));
        thread.turns += 1;
        thread.last = seen.earlier.len();
        self.threads.insert(request.recorded.thread, thread);
        let head = (trail.head as usize).checked_sub(1);
        let root = head.and_then(|block| request.position_of(block));
        let root = root.map_or(super::ROOT, |at| request.positions[at].node);
        let root_seen = !self.roots.insert(root);
        let mut marks = client(request);
        let for_nothing = thread.unread_writes >= UNREAD_WRITES_MAX
            && !thread.turns.is_multiple_of(UNREAD_PROBE_TURNS);
        if !for_nothing {
            marks.extend(planned(request, &marks, previous_end, root_seen));
            marks.sort_by_key(|mark| mark.at);
        }
        marks
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

/// The one place where the planner is asked.
fn planned(
    request: &Request,
    client: &[Mark],
    previous_end: Option<usize>,
    root_seen: bool,
) -> Vec<Mark> {
    let view = view_of(request, client);
    let plan = plan::plan(&Situation {
        outlook: Outlook::prior(Kind::of(&view), root_seen),
        min_tokens: request.recorded.min_tokens,
        bytes_per_token_milli: request.bytes_per_token_milli(),
        previous_end,
        ..Situation::new(&[], &view)
    });
    let placed = plan.placed.into_iter();
    placed
        .map(|(block, ttl)| Mark {
            ttl: Some(ttl),
            ..short(block)
        })
        .collect()
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
    }
};

/// A request as the planner wants to see it, made from its trail. Blocks of one speaker in a row
/// are one message, as the provider joins them.
fn view_of(request: &Request, client: &[Mark]) -> RequestView {
    let steps = &request.recorded.trail.steps;
    let mut view = RequestView {
        model: Some(request.recorded.trail.model.to_string()),
        spelling: Some(&UNWRITTEN),
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
