//! What the provider's prompt cache holds, by its documented rules and what it reported.

use uuid::Uuid;

/// What a request can find, before it is sent. Indices are blocks of the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// The entry that the provider will find by its rules from the request's breakpoints.
    pub read: Option<Known>,
    /// The longest living entry on the request's path, whether or not a breakpoint finds it.
    pub alive: Option<Known>,
    /// The longest entry on the path whose lifetime is over, when it is longer than `alive`.
    pub expired: Option<Known>,
    /// The longest prefix on the path that a request under way is just writing, when it is longer
    /// than `alive`.
    pub pending: Option<Known>,
}

/// One entry, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Index of the block at which the prefix ends.
    pub at: u32,
    /// Its tokens, where usage has told them exactly.
    pub tokens: Option<u64>,
    /// The turn that wrote it.
    pub turn: Uuid,
    /// When its lifetime ends, UTC milliseconds.
    pub expires_ms: i64,
}
