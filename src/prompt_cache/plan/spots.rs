//! Places where a marker could be worth something.

use super::worth::Mark;
use super::{Policy, Situation};
use crate::prompt_cache::habits::{Kind, Stable};
use crate::provider::view::{Block, RequestView, Role, Section};

/// Positions after which anchors are put between the last entry and the newest block.
const FAR: usize = 20;

/// Indices of markable blocks, ascending. At most nine: every set of them is tried.
pub(super) fn spots(situation: &Situation, fixed: &[Mark]) -> Vec<usize> {
    let view = situation.view;
    let head_len = view.head_len();
    let talk = |end: usize| last_markable(view, head_len..end.min(view.blocks.len()), None);
    let last_tool = last_markable(view, 0..head_len, Some(Section::Tools));
    // What every thread of the app shares.
    let head = last_markable(view, 0..head_len, Some(Section::System)).or(last_tool);
    // What the next turn reads. The automatic marker is on the newest block already.
    let newest = talk(view.blocks.len());
    let covered = situation.policy == Policy::Fill && view.auto_marker.is_some();
    // What the previous turn wrote, so that reading it depends on no lookback.
    let previous = previous_end(situation).and_then(|end| talk(end + 1));
    let read = read_at(situation).filter(|at| {
        view.blocks
            .get(*at)
            .is_some_and(|block| block.unmarkable.is_none())
    });
    let stable = stable_end(situation).and_then(talk);

    let mut spots = vec![last_tool, head, previous, read, stable];
    if !covered {
        spots.push(newest);
    }
    // Instructions in the middle of the conversation, which a client left unmarked behind its own
    // last marker.
    spots.push(instructions(view).filter(|at| fixed.last().is_none_or(|(last, _)| last < at)));
    // Long turns get anchors inside, for what comes back to the middle of one.
    let from = previous.max(read);
    if let (Some(from), Some(newest)) = (from, newest)
        && newest.saturating_sub(from) > FAR
    {
        let part = (newest - from) / 3;
        for end in [from + part, from + 2 * part] {
            spots.push(talk(end + 1).filter(|at| *at > from));
        }
    }
    let mut spots: Vec<usize> = spots.into_iter().flatten().collect();
    spots.sort_unstable();
    spots.dedup();
    spots
}

/// Index at which the longest living entry ends.
pub(super) fn read_at(situation: &Situation) -> Option<usize> {
    let at = usize::try_from(situation.read_at?).ok()?;
    (at < situation.view.blocks.len()).then_some(at)
}

/// The last block of the previous request of this thread.
pub(super) fn previous_end(situation: &Situation) -> Option<usize> {
    situation.previous_end.or_else(|| {
        let messages = &situation.view.messages;
        // An assistant message may be the beginning of the first answer.
        if Kind::of(situation.view) == Kind::Lone {
            return None;
        }
        let answer = messages
            .iter()
            .rfind(|message| message.role == Role::Assistant)?;
        (answer.blocks.start as usize).checked_sub(1)
    })
}

/// Number of leading blocks that the next turn is likely to keep, where it does not keep all.
pub(super) fn stable_end(situation: &Situation) -> Option<usize> {
    let len = situation.view.blocks.len();
    match situation.outlook.stable?.0 {
        Stable::Blocks(blocks) => Some(usize::try_from(blocks).ok()?.min(len)),
        Stable::AllBut(cut) => len.checked_sub(usize::try_from(cut).ok()?),
    }
}

/// The last block in a range (and a section) that may carry a marker.
pub(super) fn last_markable(
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

/// The last markable block of the last instructions in the middle of the conversation.
fn instructions(view: &RequestView) -> Option<usize> {
    let message = view.messages.iter().rfind(|m| m.role == Role::System)?;
    let blocks = message.blocks.start as usize..message.blocks.end as usize;
    last_markable(view, blocks, None)
}
