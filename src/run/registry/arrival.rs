//! A request as it arrives: what it can be found by.

use crate::prompt_cache::chain::Hash;
use crate::provider::view::History;
use crate::run::Identity;

/// A request as the registry sees it.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// What the client said about itself.
    pub identity: &'a Identity,
    /// Run id from trace context, the weakest hint.
    pub trace: Option<String>,
    /// Chain hash after each block; empty when the body was not inspected.
    pub chain: &'a [Hash],
    /// Number of blocks up to and including each message.
    pub borders: &'a [usize],
    /// Chain hash after tools and system.
    pub root: Option<Hash>,
    /// The root within its model's cache.
    pub model_root: Option<Hash>,
    /// Hash of the first message alone, whatever stands before it: a clock in the system prompt
    /// must not tear a conversation apart.
    pub first: Option<Hash>,
    /// Hash of the newest message alone, where it is long enough to stand for its conversation.
    pub newest: Option<Hash>,
    /// The model has spoken before in this conversation.
    pub has_history: bool,
    /// Who holds the history.
    pub history: &'a History,
    /// Hash of the body as it came; equal bodies are retries.
    pub body: u128,
    /// UTC milliseconds.
    pub now_ms: i64,
}

/// What costs too much to be computed for every request: asked for only when the request fits no
/// known thread by its prefix.
pub trait Search {
    /// Hashes of the texts of the first message, as pending prompts are hashed.
    fn opening_texts(&self) -> Vec<Hash>;
    /// Hashes of the messages, newest first, as [`Arrival::newest`]; those that are too short to
    /// stand for a conversation left out.
    fn messages(&self) -> Vec<Hash>;
}

/// For a body that has nothing to be found by, or could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSearch;

impl Search for NoSearch {
    fn opening_texts(&self) -> Vec<Hash> {
        Vec::new()
    }
    fn messages(&self) -> Vec<Hash> {
        Vec::new()
    }
}
