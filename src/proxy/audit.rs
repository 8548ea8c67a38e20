//! What a turn carries along for its verdict, and how it is reached.

use std::sync::Arc;

use uuid::Uuid;

use super::Shared;
use crate::prompt_cache::chain::Hash;
use crate::prompt_cache::diagnosis;
use crate::prompt_cache::engine::Compared;
use crate::prompt_cache::habits::Stop;
use crate::prompt_cache::shadow::{Expected, Levels, Look, Outcome as Found};
use crate::prompt_cache::trail::{self, Mark, Past, Trail};
use crate::prompt_cache::verdict::{Facts, judge, unread_pico};
use crate::provider::anthropic::diagnosis::meaning;
use crate::provider::view::Answer;
use crate::trace::TurnRecord;
use crate::usage::{Metered, Usage};

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
    /// The chain after each block; empty when the provider holds the history.
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
    /// It opens a thread beside others of its run.
    pub beside: bool,
    /// The provider was asked for its own explanation of a miss ...
    pub asked_native: bool,
    /// ... as against an earlier answer that the request names.
    pub names_previous: bool,
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

    /// The upstream refused our breakpoints, and the client's own bytes went out.
    pub fn sent_untouched(&mut self, shared: &Shared, now_ms: i64) {
        let own = self.trail.marks.iter().filter(|mark| !mark.ours);
        let own = own.copied().collect();
        self.sent(shared, own, now_ms);
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
        let usage = first_step(record, answer);
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
            }),
        );
        Settled { usage, found }
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
        let price = |usage: &Usage| {
            let metered = Metered {
                usage: *usage,
                iterations: Vec::new(),
                ..metered.cloned().unwrap_or_default()
            };
            let requested = record.model_requested.as_deref();
            let at = record.started_ms;
            shared
                .prices
                .price(price_provider, &metered, requested, at)
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
            beside: self.beside,
            price: &price,
        });
        let premium = premium_pico(usage, &price);
        let twice = settled.found.twice;
        let twice_pico = twice
            .and_then(|known| known.tokens)
            .and_then(|tokens| unread_pico(usage, tokens, &price));
        let cache = &mut record.cache;
        cache.premium_pico = premium;
        cache.read_of = settled.found.read.map(|known| known.turn);
        cache.duplicate_of = twice.map(|known| known.turn);
        cache.duplicate_tokens = twice.and_then(|known| known.tokens);
        cache.duplicate_pico = twice_pico;
        match verdict {
            Ok(verdict) => {
                let native = record.native_diagnosis.as_deref().map(meaning);
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

/// The usage of the step that answers the request. Of an answer in several steps the totals count
/// the same prefix several times.
fn first_step(record: &TurnRecord, answer: Option<&Answer>) -> Usage {
    let steps = answer.map_or(&[][..], |answer| &answer.metered.iterations);
    let first = steps.iter().find(|step| step.kind == "message");
    first.map_or(record.usage, |step| step.usage)
}

/// What the writes of a turn cost more than plain input would have.
fn premium_pico(usage: &Usage, price: &impl Fn(&Usage) -> Option<u64>) -> Option<u64> {
    let written = usage.written()?;
    let plain = Usage {
        uncached: Some(usage.uncached? + written),
        write_5m: Some(0),
        write_1h: Some(0),
        ..*usage
    };
    Some(price(usage)?.saturating_sub(price(&plain)?))
}
