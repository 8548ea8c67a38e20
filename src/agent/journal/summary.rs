//! What there is to say about a run without going into it.

use super::JournalError;
use crate::agent::machine::{AgentRun, Event, Happened, Outcome, Spent};

/// Longest first line of a task that is shown, in bytes.
const MAX_TASK: usize = 200;

/// A run in a few words.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Its id.
    pub run: String,
    /// First line of its task.
    pub task: String,
    /// The model it asks.
    pub model: String,
    /// Answers so far.
    pub turns: u32,
    /// How it ended; `None` where it is under way or was killed.
    pub outcome: Option<Outcome>,
    /// Somebody writes its journal now.
    pub under_way: bool,
    /// When it began, in milliseconds UTC.
    pub began_ms: i64,
    /// When something last happened.
    pub last_ms: i64,
    /// What it has used.
    pub spent: Spent,
}

impl Summary {
    /// Of a run's state, its first events and its newest.
    pub(super) fn of(run: &AgentRun, first: &[Happened], last_ms: i64, under_way: bool) -> Self {
        let task = first.iter().find_map(|happened| match &happened.event {
            Event::Said { text } => text.lines().map(str::trim).find(|line| !line.is_empty()),
            _ => None,
        });
        Self {
            run: run.setup().run.clone(),
            task: crate::text::prefix(task.unwrap_or_default(), MAX_TASK).to_owned(),
            model: run.setup().model.clone(),
            turns: run.turns(),
            outcome: run.outcome().filter(|_| !under_way).cloned(),
            under_way,
            began_ms: first.first().map_or(last_ms, |happened| happened.at_ms),
            last_ms,
            spent: run.spent().clone(),
        }
    }

    /// Of all events; `None` where there are none.
    pub(super) fn of_events(events: &[Happened], under_way: bool) -> Option<Self> {
        let last_ms = events.last()?.at_ms;
        Some(Self::of(
            &AgentRun::fold(events)?,
            events,
            last_ms,
            under_way,
        ))
    }
}

/// A run in a list.
#[derive(Debug)]
pub struct Listed {
    /// Its id.
    pub run: String,
    /// What there is to say about it.
    pub summary: Result<Summary, JournalError>,
}

/// Summaries of runs, the newest first, those that cannot be read last. Runs of which nothing was
/// written yet are left out.
pub(super) fn listed(
    runs: Vec<String>,
    summary: impl Fn(&str) -> Result<Summary, JournalError>,
) -> Vec<Listed> {
    let mut listed: Vec<Listed> = runs
        .into_iter()
        .map(|run| Listed {
            summary: summary(&run),
            run,
        })
        .filter(|listed| !matches!(listed.summary, Err(JournalError::Missing(_))))
        .collect();
    let last = |listed: &Listed| {
        listed
            .summary
            .as_ref()
            .map_or(i64::MIN, |known| known.last_ms)
    };
    listed.sort_by(|a, b| last(b).cmp(&last(a)).then_with(|| b.run.cmp(&a.run)));
    listed
}
