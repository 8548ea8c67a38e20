//! What an ended request comes to: its outcome, its price, and what the next one must find.

use std::sync::Arc;

use super::{End, MAX_ERROR_BYTES, MAX_MODEL_BYTES, Open};
use crate::prompt_cache::diagnosis;
use crate::provider::view::Answer;
use crate::proxy::keep_warm::Held;
use crate::proxy::ledger::Hold;
use crate::proxy::{Shared, guard};
use crate::run::{Answered, AskedCall, parents};
use crate::text;
use crate::trace::{Outcome, RequestKind};
use crate::usage::{ModelFacts, Priced};

/// The version of a price that the provider told itself.
const TOLD_PRICE: &str = "provider";

impl Open {
    /// Takes over what the answer said.
    pub(super) fn read(&mut self, shared: &Shared, answer: &Answer) {
        let record = &mut self.record;
        record.model_served = answer
            .metered
            .model
            .as_deref()
            .map(|m| text::prefix(m, MAX_MODEL_BYTES).to_owned());
        // Words of the upstream are as long as it likes.
        let word = |text: &Option<String>| {
            let text = text.as_deref()?;
            Some(text::prefix(text, MAX_MODEL_BYTES).to_owned())
        };
        record.stop_reason = word(&answer.stop_reason);
        record.response_id = word(&answer.id);
        let asked = self.watched.as_ref().is_some_and(|w| w.asked_native);
        let said = word(&answer.native_diagnosis);
        let answered = answer.id.is_some();
        record.native_diagnosis =
            diagnosis::recorded(said.as_deref(), asked, answered).map(str::to_owned);
        record.usage = answer.metered.usage;
        record.usage_complete = answer.usage_complete;
        for warning in &answer.warnings {
            if !record.warnings.iter().any(|w| w == warning) {
                record.warnings.push((*warning).to_owned());
            }
        }
        if let Some(error) = &answer.error {
            record.error_type = Some(text::prefix(&error.kind, MAX_MODEL_BYTES).to_owned());
            // Providers quote what they did not like, and that is the client's content.
            let message = text::without_quotations(&error.message);
            let message = shared.clean(&message);
            record.error_message = Some(text::prefix(&message, MAX_ERROR_BYTES).to_owned());
        }
    }

    /// Decides the outcome.
    pub(super) fn judge(&mut self, shared: &Shared, end: &End, answer: Option<&Answer>) {
        let record = &mut self.record;
        let refused = record.status.is_some_and(|s| s >= 400);
        record.outcome = match end {
            End::Complete if refused || answer.is_some_and(|a| a.error.is_some()) => {
                Outcome::UpstreamError
            }
            End::Complete => Outcome::Ok,
            End::Cut(_) | End::Silent => Outcome::UpstreamCut,
            End::ClientGone => Outcome::ClientAbort,
            End::Own(outcome, _) => *outcome,
        };
        if matches!(end, End::Cut(_) | End::Silent | End::Own(..)) && record.error_type.is_none() {
            record.error_type = Some(record.outcome.as_str().to_owned());
            let message = shared.clean(&end.to_string());
            record.error_message = Some(text::prefix(&message, MAX_ERROR_BYTES).to_owned());
        }
        if record.outcome != Outcome::Ok {
            record.usage_complete &= answer.is_some_and(|a| a.finished);
        }
    }

    /// Puts what was used in the place of what was held.
    pub(super) fn give_back(
        &mut self,
        shared: &Arc<Shared>,
        hold: Hold,
        answer: Option<&Answer>,
        now_ms: i64,
    ) {
        self.price(shared, answer);
        let finished = answer.is_some_and(|answer| answer.finished);
        let (used, booked) = guard::caps::used(&self.record, finished, &hold.ask.most);
        if booked.is_some() {
            self.record.guard.booked_pico = booked;
            self.record.warnings.push("cap_booked_at_most".to_owned());
        }
        let calls = answer.is_some_and(|answer| !answer.calls.is_empty());
        let agent_ended = match self.record.outcome {
            Outcome::Ok => !calls,
            Outcome::ClientAbort => true,
            _ => false,
        };
        let told = guard::caps::Teller::new(shared, &self.record);
        let ledger = &shared.guards.ledger;
        ledger.settle(hold, used, agent_ended, now_ms, move |crossings| {
            told.crossed(&crossings);
        });
    }

    /// Prices an answered turn for the registry: the thread's next request may ask what a loop has
    /// cost so far.
    pub(super) fn pay(&mut self, shared: &Shared, answer: Option<&Answer>) {
        let answered = (self.record.outcome, self.record.kind) == (Outcome::Ok, RequestKind::Turn);
        if !answered || self.seat.is_none() {
            return;
        }
        self.price(shared, answer);
        if let Some(seat) = &self.seat {
            shared.registry.paid(seat, self.record.cost_pico);
        }
    }

    /// Estimates what a broken answer hides, and prices the turn; only once.
    pub(super) fn price(&mut self, shared: &Shared, answer: Option<&Answer>) -> Option<ModelFacts> {
        if let Some(facts) = &self.facts {
            return facts.clone();
        }
        let facts = self.priced(shared, answer);
        self.facts = Some(facts.clone());
        facts
    }

    fn priced(&mut self, shared: &Shared, answer: Option<&Answer>) -> Option<ModelFacts> {
        // What only prepares has a place without being a turn.
        let costs = matches!(self.record.kind, RequestKind::Turn | RequestKind::KeepWarm);
        if !costs && self.seat.is_none() {
            return None;
        }
        let model = self
            .record
            .model_served
            .as_deref()
            .or(self.record.model_requested.as_deref());
        let at = self.record.started_ms;
        let facts = model.map(|m| shared.prices.model(&self.price_provider, m, at));
        // Without an answer there is nothing to price, but the model is known all the same.
        let Some(answer) = answer else { return facts };
        let metered = &answer.metered;
        let mut usage = metered.usage;
        let input_seen = usage.uncached.is_some() || usage.read.is_some();
        if !self.record.usage_complete && input_seen && answer.delivered_bytes > 0 {
            let ratio = facts
                .as_ref()
                .map_or(3500, |f| f.bytes_per_token_milli)
                .max(1);
            let estimate = answer
                .delivered_bytes
                .saturating_mul(1000)
                .div_ceil(u64::from(ratio));
            usage.output = Some(usage.output.unwrap_or(0).max(estimate));
            self.record.usage_estimated = true;
        }
        self.record.usage = usage;
        if usage == crate::usage::Usage::default() {
            return facts;
        }
        let mut upstreams = shared.config.upstreams.iter();
        let upstream = upstreams.find(|upstream| upstream.name == self.record.upstream);
        let told = answer
            .cost_pico
            .filter(|_| upstream.is_some_and(|upstream| upstream.dialect.tells_cost));
        let requested = self.record.model_requested.as_deref();
        let (prices, provider) = (&shared.prices, &self.price_provider);
        let priced = match metered.iterations.is_empty() {
            true => prices.price_as(provider, metered, &usage, requested, at),
            false => prices.price(provider, metered, requested, at),
        };
        match priced {
            Priced::Known {
                pico,
                no_cache_pico,
                version,
                notes,
            } => {
                self.record.cost_pico = Some(pico);
                self.record.cost_no_cache_pico = Some(no_cache_pico);
                self.record.price_version = Some(version.to_string());
                self.record
                    .warnings
                    .extend(notes.iter().map(|n| (*n).to_owned()));
            }
            Priced::Unpriced {
                reason,
                lower_bound_pico,
            } => {
                self.record.price_version = Some(reason.to_owned());
                if let (false, Some(bound)) = (self.record.usage_complete, lower_bound_pico) {
                    self.record.cost_pico = Some(bound);
                    self.record.warnings.push("cost_lower_bound".to_owned());
                } else if told.is_none() {
                    let model = model.unwrap_or_default();
                    if reason == crate::usage::price::UNKNOWN_MODEL {
                        shared.warn_unpriced(model, reason);
                    }
                    self.record.warnings.push(format!("unpriced:{reason}"));
                }
            }
        }
        if let Some(told) = told {
            // Its own word is what it takes.
            self.record.cost_pico = Some(told);
            self.record.price_version = Some(TOLD_PRICE.to_owned());
            self.record
                .warnings
                .retain(|warning| warning != "cost_lower_bound");
        }
        facts
    }

    /// Tells the registry, and records the tool calls.
    pub(super) fn settle(&mut self, shared: &Shared, answer: Option<&Answer>, now_ms: i64) {
        if let Some(watched) = &self.watched {
            self.settled = watched.settle(shared, &self.record, answer, now_ms);
            let calls = answer.is_some_and(|a| !a.calls.is_empty());
            if let (Some(again), false) = (self.again.take(), calls) {
                watched.pause(shared, &self.record, &self.settled, |record| {
                    Held::new(again.uri, again.headers, &again.pieces, record)
                });
            }
        }
        let Some(seat) = &self.seat else { return };
        let record = &self.record;
        let ok = record.outcome == Outcome::Ok;
        let calls = answer.map_or(&[][..], |a| &a.calls);
        let asked = calls.iter().filter(|c| c.complete).map(|call| AskedCall {
            id: call.id.clone(),
            prompts: parents::prompts(&call.input)
                .iter()
                .map(|prompt| shared.hasher.keyed("prompt", prompt.trim().as_bytes()))
                .collect(),
        });
        let prompt = record
            .usage
            .prompt()
            .filter(|n| *n > 0 && record.usage_complete);
        if let (Some(mut history), Some(id), true) =
            (self.history.take(), record.response_id.clone(), ok)
        {
            history.answered(calls);
            shared.guards.remember(id, history);
        }
        shared.registry.answered(
            seat,
            Answered {
                // The number of what only prepares is the next turn's.
                ok: ok && record.kind == RequestKind::Turn,
                end: self.chain_end,
                response_id: record.response_id.clone(),
                conversation: self.conversation.take(),
                turn_id: record.id,
                calls: asked.collect(),
                prompt: prompt.map(|tokens| (tokens, self.body_bytes)),
                output: record.usage.output,
                now_ms,
            },
        );
    }
}
