//! `prefixgate audit`: what broke the prompt cache and what that cost, what was written for nothing
//! or twice, and whether the provider says the same.
//!
//! Of the trace database, of ClickHouse, or of request bodies in files.
//!
//! JSON is one object with a member for each section. Money in it is a decimal string and exact;
//! unknown is `null`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use jiff::tz::TimeZone;

use super::EXIT_USAGE;
use super::report::asked::Asked;
use super::report::verdict::advice_of;
use super::report::when::When;
use super::report::{MAX_ROWS, now_ms, print, zone};
use crate::prompt_cache::verdict::{Reason, Verdict, What};
use crate::store::{
    Agreement, By, Culprit, CulpritBy, Culprits, Duplicates, Filter, Questions, Sqlite, StoreError,
    Totals, Unreads, Verdicts,
};

use crate::usage::usd_short;

mod bodies;
mod json;
mod show;
#[cfg(test)]
mod tests;

/// Rows of a table when nobody says how many.
const TABLE_ROWS: usize = 20;

/// What culprits are told apart by, beside what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Nothing else
    Culprit,
    /// The run
    Run,
    /// The application
    App,
    /// The day on which the request started
    Day,
    /// The client program and its version
    Client,
}

impl From<Group> for CulpritBy {
    fn from(group: Group) -> Self {
        match group {
            Group::Culprit => Self::Culprit,
            Group::Run => Self::Run,
            Group::App => Self::App,
            Group::Day => Self::Day,
            Group::Client => Self::Client,
        }
    }
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Request bodies (JSON lines as `prefixgate replay` reads them) instead of the trace database
    #[arg(value_name = "FILE", conflicts_with_all = ["data_dir", "store", "clickhouse", "config"])]
    files: Vec<PathBuf>,
    /// What culprits are listed by
    #[arg(long, value_enum, default_value_t = Group::Culprit)]
    by: Group,
    /// Only this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    #[command(flatten)]
    asked: Asked,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
    /// Only from then on: 24h, 7d, a date or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    since: Option<When>,
    /// Only before then: 24h, 7d, a date (not included) or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    until: Option<When>,
    /// Only this application
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// Zone of days and of the times in tables, an IANA name as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    tz: Option<TimeZone>,
    /// Most rows of each section; sums are of all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

/// Everything an audit says.
struct Audit {
    by: CulpritBy,
    filter: Filter,
    zone: TimeZone,
    now_ms: i64,
    totals: Totals,
    verdicts: Verdicts,
    culprits: Culprits,
    unread: Unreads,
    duplicates: Duplicates,
    agreement: Agreement,
}

impl Audit {
    fn ask(
        store: &dyn Questions,
        by: CulpritBy,
        filter: Filter,
        zone: TimeZone,
        now_ms: i64,
    ) -> Result<Self, StoreError> {
        let everything = Filter {
            limit: usize::MAX,
            ..filter.clone()
        };
        let mut totals = Totals::default();
        for group in store.spend(By::App, &everything, &zone)? {
            totals.merge(&group.totals);
        }
        Ok(Self {
            totals,
            verdicts: store.verdicts(&filter)?,
            culprits: store.culprits(by, &filter, &zone)?,
            unread: store.unread(&filter, now_ms)?,
            duplicates: store.duplicates(&filter)?,
            agreement: store.agreement(&filter)?,
            by,
            filter,
            zone,
            now_ms,
        })
    }
}

/// What a developer can do about a culprit, wherever in the conversation it strikes.
fn advice_on(of: &Culprit) -> Option<String> {
    advice_of(&Verdict {
        first_changed: of.path.clone(),
        ..of.verdict.clone()
    })
}

/// The word of a grouping.
fn word(by: CulpritBy) -> &'static str {
    match by {
        CulpritBy::Culprit => "culprit",
        CulpritBy::Run => "run",
        CulpritBy::App => "app",
        CulpritBy::Day => "day",
        CulpritBy::Client => "client",
    }
}

/// Runs it.
///
/// # Errors
/// There is no such store, or it cannot be read.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    if !args.files.is_empty() {
        return of_bodies(&args);
    }
    if let Some(misuse) = args.asked.misuse() {
        eprintln!("prefixgate audit: {misuse}");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let store = args.asked.open()?;
    print(&answer(&*store, &args, now_ms())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Judges request bodies in a store that lasts as long as the audit.
fn of_bodies(args: &Args) -> anyhow::Result<ExitCode> {
    let scratch = Scratch::new()?;
    let notes = bodies::judged(&args.files, &scratch.0)?;
    for note in notes {
        eprintln!("prefixgate audit: {note}");
    }
    eprintln!(
        "prefixgate audit: nobody answered these requests here: what was read, written and lost is \
         estimated from sizes and the provider's rules"
    );
    let store = Sqlite::open_read(&scratch.0)?;
    print(&answer(&store, args, now_ms())?)?;
    Ok(ExitCode::SUCCESS)
}

/// A directory of its own that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let name = format!("prefixgate-audit-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the temporary directory is not worth failing for.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What broke the cache of a run most, in two lines; nothing when nothing did.
///
/// # Errors
/// There is no trace database, or it cannot be read.
pub fn worst(data_dir: &Path, run: &str) -> anyhow::Result<Option<String>> {
    let store = Sqlite::open_read(data_dir)?;
    let filter = Filter {
        run: Some(run.to_owned()),
        ..Filter::all(1)
    };
    let culprits = store.culprits(CulpritBy::Culprit, &filter, &TimeZone::UTC)?;
    Ok(culprits.rows.first().map(|worst| {
        let place = worst
            .path
            .as_deref()
            .map_or(String::new(), |path| format!(" at {path}"));
        let what = worst
            .what
            .map(What::as_str)
            .or(worst.reason.map(Reason::as_str));
        let lost = worst
            .pico
            .total()
            .map_or("an unknown sum".to_owned(), |pico| {
                usd_short(u64::try_from(pico).unwrap_or(u64::MAX))
            });
        let advice = advice_on(worst).unwrap_or_default();
        format!(
            "{run}: the cache broke {}{place} ({}), which cost {lost}.\n  -> {advice}",
            match worst.count {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            },
            what.unwrap_or("unknown"),
        )
    }))
}

/// The text of an audit.
fn answer(store: &dyn Questions, args: &Args, now_ms: i64) -> anyhow::Result<String> {
    let zone = args.tz.clone().unwrap_or(TimeZone::UTC);
    let at = |when: &Option<When>| when.as_ref().map(|w| w.at_ms(now_ms, &zone)).transpose();
    let default_limit = if args.json { MAX_ROWS } else { TABLE_ROWS };
    let filter = Filter {
        since_ms: at(&args.since)?,
        until_ms: at(&args.until)?,
        app: args.app.clone(),
        run: args.run.clone(),
        limit: args.limit.map_or(Ok(default_limit), usize::try_from)?,
    };
    let audit = Audit::ask(store, args.by.into(), filter, zone, now_ms)?;
    if args.json {
        json::audit(&audit)
    } else {
        Ok(show::audit(&audit))
    }
}
