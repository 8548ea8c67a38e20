//! What became of the prompt cache in one turn, why, and what that cost.
//!
//! [`judge`] compares what the provider reports with what the thread's previous turn had left in
//! its cache. Tokens and money come from reported usage and prices alone; estimates never enter.

mod judge;

pub use judge::{Facts, judge, unread_pico};

use crate::provider::view::Section;

/// What became of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nothing could be read, because nothing had been written.
    Cold,
    /// Everything that was there was read, and nothing had to be written.
    Hit,
    /// Everything that was there was read, and what is new was written.
    Extended,
    /// Some of what was there was read.
    Partial,
    /// Nothing of what was there was read.
    Miss,
    /// Nothing was read and nothing written.
    NotCacheable,
}

/// Why less was read than was there, or why nothing can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Another model.
    Model,
    /// Another speed.
    Speed,
    /// Other beta features.
    Beta,
    /// The tool definitions changed.
    Tools,
    /// The system prompt changed.
    System,
    /// The conversation changed.
    Messages,
    /// A setting beside the blocks changed (`tool_choice`, `thinking`, effort ...).
    Parameter,
    /// The entries' lifetime was over.
    Expired,
    /// The answer to the request that writes them had not begun.
    Concurrent,
    /// No breakpoint was near enough to what had been written.
    Lookback,
    /// The prefix is shorter than what this model caches.
    BelowMinimum,
    /// The request had no breakpoint.
    NoMarker,
    /// By all known rules it was there, and the provider did not use it.
    Evicted,
    /// The provider wrote no entry, and no rule that is known says why.
    NotWritten,
}

/// Whose doing a loss is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// The client sent something else.
    Client,
    /// The provider gave up what it had, or never took it.
    Provider,
    /// Too much time, or too little, lay between.
    Time,
    /// prefixgate's own edits.
    Gateway,
}

/// What happened at the first changed place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// A time or date moved on.
    Clock,
    /// A number counted on.
    Counter,
    /// An identifier (UUID, hash, random token) is another one.
    Id,
    /// Other text.
    Text,
    /// Only white space inside a text differs.
    Whitespace,
    /// The same content with other escapes or another spelling of numbers.
    Escapes,
    /// The same members in another order.
    KeyOrder,
    /// The same tools in another order.
    ToolsReordered,
    /// A tool more.
    ToolAdded,
    /// A tool less.
    ToolRemoved,
    /// A tool of the same name says something else.
    ToolChanged,
    /// A block stands at another place.
    Moved,
    /// A block is gone.
    Removed,
    /// A block was put in between.
    Inserted,
    /// A block of one kind was replaced by another kind.
    Replaced,
    /// An image was replaced.
    ImageReplaced,
    /// The content of a tool result was replaced or cut.
    ResultPruned,
    /// Reasoning was dropped.
    ThinkingDropped,
    /// The conversation was replaced by a summary of it.
    Compaction,
    /// The conversation was taken back to an earlier point.
    Rewound,
    /// A text that a client injects (reminders) came, went or changed.
    Reminder,
    /// Nothing is known but that it differs.
    Unknown,
}

/// A short window of both versions around the first difference. Only where capture allows.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Excerpt {
    /// As the previous turn had it.
    pub before: String,
    /// As this turn has it.
    pub after: String,
}

/// The first place at which a request differs from the previous one of its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Level.
    pub section: Section,
    /// Index of the block in this request; its number of blocks when it just ends earlier.
    pub index: u32,
    /// Index of the block in the previous request.
    pub before: u32,
    /// JSON path of the place in this request.
    pub path: String,
    /// Offset of the first different byte inside the value at `path`, where the previous bytes are
    /// still known. Of a string: of its text as it is written, without the quotes.
    pub offset: Option<u32>,
    /// What happened.
    pub what: What,
    /// The same for people, without content: names of tools, kinds, sizes, paths.
    pub detail: String,
    /// Both versions around the place, where that may be shown.
    pub excerpt: Option<Excerpt>,
}

impl Change {
    /// The next turn will most likely change the same place again.
    #[must_use]
    pub fn volatile(&self) -> bool {
        matches!(
            self.what,
            What::Clock | What::Counter | What::Id | What::ToolsReordered
        )
    }
}

/// What became of the cache in a turn.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verdict {
    /// What became of it.
    pub status: Status,
    /// Why; `None` where nothing was lost and nothing is to be said.
    pub reason: Option<Reason>,
    /// JSON path of the first changed place, for reasons that are changes.
    pub first_changed: Option<String>,
    /// Offset inside the value there; see [`Change::offset`].
    pub offset: Option<u32>,
    /// What happened there.
    pub what: Option<What>,
    /// The same for people, without content.
    pub detail: String,
    /// Whose doing it is.
    pub whose: Option<Whose>,
    /// Tokens that were there and were not read, from reported usage. 0 where nothing was lost,
    /// `None` where the loss is not known.
    pub lost_tokens: Option<u64>,
    /// What they cost more than reading them would have, in pico-USD; `None` without a price.
    pub lost_pico: Option<u64>,
    /// Both versions, where that may be kept.
    pub excerpt: Option<Excerpt>,
}
