//! Where two requests part in the system prompt or the conversation, and what happened there.

use std::collections::HashSet;

use super::compare::{self, Delta, delta, is_injected, value_path};
use super::{Seen, next};
use crate::prompt_cache::trail::{Step, Trail};
use crate::prompt_cache::verdict::{Change, What};
use crate::provider::view::{Block, BlockKind, Form, Role, Section};
use crate::provider::wire::Wire;

/// A block at least this long that is found again is the same one, whatever follows it.
const TELLING_BYTES: u32 = 32;

/// A conversation of fewer messages is too short to be called compacted.
const COMPACTED_FROM: u32 = 4;

/// How far into a block a word is looked for that tells its type, in bytes.
const TYPE_REACH: usize = 96;

/// Where the two requests part, behind the tools.
pub(super) struct Fork<'a> {
    pub(super) past: &'a Trail,
    pub(super) now: &'a Trail,
    pub(super) seen: &'a Seen<'a>,
    pub(super) mine: usize,
    pub(super) theirs: usize,
    /// The first block of the previous request that is not here.
    pub(super) old: &'a Step,
}

impl Fork<'_> {
    /// What happened here.
    pub(super) fn change(&self) -> Change {
        let Some((new, block)) = self.new_block() else {
            return self.ended();
        };
        if new.section < self.old.section {
            return self.came(new, block, 1);
        }
        let again = self.again();
        // The block here stood further on: those before it are gone.
        if let Some(at) = self.was_at(new) {
            return match again {
                Some(at) => self.moved(at),
                None => self.gone(counted(self.past, self.theirs, at)),
            };
        }
        // The block that is missing comes further on: those before it are new, unless the rest is
        // shorter than what was put before it.
        if let Some(at) = again {
            let put_in = counted(self.now, self.mine, at);
            let rest = counted(self.past, self.theirs, self.past.steps.len());
            return match rest < put_in && !self.same_message(at) {
                true => self.moved(at),
                false => self.came(new, block, put_in),
            };
        }
        self.replaced(new, block)
    }

    /// The block of the new request at the fork, if it is of the level that differs.
    fn new_block(&self) -> Option<(&Step, &Block)> {
        let new = self.now.steps.get(self.mine)?;
        let block = self.seen.view.blocks.get(self.mine)?;
        (new.section <= self.old.section).then_some((new, block))
    }

    /// The new request has nothing at the place of the old block.
    fn ended(&self) -> Change {
        let gone = self.level_rest();
        if self.old.section != Section::Messages {
            return match self.again() {
                Some(at) => self.moved(at),
                None => self.gone(gone),
            };
        }
        let blocks = plural(gone, "block");
        let detail = format!("the request ends here; the previous one had {blocks} more");
        self.at(What::Rewound, self.place_of_old(), detail)
    }

    /// Blocks of the old block's level from the fork on.
    fn level_rest(&self) -> usize {
        let rest = self.past.steps[self.theirs..].iter();
        rest.take_while(|step| step.section == self.old.section)
            .filter(|step| step.counts)
            .count()
    }

    /// Where the old block stands in the new request, if it was not there before as well.
    fn again(&self) -> Option<usize> {
        let is_old = |(_, step): &(usize, &Step)| step.counts && step.hash == self.old.hash;
        let mut here = self.now.steps.iter().enumerate().skip(self.mine);
        let mut here = here.by_ref().filter(is_old).map(|(index, _)| index);
        let first = here.next()?;
        let (count, last) = here.fold((1, first), |(count, _), index| (count + 1, index));
        let there = self.past.steps.iter().enumerate().skip(self.theirs);
        let there = there.filter(is_old).count();
        match there {
            1 => Some(first),
            _ if count >= there => Some(last),
            _ => None,
        }
    }

    /// Where the new block stood in the previous request.
    fn was_at(&self, new: &Step) -> Option<usize> {
        let mut there = self.past.steps.iter().enumerate().skip(self.theirs + 1);
        let found = there.find(|(index, step)| {
            step.counts && step.hash == new.hash && self.goes_on(*index, new)
        });
        found.map(|(index, _)| index)
    }

    /// Whether what follows the same block is the same too. Short texts occur by chance.
    fn goes_on(&self, there: usize, new: &Step) -> bool {
        let here = self.now.steps.get(next(self.now, self.mine + 1));
        let there = self.past.steps.get(next(self.past, there + 1));
        match (here, there) {
            (Some(here), Some(there)) => here.hash == there.hash || new.len >= TELLING_BYTES,
            _ => true,
        }
    }

    /// Whether a block of the new request stands in the message at the fork.
    fn same_message(&self, at: usize) -> bool {
        let outer = |index: usize| self.seen.view.blocks.get(index).map(|b| b.outer);
        outer(at) == outer(self.mine)
    }

    fn moved(&self, to: usize) -> Change {
        let to = self.seen.view.blocks.get(to);
        let to = to
            .map(|block| self.seen.view.path(block))
            .unwrap_or_default();
        let detail = format!("block removed here and found again at {to}");
        self.at(What::Moved, self.place_of_old(), detail)
    }

    /// Blocks are missing here, and nothing stands in their place.
    fn gone(&self, count: usize) -> Change {
        let kind = kind_word(self.old.kind);
        let mut gone = self.past.steps[self.theirs..]
            .iter()
            .filter(|step| step.counts)
            .take(count);
        if gone.all(|step| step.kind == BlockKind::Thinking) {
            return self.thinking_dropped();
        }
        let (what, first) = match self.old_is_injected() {
            true => (
                What::Reminder,
                format!("injected reminder removed ({} bytes)", self.old.len),
            ),
            false => (
                What::Removed,
                format!("{kind} block removed ({} bytes)", self.old.len),
            ),
        };
        let detail = match count {
            0 | 1 => first,
            _ => format!("{first}, and {} behind it", plural(count - 1, "more block")),
        };
        self.at(what, self.place_of_old(), detail)
    }

    fn thinking_dropped(&self) -> Change {
        if let Some(at) = self.left_out() {
            let path = self.seen.view.blocks.get(at);
            let path = path.map(|block| self.seen.view.path(block));
            let detail = "this model drops earlier thinking when a new user text comes";
            return self.at(
                What::ThinkingDropped,
                path.unwrap_or_default(),
                detail.to_owned(),
            );
        }
        let thinking = |trail: &Trail, from: usize| {
            let rest = trail.steps.iter().skip(from);
            rest.filter(|step| step.kind == BlockKind::Thinking).count()
        };
        let before = thinking(self.past, self.theirs);
        let dropped = before.saturating_sub(thinking(self.now, self.mine));
        let mut detail = String::from("thinking block dropped");
        if dropped > 1 {
            detail.push_str(&format!("; {} further on", plural(dropped - 1, "more")));
        }
        self.at(What::ThinkingDropped, self.place_of_old(), detail)
    }

    /// Where the old block still stands, if it was sent and is not part of the prompt any more.
    fn left_out(&self) -> Option<usize> {
        let before = self.now.steps.iter().enumerate().take(self.mine).rev();
        let mut out = before.take_while(|(_, step)| !step.counts);
        out.find(|(_, step)| step.hash == self.old.hash)
            .map(|(at, _)| at)
    }

    /// Blocks were put in before what was here.
    fn came(&self, new: &Step, block: &Block, count: usize) -> Change {
        let path = self.seen.view.path(block);
        if self.is_compaction(block) {
            return self.compacted(path);
        }
        let (what, first) = match is_injected(block.span.of(self.seen.body)) {
            true => (
                What::Reminder,
                format!("injected reminder added ({} bytes)", new.len),
            ),
            false => {
                let kind = kind_word(new.kind);
                (
                    What::Inserted,
                    format!("{kind} block put in ({} bytes)", new.len),
                )
            }
        };
        let detail = match count {
            0 | 1 => first,
            _ => format!("{first}, and {} behind it", plural(count - 1, "more block")),
        };
        self.at(what, path, detail)
    }

    fn compacted(&self, path: String) -> Change {
        let detail = format!(
            "the conversation was replaced by a shorter one ({} -> {})",
            plural(self.past.messages as usize, "message"),
            plural(self.now.messages as usize, "message"),
        );
        self.at(What::Compaction, path, detail)
    }

    /// Another block stands in the place of the old one.
    fn replaced(&self, new: &Step, block: &Block) -> Change {
        let (old, path) = (self.old, self.seen.view.path(block));
        if old.section == Section::Messages && self.is_compaction(block) {
            return self.compacted(path);
        }
        let thinks_no_more = old.kind == BlockKind::Thinking && new.kind != BlockKind::Thinking;
        if thinks_no_more && old.role == new.role {
            return self.thinking_dropped();
        }
        let talk = old.section == Section::Messages;
        let shrunk = self.past.messages >= COMPACTED_FROM
            && self.now.messages.saturating_mul(2) <= self.past.messages;
        let goes_on = talk && self.goes_on_later();
        if talk && shrunk && (block.outer == 0 || goes_on) {
            return self.compacted(path);
        }
        let same = old.kind == new.kind && old.role == new.role;
        let known = if old.kind == new.kind {
            delta(self.seen, old.hash, block)
        } else {
            None
        };
        // The same text under another role, which no other rule must explain.
        if let Some(delta) = &known
            && (same || delta.offset.is_none())
            && self.is_small(delta)
        {
            return self.in_place(new, known);
        }
        let forks = talk
            && !goes_on
            && self.now.messages <= self.past.messages
            && self.at_border(block)
            && new.role == Some(Role::User)
            && new.kind != BlockKind::ToolResult;
        if forks && !(old.kind == BlockKind::Image && self.now.messages == self.past.messages) {
            let blocks = plural(self.level_rest(), "block");
            let detail =
                format!("the conversation goes on from here in another way; {blocks} gone");
            return self.at(What::Rewound, path, detail);
        }
        if same {
            return self.in_place(new, known);
        }
        if thinks_no_more {
            return self.thinking_dropped();
        }
        let detail = match old.kind == new.kind {
            true => format!(
                "{} block of {} replaced by one of {}",
                kind_word(old.kind),
                role_word(old.role),
                role_word(new.role)
            ),
            false => format!(
                "{} block replaced by {}",
                kind_word(old.kind),
                kind_word(new.kind)
            ),
        };
        let what = match old.kind {
            BlockKind::Image => What::ImageReplaced,
            _ => What::Replaced,
        };
        self.at(what, path, detail)
    }

    /// A difference that leaves no doubt that both are versions of one block.
    fn is_small(&self, delta: &Delta) -> bool {
        match delta.what {
            What::Clock | What::Id | What::Whitespace | What::Escapes | What::KeyOrder => true,
            What::Reminder => true,
            What::Counter | What::Text => delta.lone,
            _ => false,
        }
    }

    /// Both are versions of one block.
    fn in_place(&self, new: &Step, known: Option<Delta>) -> Change {
        let Some(block) = self.seen.view.blocks.get(self.mine) else {
            return self.ended();
        };
        let known = known.unwrap_or_else(|| compare::unknown(self.seen, block));
        let sizes = match self.old.len == new.len {
            true => plural(new.len as usize, "byte"),
            false => format!("{} -> {}", self.old.len, plural(new.len as usize, "byte")),
        };
        let kind = kind_word(new.kind);
        let unclear = matches!(known.what, What::Text | What::Unknown);
        let (what, detail) = match new.kind {
            BlockKind::ToolResult if unclear && self.says_content(&known) => {
                let how = match new.len < self.old.len {
                    true => "cut or replaced by something shorter",
                    false => "replaced",
                };
                (What::ResultPruned, format!("tool result {how} ({sizes})"))
            }
            BlockKind::Image if unclear => (
                What::ImageReplaced,
                format!("image block replaced by another image ({sizes})"),
            ),
            _ => (
                known.what,
                format!("{kind} block: {} ({sizes})", known.detail),
            ),
        };
        let mut change = self.at(what, known.path, detail);
        change.offset = known.offset;
        change.excerpt = known.excerpt;
        change
    }

    /// Whether it is the content of a block that differs, and no other member of it.
    fn says_content(&self, delta: &Delta) -> bool {
        let Some(block) = self.seen.view.blocks.get(self.mine) else {
            return false;
        };
        delta.offset.is_none() || delta.path.starts_with(&value_path(self.seen, block))
    }

    /// Whether anything that followed the old block is found behind the new one.
    fn goes_on_later(&self) -> bool {
        let after = |trail: &Trail, at| trail.steps.get(next(trail, at + 1)).map(|step| step.hash);
        let (mine, theirs) = (after(self.now, self.mine), after(self.past, self.theirs));
        if mine.is_some() && mine == theirs {
            return true;
        }
        let telling = |step: &&Step| step.counts && step.len >= TELLING_BYTES;
        let here = self.now.steps.iter().skip(self.mine + 1);
        let here: HashSet<u64> = here.filter(telling).map(|step| step.hash).collect();
        let mut there = self.past.steps.iter().skip(self.theirs + 1).filter(telling);
        !here.is_empty() && there.any(|step| here.contains(&step.hash))
    }

    /// Whether a message begins here, in both requests as far as that is known.
    fn at_border(&self, block: &Block) -> bool {
        let before = self
            .theirs
            .checked_sub(1)
            .and_then(|at| self.past.steps.get(at));
        let parts = before.is_none_or(|before| before.role != self.old.role);
        block.inner == 0 && parts
    }

    fn old_is_injected(&self) -> bool {
        let kept = self.seen.keep.get(self.old.hash);
        self.old.kind == BlockKind::Text && kept.is_some_and(|kept| is_injected(kept.bytes))
    }

    fn is_compaction(&self, block: &Block) -> bool {
        let raw = block.span.of(self.seen.body);
        let head = &raw[..raw.len().min(TYPE_REACH)];
        block.kind == BlockKind::Other && memchr::memmem::find(head, b"compaction").is_some()
    }

    /// Path at which the old block stood, in terms of the new request. Where messages of one role
    /// began is not kept, so a block is taken to belong to the message of its role before it.
    fn place_of_old(&self) -> String {
        let view = self.seen.view;
        let level = |block: &&Block| block.section == self.old.section;
        let here = view.blocks.get(self.mine).filter(level);
        let before = self.mine.checked_sub(1).and_then(|at| view.blocks.get(at));
        let before = before.filter(level);
        let role = |block: &Block| view.messages.get(block.outer as usize).map(|m| m.role);
        if view.wire != Wire::Messages {
            return match (here, before) {
                (Some(here), _) => view.path(here),
                (None, Some(before)) if before.section != Section::Tools => {
                    view.wire.message_path(before.place + 1)
                }
                (None, Some(before)) => format!("tools[{}]", before.place + 1),
                (None, None) if self.old.section == Section::Tools => "tools[0]".into(),
                (None, None) => view.wire.message_path(0),
            };
        }
        if self.old.section != Section::Messages {
            let index = match (here, before) {
                (Some(here), _) => here.outer,
                (None, Some(before)) => before.outer + 1,
                (None, None) => 0,
            };
            return match (self.old.section, index) {
                (Section::Tools, index) => format!("tools[{index}]"),
                (_, index) => format!("system[{index}]"),
            };
        }
        let inside = |outer: u32, inner: u32| format!("messages[{outer}].content[{inner}]");
        let of_old = |block: &&Block| role(block) == self.old.role;
        match (here, before.filter(of_old)) {
            // At the end of the message before.
            (Some(here), Some(before)) if here.outer != before.outer && !of_old(&here) => {
                inside(before.outer, before.inner + 1)
            }
            (None, Some(before)) => inside(before.outer, before.inner + 1),
            (Some(here), _)
                if here.form == Form::BareString && here.inner == 0 && !of_old(&here) =>
            {
                format!("messages[{}]", here.outer)
            }
            (Some(here), _) => inside(here.outer, here.inner),
            (None, None) => format!("messages[{}]", view.messages.len()),
        }
    }

    fn at(&self, what: What, path: String, detail: String) -> Change {
        Change {
            section: self.old.section.min(
                self.now
                    .steps
                    .get(self.mine)
                    .map_or(Section::Messages, |step| step.section),
            ),
            index: self.mine as u32,
            before: self.theirs as u32,
            path,
            offset: None,
            what,
            detail,
            excerpt: None,
        }
    }
}

/// A kind, for people.
fn kind_word(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Tool => "tool",
        BlockKind::Text => "text",
        BlockKind::Image => "image",
        BlockKind::Document => "document",
        BlockKind::ToolUse => "tool call",
        BlockKind::ToolResult => "tool result",
        BlockKind::ServerTool => "server tool",
        BlockKind::Thinking => "thinking",
        BlockKind::Other => "other",
    }
}

fn role_word(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::User) => "the user",
        Some(Role::Assistant) => "the assistant",
        Some(Role::System) => "the system",
        Some(Role::Other) | None => "another role",
    }
}

/// A number and its noun.
fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ if noun == "more" => format!("{count} more"),
        _ => format!("{count} {noun}s"),
    }
}

/// Blocks that count in a range.
fn counted(trail: &Trail, from: usize, to: usize) -> usize {
    let steps = trail.steps.get(from..to).unwrap_or_default();
    steps.iter().filter(|step| step.counts).count()
}
