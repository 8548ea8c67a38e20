//! Caps and loops: each step of each once.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::super::alert::{Alert, Amount, Kind, Severity, Unit, name};
use crate::bounded::Bounded;
use crate::config::Alerts;
use crate::guard::caps::Cap;
use crate::guard::loops::Action;
use crate::trace::{EventKind, EventRecord};

/// Caps of which it is remembered what was told.
const MAX_CAPS: usize = 8_192;
/// Runs and models of which it was told that a cap cannot be enforced.
const MAX_UNENFORCED: usize = 1_024;
/// Steps of loops that were told.
const MAX_LOOPS: usize = 4_096;
/// Tools of a loop that are named.
const MAX_TOOLS: usize = 8;
/// The scope whose books never begin anew.
const RUN: &str = "run";
/// All of a cap, in percent.
const WHOLE: u32 = 100;
/// From here on a level is a warning, in percent.
const HIGH: u32 = 80;

/// A cap of one book.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Book {
    scope: String,
    /// The run; empty where it is not part of what tells books apart.
    run: String,
    cap: String,
    /// The day, for books that begin anew each day.
    day: Option<Date>,
}

/// A step of a loop.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Step {
    run: String,
    thread: String,
    detector: String,
    action: String,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Events {
    zone: TimeZone,
    /// The highest level that was told.
    levels: Bounded<Book, u32>,
    /// Caps of which it is known that they refuse.
    refusing: Bounded<Book, ()>,
    /// By run and model.
    unenforced: Bounded<(String, String), ()>,
    loops: Bounded<Step, ()>,
}

impl Events {
    pub(super) fn new(zone: TimeZone) -> Self {
        Self {
            zone,
            levels: Bounded::new(MAX_CAPS),
            refusing: Bounded::new(MAX_CAPS),
            unenforced: Bounded::new(MAX_UNENFORCED),
            loops: Bounded::new(MAX_LOOPS),
        }
    }

    pub(super) fn hear(&mut self, event: &EventRecord, settings: &Alerts) -> Option<Alert> {
        match event.kind {
            EventKind::CapLevel => self.level(event, settings),
            EventKind::CapRefused => self.refused(event),
            EventKind::CapUnenforced => self.unenforced(event),
            EventKind::Loop => settings.loops.then(|| self.looping(event)).flatten(),
            EventKind::Alert => None,
        }
    }

    fn level(&mut self, event: &EventRecord, settings: &Alerts) -> Option<Alert> {
        let level = event.level?;
        if !settings.cap_levels.contains(&level) {
            return None;
        }
        // Where an event names no run, nothing in it says whose book it is. The books report each
        // crossing once, so it is told as it comes.
        if !event.run_id.is_empty() {
            let book = self.book(event, &event.run_id);
            if self.levels.touch(&book).is_some_and(|told| *told >= level) {
                return None;
            }
            self.levels.insert(book, level);
        }
        if level >= WHOLE {
            let book = self.refusing_book(event);
            self.refusing.insert(book, ());
        }
        let severity = match level {
            WHOLE.. => Severity::Critical,
            HIGH.. => Severity::Warning,
            _ => Severity::Info,
        };
        let amount = amount(event);
        let title = format!(
            "{} has used {level} % of the cap {}{}",
            capitalised(&whose(event)),
            name(&event.name),
            behind(&amount)
        );
        let alert = of_cap(event, Kind::CapLevel, severity, &title, amount);
        Some(alert.with("level", level))
    }

    fn refused(&mut self, event: &EventRecord) -> Option<Alert> {
        let book = self.refusing_book(event);
        if !first(&mut self.refusing, book) {
            return None;
        }
        let later = Cap::ALL
            .into_iter()
            .any(|cap| cap.as_str() == event.name && cap.passes_later());
        let severity = if later {
            Severity::Warning
        } else {
            Severity::Critical
        };
        let amount = amount(event);
        let title = format!(
            "{} has come to the cap {}, requests are refused{}",
            capitalised(&whose(event)),
            name(&event.name),
            behind(&amount)
        );
        let alert = of_cap(event, Kind::CapRefused, severity, &title, amount);
        Some(alert.with("action", "refused"))
    }

    fn unenforced(&mut self, event: &EventRecord) -> Option<Alert> {
        let (run, model) = (name(&event.run_id), name(&event.name));
        if !first(&mut self.unenforced, (run, model.clone())) {
            return None;
        }
        // The event is named after the model, or after the cap where the model is not known.
        let model = (model != Cap::Usd.as_str()).then_some(model);
        let which = model.as_deref().map_or_else(
            || "its model has no price".to_owned(),
            |model| format!("model {model} has no price"),
        );
        let title = if event.action == "refused" {
            format!(
                "Requests of {} are refused under the cap usd: {which}",
                whose(event)
            )
        } else {
            format!(
                "The cap usd cannot be enforced for {}: {which}",
                whose(event)
            )
        };
        let alert = Alert::of(event, Kind::CapUnenforced, Severity::Warning, &title);
        let alert = scoped(alert, event).with("cap", Cap::Usd.as_str());
        Some(match model {
            Some(model) => alert.with("model", model),
            None => alert,
        })
    }

    fn looping(&mut self, event: &EventRecord) -> Option<Alert> {
        let step = Step {
            run: name(&event.run_id),
            thread: name(&event.thread_id),
            detector: name(&event.name),
            action: name(&event.action),
        };
        if !first(&mut self.loops, step.clone()) {
            return None;
        }
        let stops = [Action::Block, Action::Answer];
        let severity = if stops.iter().any(|action| action.as_str() == step.action) {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let tools: Vec<String> = event
            .tools
            .iter()
            .take(MAX_TOOLS)
            .map(|t| name(t))
            .collect();
        let count = event
            .value
            .map(|n| format!(", {n} times"))
            .unwrap_or_default();
        let title = format!(
            "Run {} repeats {} without getting anywhere ({}{count}): {}",
            step.run,
            tools.join(", "),
            step.detector,
            step.action
        );
        let mut alert = Alert::of(event, Kind::Loop, severity, &title)
            .with("detector", step.detector)
            .with("action", step.action)
            .with("tools", tools);
        for (fact, number) in [("count", event.value), ("threshold", event.limit)] {
            if let Some(number) = number {
                alert = alert.with(fact, number);
            }
        }
        alert.pico = event.pico;
        Some(alert)
    }

    /// The book whose levels are told one after the other.
    fn book(&self, event: &EventRecord, run: &str) -> Book {
        let in_zone = |at: Timestamp| at.to_zoned(self.zone.clone()).date();
        let daily = event.scope != RUN;
        let at = Timestamp::from_millisecond(event.at_ms);
        Book {
            scope: name(&event.scope),
            run: name(run),
            cap: name(&event.name),
            day: at.ok().filter(|_| daily).map(in_zone),
        }
    }

    /// The book whose refusals are told once. Many runs come to the same cap of a key: one of them
    /// speaks for all.
    fn refusing_book(&self, event: &EventRecord) -> Book {
        let run = if event.scope == RUN {
            event.run_id.as_str()
        } else {
            ""
        };
        self.book(event, run)
    }
}

/// Whether it is not yet in the set; it is afterwards.
fn first<K: std::hash::Hash + Eq + Clone>(set: &mut Bounded<K, ()>, key: K) -> bool {
    let known = set.touch(&key).is_some();
    if !known {
        set.insert(key, ());
    }
    !known
}

fn whose(event: &EventRecord) -> String {
    match event.scope.as_str() {
        "key" => "a key".to_owned(),
        "unnamed" => "a key (requests without a named run)".to_owned(),
        _ if event.run_id.is_empty() => "a run".to_owned(),
        _ => format!("run {}", name(&event.run_id)),
    }
}

/// As the beginning of a sentence.
fn capitalised(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

fn amount(event: &EventRecord) -> Amount {
    Amount {
        value: event.value,
        limit: event.limit,
        unit: Unit::of_cap(&event.name),
    }
}

/// `: 4 of 5 USD`, where it is known.
fn behind(amount: &Amount) -> String {
    amount
        .text()
        .map(|text| format!(": {text}"))
        .unwrap_or_default()
}

fn of_cap(
    event: &EventRecord,
    kind: Kind,
    severity: Severity,
    title: &str,
    amount: Amount,
) -> Alert {
    let mut alert = Alert::of(event, kind, severity, title);
    alert.amount = Some(amount);
    scoped(alert, event).with("cap", name(&event.name))
}

fn scoped(alert: Alert, event: &EventRecord) -> Alert {
    if event.scope.is_empty() {
        return alert;
    }
    alert.with("scope", Value::String(name(&event.scope)))
}

#[cfg(test)]
impl Events {
    /// Entries of each memory.
    pub(super) fn sizes(&self) -> [usize; 4] {
        [
            self.levels.len(),
            self.refusing.len(),
            self.unenforced.len(),
            self.loops.len(),
        ]
    }
}
