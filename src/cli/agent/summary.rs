//! What a run came to.

use serde_json::{Value, json};

use super::outcomes;
use crate::agent::machine::{AgentRun, Outcome, Spent};
use crate::usage::{usd, usd_short};

/// The end of a run.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Id of the run.
    pub run: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Answers of the outermost agent.
    pub turns: u32,
    /// What all its agents have used, over its whole life.
    pub spent: Spent,
    /// Time at work, in milliseconds.
    pub worked_ms: u64,
    /// The final answer.
    pub answer: Option<String>,
    /// The command that goes on with it, where it can go on.
    pub resume: Option<String>,
}

impl Summary {
    /// Of a run that has ended; `kept` says that it has a journal.
    pub fn of(run: &AgentRun, outcome: &Outcome, now_ms: i64, kept: bool) -> Self {
        let id = &run.setup().run;
        let resume = outcomes::advice(outcome).filter(|_| kept);
        Self {
            run: id.clone(),
            outcome: outcome.clone(),
            turns: run.turns(),
            spent: run.spent().clone(),
            worked_ms: run.worked_ms(now_ms),
            answer: run.answer().filter(|text| !text.trim().is_empty()),
            resume: resume.map(|more| format!("prefixgate agent resume {id}{more}")),
        }
    }

    /// As a value for machines. Money is exact; what is not known is null.
    pub fn json(&self) -> Value {
        let spent = &self.spent;
        json!({
            "type": "summary",
            "run": self.run,
            "outcome": self.outcome.as_str(),
            "exit_code": self.outcome.exit_code(),
            "detail": outcomes::detail(&self.outcome),
            "turns": self.turns,
            "answers": spent.answers,
            "calls": spent.calls,
            "tokens": {
                "uncached": spent.uncached,
                "cache_read": spent.read,
                "cache_write": spent.written,
                "output": spent.output,
                "total": spent.tokens(),
            },
            "uncounted_answers": spent.uncounted,
            "hit_ratio": spent.hit_ratio(),
            "cost_usd": usd(spent.pico),
            "unpriced_answers": spent.unpriced,
            "worked_ms": self.worked_ms,
            "answer": self.answer,
            "resume": self.resume,
        })
    }

    /// As lines for people.
    pub fn text(&self) -> String {
        let spent = &self.spent;
        let mut text = self.outcome.as_str().to_owned();
        if let Some(detail) = outcomes::detail(&self.outcome) {
            text.push_str(&format!(": {detail}"));
        }
        text.push_str(&format!(
            "\n{} turns, {} calls, {}\n",
            self.turns,
            spent.calls,
            time(self.worked_ms)
        ));
        text.push_str(&format!(
            "{} tokens in: {} read from the cache, {} written to it, {} uncached; {} out\n",
            grouped(spent.uncached + spent.read + spent.written),
            grouped(spent.read),
            grouped(spent.written),
            grouped(spent.uncached),
            grouped(spent.output),
        ));
        if let Some(ratio) = spent.hit_ratio() {
            text.push_str(&format!("hit ratio {:.1} %, ", ratio * 100.0));
        }
        text.push_str(&cost(spent));
        text.push_str(&format!("\nrun {}\n", self.run));
        if let Some(resume) = &self.resume {
            text.push_str(&format!("to go on: {resume}\n"));
        }
        text
    }
}

/// What was spent, with what is not known of it.
pub fn cost(spent: &Spent) -> String {
    match (spent.unpriced, spent.pico) {
        (0, pico) => format!("cost {}", usd_short(pico)),
        (_, 0) => "cost not known".to_owned(),
        (unpriced, pico) => format!(
            "cost {} and that of {unpriced} answers without a known price",
            usd_short(pico)
        ),
    }
}

/// A number with separators.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time, as people say it.
pub fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}
