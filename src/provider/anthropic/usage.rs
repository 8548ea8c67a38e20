//! From the wire's usage objects to disjoint kinds of tokens.
//!
//! Facts (provider docs and SDK types, Nov 2026): `input_tokens` is the uncached remainder only.
//! Usage in `message_delta` is cumulative, so the last value of every field counts and nothing is
//! added up; it lacks the split of the writes by lifetime, the tier, the speed and the region,
//! which stay as `message_start` gave them. `iterations` lists billed steps; compaction and advisor
//! steps are not in the totals beside it, so the list is summed where there is one.
//!
//! A field that is absent or null stays unknown: a host that does not report cached tokens has not
//! said that there were none.

use serde::Deserialize;

use crate::provider::lenient::{Count, Few, Maybe, Word};
use crate::provider::view::Ttl;
use crate::usage::{Iteration, Metered, ServiceTier, Speed, Usage};

/// Most billed steps of one answer that are kept; beyond it the usage is unknown, since a sum
/// without the models of its parts has no price.
pub(super) const MAX_ITERATIONS: usize = 512;

/// A usage object, of an answer, of a `message_delta`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    input_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    cache_creation: Maybe<WireSplit>,
    pub(super) output_tokens: Count,
    output_tokens_details: Maybe<WireOutputDetails>,
    server_tool_use: Maybe<WireServerTools>,
    service_tier: Word,
    speed: Word,
    inference_geo: Word,
    iterations: Maybe<Few<WireIteration, MAX_ITERATIONS>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireSplit {
    ephemeral_5m_input_tokens: Count,
    ephemeral_1h_input_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireOutputDetails {
    thinking_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireServerTools {
    web_search_requests: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireIteration {
    #[serde(rename = "type")]
    kind: Word,
    model: Word,
    input_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    cache_creation: Maybe<WireSplit>,
    output_tokens: Count,
}

/// Tokens as the wire counts them: writes as a sum, with or without a split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tokens {
    input: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    written_5m: Option<u64>,
    written_1h: Option<u64>,
    output: Option<u64>,
}

#[derive(Debug, Clone)]
struct Step {
    kind: String,
    model: Option<String>,
    tokens: Tokens,
}

/// What the usage objects of one answer have said so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    tokens: Tokens,
    reasoning: Option<u64>,
    web_searches: Option<u64>,
    steps: Vec<Step>,
    too_many_steps: bool,
    /// The totals are newer than the list of steps.
    steps_stale: bool,
    tier: ServiceTier,
    speed: Speed,
    geo: Option<String>,
}

impl Meter {
    /// Takes the next usage object of the answer.
    pub(super) fn take(&mut self, usage: WireUsage) {
        let split = usage.cache_creation.0.unwrap_or_default();
        let newer = Tokens {
            input: usage.input_tokens.0,
            read: usage.cache_read_input_tokens.0,
            written: usage.cache_creation_input_tokens.0,
            written_5m: split.ephemeral_5m_input_tokens.0,
            written_1h: split.ephemeral_1h_input_tokens.0,
            output: usage.output_tokens.0,
        };
        self.tokens = newer.or(self.tokens);
        let reasoning = usage.output_tokens_details.0.unwrap_or_default();
        self.reasoning = reasoning.thinking_tokens.0.or(self.reasoning);
        let searches = usage.server_tool_use.0.unwrap_or_default();
        self.web_searches = searches.web_search_requests.0.or(self.web_searches);
        match usage.service_tier.as_deref() {
            Some("priority") => self.tier = ServiceTier::Priority,
            Some("batch") => self.tier = ServiceTier::Batch,
            Some(_) => self.tier = ServiceTier::Standard,
            None => {}
        }
        match usage.speed.as_deref() {
            Some("fast") => self.speed = Speed::Fast,
            Some(_) => self.speed = Speed::Standard,
            None => {}
        }
        self.geo = usage.inference_geo.0.or(self.geo.take());
        match usage.iterations.0 {
            Some(list) if !list.items.is_empty() => {
                self.too_many_steps = list.more;
                self.steps = list.items.into_iter().map(Step::from).collect();
                self.steps_stale = false;
            }
            _ => self.steps_stale = true,
        }
    }

    /// Writes what is known into `metered`, whose model is the one that served the answer.
    ///
    /// `ttl` is the lifetime of writes whose split the provider did not give. `opening_model` is the
    /// model that the answer was begun with; steps without a model of their own ran on it. Returns
    /// what is worth a warning.
    pub(super) fn read_out(
        &self,
        metered: &mut Metered,
        opening_model: Option<&str>,
        ttl: Option<Ttl>,
    ) -> Option<&'static str> {
        metered.tier = self.tier;
        metered.speed = self.speed;
        metered.geo.clone_from(&self.geo);
        metered.iterations.clear();
        if self.too_many_steps {
            metered.usage = Usage::default();
            return Some("too_many_iterations");
        }
        let (total, mut unclear) = self.tokens.disjoint(ttl);
        metered.usage = total;
        if !self.steps.is_empty() {
            // A list from the start of a stream is stale once totals have come without one. What it
            // then still tells are the steps outside the totals.
            let stale = self.steps_stale;
            let steps = self.steps.iter().filter(|s| !stale || s.outside_totals());
            for step in steps {
                let (usage, unclear_step) = step.tokens.disjoint(ttl);
                unclear |= unclear_step;
                let model = step.model.as_deref().or(opening_model);
                metered.iterations.push(Iteration {
                    kind: step.kind.clone(),
                    model: model
                        .filter(|m| metered.model.as_deref() != Some(*m))
                        .map(Into::into),
                    usage,
                });
            }
            if stale && !metered.iterations.is_empty() {
                metered.iterations.push(Iteration {
                    kind: "message".into(),
                    model: None,
                    usage: total,
                });
            }
            if let Some(sum) = sum(&metered.iterations) {
                metered.usage = sum;
            }
        }
        metered.usage.reasoning = self.reasoning;
        metered.usage.web_searches = self.web_searches;
        unclear.then_some("write_ttl_unknown")
    }
}

impl From<WireIteration> for Step {
    fn from(wire: WireIteration) -> Self {
        let split = wire.cache_creation.0.unwrap_or_default();
        Self {
            kind: wire.kind.0.unwrap_or_default(),
            model: wire.model.0,
            tokens: Tokens {
                input: wire.input_tokens.0,
                read: wire.cache_read_input_tokens.0,
                written: wire.cache_creation_input_tokens.0,
                written_5m: split.ephemeral_5m_input_tokens.0,
                written_1h: split.ephemeral_1h_input_tokens.0,
                output: wire.output_tokens.0,
            },
        }
    }
}

impl Step {
    /// Steps that the totals of the answer leave out. Source: provider SDK, Nov 2026.
    fn outside_totals(&self) -> bool {
        matches!(self.kind.as_str(), "compaction" | "advisor_message")
    }
}

impl Tokens {
    fn or(self, older: Self) -> Self {
        Self {
            input: self.input.or(older.input),
            read: self.read.or(older.read),
            written: self.written.or(older.written),
            written_5m: self.written_5m.or(older.written_5m),
            written_1h: self.written_1h.or(older.written_1h),
            output: self.output.or(older.output),
        }
    }

    /// The disjoint kinds, and whether the lifetime of some writes could not be told.
    fn disjoint(self, ttl: Option<Ttl>) -> (Usage, bool) {
        let mut usage = Usage {
            uncached: self.input,
            read: self.read,
            output: self.output,
            ..Usage::default()
        };
        let split = match (self.written_5m, self.written_1h, self.written) {
            (Some(m5), Some(h1), _) => Some((m5, h1)),
            // One half and the sum tell the other half; one half alone tells nothing of it.
            (Some(m5), None, Some(sum)) => Some((m5, sum.saturating_sub(m5))),
            (None, Some(h1), Some(sum)) => Some((sum.saturating_sub(h1), h1)),
            (half_5m, half_1h, None) => {
                usage.write_5m = half_5m;
                usage.write_1h = half_1h;
                return (usage, false);
            }
            (None, None, Some(_)) => None,
        };
        let known = match (split, self.written) {
            (None, Some(0)) => Some((0, 0)),
            (None, None) => None,
            (Some((m5, h1)), None) => Some((m5, h1)),
            (Some((m5, h1)), Some(sum)) if m5.checked_add(h1) == Some(sum) => Some((m5, h1)),
            // The sum has moved on since the split was given.
            (Some((_, 0)), Some(sum)) if split != Some((0, 0)) => {
                usage.split_inferred = true;
                Some((sum, 0))
            }
            (Some((0, _)), Some(sum)) if split != Some((0, 0)) => {
                usage.split_inferred = true;
                Some((0, sum))
            }
            (Some((m5, h1)), Some(sum)) => {
                usage.split_inferred = true;
                m5.checked_add(h1)
                    .and_then(|given| sum.checked_sub(given))
                    .and_then(|more| match ttl?.is_long() {
                        false => Some((m5 + more, h1)),
                        true => Some((m5, h1 + more)),
                    })
            }
            (None, Some(sum)) => {
                usage.split_inferred = true;
                ttl.map(|ttl| match ttl.is_long() {
                    false => (sum, 0),
                    true => (0, sum),
                })
            }
        };
        usage.write_5m = known.map(|(m5, _)| m5);
        usage.write_1h = known.map(|(_, h1)| h1);
        usage.split_inferred &= known.is_some();
        (usage, known.is_none())
    }
}

/// The sum over all steps; a kind that one of them does not tell is unknown in the sum.
fn sum(steps: &[Iteration]) -> Option<Usage> {
    let add = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
    let (first, rest) = steps.split_first()?;
    Some(rest.iter().fold(first.usage, |sum, step| Usage {
        uncached: add(sum.uncached, step.usage.uncached),
        read: add(sum.read, step.usage.read),
        write_5m: add(sum.write_5m, step.usage.write_5m),
        write_1h: add(sum.write_1h, step.usage.write_1h),
        write_30m: None,
        write_12h: None,
        output: add(sum.output, step.usage.output),
        reasoning: None,
        web_searches: None,
        split_inferred: sum.split_inferred | step.usage.split_inferred,
    }))
}

#[cfg(test)]
mod tests;
