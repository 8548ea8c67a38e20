//! What is kept of a request, so that later ones can be compared with it: hashes, kinds and sizes,
//! never text.

pub mod code;

use std::sync::Arc;

use uuid::Uuid;

use super::chain::{Chain, Hasher, counts};
use crate::provider::view::{BlockKind, RequestView, Role, Section, Ttl};
use crate::usage::Usage;

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The first eight bytes of the block's keyed hash.
    pub hash: u64,
    /// Size in bytes as the client wrote it, marker included.
    pub len: u32,
    /// Level.
    pub section: Section,
    /// Kind.
    pub kind: BlockKind,
    /// Who speaks; `None` outside of the conversation.
    pub role: Option<Role>,
    /// Part of the cached prefix (no deferred tool, no attribution text).
    pub counts: bool,
}

/// A breakpoint as it went upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Index of the block.
    pub at: u32,
    /// Lifetime; `None` for one this version does not know.
    pub ttl: Option<Ttl>,
    /// Added by us.
    pub ours: bool,
}

/// A setting beside the blocks, by its value's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// JSON path or word (see [`crate::provider::view::Parameter`]).
    pub name: &'static str,
    /// First level whose entries are lost when it changes.
    pub from: Section,
    /// Hash of the value.
    pub value: u64,
}

/// A request as later ones see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail {
    /// Its blocks in provider order, by their index in the view.
    pub steps: Box<[Step]>,
    /// All breakpoints as sent, in provider order; the automatic one stands where the provider
    /// puts it.
    pub marks: Vec<Mark>,
    /// Settings that are part of the cache's keys, in a fixed order.
    pub settings: Vec<Setting>,
    /// Model asked for.
    pub model: Box<str>,
    /// Hash of the set of beta features that were asked for.
    pub betas: u64,
    /// One of them is the fast mode, which is part of the cache's keys.
    pub fast_beta: bool,
    /// Blocks before the first message.
    pub head: u32,
    /// Messages.
    pub messages: u32,
}

/// What the headers of a request add to its place in the provider's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Betas {
    /// Hash of the set, whatever its order.
    pub hash: u64,
    /// The fast mode is among them.
    pub fast: bool,
}

impl Trail {
    /// The trail of a request; `marks` are its breakpoints as sent.
    #[must_use]
    pub fn new(
        hasher: &Hasher,
        body: &[u8],
        view: &RequestView,
        chain: &Chain,
        betas: Betas,
        marks: Vec<Mark>,
    ) -> Self {
        let role_of = |section, outer: u32| match section {
            Section::Messages => view.messages.get(outer as usize).map(|m| m.role),
            _ => None,
        };
        let steps = view.blocks.iter().zip(&chain.blocks);
        let steps = steps.map(|(block, hash)| Step {
            hash: short(hash),
            len: block.span.len(),
            section: block.section,
            kind: block.kind,
            role: role_of(block.section, block.outer),
            counts: counts(block),
        });
        let settings = view.parameters.iter().map(|parameter| Setting {
            name: parameter.name,
            from: parameter.from,
            value: parameter.value.map_or(1, |value| {
                short(&hasher.keyed(parameter.name, value.of(body)))
            }),
        });
        Self {
            steps: steps.collect(),
            marks,
            settings: settings.collect(),
            model: view.model.as_deref().unwrap_or_default().into(),
            betas: betas.hash,
            fast_beta: betas.fast,
            head: u32::try_from(view.head_len()).unwrap_or(u32::MAX),
            messages: u32::try_from(view.messages.len()).unwrap_or(u32::MAX),
        }
    }

    /// Leading blocks that this request has in common with another one, of those that count.
    /// Blocks outside of the prefix are passed over on both sides.
    #[must_use]
    pub fn shared(&self, other: &Self) -> Shared {
        let mut mine = self.steps.iter().enumerate().filter(|(_, s)| s.counts);
        let mut theirs = other.steps.iter().enumerate().filter(|(_, s)| s.counts);
        loop {
            match (mine.next(), theirs.next()) {
                (Some((_, a)), Some((_, b))) if a.hash == b.hash => {}
                (a, b) => {
                    return Shared {
                        mine: a.map_or(self.steps.len(), |(index, _)| index),
                        theirs: b.map_or(other.steps.len(), |(index, _)| index),
                    };
                }
            }
        }
    }

    /// Some of its blocks are not part of the prompt, though the client sends them.
    pub fn leave_out(&mut self, blocks: &[usize]) {
        for at in blocks {
            if let Some(step) = self.steps.get_mut(*at) {
                step.counts = false;
            }
        }
    }

    /// The last block with a breakpoint.
    #[must_use]
    pub fn last_mark(&self) -> Option<Mark> {
        self.marks.last().copied()
    }

    /// Memory it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.steps)
            + self.marks.capacity() * size_of::<Mark>()
            + self.settings.capacity() * size_of::<Setting>()
            + self.model.len()
    }
}

/// Where two requests part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Index of the first block that is another one here, or the number of blocks if none is.
    pub mine: usize,
    /// The same in the other request.
    pub theirs: usize,
}

/// A request of a thread that has been answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// The request.
    pub trail: Arc<Trail>,
    /// Id of its record.
    pub turn_id: Uuid,
    /// Its start, UTC milliseconds. Lifetimes count from here.
    pub started_ms: i64,
    /// When its answer ended.
    pub ended_ms: i64,
    /// What it used.
    pub usage: Usage,
    /// The provider's id of the answer.
    pub response_id: Option<Box<str>>,
    /// The model that answered.
    pub model_served: Option<Box<str>>,
    /// Why the model stopped.
    pub stop_reason: Option<Box<str>>,
    /// Hash of the order of the tools as the client sent them, where another one went upstream.
    pub client_order: Option<u64>,
}

impl Past {
    /// Tokens of the prefix that the provider holds after this request: what it read and what it
    /// wrote. `None` while either is unknown.
    #[must_use]
    pub fn readable(&self) -> Option<u64> {
        Some(self.usage.read? + self.usage.written()?)
    }

    /// Memory it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>()
            + self.trail.bytes()
            + text(&self.response_id)
            + text(&self.model_served)
            + text(&self.stop_reason)
    }
}

/// Blocks of thinking before the newest message of the user that is no batch of tool results, in
/// order: what models that do not keep earlier thinking leave out of the prompt.
#[must_use]
pub fn earlier_thinking(view: &RequestView) -> Vec<usize> {
    let of = |blocks: &std::ops::Range<u32>| blocks.start as usize..blocks.end as usize;
    let is = |at: usize, kind| view.blocks.get(at).is_some_and(|block| block.kind == kind);
    let newest = view.messages.iter().rposition(|message| {
        message.role == Role::User && !of(&message.blocks).any(|at| is(at, BlockKind::ToolResult))
    });
    let before = view.messages.iter().take(newest.unwrap_or(0));
    before
        .flat_map(|message| of(&message.blocks))
        .filter(|at| is(*at, BlockKind::Thinking))
        .collect()
}

/// The first eight bytes of a hash.
#[must_use]
pub fn short(hash: &super::chain::Hash) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(bytes)
}
