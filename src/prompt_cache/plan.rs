//! Where to place breakpoints: the policy `fill`.
//!
//! A pure function of the request and of what is known of its thread, so the same request gets the
//! same markers on a retry, on another replica and after a restart. The client's own markers are
//! never touched; ours take the slots it left. Rules of the provider (documentation of August
//! 2026): four markers in all, the automatic one included; a one-hour marker never after a
//! five-minute one; none on a block that must not carry any.

use crate::prompt_cache::splice::{self, Splice};
use crate::provider::view::{
    Block, BlockKind, History, RequestView, Role, Section, Ttl, Unmarkable,
};

/// Breakpoints that one request may carry.
pub const MAX_MARKERS: usize = 4;

/// Minimum prefix assumed for a model of unknown minimum, in tokens: the largest documented one.
/// A marker below the minimum does nothing, so this only costs what a short prompt could have saved.
pub const UNKNOWN_MINIMUM_TOKENS: u32 = 4096;

/// Bytes per token, in thousandths, where the caller has learnt none. High for JSON and code, so
/// that a prefix is rather thought too short than long enough.
pub const DEFAULT_BYTES_PER_TOKEN_MILLI: u32 = 4000;

/// Bytes of an image that count towards the estimate of a prefix. Its cost follows its pixels, not
/// its encoding; this keeps a picture from passing for a long text.
const IMAGE_BYTES: u64 = 1024;

/// From so many positions between two markers on, the later one may not find what was written at
/// the earlier: the provider looks back over 20 positions, its own included. A margin is kept for
/// what is counted otherwise than documented.
const REACH: usize = 16;

/// What a plan depends on.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The request.
    pub view: &'a RequestView,
    /// The smallest prefix that this model caches, in tokens; `None` when it is not known, then
    /// [`UNKNOWN_MINIMUM_TOKENS`] is assumed.
    pub min_tokens: Option<u32>,
    /// Bytes per token in thousandths; 0 for unknown.
    pub bytes_per_token_milli: u32,
    /// Index of the last block of the thread's previous request, when the thread is known.
    /// Otherwise it is taken from the request: the last block before the last assistant message.
    pub previous_end: Option<usize>,
    /// Another request with the same tools and system was seen before.
    pub root_seen: bool,
    /// Insertion was switched off, for this thread or in all.
    pub insertion_off: bool,
}

/// Where markers go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Index of the block and lifetime of each marker, in provider order.
    pub placed: Vec<(usize, Ttl)>,
    /// The same as insertions, in the order of the body.
    pub splices: Vec<Splice>,
    /// Why nothing is placed, as a stable word; `None` exactly when something is.
    pub skipped: Option<&'static str>,
    /// What is wrong with the client's own markers, as stable words.
    pub warnings: Vec<&'static str>,
}

/// Decides where breakpoints go.
#[must_use]
pub fn plan(situation: &Situation) -> Plan {
    let view = situation.view;
    let mut plan = Plan {
        warnings: warnings(view),
        ..Plan::default()
    };
    if let Some(reason) = forbidden(situation) {
        plan.skipped = Some(reason);
        return plan;
    }
    let free = MAX_MARKERS.saturating_sub(view.client_markers() as usize);
    let taken = client_markers(view);
    let tail_long = taken
        .last()
        .is_some_and(|(index, ttl)| *index >= view.head_len() && *ttl == Some(Ttl::H1));
    let mut filling = Filling {
        view,
        taken,
        tail_long,
        placed: Vec::new(),
        reason: match view.auto_marker {
            Some(_) => "already_marked",
            None => "no_eligible_block",
        },
    };
    let long_enough = LongEnough::new(situation);
    for spot in spots(situation) {
        if filling.placed.len() == free {
            break;
        }
        filling.try_at(spot, &long_enough);
    }
    filling.placed.sort_unstable_by_key(|(index, _)| *index);
    plan.placed = filling.placed;
    if let Some(spelling) = view.spelling {
        let blocks = plan
            .placed
            .iter()
            .filter_map(|(index, ttl)| Some((view.blocks.get(*index)?, ttl)));
        plan.splices = blocks
            .flat_map(|(block, ttl)| splice::mark(block, *ttl, spelling))
            .collect();
        plan.splices.sort_by_key(|splice| splice.at);
    }
    plan.skipped = plan.placed.is_empty().then_some(filling.reason);
    plan
}

fn warnings(view: &RequestView) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if view.client_markers() as usize > MAX_MARKERS {
        warnings.push("more_than_4_breakpoints");
    }
    if view.misplaced_markers > 0 {
        warnings.push("misplaced_breakpoint");
    }
    if !in_order(client_markers(view).iter().map(|(_, ttl)| *ttl)) {
        warnings.push("breakpoint_ttl_order");
    }
    warnings
}

/// Why the request must be left alone altogether.
fn forbidden(situation: &Situation) -> Option<&'static str> {
    let view = situation.view;
    let markers = client_markers(view);
    if situation.insertion_off {
        Some("insertion_off")
    } else if view.spelling.is_none() {
        Some("no_breakpoints_in_this_format")
    } else if view.history != History::Whole {
        // Which markers the provider refuses in a thread is not documented.
        Some("thread")
    } else if view.uneditable.is_some() {
        Some("uneditable")
    } else if view.client_markers() as usize >= MAX_MARKERS {
        Some("no_free_slot")
    } else if view.misplaced_markers > 0 || !in_order(markers.iter().map(|(_, ttl)| *ttl)) {
        // The provider will refuse the client's own markers; that must not look like our doing.
        Some("client_breakpoints_invalid")
    } else if markers.iter().any(|(_, ttl)| ttl.is_none()) {
        // A lifetime of unknown length has no known place in the order.
        Some("unknown_ttl")
    } else if is_lone_question(view) && !situation.root_seen {
        Some("lone_question")
    } else {
        None
    }
}

/// The client's markers on blocks and its automatic one, by block, in provider order.
fn client_markers(view: &RequestView) -> Vec<(usize, Option<Ttl>)> {
    let on_blocks = view.blocks.iter().enumerate();
    let mut markers: Vec<_> = on_blocks
        .filter_map(|(index, block)| Some((index, block.marker?.ttl)))
        .collect();
    if let (Some(auto), Some(index)) = (view.auto_marker, auto_place(view)) {
        markers.push((index, auto.ttl));
        markers.sort_by_key(|(index, _)| *index);
    }
    markers
}

/// Where the provider puts the automatic marker: on the last block that may carry one. A block of
/// unknown kind may be one for all we know, and so may what the client marked.
fn auto_place(view: &RequestView) -> Option<usize> {
    view.blocks.iter().rposition(|block| {
        matches!(block.unmarkable, None | Some(Unmarkable::Unknown)) || block.marker.is_some()
    })
}

/// No one-hour marker after a five-minute one. Unknown lifetimes stand outside the order.
fn in_order(ttls: impl Iterator<Item = Option<Ttl>>) -> bool {
    ttls.flatten()
        .is_sorted_by(|earlier, later| earlier >= later)
}

/// A question that nothing is likely to follow: no tools, and no answer that the conversation went
/// on from (an assistant message at the end only prefills the first answer).
fn is_lone_question(view: &RequestView) -> bool {
    let answered = view.messages.split_last().is_some_and(|(_, earlier)| {
        earlier
            .iter()
            .any(|message| message.role == Role::Assistant)
    });
    view.tools == 0 && !answered
}

/// Places worth a marker, best first.
fn spots(situation: &Situation) -> Vec<usize> {
    let view = situation.view;
    let head = last_markable(view, 0..view.head_len(), Some(Section::System))
        .or_else(|| last_markable(view, 0..view.head_len(), Some(Section::Tools)));
    if is_lone_question(view) {
        return head.into_iter().collect();
    }
    // What every thread of the app shares; what the next turn reads.
    let newest = last_markable(view, view.head_len()..view.blocks.len(), None);
    // The automatic marker is on the newest block already.
    let uncovered = newest.filter(|_| view.auto_marker.is_none());
    let mut spots: Vec<_> = [head, uncovered].into_iter().flatten().collect();

    // What the previous turn wrote, so that reading it does not depend on how far the provider
    // looks back. If it would find it anyway, the end of the tools is worth more: it survives a
    // change of the system prompt.
    let previous = previous_end(situation).and_then(|end| {
        last_markable(
            view,
            view.head_len()..(end + 1).min(view.blocks.len()),
            None,
        )
    });
    let last_tool = last_markable(view, 0..view.head_len(), Some(Section::Tools));
    let far = previous.is_some_and(|index| positions_to_next_marker(view, index, newest) >= REACH);
    let rest = if far {
        [previous, last_tool]
    } else {
        [last_tool, previous]
    };
    spots.extend(rest.into_iter().flatten());
    spots
}

/// The last block in a range (and a section) that may carry a marker.
fn last_markable(
    view: &RequestView,
    range: std::ops::Range<usize>,
    section: Option<Section>,
) -> Option<usize> {
    let start = range.start;
    let blocks = view.blocks.get(range)?;
    let fits =
        |block: &Block| block.unmarkable.is_none() && section.is_none_or(|s| s == block.section);
    blocks.iter().rposition(fits).map(|index| start + index)
}

/// The last block of the previous request of this thread.
fn previous_end(situation: &Situation) -> Option<usize> {
    situation.previous_end.or_else(|| {
        let messages = &situation.view.messages;
        let answer = messages
            .iter()
            .rfind(|message| message.role == Role::Assistant)?;
        (answer.blocks.start as usize).checked_sub(1)
    })
}

/// Positions from a block to the first later marker, the client's or the one on the newest block.
/// Each block counts as one, which is the documented and the more careful reading.
fn positions_to_next_marker(view: &RequestView, index: usize, newest: Option<usize>) -> usize {
    let markers = client_markers(view);
    let later = markers
        .iter()
        .map(|(at, _)| *at)
        .chain(newest)
        .filter(|at| *at > index);
    later.min().map_or(0, |at| at - index)
}

/// Markers as they are filled in.
struct Filling<'a> {
    view: &'a RequestView,
    /// The client's and ours, in provider order.
    taken: Vec<(usize, Option<Ttl>)>,
    placed: Vec<(usize, Ttl)>,
    /// The client's last marker stands in the conversation and is for one hour.
    tail_long: bool,
    /// Why the last spot was not taken.
    reason: &'static str,
}

impl Filling<'_> {
    fn try_at(&mut self, index: usize, long_enough: &LongEnough) {
        let at = self.taken.partition_point(|(taken, _)| *taken < index);
        if self.taken.get(at).is_some_and(|(taken, _)| *taken == index) {
            self.reason = "already_marked";
        } else if !long_enough.until(self.view, index) {
            self.reason = "below_minimum";
        } else {
            let ttl = self.lifetime(at);
            self.taken.insert(at, (index, Some(ttl)));
            if in_order(self.taken.iter().map(|(_, ttl)| *ttl)) {
                self.placed.push((index, ttl));
            } else {
                self.taken.remove(at);
                self.reason = "ttl_order";
            }
        }
    }

    /// One hour where a one-hour marker follows, or where the client keeps the conversation itself
    /// so; five minutes, which are cheaper to write, otherwise. So a block has the same lifetime on
    /// the next turn, when the client's marker has moved on and ours stands in its place.
    fn lifetime(&self, at: usize) -> Ttl {
        let long_follows = self.taken[at..]
            .iter()
            .any(|(_, ttl)| *ttl == Some(Ttl::H1));
        if self.tail_long || long_follows {
            Ttl::H1
        } else {
            Ttl::M5
        }
    }
}

/// Estimates whether a prefix reaches the model's minimum.
struct LongEnough {
    bytes: u64,
}

impl LongEnough {
    fn new(situation: &Situation) -> Self {
        let tokens = situation.min_tokens.unwrap_or(UNKNOWN_MINIMUM_TOKENS);
        let milli = match situation.bytes_per_token_milli {
            0 => DEFAULT_BYTES_PER_TOKEN_MILLI,
            known => known,
        };
        Self {
            bytes: (u64::from(tokens) * u64::from(milli)).div_ceil(1000),
        }
    }

    fn until(&self, view: &RequestView, index: usize) -> bool {
        let blocks = view.blocks.iter().take(index + 1);
        let bytes: u64 = blocks.map(prefix_bytes).sum();
        bytes >= self.bytes
    }
}

/// Bytes of a block that count towards the prefix.
fn prefix_bytes(block: &Block) -> u64 {
    let bytes = u64::from(block.span.len());
    match (block.unmarkable, block.kind) {
        (Some(Unmarkable::Deferred | Unmarkable::Attribution), _) => 0,
        (_, BlockKind::Image) => bytes.min(IMAGE_BYTES),
        _ => bytes,
    }
}

#[cfg(test)]
mod tests;
