//! A closed account on its way into the books, after the answer's last bytes have left.

use std::sync::Arc;

use super::{MAX_MODEL_BYTES, Open, call_id, hex};
use crate::provider::view::{Answer, AnsweredCall};
use crate::proxy::{Shared, guard, line};
use crate::text;
use crate::trace::capture::About;
use crate::trace::{CallStatus, Outcome, RequestKind, ToolCallRecord, TurnRecord};
use crate::usage::Usage;

/// What a request came to.
#[derive(Debug, Clone, Copy)]
pub struct Booked {
    /// How it ended.
    pub outcome: Outcome,
    /// Its tokens.
    pub usage: Usage,
    /// What it cost in pico-USD, where that is known.
    pub cost_pico: Option<u64>,
}

/// A closed account on its way into the books: priced, counted, logged and recorded when dropped.
pub(super) struct Closing {
    pub(super) shared: Arc<Shared>,
    /// `None` once it has been written.
    pub(super) open: Option<Box<Open>>,
    pub(super) answer: Option<Answer>,
    /// When it ended, UTC milliseconds.
    pub(super) ended_ms: i64,
    /// The upstream's answer was delivered to its end, whatever it says.
    pub(super) complete: bool,
}

impl Closing {
    /// Does it now. Dropping does nothing more then.
    pub(super) fn book(mut self) -> Option<Booked> {
        self.write()
    }

    fn write(&mut self) -> Option<Booked> {
        let shared = &self.shared;
        let mut open = self.open.take()?;
        let facts = open.price(shared, self.answer.as_ref());
        let record = &mut *open.record;
        if record.kind == RequestKind::KeepWarm {
            // What a ping costs is what it takes from the helper's saving.
            let cost = record.cost_pico.and_then(|cost| i64::try_from(cost).ok());
            record.cache.helper_pico = cost.map(|cost| -cost);
        }
        if let Some(watched) = &open.watched {
            let metered = self.answer.as_ref().map(|answer| &answer.metered);
            watched.judge(shared, &open.settled, record, metered, &open.price_provider);
        }
        shared
            .metrics
            .turn(record, facts.as_ref().and_then(|f| f.label.as_ref()));
        let calls = self.answer.as_ref().map_or(&[][..], |a| &a.calls);
        if open.seat.is_some() {
            for call in calls {
                let wrong = open.declared.as_ref().filter(|_| call.complete);
                let wrong = wrong.and_then(|declared| {
                    let whole = call.input.len() as u64 == call.input_bytes;
                    declared.check(&call.name, &call.input, whole)
                });
                shared
                    .metrics
                    .call(if call.complete { "asked" } else { "incomplete" });
                if let Some(wrong) = wrong {
                    shared.metrics.call(wrong);
                }
                let asked = call_record(shared, record, call, wrong, self.ended_ms);
                shared.recorder.call(asked);
            }
        }
        if let Some(held) = open.captured.take() {
            held.hand_over(About {
                turn: record.id,
                run: record.run_id.clone(),
                thread: record.thread_id.clone(),
                app: record.app.clone(),
                started_ms: record.started_ms,
                complete: self.complete,
            });
        }
        line::log(record);
        guard::digest(shared, record);
        let booked = Booked {
            outcome: record.outcome,
            usage: record.usage,
            cost_pico: record.cost_pico,
        };
        shared.recorder.turn(open.record);
        shared.metrics.in_flight.dec();
        if shared.metrics.in_flight.get() <= 0 {
            shared.idle.notify_waiters();
        }
        Some(booked)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.write();
    }
}

fn call_record(
    shared: &Shared,
    record: &TurnRecord,
    call: &AnsweredCall,
    wrong: Option<&'static str>,
    now_ms: i64,
) -> ToolCallRecord {
    ToolCallRecord {
        turn_id: record.id,
        run_id: record.run_id.clone(),
        thread_id: record.thread_id.clone(),
        call_id: call_id(&call.id),
        name: text::prefix(&call.name, MAX_MODEL_BYTES).to_owned(),
        input_hash: hex(&shared.hasher.keyed("tool-input", &call.input)),
        input_bytes: call.input_bytes,
        asked_ms: now_ms,
        status: if call.complete {
            CallStatus::Pending
        } else {
            CallStatus::Incomplete
        },
        latency_ms: None,
        result_bytes: None,
        wrong,
        retries: 0,
    }
}
