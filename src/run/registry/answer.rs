//! An answer comes: the thread has grown by it, has calls to wait for, and has paid.

use std::sync::Arc;

use uuid::Uuid;

use super::memory::Last;
use super::{Registry, Seat};
use crate::prompt_cache::chain::Hash;

/// Turns of a thread whose costs are remembered, for what a loop has cost.
const MAX_COSTS: usize = 256;
/// Bytes per token in thousandths that text can have. Pictures and documents in a body show other
/// ratios, which say nothing about its text.
const PLAUSIBLE_RATIOS: std::ops::RangeInclusive<u32> = 1_000..=8_000;

/// A tool call that an answer asks for.
#[derive(Debug, Clone)]
pub struct AskedCall {
    /// The provider's id of the call.
    pub id: String,
    /// Hashes of the strings in its input that may be a sub-agent's prompt.
    pub prompts: Vec<Hash>,
}

/// How a request ended, for the thread.
#[derive(Debug, Default)]
pub struct Answered {
    /// A whole answer was delivered.
    pub ok: bool,
    /// Chain hash at the end of the request.
    pub end: Option<Hash>,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// The id of the conversation that it became a part of, as
    /// [`History::Continues`](crate::provider::view::History::Continues) names it.
    pub conversation: Option<String>,
    /// The turn's id in the records.
    pub turn_id: Uuid,
    /// Calls the answer asks for.
    pub calls: Vec<AskedCall>,
    /// Exact tokens of the prompt and the bytes of the body they came from.
    pub prompt: Option<(u64, u64)>,
    /// Exact tokens of the answer.
    pub output: Option<u64>,
    /// UTC milliseconds.
    pub now_ms: i64,
}

/// A tool call whose result has been seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledCall {
    /// Run of the call.
    pub run_id: Arc<str>,
    /// Thread of the call.
    pub thread_id: Arc<str>,
    /// The turn whose answer asked for it.
    pub turn_id: Uuid,
    /// From the end of the answer to the request with the result.
    pub latency_ms: u64,
}

impl Registry {
    /// Reports the end of a request.
    pub fn answered(&self, seat: &Seat, end: Answered) {
        let state = &mut *self.lock();
        let Some(thread) = state.threads.touch(&seat.key) else {
            return;
        };
        thread
            .in_flight
            .retain(|(body, turn, _)| (*body, *turn) != (seat.body, seat.turn));
        thread.last_ms = end.now_ms;
        if end.ok {
            thread.answered = thread.answered.max(seat.turn);
            thread.suspended = false;
        }
        thread.last = Some(Last {
            body: seat.body,
            turn: seat.turn,
            attempt: seat.attempt,
            ok: end.ok,
        });
        if let Some((tokens, bytes)) = end.prompt
            && let Some(milli) = bytes.saturating_mul(1000).checked_div(tokens)
            && let Ok(milli) = u32::try_from(milli)
            && PLAUSIBLE_RATIOS.contains(&milli)
        {
            thread.bytes_per_token_milli = Some(milli);
        }
        if let (Some((prompt, _)), Some(output)) = (end.prompt, end.output) {
            thread.last_tokens = Some(prompt.saturating_add(output));
        }
        for id in [end.response_id, end.conversation].into_iter().flatten() {
            state.answers.insert(id, (seat.key, end.end));
        }
        for call in end.calls {
            for prompt in call.prompts {
                state.prompts.insert(prompt, seat.key);
            }
            let asked = (end.turn_id, end.now_ms);
            state.calls.insert((seat.key, call.id), asked);
        }
    }

    /// Takes note that a tool result was seen by the request in `seat`; `None` for a call that is
    /// not pending in its thread or another one of its run.
    pub fn settle(&self, seat: &Seat, call_id: &str, now_ms: i64) -> Option<SettledCall> {
        let state = &mut *self.lock();
        let siblings = state.runs.get(&seat.run_id).map(|run| run.members.clone());
        let mut call = (seat.key, call_id.to_owned());
        let found = std::iter::once(seat.key)
            .chain(siblings.into_iter().flatten().rev())
            .find_map(|key| {
                call.0 = key;
                Some((key, state.calls.remove(&call)?))
            });
        let (key, (turn_id, asked_ms)) = found?;
        let thread = state.threads.get(&key)?;
        Some(SettledCall {
            run_id: thread.run.clone(),
            thread_id: thread.id.clone(),
            turn_id,
            latency_ms: u64::try_from(now_ms - asked_ms).unwrap_or(0),
        })
    }

    /// Takes note of what an answered turn of a thread has cost, in pico-USD.
    pub fn paid(&self, seat: &Seat, pico: Option<u64>) {
        if let Some(thread) = self.lock().threads.get_mut(&seat.key) {
            if thread.costs.len() >= MAX_COSTS {
                thread.costs.pop_front();
            }
            thread.costs.push_back(pico);
        }
    }

    /// What the newest answered turns of a thread have cost, in pico-USD; `None` where that is not
    /// known of all of them.
    #[must_use]
    pub fn cost_of(&self, seat: &Seat, turns: usize) -> Option<u64> {
        let state = self.lock();
        let costs = &state.threads.get(&seat.key)?.costs;
        let first = costs.len().checked_sub(turns)?;
        costs
            .iter()
            .skip(first)
            .try_fold(0_u64, |sum, cost| sum.checked_add((*cost)?))
    }

    /// Switches the insertion of markers off for a thread.
    pub fn insertion_off(&self, seat: &Seat) {
        if let Some(thread) = self.lock().threads.get_mut(&seat.key) {
            thread.insertion_off = true;
        }
    }

    /// Suspends the insertion of markers for a thread until a request of it is answered: it was
    /// refused with markers and without, so that nothing is known of them, and sending every
    /// further try twice would not tell more.
    pub fn suspend_insertion(&self, seat: &Seat) {
        if let Some(thread) = self.lock().threads.get_mut(&seat.key) {
            thread.suspended = true;
        }
    }
}
