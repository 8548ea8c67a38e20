//! Runs that are kept: list, show, fork.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::compose;
use super::known;
use super::summary::{cost, grouped};
use crate::agent::journal::{self, Journals};
use crate::agent::machine::{Event, Happened};
use crate::clock::Clock;
use crate::config::{AgentOptions, Config, Options};

/// How much of a text is shown in a line, in characters.
const PREVIEW: usize = 160;

/// Where runs are.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where runs are kept [default: the data directory]
    #[arg(long, value_name = "DIR")]
    journal: Option<String>,
}

impl Place {
    fn open(&self) -> anyhow::Result<(Config, Arc<dyn Journals>)> {
        let config = Config::load(&Options {
            config: self.config.clone(),
            agent: AgentOptions {
                journal: self.journal.clone(),
                ..AgentOptions::default()
            },
            ..Options::default()
        })?;
        let kept = compose::journals(&config)?;
        Ok((config, kept.journals))
    }
}

/// Arguments of `agent list`.
#[derive(Debug, clap::Args)]
pub struct List {
    #[command(flatten)]
    place: Place,
    /// Print a line of JSON for each run
    #[arg(long)]
    json: bool,
}

/// Lists runs, the newest first.
///
/// # Errors
/// The journals cannot be read.
pub fn list(args: &List) -> anyhow::Result<ExitCode> {
    let (_, journals) = args.place.open()?;
    let mut out = String::new();
    for listed in journals.list()? {
        match listed.summary {
            Ok(summary) if args.json => {
                let _ = writeln!(out, "{}", serde_json::to_string(&summary)?);
            }
            Ok(summary) => {
                let state = match (&summary.outcome, summary.under_way) {
                    (_, true) => "under way",
                    (Some(outcome), false) => outcome.as_str(),
                    (None, false) => "stopped",
                };
                let _ = writeln!(
                    out,
                    "{}  {}  {state:<16} {:>3} turns  {}  {}",
                    summary.run,
                    when(summary.last_ms),
                    summary.turns,
                    cost(&summary.spent),
                    short(&summary.task),
                );
            }
            Err(error) if args.json => {
                let line = serde_json::json!({"run": listed.run, "error": error.to_string()});
                let _ = writeln!(out, "{line}");
            }
            Err(error) => {
                let _ = writeln!(out, "{}  cannot be read: {error}", listed.run);
            }
        }
    }
    super::super::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `agent show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Id of the run
    #[arg(id = "run_id", value_name = "RUN")]
    run: String,
    /// Only this agent of it
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Print a line of JSON for each event, as the journal has it
    #[arg(long)]
    json: bool,
}

/// Shows the events of a run.
///
/// # Errors
/// There is no such run, or it cannot be read.
pub fn show(args: &Show) -> anyhow::Result<ExitCode> {
    let (_, journals) = args.place.open()?;
    let agents = match &args.agent {
        Some(agent) => vec![agent.clone()],
        None => journals.agents(&args.run)?,
    };
    let mut out = String::new();
    for agent in agents {
        let events = journals.events(&args.run, &agent)?;
        if !args.json {
            let _ = writeln!(out, "{agent}");
        }
        let mut turn = 0;
        for happened in &events {
            if args.json {
                let mut line = serde_json::to_value(happened)?;
                line["agent"] = agent.as_str().into();
                let _ = writeln!(out, "{line}");
            } else {
                turn += u32::from(matches!(happened.event, Event::Answered { .. }));
                let _ = writeln!(out, "  {}  {}", when(happened.at_ms), told(happened, turn));
            }
        }
    }
    super::super::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// An event in a line.
fn told(happened: &Happened, turn: u32) -> String {
    match &happened.event {
        Event::Began(setup) => format!("began, {}, {} tools", setup.model, setup.tools.len()),
        Event::Said { text } => format!("user: {}", short(text)),
        Event::Answered {
            answer, stop, bill, ..
        } => {
            let usage = &bill.usage;
            let tokens = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), grouped);
            format!(
                "[{turn}] {stop:?}, {} in, {} out: {}",
                tokens(usage.prompt().or(usage.uncached)),
                tokens(usage.output),
                short(&answer.text()),
            )
        }
        Event::Abandoned { reason, .. } => format!("no answer: {}", short(reason)),
        Event::CallBegan { call, .. } => format!("> {} {}", call.name, short(&call.input)),
        Event::CallEnded { result, .. } => {
            let mark = if result.is_error { "!" } else { "<" };
            format!("{mark} {}", short(&result.text))
        }
        Event::Delegated { spent, .. } => {
            format!("sub-agent used {} tokens", grouped(spent.tokens()))
        }
        Event::Compacted { summary, .. } => format!("summed up: {}", short(summary)),
        Event::CompactionFailed { reason, .. } => format!("not summed up: {}", short(reason)),
        Event::Aside { answer, .. } => format!("beside: {}", short(answer)),
        Event::Ended(outcome) => format!("ended: {}", outcome.as_str()),
        Event::Resumed { .. } => "goes on".to_owned(),
        Event::Switched { model, .. } => format!("goes on with {model}"),
        Event::Forked { run, turn } => format!("forked from {run} after turn {turn}"),
        Event::TooLong => "the conversation does not fit".to_owned(),
    }
}

/// Arguments of `agent fork`.
#[derive(Debug, clap::Args)]
pub struct Fork {
    /// Id of the run
    #[arg(id = "run_id", value_name = "RUN")]
    run: String,
    /// The last turn that both have; 0 is the task alone [default: the newest]
    #[arg(long, value_name = "TURN")]
    at: Option<u32>,
    #[command(flatten)]
    place: Place,
}

/// Begins a run with what another was after a turn, and prints its id.
///
/// # Errors
/// There is no such run or turn, or the new one cannot be written.
pub fn fork(args: &Fork) -> anyhow::Result<ExitCode> {
    let (config, journals) = args.place.open()?;
    let new = uuid::Uuid::now_v7().to_string();
    let now = Clock::Real.utc_ms();
    let turn = journal::fork(journals.as_ref(), &args.run, args.at, &new, now)?;
    let begun = known::begun(&config.data_dir, &args.run)?;
    known::keep(&config.data_dir, &new, &begun)?;
    super::super::print(&format!("{new}\n"))?;
    eprintln!("forked after turn {turn}; to go on: prefixgate agent resume {new} [--say TEXT]");
    Ok(ExitCode::SUCCESS)
}

/// One line, without what could steer a terminal.
fn short(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.chars().map(plain).take(PREVIEW + 1).collect();
    match line.char_indices().nth(PREVIEW) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// A time in UTC, to the second.
fn when(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}
