//! What a turn carries along for its verdict, and how it is reached.

use std::sync::Arc;

use uuid::Uuid;

use super::Shared;
use crate::prompt_cache::chain::Hash;
use crate::prompt_cache::diagnosis;
use crate::prompt_cache::engine::Compared;
use crate::prompt_cache::habits::{Stop, Within};
use crate::prompt_cache::helpers::keep_warm::Pause;
use crate::prompt_cache::helpers::{self, Saving};
use crate::prompt_cache::shadow::{Expected, Levels, Look, Outcome as Found};
use crate::prompt_cache::trail::{self, Mark, Past, Trail};
use crate::prompt_cache::verdict::{Facts, Reason, judge, unread_pico};
use crate::provider::anthropic;
use crate::provider::view::{Answer, Automatic, Ttl};
use crate::provider::wire::Wire;
use crate::proxy::keep_warm::{Held, Resumed};
use crate::trace::TurnRecord;
use crate::usage::{Metered, Rates, Usage};

/// Every so many turns a record carries all blocks of its request and not only what is new, so
/// that a lost record costs the ones behind it no more than that.
const WHOLE_TRAIL_TURNS: u32 = 32;

/// One request as the prompt-cache engine follows it.
#[derive(Debug)]
pub struct Watched {
    /// Its record.
    pub turn: Uuid,
    /// Hash of its thread, the same after a restart.
    pub thread: u64,
    /// Hash of what tells apps apart.
    pub app: u64,
    /// Its blocks, with its breakpoints as sent.
    pub trail: Trail,
    /// The client's own breakpoints, also those that were taken out.
    pub client_marks: Vec<Mark>,
    /// The chain after each block; empty when the provider holds the history, and once the answer
    /// has begun.
    pub at: Vec<Hash>,
    /// What separates its entries from others.
    pub levels: Levels,
    /// The thread's previous request, and what changed since.
    pub compared: Compared,
    /// What the shadow cache expects it to find.
    pub expected: Expected,
    /// The smallest prefix that its model caches.
    pub min_tokens: Option<u32>,
    /// Bytes per token in thousandths.
    pub bytes_per_token_milli: u32,
    /// Format of the request.
    pub wire: Wire,
    /// The rules of a cache that needs no breakpoints.
    pub automatic: Option<Automatic>,
    /// It opens a thread beside others of its run.
    pub beside: bool,
    /// The provider was asked for its own explanation of a miss ...
    pub asked_native: bool,
    /// ... by the client itself.
    pub client_asked: bool,
    /// ... as against an earlier answer that the request names.
    pub names_previous: bool,
    /// Prices of the model, for what the helpers saved.
    pub rates: Option<Rates>,
    /// Whether the thread is likely to have another turn.
    pub next: Within,
    /// What the opt-in helpers did.
    pub helped: Helped,
}

/// What the opt-in helpers did for a request.
#[derive(Debug, Clone, Default)]
pub struct Helped {
    /// Hash of the order of the tools as the client sent them, where that order is kept stable.
    pub client_order: Option<u64>,
    /// It waited for the answer to a request that was writing its prefix: whether that had begun,
    /// and the tokens that could be read before.
    pub waited: Option<(bool, u64)>,
    /// The pause before it was bridged.
    pub resumed: Option<Resumed>,
}

/// Prefixes by which requests of a fan-out meet.
#[derive(Debug, Default)]
pub struct Prefixes {
    /// The longest that another request is just writing, and this one could then read.
    pub awaited: Option<[u8; 16]>,
    /// Those that this request writes.
    pub written: Vec<[u8; 16]>,
}

/// What is known once the answer has ended.
#[derive(Debug, Default)]
pub struct Settled {
    /// Tokens of the step that answers this request; a provider's own further steps left out.
    usage: Usage,
    /// What the shadow cache makes of them.
    found: Found,
}

impl Watched {
    /// The request goes upstream with these breakpoints.
    pub fn sent(&mut self, shared: &Shared, marks: Vec<Mark>, now_ms: i64) {
        self.trail.marks = marks;
        if !self.at.is_empty() {
            self.expected = shared.engine.sent(self.turn, &self.look(now_ms));
        }
    }

    /// Where this request meets others that have a prefix in common with it.
    #[must_use]
    pub fn prefixes(&self) -> Prefixes {
        let key = |at: u32| {
            let step = self.trail.steps.get(at as usize)?;
            Some(self.levels.key(step.section, self.at.get(at as usize)?).0)
        };
        let alive = self.expected.alive.map(|known| known.at);
        let beyond = self.trail.marks.iter().map(|mark| mark.at);
        Prefixes {
            awaited: self.expected.pending.and_then(|pending| key(pending.at)),
            written: beyond
                .filter(|at| alive.is_none_or(|alive| *at > alive))
                .filter_map(key)
                .collect(),
        }
    }

    /// The wait for another request's answer is over; whether it had begun.
    pub fn waited(&mut self, shared: &Shared, began: bool, now_ms: i64) {
        let before = self.expected.alive.and_then(|known| known.tokens);
        self.helped.waited = Some((began, before.unwrap_or(0)));
        let marks = std::mem::take(&mut self.trail.marks);
        self.sent(shared, marks, now_ms);
    }

    /// The upstream refused our breakpoints, and the client's own bytes went out.
    pub fn sent_untouched(&mut self, shared: &Shared, now_ms: i64) {
        // Our question stood among the edits, and our order of the tools.
        self.asked_native &= self.client_asked;
        self.names_previous &= self.client_asked;
        self.helped.client_order = None;
        let own = std::mem::take(&mut self.client_marks);
        self.sent(shared, own, now_ms);
    }

    /// The head of a good answer has arrived. Nothing is sent again from here on, and an answer may
    /// take long.
    pub fn began(&mut self, shared: &Shared) {
        shared.engine.began(self.turn);
        self.at = Vec::new();
    }

    /// The request as the shadow cache looks at it.
    #[must_use]
    pub fn look(&self, now_ms: i64) -> Look<'_> {
        Look {
            trail: &self.trail,
            at: &self.at,
            levels: &self.levels,
            min_tokens: self.min_tokens,
            bytes_per_token_milli: self.bytes_per_token_milli,
            now_ms,
            marks: &self.trail.marks,
            automatic: self.automatic,
        }
    }

    /// The answer has ended: what the thread's next request must find is settled.
    #[must_use]
    pub fn settle(
        &self,
        shared: &Shared,
        record: &TurnRecord,
        answer: Option<&Answer>,
        now_ms: i64,
    ) -> Settled {
        let engine = &shared.engine;
        let usage = self.cached(first_step(record, answer));
        let answered = record
            .status
            .is_some_and(|status| (200..300).contains(&status));
        let known = usage.read.is_some() && usage.written().is_some();
        let calls = answer.is_some_and(|a| a.calls.iter().any(|call| call.complete));
        let stop = match (answered && record.stop_reason.is_some(), calls) {
            (false, _) => Stop::Failed,
            (true, true) => Stop::ToolUse,
            (true, false) => Stop::Other,
        };
        engine.ended(self.app, self.thread, stop, now_ms);
        if !answered || !known {
            engine.abandoned(self.turn);
            return Settled {
                usage,
                ..Settled::default()
            };
        }
        let found = engine.settled(self.turn, &usage);
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        engine.remember(
            self.thread,
            Arc::new(Past {
                trail: Arc::new(self.trail.clone()),
                turn_id: self.turn,
                started_ms: record.started_ms,
                ended_ms: now_ms,
                usage,
                response_id: text(&record.response_id),
                model_served: text(&record.model_served),
                stop_reason: text(&record.stop_reason),
                client_order: self.helped.client_order,
            }),
        );
        Settled { usage, found }
    }

    /// The answer asked for nothing: the thread may pause, and its prefix can be kept warm. After
    /// calls of tools pauses are short (0.74 % over five minutes, by a public measurement of 2026).
    pub fn pause(
        &self,
        shared: &Shared,
        record: &TurnRecord,
        settled: &Settled,
        request: impl FnOnce(&TurnRecord) -> Option<Held>,
    ) {
        let usage = &settled.usage;
        let prefix = usage.read.zip(usage.written()).map(|(r, w)| r + w);
        let (Some(rates), Some(prefix_tokens)) = (self.rates, prefix) else {
            return;
        };
        let last = self.trail.last_mark().and_then(|mark| mark.ttl);
        let ttl = last.unwrap_or(Ttl::M5);
        let within = if ttl == Ttl::M5 {
            self.next.m5
        } else {
            self.next.h1
        };
        let pause = Pause {
            rates,
            ttl,
            prefix_tokens,
            returns_milli: milli(self.next.h1),
            outlasts_milli: milli(1.0 - within),
            ceiling_micro_usd: shared.config.keep_warm_max_micro_usd,
        };
        let thread = (
            record.run_id.as_str().into(),
            record.thread_id.as_str().into(),
        );
        let kept = shared
            .keeper
            .paused(thread, pause, record.started_ms, || request(record));
        if let Err(why) = kept {
            tracing::debug!(why = why.word(), "the prefix is not kept warm");
        }
    }

    /// Writes the verdict into the record, and what else the engine knows of the turn.
    pub fn judge(
        &self,
        shared: &Shared,
        settled: &Settled,
        record: &mut TurnRecord,
        metered: Option<&Metered>,
        price_provider: &str,
    ) {
        let past = self.compared.past.as_deref();
        let base = past.filter(|_| !record.turn.is_multiple_of(WHOLE_TRAIL_TURNS));
        record.cache.trail = trail::code::encode(&self.trail, base.map(|past| &*past.trail));
        record.cache.expected_read = self.expected.read.and_then(|known| known.tokens);
        let answered = record
            .status
            .is_some_and(|status| (200..300).contains(&status));
        if !answered {
            record.cache.unjudged = Some("not_answered");
            return;
        }
        let nothing = Metered::default();
        let metered = metered.unwrap_or(&nothing);
        let price = |usage: &Usage| {
            let requested = record.model_requested.as_deref();
            let at = record.started_ms;
            shared
                .prices
                .price_as(price_provider, metered, usage, requested, at)
                .pico()
        };
        let usage = &settled.usage;
        let verdict = judge(&Facts {
            usage,
            now: &self.trail,
            started_ms: record.started_ms,
            served: record.model_served.as_deref(),
            past,
            change: self.compared.change.as_ref(),
            expected: &self.expected,
            min_tokens: self.min_tokens,
            automatic: self.automatic,
            beside: self.beside,
            price: &price,
        });
        let premium = premium_pico(usage, &price);
        // Two that wrote the same at the same time: by the books afterwards, or as it was when this
        // one went out.
        let concurrent = verdict
            .as_ref()
            .is_ok_and(|verdict| verdict.reason == Some(Reason::Concurrent));
        let twice = settled
            .found
            .twice
            .or(self.expected.pending.filter(|_| concurrent));
        let twice_pico = twice
            .and_then(|known| known.tokens)
            .and_then(|tokens| unread_pico(usage, tokens, &price));
        let cache = &mut record.cache;
        cache.premium_pico = premium;
        cache.read_of = settled.found.read.map(|known| known.turn);
        cache.duplicate_of = twice.map(|known| known.turn);
        cache.duplicate_tokens = twice.and_then(|known| known.tokens);
        cache.duplicate_pico = twice_pico;
        if let Some((helper, saving)) = self.saving(usage, record.started_ms) {
            cache.helper = Some(helper);
            cache.helper_tokens = Some(saving.tokens);
            cache.helper_pico = saving.pico;
        }
        match verdict {
            Ok(mut verdict) => {
                if let Some(excerpt) = &mut verdict.excerpt {
                    // The built-in rules have seen all of the text; these are the user's own.
                    excerpt.before = shared.clean(&excerpt.before);
                    excerpt.after = shared.clean(&excerpt.after);
                }
                let native = record
                    .native_diagnosis
                    .as_deref()
                    .map(|word| self.wire.meaning(word));
                let changed = self.compared.change.is_some();
                cache.native_agrees = native.and_then(|native| {
                    diagnosis::agrees(native, self.names_previous, changed, &verdict)
                });
                cache.verdict = Some(verdict);
            }
            Err(why) => cache.unjudged = Some(why),
        }
    }
}

impl Watched {
    /// A usage as the cache sees it. One that needs no breakpoints writes all that it did not read,
    /// whether or not that is billed and told.
    fn cached(&self, usage: Usage) -> Usage {
        let Some(rules) = self.automatic else {
            return usage;
        };
        let (Some(uncached), Some(written), Some(prompt)) =
            (usage.uncached, usage.written(), usage.prompt())
        else {
            return usage;
        };
        if prompt < u64::from(rules.min_tokens) {
            return usage;
        }
        let long = usage.write_12h.unwrap_or(0);
        let free = if written == 0 { uncached } else { 0 };
        Usage {
            uncached: Some(uncached - free),
            write_5m: Some(written - long.min(written) + free),
            write_1h: Some(long),
            write_30m: None,
            write_12h: None,
            // Which lifetime it was is known from the breakpoint.
            split_inferred: true,
            ..usage
        }
    }

    /// What the helper that acted on this request saved. Where several did, the one without which
    /// nothing would have been there to be read.
    fn saving(&self, usage: &Usage, started_ms: i64) -> Option<(&'static str, Saving)> {
        let read = usage.read?;
        let (rates, past) = (self.rates.as_ref(), self.compared.past.as_deref());
        let last = self.trail.last_mark().and_then(|mark| mark.ttl);
        let ttl = last.unwrap_or(Ttl::M5);
        let bridged = || {
            let gap = started_ms.saturating_sub(past?.started_ms);
            // The pings have records of their own, which carry what they cost.
            let pings = self.helped.resumed?.pings;
            helpers::keep_warm::saving(pings, Some(0), gap, read, rates, ttl)
        };
        let waited = || {
            let (began, before) = self.helped.waited?;
            helpers::warm_first_saving(began, read, before, rates, ttl)
        };
        let sorted = || {
            let before = past.and_then(|past| past.client_order);
            helpers::tool_order::saving(before, self.helped.client_order?, read, rates, ttl)
        };
        bridged()
            .map(|saving| ("keep_warm", saving))
            .or_else(|| waited().map(|saving| ("warm_first", saving)))
            .or_else(|| sorted().map(|saving| ("tool_order", saving)))
    }
}

/// The usage of the step that answers the request. Of an answer in several steps the totals count
/// the same prefix several times.
fn first_step(record: &TurnRecord, answer: Option<&Answer>) -> Usage {
    let first = answer.and_then(|answer| anthropic::first_step(&answer.metered));
    first.unwrap_or(record.usage)
}

/// A probability in thousandths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and 1000"
)]
fn milli(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * 1000.0).round() as u32
}

/// What the writes of a turn cost more than plain input would have.
fn premium_pico(usage: &Usage, price: &impl Fn(&Usage) -> Option<u64>) -> Option<u64> {
    let written = usage.written()?;
    let plain = Usage {
        uncached: Some(usage.uncached? + written),
        write_5m: Some(0),
        write_1h: Some(0),
        write_30m: None,
        write_12h: None,
        ..*usage
    };
    Some(price(usage)?.saturating_sub(price(&plain)?))
}
