//! `prefixgate audit`: what broke the prompt cache and what that cost, what was written for nothing
//! or twice, and whether the provider says the same.
//!
//! JSON is one object with a member for each section. Money in it is a decimal string and exact;
//! unknown is `null`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use jiff::tz::TimeZone;

use super::EXIT_USAGE;
use super::report::verdict::advice_of;
use super::report::when::When;
use super::report::{MAX_ROWS, now_ms, print, zone};
use crate::prompt_cache::verdict::{Reason, Verdict, What};
use crate::store::{
    Agreement, By, Culprit, CulpritBy, Culprits, Duplicates, Filter, Questions, Sqlite, StoreError,
    Totals, Unreads, Verdicts,
};

use crate::usage::usd_short;

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
    // The place for request bodies in files; until they are understood, `misuse` refuses them.
    #[arg(value_name = "FILE", hide = true)]
    files: Vec<PathBuf>,
    /// What culprits are listed by
    #[arg(long, value_enum, default_value_t = Group::Culprit)]
    by: Group,
    /// Only this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Directory of the trace database
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
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

impl Args {
    fn misuse(&self) -> Option<&'static str> {
        (!self.files.is_empty()).then_some(
            "files of request bodies are not audited yet: without them, the trace database is",
        )
    }
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
        store: &impl Questions,
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
/// There is no trace database, or it cannot be read.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(misuse) = args.misuse() {
        eprintln!("prefixgate audit: {misuse}");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let data_dir = args
        .data_dir
        .clone()
        .unwrap_or_else(crate::config::default_data_dir);
    let store = Sqlite::open_read(&data_dir)?;
    print(&answer(&store, &args, now_ms())?)?;
    Ok(ExitCode::SUCCESS)
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
            "{run}: the cache broke {} times{place} ({}), which cost {lost}.\n  -> {advice}",
            worst.count,
            what.unwrap_or("unknown"),
        )
    }))
}

/// The text of an audit.
fn answer(store: &impl Questions, args: &Args, now_ms: i64) -> anyhow::Result<String> {
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
