//! `prefixgate replay`: recorded traffic through caching policies, offline.
//!
//! Traffic is what files say (request bodies as JSON lines) or what the trace database has (blocks as
//! hashes and sizes). Each request is looked at and seated as the gateway would have done it, then
//! [`strategies`] says what each policy would have read, written and cost. Nothing is sent
//! anywhere, and no text of a request is printed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use super::EXIT_USAGE;
use super::report::when::When;
use crate::prompt_cache::strategies::{self, Policy, Recorded, Tally, Traffic};
use crate::prompt_cache::trail::Trail;
use crate::usage::PriceBook;

pub(super) mod files;
mod line;
pub(super) mod seats;
mod show;
mod stored;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON lines with `ts` (seconds), `path` and `body`, or bare request bodies
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directory of the trace database, which is taken where no FILE is given
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    data_dir: Option<PathBuf>,
    /// Only this run of the trace database
    #[arg(long, value_name = "ID", conflicts_with = "files")]
    run: Option<String>,
    /// Only requests of the trace database from then on: 24h, 7d, a date or an RFC 3339 time
    #[arg(long, value_name = "WHEN", conflicts_with = "files")]
    since: Option<When>,
    /// Policies to compare [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Take the prices and the minimum of this model, whatever was asked for
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Whose prices, as the price data names providers
    #[arg(long, value_name = "PROVIDER", default_value = "anthropic")]
    upstream_prices: String,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
}

/// What a source gives: requests, and an account of what it did not give.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) sources: Vec<Source>,
    requests: Vec<Taken>,
    /// Names of the runs by their number.
    runs: Vec<String>,
    /// What a reader should know of how the numbers came about.
    pub(super) notes: Vec<String>,
}

/// One file, or the trace database.
#[derive(Debug, Default)]
pub(super) struct Source {
    name: String,
    requests: u64,
    /// Requests that are no turns, or were not answered.
    pub(super) skipped: u64,
    /// Lines or records that could not be used.
    pub(super) bad: u64,
}

/// A request before anything is known of its price.
#[derive(Debug)]
struct Taken {
    at_ms: i64,
    begins_ms: Option<i64>,
    scope: u64,
    run: u32,
    thread: u32,
    trail: Trail,
    unmarkable: Option<Box<[Option<crate::provider::view::Unmarkable>]>>,
    forced: bool,
    prompt_tokens: Option<u64>,
}

/// The outcome of all of it.
#[derive(Debug)]
struct Compared {
    sources: Vec<Source>,
    runs: Vec<String>,
    requests: u64,
    /// Requests whose prompt was counted by the provider.
    counted: u64,
    /// Requests of models without a known price.
    unpriced: u64,
    policies: Vec<Outcome>,
    notes: Vec<String>,
}

/// One policy.
#[derive(Debug)]
struct Outcome {
    policy: Policy,
    all: Tally,
    /// Requests and sums of each run, by its number.
    runs: Vec<(u64, Tally)>,
}

impl Compared {
    fn of(&self, policy: Policy) -> Option<&Outcome> {
        self.policies
            .iter()
            .find(|outcome| outcome.policy == policy)
    }
}

/// Runs it.
///
/// # Errors
/// Nothing of what is given can be used, or stdout cannot be written.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let gathered = if args.files.is_empty() {
        let data_dir = args.data_dir.clone();
        let data_dir = data_dir.unwrap_or_else(crate::config::default_data_dir);
        let since = args.since.as_ref().map(|when| {
            let utc = jiff::tz::TimeZone::UTC;
            when.at_ms(now_ms(), &utc)
        });
        stored::gather(&data_dir, args.run.as_deref(), since.transpose()?)?
    } else {
        files::gather(&args.files)?
    };
    if gathered.requests.is_empty() {
        let skipped: u64 = gathered.sources.iter().map(|s| s.skipped).sum();
        let bad: u64 = gathered.sources.iter().map(|s| s.bad).sum();
        for note in &gathered.notes {
            eprintln!("prefixgate replay: {note}");
        }
        eprintln!(
            "prefixgate replay: nothing to replay: no usable request ({skipped} skipped, {bad} bad)"
        );
        return Ok(ExitCode::FAILURE);
    }
    let book = PriceBook::new(&[]).context("the price data")?;
    if let Some(model) = &args.model
        && book
            .rates_for(&args.upstream_prices, model, 0, now_ms())
            .is_none()
    {
        eprintln!(
            "prefixgate replay: no price of `{model}` is known for `{}`",
            args.upstream_prices
        );
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let compared = compare(gathered, &args, &book);
    let text = if args.json {
        show::json(&compared)?
    } else {
        show::table(&compared)
    };
    super::print(&text).context("cannot write the comparison")?;
    Ok(ExitCode::SUCCESS)
}

fn compare(gathered: Gathered, args: &Args, book: &PriceBook) -> Compared {
    let requests = gathered.requests.into_iter();
    let traffic = Traffic::new(requests.map(|taken| recorded(taken, args, book)).collect());
    let requests = traffic.requests();
    let count = |is: &dyn Fn(&Recorded) -> bool| {
        let found = requests.iter().filter(|request| is(&request.recorded));
        found.count() as u64
    };
    let policies = Policy::ALL.into_iter();
    let policies = policies
        .filter(|policy| args.policy.is_empty() || args.policy.contains(policy))
        .map(|policy| {
            let mut runs = vec![(0, Tally::default()); gathered.runs.len()];
            let tallies = strategies::replay(&traffic, policy);
            for (request, tally) in requests.iter().zip(&tallies) {
                if let Some((count, sum)) = runs.get_mut(request.recorded.run as usize) {
                    *count += 1;
                    sum.add(tally);
                }
            }
            Outcome {
                policy,
                all: tallies.into_iter().sum(),
                runs,
            }
        });
    Compared {
        policies: policies.collect(),
        requests: requests.len() as u64,
        counted: count(&|recorded| recorded.prompt_tokens.is_some()),
        unpriced: count(&|recorded| recorded.rates.is_none()),
        sources: gathered.sources,
        runs: gathered.runs,
        notes: gathered.notes,
    }
}

/// A request with the facts of its model.
fn recorded(taken: Taken, args: &Args, book: &PriceBook) -> Recorded {
    let provider = &args.upstream_prices;
    let model = args.model.as_deref().unwrap_or(&taken.trail.model);
    let facts = book.model(provider, model, taken.at_ms);
    let ratio = facts.bytes_per_token_milli;
    let tokens = strategies::tokens_of(&taken.trail, taken.prompt_tokens, ratio);
    Recorded {
        rates: book.rates_for(provider, model, tokens, taken.at_ms),
        min_tokens: facts.min_cache_tokens,
        bytes_per_token_milli: ratio,
        at_ms: taken.at_ms,
        begins_ms: taken.begins_ms,
        scope: taken.scope,
        run: taken.run,
        thread: taken.thread,
        trail: taken.trail,
        unmarkable: taken.unmarkable,
        forced: taken.forced,
        prompt_tokens: taken.prompt_tokens,
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
