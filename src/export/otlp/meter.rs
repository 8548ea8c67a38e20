//! The metrics of the GenAI conventions, counted in memory from the records that were delivered.
//!
//! They are cumulative since the start of the process. Attributes come from bounded sets: the
//! upstreams of the settings, words of this program, configured applications, and at most
//! [`MAX_MODELS`] models that have a price; a last bound on their combinations is [`MAX_SERIES`].

use std::collections::{BTreeMap, HashSet};

use super::attr::nanos;
use super::naming::Naming;
use crate::trace::metrics::{MAX_MODEL_LABELS as MAX_MODELS, OTHER};
use crate::trace::{CallStatus, Entry, RequestKind, ToolCallRecord, TurnRecord};

mod encode;

/// Combinations of attributes; all beyond them are counted together.
pub const MAX_SERIES: usize = 2_000;

/// Powers of four, as the conventions advise for tokens.
const TOKEN_BOUNDS: [u64; 14] = [
    1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216,
    67_108_864,
];
/// Hundredths of a second doubled, as the conventions advise for durations. In microseconds.
const TIME_BOUNDS: [u64; 14] = [
    10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_280_000, 2_560_000, 5_120_000,
    10_240_000, 20_480_000, 40_960_000, 81_920_000,
];

/// By what is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Labels {
    /// Everything beyond the bound.
    overflow: bool,
    provider: String,
    model: String,
    app: Option<String>,
    /// `error.type`; a word of ours.
    error: Option<&'static str>,
}

/// A distribution of whole numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds.
    counts: Vec<u64>,
    sum: u128,
}

impl Histogram {
    fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0,
        }
    }

    fn add(&mut self, value: Option<u64>) {
        let Some(value) = value else { return };
        // A bound belongs to the bucket below it.
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += u128::from(value);
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// What is counted of turns.
#[derive(Debug, Clone)]
struct Turns {
    input: Histogram,
    output: Histogram,
    duration: Histogram,
    first: Histogram,
    read: Option<u64>,
    written: Option<u64>,
    reasoning: Option<u64>,
    cost_pico: Option<u128>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            input: Histogram::new(&TOKEN_BOUNDS),
            output: Histogram::new(&TOKEN_BOUNDS),
            duration: Histogram::new(&TIME_BOUNDS),
            first: Histogram::new(&TIME_BOUNDS),
            read: None,
            written: None,
            reasoning: None,
            cost_pico: None,
        }
    }
}

/// The counters.
#[derive(Debug)]
pub(super) struct Meter {
    start: u64,
    both: bool,
    turns: BTreeMap<Labels, Turns>,
    calls: [Histogram; 2],
    models: HashSet<String>,
    apps: Vec<String>,
}

impl Meter {
    /// Counters that begin at `start_ms`; `apps` are the applications that are told apart.
    pub(super) fn new(start_ms: i64, naming: &Naming, apps: &[String]) -> Self {
        Self {
            start: nanos(start_ms),
            both: naming.both(),
            turns: BTreeMap::new(),
            calls: [Histogram::new(&TIME_BOUNDS), Histogram::new(&TIME_BOUNDS)],
            models: HashSet::new(),
            apps: apps.to_vec(),
        }
    }

    /// Counts what was delivered.
    pub(super) fn add(&mut self, entries: &[Entry], naming: &Naming) {
        for entry in entries {
            match entry {
                Entry::Turn(turn) => self.turn(turn, naming),
                Entry::Call(call) => self.call(call),
                Entry::Result(_) | Entry::Event(_) => {}
            }
        }
    }

    fn turn(&mut self, turn: &TurnRecord, naming: &Naming) {
        if !matches!(turn.kind, RequestKind::Turn | RequestKind::KeepWarm) {
            return;
        }
        let labels = self.labels(turn, naming);
        let series = self.turns.entry(labels).or_default();
        let usage = &turn.usage;
        series.input.add(usage.prompt());
        series.output.add(usage.output);
        count(&mut series.read, usage.read);
        count(&mut series.written, usage.written());
        count(&mut series.reasoning, usage.reasoning);
        if let Some(cost) = turn.cost_pico {
            series.cost_pico = Some(series.cost_pico.unwrap_or(0) + u128::from(cost));
        }
        if turn.kind == RequestKind::Turn {
            series.duration.add(Some(turn.duration_us));
            series
                .first
                .add(turn.first_token_us.filter(|_| turn.streamed));
        }
    }

    fn labels(&mut self, turn: &TurnRecord, naming: &Naming) -> Labels {
        let provider = naming.provider(&turn.upstream);
        let labels = Labels {
            overflow: false,
            provider: provider.map_or(OTHER, |provider| &provider.name).to_owned(),
            model: self.model(turn),
            app: turn.app.as_ref().map(|app| {
                let known = self.apps.contains(app);
                if known { app.as_str() } else { OTHER }.to_owned()
            }),
            error: turn.outcome.is_error().then(|| turn.outcome.as_str()),
        };
        if self.turns.contains_key(&labels) || self.turns.len() < MAX_SERIES {
            return labels;
        }
        Labels {
            overflow: true,
            ..Labels::default()
        }
    }

    /// A model has a label when it has a price: anybody can ask for a model that does not exist.
    fn model(&mut self, turn: &TurnRecord) -> String {
        let model = turn.model_served.as_ref().or(turn.model_requested.as_ref());
        let Some(model) = model else {
            return OTHER.to_owned();
        };
        let known = self.models.contains(model);
        if known {
            return model.clone();
        }
        if turn.cost_pico.is_none() || self.models.len() >= MAX_MODELS {
            return OTHER.to_owned();
        }
        self.models.insert(model.clone());
        model.clone()
    }

    fn call(&mut self, call: &ToolCallRecord) {
        let [ok, failed] = &mut self.calls;
        let us = call.latency_ms.map(|ms| ms.saturating_mul(1_000));
        match call.status {
            CallStatus::Ok => ok.add(us),
            CallStatus::Failed => failed.add(us),
            CallStatus::Pending | CallStatus::Incomplete | CallStatus::Unanswered => {}
        }
    }
}

/// A sum of what is known stays unknown while nothing is.
fn count(sum: &mut Option<u64>, value: Option<u64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
}

#[cfg(test)]
mod tests;
