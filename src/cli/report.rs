//! `prefixgate report`: what the trace database (or ClickHouse) knows, as a table or as JSON.
//!
//! JSON is one array (of runs, requests, groups of spend, loops, caps, tools or contents), of savings one
//! object. Money in it is a decimal string and exact; unknown is `null`.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::ValueEnum;
use jiff::tz::TimeZone;
use uuid::Uuid;

use self::asked::Asked;
use self::verdict::Shown;
use self::when::When;
use super::EXIT_USAGE;
use crate::store::{By, Filter, Questions, Sqlite, StoreError, Strikes, Totals};

pub(super) mod asked;
mod content;
mod guard;
pub(super) mod json;
pub(super) mod money;
mod savings;
mod seen;
pub(super) mod show;
pub(super) mod table;
#[cfg(test)]
mod tests;
mod tree;
pub(super) mod verdict;
pub(super) mod when;

/// Runs in a table when nobody says how many.
const TABLE_RUNS: usize = 20;
/// Most rows of any other answer when nobody says how many.
pub(super) const MAX_ROWS: usize = 100_000;

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Runs, the most recently active first
    Runs,
    /// The requests of one run, in order
    Turns,
    /// One run as a tree of its agent and the sub-agents
    Tree,
    /// Spend by application, model, key, upstream, day or hour
    Spend,
    /// What the cache, the helpers and the inserted breakpoints have saved
    Savings,
    /// Loops that were found, the one that went on last first
    Loops,
    /// Caps that were reached in part, or refused requests
    Caps,
    /// How often each tool was called and failed
    Tools,
    /// Captured requests and answers of one run, where they are kept (section capture of the configuration)
    Content,
}

/// What spend is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// The application
    App,
    /// The model that answered
    Model,
    /// The key, by its hash
    Key,
    /// The upstream
    Upstream,
    /// The day on which the request started
    Day,
    /// The hour in which it started
    Hour,
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to show
    #[arg(value_enum, default_value_t = What::Runs)]
    what: What,
    /// The run whose turns, threads or content are shown; loops, caps and tools: only of this run
    #[arg(long, value_name = "ID", required_if_eq_any([("what", "turns"), ("what", "tree"), ("what", "content")]))]
    run: Option<String>,
    /// Content: only of the turns with this number
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    #[command(flatten)]
    asked: Asked,
    /// Print JSON: one array
    #[arg(long)]
    json: bool,
    /// Only from then on: 24h, 7d, a date or an RFC 3339 time (runs: active since then, whole)
    #[arg(long, value_name = "WHEN")]
    since: Option<When>,
    /// Only before then: 24h, 7d, a date (not included) or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    until: Option<When>,
    /// Only this application
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// What spend is grouped by [default: model]
    #[arg(long, value_enum)]
    by: Option<Group>,
    /// Zone of days and of the times in tables, an IANA name as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    tz: Option<TimeZone>,
    /// Most rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Turns: also show requests that are no turns (token counting, batches, probes)
    #[arg(long)]
    all: bool,
}

/// Reads the name of a time zone.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name)
        .map_err(|_| format!("`{name}` is not an IANA time zone, such as UTC or Europe/Berlin"))
}

impl Args {
    /// Flags that do not go with what is asked for.
    fn misuse(&self) -> Option<&'static str> {
        match self.what {
            What::Runs | What::Spend | What::Savings if self.run.is_some() => Some(
                "--run goes with `prefixgate report turns`, `tree`, `loops`, `caps`, `tools` and `content`",
            ),
            what if what != What::Spend && self.by.is_some() => {
                Some("--by goes with `prefixgate report spend`")
            }
            what if what != What::Content && self.turn.is_some() => {
                Some("--turn goes with `prefixgate report content`")
            }
            what if what != What::Turns && self.all => {
                Some("--all goes with `prefixgate report turns`")
            }
            _ => self.asked.misuse(),
        }
    }
}

/// Runs it.
///
/// # Errors
/// There is no such store, it cannot be read, or it knows no such run.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(misuse) = args.misuse() {
        eprintln!("prefixgate report: {misuse}");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let store = args.asked.open()?;
    let text = answer(&*store, &args, now_ms())?;
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the runs in the database of `data_dir`.
///
/// # Errors
/// There is no trace database, or it cannot be read.
pub fn print_runs(data_dir: &Path, json: bool) -> anyhow::Result<()> {
    let store = Sqlite::open_read(data_dir)?;
    print(&runs(&store, Filter::all(MAX_ROWS), json, &TimeZone::UTC)?)
}

/// What one run did, in a line; nothing when it made no model request.
///
/// # Errors
/// There is no trace database, or it cannot be read.
pub fn run_line(data_dir: &Path, run: &str) -> anyhow::Result<Option<String>> {
    let store = Sqlite::open_read(data_dir)?;
    let filter = Filter {
        run: Some(run.to_owned()),
        ..Filter::all(1)
    };
    let found = store.runs(&filter)?;
    let asked = found.first().filter(|found| found.totals.requests > 0);
    Ok(asked.map(|found| show::run_line(run, &found.totals)))
}

/// The text of a report.
fn answer(store: &dyn Questions, args: &Args, now_ms: i64) -> anyhow::Result<String> {
    let zone = args.tz.clone().unwrap_or(TimeZone::UTC);
    let at = |when: &Option<When>| when.as_ref().map(|w| w.at_ms(now_ms, &zone)).transpose();
    let default_limit = match args.what {
        What::Runs if !args.json => TABLE_RUNS,
        _ => MAX_ROWS,
    };
    let limit = args.limit.map_or(Ok(default_limit), usize::try_from)?;
    let filter = Filter {
        since_ms: at(&args.since)?,
        until_ms: at(&args.until)?,
        app: args.app.clone(),
        run: None,
        limit,
    };
    match args.what {
        What::Runs => runs(store, filter, args.json, &zone),
        What::Turns => {
            let run = args.run.as_deref().context("--run is missing")?;
            let turns = store.turns(run, &filter, args.all)?;
            if turns.is_empty() {
                bail!("no turns of a run `{run}`: `prefixgate report runs` lists the runs");
            }
            let strikes = strikes(store, run, &filter)?;
            let shown: Vec<Shown<'_>> = turns
                .iter()
                .map(|turn| Shown::new(turn, strikes.get(&turn.id).copied()))
                .collect();
            if args.json {
                return json::turns(&shown);
            }
            let all = run_totals(store, run, filter)?;
            Ok(show::turns(run, &shown, &all, limit, &zone))
        }
        What::Tree => {
            let run = args.run.as_deref().context("--run is missing")?;
            let threads = store.tree(run, &filter)?;
            if threads.is_empty() {
                bail!("no turns of a run `{run}`: `prefixgate report runs` lists the runs");
            }
            if args.json {
                return tree::json(&threads);
            }
            Ok(tree::show(run, &threads, &zone))
        }
        What::Spend => {
            let by = match args.by.unwrap_or(Group::Model) {
                Group::App => By::App,
                Group::Model => By::Model,
                Group::Key => By::Key,
                Group::Upstream => By::Upstream,
                Group::Day => By::Day,
                Group::Hour => By::Hour,
            };
            // Cut only what is shown, so that the total is that of the range.
            let everything = Filter {
                limit: usize::MAX,
                ..filter
            };
            let spend = store.spend(by, &everything, &zone)?;
            if args.json {
                return json::spend(by, spend.get(..limit).unwrap_or(&spend), &zone);
            }
            Ok(show::spend(by, &spend, limit, &zone))
        }
        What::Savings => {
            let found = store.savings(&filter)?;
            if args.json {
                return savings::json(&found);
            }
            Ok(savings::show(&found, &zone))
        }
        What::Content => {
            let run = args.run.as_deref().context("--run is missing")?;
            let turns = store.turns(run, &filter, false)?;
            if turns.is_empty() {
                bail!("no turns of a run `{run}`: `prefixgate report runs` lists the runs");
            }
            let found = content::find(&args.asked.data_dir(), run, &turns, args.turn)?;
            if args.json {
                return content::json(&found);
            }
            Ok(content::text(&found, &zone))
        }
        What::Loops | What::Caps | What::Tools => seen(store, args, filter, &zone),
    }
}

/// What the guards have seen, and how tools did.
fn seen(
    store: &dyn Questions,
    args: &Args,
    mut filter: Filter,
    zone: &TimeZone,
) -> anyhow::Result<String> {
    let limit = filter.limit;
    filter.run.clone_from(&args.run);
    if !args.json {
        // One more tells whether there are more.
        filter.limit = limit.saturating_add(1);
    }
    match (args.what, args.json) {
        (What::Loops, true) => seen::loops_json(&store.loops(&filter)?),
        (What::Loops, false) => Ok(seen::loops(&store.loops(&filter)?, limit, zone)),
        (What::Caps, true) => seen::caps_json(&store.caps(&filter)?),
        (What::Caps, false) => Ok(seen::caps(&store.caps(&filter)?, limit, zone)),
        (_, true) => seen::tools_json(&store.tools(&filter)?),
        (_, false) => Ok(seen::tools(&store.tools(&filter)?, limit)),
    }
}

/// How often the culprit of each turn had struck in its run, that turn included: whatever part of
/// the run is shown, from its start.
fn strikes(
    store: &dyn Questions,
    run: &str,
    filter: &Filter,
) -> Result<HashMap<Uuid, u64>, StoreError> {
    let whole = Filter {
        until_ms: filter.until_ms,
        ..Filter::all(usize::MAX)
    };
    let mut strikes = Strikes::default();
    let turns = store.turns(run, &whole, false)?;
    let counted = turns.iter().filter_map(|turn| {
        let verdict = turn.cache.verdict.as_ref()?;
        Some((turn.id, strikes.count(verdict)?))
    });
    Ok(counted.collect())
}

/// Sums over the requests of a run in a range, those of our own included.
fn run_totals(store: &dyn Questions, run: &str, filter: Filter) -> Result<Totals, StoreError> {
    let of_run = Filter {
        run: Some(run.to_owned()),
        limit: usize::MAX,
        ..filter
    };
    let mut all = Totals::default();
    for group in store.spend(By::Model, &of_run, &TimeZone::UTC)? {
        all.merge(&group.totals);
    }
    Ok(all)
}

fn runs(
    store: &dyn Questions,
    mut filter: Filter,
    json: bool,
    zone: &TimeZone,
) -> anyhow::Result<String> {
    if json {
        return json::runs(&store.runs(&filter)?);
    }
    let limit = filter.limit;
    // One more tells whether there are more.
    filter.limit = limit.saturating_add(1);
    Ok(show::runs(&store.runs(&filter)?, limit, zone))
}

/// Writes to stdout; a reader that has seen enough (`| head`) is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the report")
        }
        _ => Ok(()),
    }
}

pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
