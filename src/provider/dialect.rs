//! In what servers of one wire format differ: data, so that a configuration can describe another.

use super::view::{Automatic, Ttl};

/// How an upstream speaks a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Chat streams tell their tokens only when they are asked to (`stream_options.include_usage`).
    pub ask_usage: bool,
    /// How it counts tokens.
    pub counting: Counting,
    /// The rules of its cache, where they are not those of the format and the model.
    pub caching: Option<Automatic>,
    /// What it knows of what a request can say about OpenAI's cache.
    pub cache_options: CacheOptions,
    /// Where it takes Anthropic's breakpoints in Chat requests for Claude.
    pub cache_control: CacheControl,
    /// It tells what an answer cost, in USD, and is believed.
    pub tells_cost: bool,
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            ask_usage: true,
            counting: Counting::default(),
            caching: None,
            cache_options: CacheOptions::default(),
            cache_control: CacheControl::default(),
            tells_cost: false,
        }
    }
}

/// What an upstream knows of what a request can say about OpenAI's cache. Nothing of it is added to
/// a request for an upstream that may not know it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheOptions {
    /// Nothing.
    #[default]
    None,
    /// `prompt_cache_options` with its lifetime.
    Lifetime,
    /// All of it: breakpoints on parts, the comparison with an earlier answer, and the retention of
    /// older models as well.
    All,
}

/// Where an upstream takes Anthropic's breakpoints in Chat requests for Claude. None are added for one
/// that may not take them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheControl {
    /// Nowhere that is known.
    #[default]
    None,
    /// On texts of the system prompt and of the user.
    Texts,
    /// On the texts of tools' results as well.
    Results,
}

/// How an upstream counts tokens. The default is OpenAI's own way: the prompt includes what was
/// read and written, the output includes reasoning, and writes live for thirty minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counting {
    /// Cached tokens are counted beside those of the prompt.
    pub cached_beside: bool,
    /// Reasoning is counted beside the output.
    pub reasoning_beside: bool,
    /// A usage that says nothing of cached tokens means that there were none. Otherwise it is
    /// unknown.
    pub absent_is_none: bool,
    /// Lifetime of writes that are told without one.
    pub writes: Ttl,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            cached_beside: false,
            reasoning_beside: false,
            absent_is_none: false,
            writes: Ttl::M30,
        }
    }
}
