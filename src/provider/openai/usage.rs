//! From the usage objects of Chat Completions and Responses to disjoint kinds of tokens.
//!
//! Facts (provider docs and SDK types, Nov 2026): the input count includes what was read from and
//! written to the cache, the output count includes reasoning. Servers that repeat the usage in each
//! chunk give running totals, so the last value of every field counts and nothing is added up.
//!
//! | count | where it is looked for, in this order |
//! |---|---|
//! | input | `prompt_tokens`, `input_tokens` |
//! | read | `cached_tokens` in the details of the input; `prompt_cache_hit_tokens` (DeepSeek), `cached_tokens` (Moonshot), `cache_read_input_tokens` (Databricks) beside it |
//! | written | `cache_write_tokens` in the details of the input; `cache_creation_input_tokens` beside it |
//! | output | `completion_tokens`, `output_tokens` |
//!
//! An absent count of read tokens stays unknown, and with it what was uncached, unless the upstream
//! is known to leave out a zero. An absent count of written tokens is none: where writes are billed,
//! the field is there.

use serde::Deserialize;

use crate::provider::dialect::Counting;
use crate::provider::lenient::{Count, Dollars, Maybe};
use crate::provider::view::{Answer, Ttl};
use crate::usage::Usage;

/// Counts that contradict each other; the kinds concerned are unknown.
const INCONSISTENT: &str = "usage_inconsistent";

/// A usage object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: Count,
    prompt_tokens_details: Maybe<WireInputDetails>,
    completion_tokens: Count,
    completion_tokens_details: Maybe<WireOutputDetails>,
    input_tokens: Count,
    input_tokens_details: Maybe<WireInputDetails>,
    output_tokens: Count,
    output_tokens_details: Maybe<WireOutputDetails>,
    prompt_cache_hit_tokens: Count,
    cached_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    /// In USD, by routers (OpenRouter).
    cost: Dollars,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireInputDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
    cache_write_tokens_details: Maybe<WireSplit>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireSplit {
    ttl_30m_tokens: Count,
    ttl_12h_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireOutputDetails {
    reasoning_tokens: Count,
}

/// Tokens as the wire counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tokens {
    input: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    written_30m: Option<u64>,
    written_12h: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
}

/// What the usage objects of one answer have said so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    tokens: Tokens,
    web_searches: Option<u64>,
    cost_pico: Option<u64>,
}

impl Meter {
    /// Takes the next usage object of the answer. Says whether it tells the output.
    pub(super) fn take(&mut self, usage: WireUsage) -> bool {
        self.cost_pico = usage.cost.0.or(self.cost_pico);
        let newer = Tokens::from(usage);
        self.tokens = newer.or(self.tokens);
        newer.output.is_some()
    }

    /// Takes the number of billed web searches.
    pub(super) fn searched(&mut self, requests: u64) {
        self.web_searches = Some(requests);
    }

    /// Whether the output is known.
    pub(super) fn has_output(&self) -> bool {
        self.tokens.output.is_some()
    }

    /// Writes what is known into the answer. `ttl` is the lifetime that the request asked for: writes
    /// that the provider did not split have the longer one of its pair where this one is long, else
    /// the one that it is known to give. Returns what is worth a warning.
    pub(super) fn read_out(
        &self,
        answer: &mut Answer,
        counting: Counting,
        ttl: Option<Ttl>,
    ) -> Option<&'static str> {
        let (mut usage, input_sound) = self.tokens.input_kinds(counting, ttl);
        let output_sound = self.tokens.output_kinds(counting, &mut usage);
        usage.web_searches = self.web_searches;
        answer.metered.usage = usage;
        answer.cost_pico = self.cost_pico;
        answer.prompt_tokens = self.tokens.prompt(counting);
        (!(input_sound && output_sound)).then_some(INCONSISTENT)
    }
}

impl From<WireUsage> for Tokens {
    fn from(wire: WireUsage) -> Self {
        let input = wire.prompt_tokens_details.0.or(wire.input_tokens_details.0);
        let input = input.unwrap_or_default();
        let split = input.cache_write_tokens_details.0.unwrap_or_default();
        let output = wire.completion_tokens_details.0;
        let output = output.or(wire.output_tokens_details.0).unwrap_or_default();
        let first = |counts: &[Count]| counts.iter().find_map(|count| count.0);
        Self {
            input: first(&[wire.prompt_tokens, wire.input_tokens]),
            read: first(&[
                input.cached_tokens,
                wire.prompt_cache_hit_tokens,
                wire.cached_tokens,
                wire.cache_read_input_tokens,
            ]),
            written: first(&[input.cache_write_tokens, wire.cache_creation_input_tokens]),
            written_30m: split.ttl_30m_tokens.0,
            written_12h: split.ttl_12h_tokens.0,
            output: first(&[wire.completion_tokens, wire.output_tokens]),
            reasoning: output.reasoning_tokens.0,
        }
    }
}

impl Tokens {
    fn or(self, older: Self) -> Self {
        Self {
            input: self.input.or(older.input),
            read: self.read.or(older.read),
            written: self.written.or(older.written),
            written_30m: self.written_30m.or(older.written_30m),
            written_12h: self.written_12h.or(older.written_12h),
            output: self.output.or(older.output),
            reasoning: self.reasoning.or(older.reasoning),
        }
    }

    /// Tokens of the whole prompt.
    fn prompt(&self, counting: Counting) -> Option<u64> {
        if !counting.cached_beside {
            return self.input;
        }
        let written = self.written().ok()?;
        let read = self.read(counting)?;
        self.input?.checked_add(read)?.checked_add(written)
    }

    /// The kinds of input, and whether the counts go together.
    fn input_kinds(&self, counting: Counting, ttl: Option<Ttl>) -> (Usage, bool) {
        let unknown = (Usage::default(), false);
        let read = self.read(counting);
        let Some(input) = self.input else {
            let read = Usage {
                read,
                ..Usage::default()
            };
            return (read, true);
        };
        let Ok(written) = self.written() else {
            return unknown;
        };
        let uncached = if counting.cached_beside {
            Some(input)
        } else {
            let rest = input
                .checked_sub(written)
                .and_then(|rest| rest.checked_sub(read.unwrap_or(0)));
            let Some(rest) = rest else { return unknown };
            // What was read is part of it too where nobody says how much that was.
            read.map(|_| rest)
        };
        let mut usage = Usage {
            uncached,
            read,
            ..Usage::default()
        };
        self.split(written, counting.writes, ttl, &mut usage);
        (usage, true)
    }

    fn read(&self, counting: Counting) -> Option<u64> {
        let told = self.input.is_some();
        self.read.or((told && counting.absent_is_none).then_some(0))
    }

    /// All tokens written; fails where the sum and its parts contradict each other.
    fn written(&self) -> Result<u64, Contradiction> {
        let parts = self.written_30m.unwrap_or(0);
        let parts = parts
            .checked_add(self.written_12h.unwrap_or(0))
            .ok_or(Contradiction)?;
        match self.written {
            None => Ok(parts),
            Some(sum) if parts <= sum => Ok(sum),
            Some(_) => Err(Contradiction),
        }
    }

    /// Splits the tokens written by lifetime.
    fn split(&self, written: u64, given: Ttl, asked: Option<Ttl>, usage: &mut Usage) {
        let mut short = self.written_30m.unwrap_or(0);
        let mut long = self.written_12h.unwrap_or(0);
        // `written` is not less than its parts.
        let rest = written.saturating_sub(short.saturating_add(long));
        match (self.written_30m, self.written_12h) {
            // One half and the sum tell the other half.
            (Some(_), None) => long = rest,
            (None, Some(_)) => short = rest,
            _ => {
                usage.split_inferred = rest > 0;
                let is_long = given.is_long() || asked.is_some_and(Ttl::is_long);
                *(if is_long { &mut long } else { &mut short }) += rest;
            }
        }
        let told = self.written_30m.is_some() || self.written_12h.is_some();
        let (at_short, at_long) = match given {
            Ttl::M5 | Ttl::H1 if !told => (&mut usage.write_5m, &mut usage.write_1h),
            _ => (&mut usage.write_30m, &mut usage.write_12h),
        };
        *at_short = Some(short);
        *at_long = Some(long);
    }

    /// The kinds of output, and whether the counts go together.
    fn output_kinds(&self, counting: Counting, usage: &mut Usage) -> bool {
        usage.output = self.output;
        usage.reasoning = self.reasoning;
        let (Some(output), Some(reasoning)) = (self.output, self.reasoning) else {
            return true;
        };
        if counting.reasoning_beside {
            usage.output = output.checked_add(reasoning);
            return usage.output.is_some();
        }
        if reasoning > output {
            usage.reasoning = None;
            return false;
        }
        true
    }
}

/// Counts that cannot all be true.
struct Contradiction;

#[cfg(test)]
mod tests;
