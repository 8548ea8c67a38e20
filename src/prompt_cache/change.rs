//! Where and how a request differs from the previous one of its thread.
//!
//! Blocks are compared by hash; the first one that counts and differs decides. Whether it was
//! moved, dropped or put in is told by where the blocks around it are found again. What changed
//! inside of it is told by its previous bytes, while [`Keep`] has them.
//!
//! Linear in the number of blocks, and bounded in the bytes looked at.

mod compare;
mod fork;
mod settings;
mod token;
mod tools;

use super::keep::Keep;
use super::trail::{Shared, Step, Trail};
use super::verdict::Change;
use crate::provider::view::{RequestView, Section};
use fork::Fork;
pub use settings::{How, SettingChange, Settled, setting_changes, settings_in_words};

/// The new request as far as it is at hand, and what is remembered of older ones.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The request's body.
    pub body: &'a [u8],
    /// Its view.
    pub view: &'a RequestView,
    /// Texts of recent blocks and names of recent tools.
    pub keep: &'a Keep,
    /// Content may be shown: short windows of both versions.
    pub excerpts: bool,
}

/// The first place at which `now` (the trail of `seen.view`) differs from `past`. `None` when it
/// only grew, or differs in nothing that counts.
#[must_use]
pub fn first_change(past: &Trail, now: &Trail, seen: &Seen<'_>) -> Option<Change> {
    let mut shared = now.shared(past);
    let (here, there) = (tools_len(now), tools_len(past));
    if shared.mine < here || shared.theirs < there {
        if let Some(change) = tools::first_change(past, now, seen, shared) {
            return Some(change);
        }
        // The provider reads both lists alike.
        shared = shared_from(now, here, past, there);
    }
    let old = past.steps.get(shared.theirs)?;
    let fork = Fork {
        past,
        now,
        seen,
        mine: shared.mine,
        theirs: shared.theirs,
        old,
    };
    Some(fork.change())
}

fn tools_len(trail: &Trail) -> usize {
    let is_tool = |step: &&Step| step.section == Section::Tools;
    trail.steps.iter().take_while(is_tool).count()
}

/// [`Trail::shared`], from given blocks on.
fn shared_from(now: &Trail, mine: usize, past: &Trail, theirs: usize) -> Shared {
    let (mut mine, mut theirs) = (next(now, mine), next(past, theirs));
    while let (Some(a), Some(b)) = (now.steps.get(mine), past.steps.get(theirs)) {
        if a.hash != b.hash {
            break;
        }
        (mine, theirs) = (next(now, mine + 1), next(past, theirs + 1));
    }
    Shared { mine, theirs }
}

/// The first block from `from` on that counts, or the number of blocks.
fn next(trail: &Trail, from: usize) -> usize {
    let mut rest = trail.steps.iter().skip(from);
    rest.position(|step| step.counts)
        .map_or(trail.steps.len(), |at| from + at)
}

#[cfg(test)]
mod tests;
