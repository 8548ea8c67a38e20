//! Where to place breakpoints, by what they are worth.
//!
//! A pure function of the request, of what is known of its thread and app, and of prices, so the
//! same knowledge gives the same markers. Under the policy `fill` the client's own markers are never
//! touched and ours take the slots it left; under `replace` ours take their place. Rules of the
//! provider (documentation of August 2026): four markers in all, the automatic one included; a
//! one-hour marker never after a five-minute one; none on a block that must not carry any.
//!
//! A provider that sets breakpoints itself has rules of its own: `beside` says where ours go then.
//!
//! `spots` says where a marker could stand, `worth` what a set of markers is worth. There are so few
//! spots that every set is tried.

mod beside;
mod spots;
mod worth;

use crate::prompt_cache::chain::counts;
use crate::prompt_cache::habits::{Kind, Outlook};
use crate::prompt_cache::splice::{self, Splice};
use crate::prompt_cache::trail;
use crate::provider::view::{Block, BlockKind, History, RequestView, Ttl, Unmarkable};
use crate::usage::Rates;
use spots::spots;
use worth::{Anchor, Mark, Worth};

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

/// From so many positions between an entry and the next marker on, the marker may not find it: the
/// provider looks back over 20 positions, its own included. A margin is kept for what is counted
/// otherwise than documented.
const REACH: usize = 16;

/// Whether the client's markers stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// They do; ours take the slots that are free.
    #[default]
    Fill,
    /// They go, and ours take their place.
    Replace,
}

/// What a plan depends on.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The body that the view was made of. Looked at only under [`Policy::Replace`].
    pub body: &'a [u8],
    /// The request.
    pub view: &'a RequestView,
    /// Whether the client's markers stay.
    pub policy: Policy,
    /// What is likely to come.
    pub outlook: Outlook,
    /// Prices of the model; `None` for unknown ones, then the usual ratios of reads and writes to
    /// input are assumed.
    pub rates: Option<Rates>,
    /// The smallest prefix that this model caches, in tokens; `None` when it is not known, then
    /// [`UNKNOWN_MINIMUM_TOKENS`] is assumed.
    pub min_tokens: Option<u32>,
    /// Bytes per token in thousandths; 0 for unknown.
    pub bytes_per_token_milli: u32,
    /// Index of the last block of the thread's previous request, when the thread is known.
    /// Otherwise it is taken from the request: the last block before the last assistant message.
    pub previous_end: Option<usize>,
    /// Index of the block at which the longest entry ends that lives on this request's path, by the
    /// shadow cache and whether or not a marker of the client finds it. `None` for no such entry.
    pub read_at: Option<u32>,
    /// Index of the block at which the longest prefix ends that another request is just writing.
    /// It can be read soon, whether or not this request writes it too.
    pub pending_at: Option<u32>,
    /// The lifetime that was chosen for this thread before ([`Plan::ttl`]). It stays as long as
    /// anything of the conversation lives ([`Situation::read_at`]).
    pub ttl: Option<Ttl>,
    /// The lifetime with which an entry for tools and system lives, by the shadow cache.
    pub head_ttl: Option<Ttl>,
    /// Insertion was switched off, for this thread or in all.
    pub insertion_off: bool,
}

impl<'a> Situation<'a> {
    /// A request of which nothing is known but what it shows itself.
    #[must_use]
    pub fn new(body: &'a [u8], view: &'a RequestView) -> Self {
        Self {
            body,
            view,
            policy: Policy::Fill,
            outlook: Outlook::prior(Kind::of(view), false),
            rates: None,
            min_tokens: None,
            bytes_per_token_milli: 0,
            previous_end: None,
            read_at: None,
            pending_at: None,
            ttl: None,
            head_ttl: None,
            insertion_off: false,
        }
    }
}

/// Where markers go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Index of the block and lifetime of each marker that is added, in provider order.
    pub placed: Vec<(usize, Ttl)>,
    /// Blocks whose client marker goes, in provider order; only under [`Policy::Replace`]. One that
    /// gets another lifetime is here and in `placed`; one that stays as it is is in neither.
    pub removed: Vec<usize>,
    /// The client's automatic marker goes; only under [`Policy::Replace`].
    pub removed_top: bool,
    /// The same as edits, in the order of the body. Empty exactly when the body stays as it is.
    pub splices: Vec<Splice>,
    /// Why nothing is placed, as a stable word; `None` exactly when something is.
    pub skipped: Option<&'static str>,
    /// What is wrong with the client's own markers, as stable words.
    pub warnings: Vec<&'static str>,
    /// The lifetime of the thread's markers, to be handed back on its next turn so that it does
    /// not change while it lives. `None` while there is no marker in the conversation.
    pub ttl: Option<Ttl>,
    /// What the plan is expected to save beside the client's own markers alone, in thousandths of
    /// the price of an input token. An estimate, never money; 0 where breakpoints cost nothing and
    /// so are not weighed.
    pub value: i64,
}

/// Decides where breakpoints go.
#[must_use]
pub fn plan(situation: &Situation) -> Plan {
    let view = situation.view;
    if !view.anthropic_rules {
        let mut plan = Plan::default();
        beside::place(situation, &mut plan);
        return plan;
    }
    let markers = client_markers(view);
    let number = view.client_markers() as usize;
    let mut plan = Plan {
        warnings: warnings(view, &markers, number),
        ttl: situation.ttl,
        ..Plan::default()
    };
    if let Some(reason) = forbidden(situation, &markers, number) {
        plan.skipped = Some(reason);
        return plan;
    }
    let clients: Vec<Mark> = markers
        .into_iter()
        .filter_map(|(at, ttl)| Some((at, ttl?)))
        .collect();
    let (fixed, free) = match situation.policy {
        Policy::Fill => (&clients[..], MAX_MARKERS.saturating_sub(number)),
        Policy::Replace => (&[][..], MAX_MARKERS),
    };
    let sizes = Sizes::new(situation);
    let worth = Worth::new(situation, &sizes);
    let styles = Styles::new(situation, &worth, fixed);
    let mut reason = match view.auto_marker {
        Some(_) => "already_marked",
        None => "no_eligible_block",
    };
    let mut candidates: Vec<Mark> = Vec::with_capacity(2 * MAX_MARKERS);
    for at in spots(situation, fixed) {
        if fixed.iter().any(|(taken, _)| *taken == at) {
            reason = "already_marked";
        } else if !sizes.long_enough(at) {
            reason = "below_minimum";
        } else {
            candidates.push((at, styles.of(at)));
        }
    }
    let chosen = best(&worth, fixed, &candidates, free);
    if chosen.is_empty() && !candidates.is_empty() {
        reason = "not_worth_it";
    }
    if Kind::of(view) == Kind::Lone && !situation.outlook.root_seen {
        reason = "lone_question";
    }
    let mut after: Vec<Mark> = fixed.iter().chain(&chosen).copied().collect();
    after.sort_unstable_by_key(|(at, _)| *at);
    let saved = worth.of_marks(&after).real - worth.of_marks(&clients).real;
    plan.value = worth.thousandths(saved);
    if let Some((_, ttl)) = chosen.iter().rfind(|(at, _)| *at >= view.head_len()) {
        plan.ttl = Some(*ttl);
    }
    edit(situation, &mut plan, &chosen);
    plan.skipped = plan.placed.is_empty().then_some(reason);
    plan
}

/// A marker that is or could be in a set.
struct Member {
    mark: Mark,
    anchor: Option<Anchor>,
    /// What it is among the candidates; 0 for what is there already.
    bit: u32,
}

/// The set of candidates that is worth most beside what is there already, in provider order.
fn best(worth: &Worth, fixed: &[Mark], candidates: &[Mark], free: usize) -> Vec<Mark> {
    let member = |mark: &Mark, bit| Member {
        mark: *mark,
        anchor: worth.anchor(*mark),
        bit,
    };
    let bits = candidates.iter().zip((0..u32::BITS).map(|at| 1 << at));
    let fixed = fixed.iter().map(|mark| member(mark, 0));
    let mut all: Vec<Member> = fixed
        .chain(bits.map(|(mark, bit)| member(mark, bit)))
        .collect();
    all.sort_by_key(|one| one.mark.0);
    let of = |set: u32| {
        all.iter()
            .filter(move |one| one.bit == 0 || one.bit & set != 0)
    };

    let mut anchors: Vec<Anchor> = Vec::with_capacity(all.len());
    anchors.extend(of(0).filter_map(|one| one.anchor));
    let before = worth.of(&anchors);
    let mut best: (u32, f64) = (0, 0.0);
    // There are some dozens of sets, so this is written for speed.
    for set in 1_u32..1 << candidates.len() {
        if set.count_ones() as usize > free {
            continue;
        }
        anchors.clear();
        let mut before_it = None;
        let mut ordered = true;
        for one in of(set) {
            ordered &= before_it.is_none_or(|ttl| ttl >= one.mark.1);
            before_it = Some(one.mark.1);
            if let Some(anchor) = one.anchor {
                anchors.push(anchor);
            }
        }
        if !ordered {
            continue;
        }
        let value = worth.of(&anchors);
        let total = value.real + value.spare - before.real - before.spare;
        if value.real > before.real - worth.nothing() && total > best.1 {
            best = (set, total);
        }
    }
    of(best.0)
        .filter(|one| one.bit != 0)
        .map(|one| one.mark)
        .collect()
}

/// Writes a choice down as edits.
fn edit(situation: &Situation, plan: &mut Plan, chosen: &[Mark]) {
    let (view, body) = (situation.view, situation.body);
    let Some(spelling) = view.spelling else {
        return;
    };
    if situation.policy == Policy::Replace {
        for (index, block) in view.blocks.iter().enumerate() {
            let Some(marker) = block.marker else { continue };
            let wanted = chosen.iter().find(|(at, _)| *at == index);
            match wanted {
                Some((_, ttl)) if marker.ttl == Some(*ttl) => {}
                Some((_, ttl)) => {
                    plan.splices.extend(splice::remark(block, *ttl, spelling));
                    plan.placed.push((index, *ttl));
                    plan.removed.push(index);
                }
                None => {
                    plan.splices.extend(splice::unmark(body, block));
                    plan.removed.push(index);
                }
            }
        }
        plan.removed_top = view.auto_marker.is_some();
        plan.splices.extend(splice::unmark_top(body, view));
    }
    plan.placed.reserve(chosen.len());
    // Around a bare string a breakpoint is two edits.
    plan.splices.reserve(2 * chosen.len());
    for (index, ttl) in chosen {
        if let Some(block) = view.blocks.get(*index)
            && block.marker.is_none()
        {
            plan.splices.extend(splice::mark(block, *ttl, spelling));
            plan.placed.push((*index, *ttl));
        }
    }
    plan.placed.sort_unstable_by_key(|(at, _)| *at);
    plan.splices.sort_by_key(|splice| splice.at);
}

/// `markers` are those of [`client_markers`], `number` counts the misplaced ones as well.
fn warnings(
    view: &RequestView,
    markers: &[(usize, Option<Ttl>)],
    number: usize,
) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if number > MAX_MARKERS {
        warnings.push("more_than_4_breakpoints");
    }
    if view.misplaced_markers > 0 {
        warnings.push("misplaced_breakpoint");
    }
    if !in_order(markers.iter().map(|(_, ttl)| *ttl)) {
        warnings.push("breakpoint_ttl_order");
    }
    warnings
}

/// Why the request must be left alone altogether.
fn forbidden(
    situation: &Situation,
    markers: &[(usize, Option<Ttl>)],
    number: usize,
) -> Option<&'static str> {
    let view = situation.view;
    let replace = situation.policy == Policy::Replace;
    if situation.insertion_off {
        Some("insertion_off")
    } else if view.spelling.is_none() {
        Some("no_breakpoints_in_this_format")
    } else if view.history != History::Whole {
        // Which markers the provider refuses in a thread is not documented.
        Some("thread")
    } else if view.uneditable.is_some() {
        Some("uneditable")
    } else if number > MAX_MARKERS || (number == MAX_MARKERS && !replace) {
        Some("no_free_slot")
    } else if view.misplaced_markers > 0 || !in_order(markers.iter().map(|(_, ttl)| *ttl)) {
        // The provider will refuse the client's own markers; that must not look like our doing.
        Some("client_breakpoints_invalid")
    } else if markers.iter().any(|(_, ttl)| ttl.is_none()) {
        // A lifetime of unknown length has no known place in the order.
        Some("unknown_ttl")
    } else if replace && (view.blocks.iter().any(cannot_give_up) || conflicting_top(view)) {
        Some("client_breakpoints_invalid")
    } else {
        None
    }
}

/// The client marked a block that we know no rules for, or that the provider will refuse.
fn cannot_give_up(block: &Block) -> bool {
    block.marker.is_some() && block.unmarkable.is_some()
}

/// The automatic marker and the one on the last block ask for different lifetimes, which the
/// provider refuses.
fn conflicting_top(view: &RequestView) -> bool {
    let Some(auto) = view.auto_marker else {
        return false;
    };
    let on_block = auto_place(view).and_then(|at| view.blocks.get(at)?.marker);
    on_block.is_some_and(|own| own.ttl != auto.ttl)
}

/// The client's own breakpoints, in provider order; the automatic one stands where the provider
/// puts it.
#[must_use]
pub fn client_marks(view: &RequestView) -> Vec<trail::Mark> {
    let markers = client_markers(view).into_iter();
    let marks = markers.map(|(at, ttl)| trail::Mark {
        at: u32::try_from(at).unwrap_or(u32::MAX),
        ttl,
        ours: false,
    });
    let mut marks: Vec<_> = marks.collect();
    if let Some(rules) = view.caching.automatic()
        && let Some(last) = view.blocks.iter().rposition(counts)
    {
        // Where the whole prompt ends, and is cached whatever the client marked.
        let at = u32::try_from(last).unwrap_or(u32::MAX);
        match marks.last_mut().filter(|mark| mark.at == at) {
            Some(mark) => mark.ttl = mark.ttl.max(rules.ttl),
            None => marks.push(trail::Mark {
                at,
                ttl: rules.ttl,
                ours: false,
            }),
        }
    }
    marks
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

/// Which lifetime a marker of ours gets, by its place.
struct Styles<'a> {
    head_len: usize,
    fixed: &'a [Mark],
    /// What the client's own markers say about ours; `None` where they say nothing.
    clients: Option<Ttl>,
    head: Ttl,
    thread: Ttl,
}

impl<'a> Styles<'a> {
    fn new(situation: &Situation, worth: &Worth, fixed: &'a [Mark]) -> Self {
        let head_len = situation.view.head_len();
        // A client that keeps its conversation for an hour wants that of ours too. A lasting head
        // alone says nothing about the conversation.
        let clients = match fixed.last() {
            Some((at, ttl)) if *at >= head_len || *ttl == Ttl::M5 => Some(*ttl),
            _ => None,
        };
        // It never changes while anything of the conversation lives. When nothing does, all is
        // written anew whatever the lifetime, and the pause that did it may have taught another one.
        let living = spots::read_at(situation).is_some_and(|at| at >= head_len);
        let thread = situation.ttl.filter(|_| living);
        let thread = thread.unwrap_or_else(|| worth.thread_ttl());
        let head = match situation.head_ttl {
            Some(living) => living,
            None if thread == Ttl::H1 => Ttl::H1,
            None => worth.head_ttl(),
        };
        Self {
            head_len,
            fixed,
            clients,
            head,
            thread,
        }
    }

    /// One hour wherever a one-hour marker of the client follows. So a block has the same lifetime on
    /// the next turn, when the client's marker has moved on and ours stands in its place.
    fn of(&self, at: usize) -> Ttl {
        let mut later = self.fixed.iter().filter(|(taken, _)| *taken > at);
        if later.any(|(_, ttl)| *ttl == Ttl::H1) {
            Ttl::H1
        } else if let Some(ttl) = self.clients {
            ttl
        } else if at < self.head_len {
            self.head
        } else {
            self.thread
        }
    }
}

/// Sizes of prefixes, estimated.
struct Sizes {
    /// Bytes up to and with each block.
    bytes: Vec<u64>,
    /// Smallest prefix that is cached, in bytes.
    min_bytes: u64,
    tokens_per_byte: f64,
}

impl Sizes {
    fn new(situation: &Situation) -> Self {
        let tokens = situation.min_tokens.unwrap_or(UNKNOWN_MINIMUM_TOKENS);
        let milli = match situation.bytes_per_token_milli {
            0 => DEFAULT_BYTES_PER_TOKEN_MILLI,
            known => known,
        };
        let mut sum = 0;
        let blocks = situation.view.blocks.iter();
        Self {
            bytes: blocks
                .map(|block| {
                    sum += prefix_bytes(block);
                    sum
                })
                .collect(),
            min_bytes: (u64::from(tokens) * u64::from(milli)).div_ceil(1000),
            tokens_per_byte: 1000.0 / f64::from(milli),
        }
    }

    fn long_enough(&self, at: usize) -> bool {
        self.bytes.get(at).is_some_and(|b| *b >= self.min_bytes)
    }

    /// Tokens up to and with a block.
    fn tokens(&self, at: usize) -> f64 {
        let bytes = self.bytes.get(at).or(self.bytes.last());
        bytes.copied().unwrap_or(0) as f64 * self.tokens_per_byte
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
mod economics;
#[cfg(test)]
mod strict;
#[cfg(test)]
mod tests;
