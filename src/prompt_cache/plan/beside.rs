//! Where breakpoints go beside those that the provider sets itself.
//!
//! OpenAI from gpt-5.6 on (SDK documentation, November 2026): the end of every prompt is a
//! breakpoint, so all of it is written whatever else is marked, and a breakpoint of ours inside costs
//! nothing. Entries are found at breakpoints only, and nothing looks back from them. So what another
//! conversation shares with this one, or what is left of this one once its tail has changed, is
//! read only where a breakpoint stood at its very end, in both requests.
//!
//! That is why there is no weighing here: the end of the system prompt is marked on every turn, and
//! the end of what this app's conversations are known to keep. The client's word counts: whoever has
//! said anything about caching gets none of ours.

use super::spots::stable_end;
use super::{Plan, Situation, Sizes};
use crate::prompt_cache::chain::counts;
use crate::prompt_cache::splice;
use crate::provider::view::{Block, BlockKind, Form, RequestView, Role, Section, Ttl, Unmarkable};

/// Places, or the reason why there are none.
pub(super) fn place(situation: &Situation, plan: &mut Plan) {
    match places(situation) {
        Ok(places) => write(situation.view, plan, &places),
        Err(reason) => plan.skipped = Some(reason),
    }
}

fn places(situation: &Situation) -> Result<Vec<usize>, &'static str> {
    let view = situation.view;
    if situation.insertion_off {
        return Err("insertion_off");
    }
    if view.spelling.is_none() {
        return Err("no_breakpoints_in_this_format");
    }
    if view.uneditable.is_some() {
        return Err("uneditable");
    }
    if view.tells_caching || view.client_markers() > 0 {
        return Err("already_marked");
    }
    let found: Vec<usize> = [head(view), stable(situation)]
        .into_iter()
        .flatten()
        .collect();
    if found.is_empty() {
        let placeless = |block: &Block| block.unmarkable == Some(Unmarkable::Placeless);
        let instructions = system(view).any(|(_, block)| placeless(block));
        return Err(if instructions {
            "instructions_carry_none"
        } else {
            "no_eligible_block"
        });
    }
    let sizes = Sizes::new(situation);
    let long_enough = found.into_iter().filter(|at| sizes.long_enough(*at));
    let mut places: Vec<usize> = long_enough.collect();
    places.dedup();
    match places.is_empty() {
        true => Err("below_minimum"),
        false => Ok(places),
    }
}

fn system(view: &RequestView) -> impl DoubleEndedIterator<Item = (usize, &Block)> {
    let head = view.blocks.iter().enumerate().take(view.head_len());
    head.filter(|(_, block)| block.section == Section::System)
}

/// The last text of the system prompt. What stands as a string there is made into parts on every
/// turn alike.
fn head(view: &RequestView) -> Option<usize> {
    let text = |block: &Block| block.kind == BlockKind::Text && block.unmarkable.is_none();
    let mut texts = system(view).rev().filter(|(_, block)| text(block));
    texts.next().map(|(at, _)| at)
}

/// The last text of the user in what the next turn is likely to keep, where it does not keep all.
/// One that is a part already: a string would be one thing on this turn and another on the next.
fn stable(situation: &Situation) -> Option<usize> {
    let view = situation.view;
    let (begin, end) = (view.head_len(), stable_end(situation)?);
    let last = view.blocks.iter().rposition(counts)?;
    let fits = |block: &Block| {
        let role = view.messages.get(block.outer as usize).map(|m| m.role);
        let text = block.kind == BlockKind::Text && block.unmarkable.is_none();
        text && block.form == Form::Object && role == Some(Role::User)
    };
    let kept = view.blocks.get(begin..end.min(last))?;
    Some(begin + kept.iter().rposition(fits)?)
}

fn write(view: &RequestView, plan: &mut Plan, places: &[usize]) {
    let Some(spelling) = view.spelling else {
        return;
    };
    // They live as long as all else that the request writes.
    let rules = view.caching.automatic();
    let ttl = rules.and_then(|rules| rules.ttl).unwrap_or(Ttl::M30);
    for at in places {
        if let Some(block) = view.blocks.get(*at) {
            plan.splices.extend(splice::mark(block, ttl, spelling));
            plan.placed.push((*at, ttl));
        }
    }
    plan.splices.sort_by_key(|splice| splice.at);
}

#[cfg(test)]
mod tests;
