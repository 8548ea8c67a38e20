//! A line of JSON for everything that happens.

use std::time::Duration;

use serde_json::{Value, json};

use super::outcomes;
use crate::agent::machine::Bill;
use crate::agent::notice::{Listener, Notice};
use crate::usage::usd;

/// Writes the lines to stdout. Text comes in the pieces in which it arrived.
#[derive(Debug, Default)]
pub struct Lines;

impl Listener for Lines {
    fn notice(&self, agent: &str, notice: Notice<'_>) {
        let mut line = line(notice);
        line["agent"] = agent.into();
        // A reader that has gone away is told nothing.
        let _ = crate::cli::print(&format!("{line}\n"));
    }
}

fn ms(time: Duration) -> Value {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into()
}

fn bill(bill: &Bill) -> Value {
    let usage = &bill.usage;
    json!({
        "uncached": usage.uncached,
        "cache_read": usage.read,
        "cache_write": usage.written(),
        "output": usage.output,
        "cost_usd": bill.pico.map(usd),
    })
}

fn line(notice: Notice<'_>) -> Value {
    match notice {
        Notice::Began(run) => json!({
            "type": "began",
            "run": run.setup().run,
            "parent": run.setup().parent,
            "model": run.setup().model,
            "turns": run.turns(),
        }),
        Notice::Asked { turn, attempt } => {
            json!({"type": "asked", "turn": turn, "attempt": attempt})
        }
        Notice::Text(text) => json!({"type": "text", "text": text}),
        Notice::Thinking => json!({"type": "thinking"}),
        Notice::ThinkingDropped(blocks) => json!({"type": "thinking_dropped", "blocks": blocks}),
        Notice::CallOpened(tool) => json!({"type": "call_opened", "tool": tool}),
        Notice::Reset {
            reason,
            bill: cost,
            wait,
        } => json!({
            "type": "reset",
            "reason": reason,
            "bill": bill(cost),
            "wait_ms": wait.map(ms),
        }),
        Notice::Answered {
            bill: cost,
            stop,
            took,
        } => json!({"type": "answered", "stop": stop, "took_ms": ms(took), "bill": bill(cost)}),
        Notice::CallBegan { call, key } => json!({
            "type": "call_began",
            "call": call.id,
            "tool": call.name,
            "input": call.input,
            "key": key,
        }),
        Notice::CallEnded { result, took } => json!({
            "type": "call_ended",
            "call": result.call,
            "is_error": result.is_error,
            "text": result.text,
            "took_ms": ms(took),
        }),
        Notice::Compacting { tokens } => json!({"type": "compacting", "tokens": tokens}),
        Notice::Compacted(Ok(cost)) => json!({"type": "compacted", "bill": bill(cost)}),
        Notice::Compacted(Err(reason)) => json!({"type": "compaction_failed", "reason": reason}),
        Notice::Planned { number, steps } => {
            json!({"type": "planned", "number": number, "steps": steps})
        }
        Notice::Judged { passed, why } => json!({"type": "judged", "passed": passed, "why": why}),
        Notice::Reflected(text) => json!({"type": "reflected", "text": text}),
        Notice::Ended { outcome, run } => json!({
            "type": "ended",
            "outcome": outcome.as_str(),
            "detail": outcomes::detail(outcome),
            "turns": run.turns(),
        }),
    }
}
