//! What a run came to.

use serde_json::{Value, json};

use super::compose::Kept;
use super::outcomes;
use crate::agent::crew::Crew;
use crate::agent::machine::{AgentRun, Outcome, Spent};
use crate::agent::pattern::Report;
use crate::usage::{usd, usd_short};

/// Exit code of a run whose model has said all, and whose check or reviews were not passed.
const NOT_PASSED: u8 = 25;

/// The end of a run.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Id of the run.
    pub run: String,
    /// How it ended.
    pub report: Report,
    /// Answers of all agents but sub-agents.
    pub turns: u32,
    /// What all agents have used, over the whole life of the run.
    pub spent: Spent,
    /// Time at work of the same, in milliseconds.
    pub worked_ms: u64,
    /// The final answer.
    pub answer: Option<String>,
    /// The command that goes on with it, where it can go on.
    pub resume: Option<String>,
}

impl Summary {
    /// Of a run that has ended; `several` says that its pattern makes several agents.
    ///
    /// # Errors
    /// The journals cannot be read.
    pub fn of(
        run: &str,
        report: Report,
        crew: &Crew,
        kept: &Kept,
        several: bool,
    ) -> anyhow::Result<Self> {
        let now_ms = crew.clock.utc_ms();
        let (mut turns, mut worked_ms) = (0, 0);
        for name in kept.journals.agents(run)? {
            let events = kept.journals.events(run, &name)?;
            let agent = AgentRun::fold(&events).filter(|agent| agent.setup().depth == 0);
            if let Some(agent) = agent {
                turns += agent.turns();
                worked_ms += agent.worked_ms(now_ms);
            }
        }
        // A pattern takes no new words: it only goes on with what has not ended.
        let resume = outcomes::advice(&report.outcome)
            .filter(|more| kept.lasting && !(several && more.contains("--say")));
        Ok(Self {
            run: run.to_owned(),
            turns,
            spent: crew.budget.spent(),
            worked_ms,
            answer: (report.answer.clone()).filter(|text| !text.trim().is_empty()),
            resume: resume.map(|more| format!("prefixgate agent resume {run}{more}")),
            report,
        })
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match &self.report.outcome {
            Outcome::EndTurn if !self.report.passed => NOT_PASSED,
            outcome => outcome.exit_code(),
        }
    }

    fn detail(&self) -> Option<String> {
        let why = || self.report.why.clone();
        outcomes::detail(&self.report.outcome).or_else(why)
    }

    /// As a value for machines. Money is exact; what is not known is null.
    pub fn json(&self) -> Value {
        let spent = &self.spent;
        json!({
            "type": "summary",
            "run": self.run,
            "outcome": self.report.outcome.as_str(),
            "passed": self.report.passed,
            "exit_code": self.exit_code(),
            "detail": self.detail(),
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
        let mut text = self.report.outcome.as_str().to_owned();
        if let Some(detail) = self.detail() {
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
