//! Two lists of tools: what was added, removed, changed, and what stands elsewhere.

use std::collections::HashMap;

use super::compare::{Delta, delta};
use super::{Seen, tools_len};
use crate::prompt_cache::keep::name_of;
use crate::prompt_cache::trail::{Shared, Step, Trail};
use crate::prompt_cache::verdict::{Change, What};
use crate::provider::view::{BlockKind, Section};

/// Names that one detail lists of each kind.
const MAX_NAMES: usize = 8;

/// A tool of one of the lists.
struct Tool<'a> {
    /// Its index in the request's list.
    at: usize,
    step: &'a Step,
    /// Unknown of old tools that were not remembered.
    name: Option<String>,
}

/// How a tool of the new list relates to the old one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The same, at this place of the old list.
    Kept(usize),
    /// Another definition of the tool at this place of the old list.
    Changed(usize),
    Added,
}

/// The first difference of the lists; `None` if the provider reads both alike.
pub(super) fn first_change(
    past: &Trail,
    now: &Trail,
    seen: &Seen<'_>,
    shared: Shared,
) -> Option<Change> {
    let (old, new) = (tools_of_past(past, seen), tools_of_now(now, seen));
    // It renders the searches that it runs behind all other tools, into the system prompt.
    let hashes = |tools: &[Tool<'_>], searches: bool| -> Vec<u64> {
        let is_search = |tool: &&Tool<'_>| tool.step.kind == BlockKind::ServerTool;
        let tools = tools.iter().filter(|tool| is_search(tool) == searches);
        tools.map(|tool| tool.step.hash).collect()
    };
    let (tools, old_tools) = (hashes(&new, false), hashes(&old, false));
    let (searches, old_searches) = (hashes(&new, true), hashes(&old, true));
    let alone = past
        .steps
        .iter()
        .skip(tools_len(past))
        .all(|step| !step.counts);
    let only_grew = match old_searches.is_empty() {
        true => tools.starts_with(&old_tools),
        false => tools == old_tools && searches.starts_with(&old_searches),
    };
    if alone && only_grew {
        return None;
    }
    let section = match (tools == old_tools, searches == old_searches) {
        (true, true) => return None,
        (true, false) => Section::System,
        _ => Section::Tools,
    };
    let lists = Lists::new(old, new, shared);
    Some(lists.change(section, seen))
}

fn tools_of_past<'a>(past: &'a Trail, seen: &Seen<'_>) -> Vec<Tool<'a>> {
    let steps = past.steps.iter().take(tools_len(past)).enumerate();
    steps
        .filter(|(_, step)| step.counts)
        .map(|(at, step)| Tool {
            at,
            step,
            name: seen.keep.name(step.hash).map(str::to_owned),
        })
        .collect()
}

fn tools_of_now<'a>(now: &'a Trail, seen: &Seen<'_>) -> Vec<Tool<'a>> {
    let steps = now.steps.iter().take(tools_len(now)).enumerate();
    steps
        .filter(|(_, step)| step.counts)
        .map(|(at, step)| {
            let raw = seen.view.blocks.get(at).and_then(|block| block.name);
            let name = raw.map(|raw| name_of(raw.of(seen.body)));
            Tool { at, step, name }
        })
        .collect()
}

struct Lists<'a> {
    old: Vec<Tool<'a>>,
    new: Vec<Tool<'a>>,
    /// Of each new tool.
    fates: Vec<Fate>,
    /// Of each old tool, whether the new list has it no more under any definition.
    removed: Vec<bool>,
    /// Places in the lists at which they part.
    mine: usize,
    theirs: usize,
    index: usize,
    before: usize,
}

impl<'a> Lists<'a> {
    fn new(old: Vec<Tool<'a>>, new: Vec<Tool<'a>>, shared: Shared) -> Self {
        let place = |tools: &[Tool<'_>], at| tools.partition_point(|tool| tool.at < at);
        let (mine, theirs) = (place(&new, shared.mine), place(&old, shared.theirs));
        let mut fates = vec![Fate::Added; new.len()];
        let mut free = vec![true; old.len()];
        // Equal definitions first, from the front, so that twins keep their order.
        let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, tool) in old.iter().enumerate().rev() {
            by_hash.entry(tool.step.hash).or_default().push(at);
        }
        for (fate, tool) in fates.iter_mut().zip(&new) {
            if let Some(at) = by_hash.get_mut(&tool.step.hash).and_then(Vec::pop) {
                (*fate, free[at]) = (Fate::Kept(at), false);
            }
        }
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for (at, tool) in old.iter().enumerate().filter(|(at, _)| free[*at]) {
            if let Some(name) = &tool.name {
                by_name.entry(name).or_insert(at);
            }
        }
        for (fate, tool) in fates.iter_mut().zip(&new) {
            let twin = tool.name.as_deref().and_then(|name| by_name.remove(name));
            if let (Fate::Added, Some(at)) = (*fate, twin) {
                (*fate, free[at]) = (Fate::Changed(at), false);
            }
        }
        // Of a tool whose name was not kept: what stands in its place is taken for it.
        if let (Some(Fate::Added), Some(tool)) = (fates.get(mine), old.get(theirs))
            && tool.name.is_none()
            && free[theirs]
        {
            (fates[mine], free[theirs]) = (Fate::Changed(theirs), false);
        }
        Self {
            old,
            new,
            fates,
            removed: free,
            mine,
            theirs,
            index: shared.mine,
            before: shared.theirs,
        }
    }

    fn change(&self, section: Section, seen: &Seen<'_>) -> Change {
        let delta = self.first_delta(seen);
        let what = self.what();
        let told = [
            (What::ToolChanged, self.changed(delta.as_ref())),
            (What::ToolAdded, self.added()),
            (What::ToolRemoved, self.removed()),
            (What::ToolsReordered, self.reordered()),
        ];
        let first = told.iter().filter(|(kind, _)| *kind == what);
        let rest = told.iter().filter(|(kind, _)| *kind != what);
        let mut detail = first
            .chain(rest)
            .filter_map(|(_, words)| words.clone())
            .collect::<Vec<_>>()
            .join("; ");
        if section == Section::System {
            detail.push_str(" (a search that the provider runs: part of the system prompt)");
        }
        let mut change = Change {
            section,
            index: self.index as u32,
            before: self.before as u32,
            path: format!("tools[{}]", self.place()),
            offset: None,
            what,
            detail,
            excerpt: None,
        };
        if let (What::ToolChanged, Some(delta)) = (what, delta) {
            // A definition that is rebuilt each turn is told as what it is.
            let same_or_volatile = matches!(
                delta.what,
                What::KeyOrder | What::Escapes | What::Clock | What::Id
            );
            if same_or_volatile {
                change.what = delta.what;
            }
            change.offset = delta.offset;
            change.excerpt = delta.excerpt;
        }
        change
    }

    /// What happened at the first place.
    fn what(&self) -> What {
        match (self.fates.get(self.mine), self.removed.get(self.theirs)) {
            (Some(Fate::Changed(_)), _) => What::ToolChanged,
            (Some(Fate::Added), _) => What::ToolAdded,
            (_, Some(true)) => What::ToolRemoved,
            (Some(Fate::Kept(_)), _) => What::ToolsReordered,
            // The new list ends here, and the old tool stands further to the front.
            (None, _) if self.reordered().is_some() => What::ToolsReordered,
            (None, _) => What::ToolRemoved,
        }
    }

    /// Index in the new list.
    fn place(&self) -> usize {
        match self.new.get(self.mine) {
            Some(tool) => tool.at,
            None => self.new.last().map_or(0, |tool| tool.at + 1),
        }
    }

    /// The bytes of the first changed tool compared, if the lists part at it.
    fn first_delta(&self, seen: &Seen<'_>) -> Option<Delta> {
        let Some(Fate::Changed(at)) = self.fates.get(self.mine) else {
            return None;
        };
        let block = seen.view.blocks.get(self.new.get(self.mine)?.at)?;
        delta(seen, self.old.get(*at)?.step.hash, block)
    }

    fn changed(&self, first: Option<&Delta>) -> Option<String> {
        let changed = self.fates.iter().enumerate();
        let changed = changed.filter(|(_, fate)| matches!(fate, Fate::Changed(_)));
        let names = listed(changed.map(|(at, _)| {
            let name = named(&self.new[at]);
            let Some(delta) = first.filter(|_| at == self.mine) else {
                return name;
            };
            match &delta.member {
                Some(member) => format!("{name} ({member}: {})", delta.detail),
                None => format!("{name} ({})", delta.detail),
            }
        }))?;
        Some(format!("changed: {names}"))
    }

    fn added(&self) -> Option<String> {
        let added = self.fates.iter().zip(&self.new);
        let added = added.filter(|(fate, _)| **fate == Fate::Added);
        let names =
            listed(added.map(|(_, tool)| format!("{} at tools[{}]", named(tool), tool.at)))?;
        Some(format!("added: {names}"))
    }

    fn removed(&self) -> Option<String> {
        let removed = self.removed.iter().zip(&self.old);
        let removed = removed.filter(|(removed, _)| **removed);
        let names =
            listed(removed.map(|(_, tool)| format!("{} from tools[{}]", named(tool), tool.at)))?;
        Some(format!("removed: {names}"))
    }

    /// The tools that stand elsewhere, as few as explain the new order.
    fn reordered(&self) -> Option<String> {
        let same: Vec<(usize, usize)> = self
            .fates
            .iter()
            .enumerate()
            .filter_map(|(new, fate)| match fate {
                Fate::Kept(old) | Fate::Changed(old) => Some((new, *old)),
                Fate::Added => None,
            })
            .collect();
        let stays = longest_rising(&same.iter().map(|(_, old)| *old).collect::<Vec<_>>());
        let moved = same.iter().zip(&stays).filter(|(_, stays)| !**stays);
        let names = listed(moved.map(|((new, _), _)| named(&self.new[*new])))?;
        let alone = same.len() == self.new.len() && same.len() == self.old.len();
        Some(match alone {
            true => format!("same set, order changed; moved: {names}"),
            false => format!("order changed; moved: {names}"),
        })
    }
}

fn named(tool: &Tool<'_>) -> String {
    match &tool.name {
        Some(name) => name.clone(),
        None => "a tool whose name is not known any more".into(),
    }
}

/// A bounded list; `None` for an empty one.
fn listed(mut names: impl Iterator<Item = String>) -> Option<String> {
    let shown: Vec<_> = names.by_ref().take(MAX_NAMES).collect();
    let more = names.count();
    match (shown.is_empty(), more) {
        (true, _) => None,
        (_, 0) => Some(shown.join(", ")),
        _ => Some(format!("{} and {more} more", shown.join(", "))),
    }
}

/// Which elements of a list without equals belong to a longest rising subsequence.
fn longest_rising(list: &[usize]) -> Vec<bool> {
    // Of each length, the index of the lowest end of a rising subsequence.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; list.len()];
    for (at, value) in list.iter().enumerate() {
        let place = ends.partition_point(|end| list[*end] < *value);
        before[at] = place.checked_sub(1).map(|shorter| ends[shorter]);
        match ends.get_mut(place) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut stays = vec![false; list.len()];
    let mut at = ends.last().copied();
    while let Some(index) = at {
        stays[index] = true;
        at = before[index];
    }
    stays
}

#[cfg(test)]
mod tests {
    use super::longest_rising;

    #[test]
    fn as_few_as_possible_have_moved() {
        let moved = |list: &[usize]| -> Vec<usize> {
            let stays = longest_rising(list);
            let moved = list.iter().zip(stays).filter(|(_, stays)| !stays);
            moved.map(|(value, _)| *value).collect()
        };
        assert_eq!(moved(&[2, 0, 1]), [2]);
        assert_eq!(moved(&[0, 2, 3, 1]), [1]);
        assert!(moved(&[0, 1, 2]).is_empty());
        assert_eq!(moved(&[3, 2, 1, 0]).len(), 3);
        assert!(moved(&[]).is_empty());
    }
}
