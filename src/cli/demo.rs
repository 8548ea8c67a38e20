//! `prefixgate demo`: simulated provider, gateway and scripted agents, then what the records say.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use super::sim::interrupted;
use crate::config::{CachePolicy, Config, Format, Upstream};
use crate::server::Gateway;
use crate::sim::agents::Agent;
use crate::sim::{Options, Sim};
use crate::store::{Filter, Questions as _, RunSummary, Sqlite};

/// The run that nothing helps.
const WITHOUT: &str = "no-markers-off";
/// The same agent, with breakpoints placed by the gateway.
const WITH: &str = "no-markers-fill";
/// The same agent with a clock in its system prompt.
const BREAKER: &str = "prefix-breaker";
/// An agent that makes the same failing call over and over.
const LOOP: &str = "long-loop";

/// Turns of the stuck agent that repeat its failing call.
const LOOP_CALLS: usize = 15;

/// Runs that are looked up for the conclusion; a data directory may hold more from before.
const MAX_RUNS: usize = 1_000;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// End after the report instead of going on serving
    #[arg(long)]
    once: bool,
    /// Keep the records here instead of in a fresh temporary directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// When something cannot be started, an agent fails, or the records cannot be read.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |passed| u64::try_from(passed.as_nanos()).unwrap_or(1));
    let scratch = args.data_dir.is_none();
    let data_dir = match args.data_dir {
        Some(chosen) => chosen,
        None => fresh(seed)?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(play(&data_dir, args.once, seed));
    if scratch && args.once {
        // A leftover in the temporary directory is not worth failing for.
        let _ = std::fs::remove_dir_all(&data_dir);
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// A directory of its own, that nobody else can read.
fn fresh(seed: u64) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let dir = std::env::temp_dir().join(format!("prefixgate-demo-{seed:x}"));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    Ok(dir)
}

async fn play(data_dir: &Path, once: bool, seed: u64) -> anyhow::Result<()> {
    let sim = Sim::start(Options {
        seed,
        record_requests: 0,
        // Enough for latency and time to first token to be seen, not enough to wait for.
        head_delay: Duration::from_millis(15),
        event_delay: Duration::from_millis(1),
        ..Options::default()
    })
    .context("cannot start the simulated provider")?;

    // One store has one writer, so the two gateways run one after the other.
    let off = gateway(data_dir, &sim, CachePolicy::Off).await?;
    let played = agent(off.proxy_addr(), WITHOUT, |_| {}).await;
    off.shutdown().await;
    played?;

    let fill = gateway(data_dir, &sim, CachePolicy::Fill).await?;
    let to = fill.proxy_addr();
    agent(to, WITH, |_| {}).await?;
    agent(to, LOOP, |agent| {
        agent.stuck = true;
        agent.tool_turns = LOOP_CALLS;
    })
    .await?;
    agent(to, BREAKER, |agent| agent.clock_in_system = true).await?;

    // The report reads what has been written, so the records are closed first.
    fill.shutdown().await;
    println!();
    crate::cli::report::print_runs(data_dir, false)?;
    println!("\n{}", conclusion(&runs(data_dir)?));
    if let Some(worst) = crate::cli::audit::worst(data_dir, BREAKER)? {
        println!("{worst}");
    }
    if !once {
        let gateway = gateway(data_dir, &sim, CachePolicy::Fill).await?;
        println!("\nserving until Ctrl-C:");
        println!("  gateway             http://{}", gateway.proxy_addr());
        println!(
            "  metrics             http://{}/metrics",
            gateway.admin_addr()
        );
        println!("  simulated provider  {}", sim.base_url());
        println!("  records             {}", data_dir.display());
        interrupted().await?;
        gateway.shutdown().await;
    }
    sim.shutdown().await;
    Ok(())
}

/// A gateway before the simulated provider, on ports of the system's choice.
async fn gateway(data_dir: &Path, sim: &Sim, cache: CachePolicy) -> anyhow::Result<Gateway> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = Config::embedded(data_dir.to_path_buf());
    config.listen = any;
    config.admin = any;
    config.cache = cache;
    config.upstreams = vec![Upstream {
        name: "sim".to_owned(),
        base: sim
            .base_url()
            .parse()
            .context("the simulated provider has no valid URL")?,
        format: Format::Anthropic,
        price_provider: "anthropic".to_owned(),
        dialect: crate::provider::dialect::Dialect::default(),
    }];
    Gateway::start(config)
        .await
        .context("cannot start the gateway")
}

async fn agent(to: SocketAddr, run: &str, change: impl FnOnce(&mut Agent)) -> anyhow::Result<()> {
    let mut agent = Agent::new(run);
    change(&mut agent);
    let turns = agent
        .run(&format!("http://{to}"))
        .await
        .with_context(|| format!("the agent of the run {run} failed"))?;
    println!("{run}: {turns} turns");
    Ok(())
}

/// The runs in the records.
fn runs(data_dir: &Path) -> anyhow::Result<Vec<RunSummary>> {
    Ok(Sqlite::open_read(data_dir)?.runs(&Filter::all(MAX_RUNS))?)
}

/// Two lines, from the records alone.
fn conclusion(runs: &[RunSummary]) -> String {
    let totals = |id: &str| runs.iter().find(|run| run.id == id).map(|run| run.totals);
    let cost = |id: &str| totals(id).and_then(|totals| totals.known_cost());
    let saved = match (cost(WITHOUT), cost(WITH)) {
        (Some(without), Some(with)) => format!(
            "The same agent cost {} without and {} with the gateway's breakpoints: {} saved ({}).",
            usd(without),
            usd(with),
            usd(without - with),
            percent(without - with, without),
        ),
        _ => "The cost of the two runs is not known, so the saving is not known either.".to_owned(),
    };
    let broken = match cost(BREAKER) {
        Some(broken) => format!(
            "With a clock in its system prompt it cost {}; the agent stuck on one failing call cost {}.",
            usd(broken),
            cost(LOOP).map_or_else(|| "an unknown sum".to_owned(), usd),
        ),
        None => "What the clock in the system prompt cost is not known.".to_owned(),
    };
    format!("{saved}\n{broken}")
}

/// Pico-USD for people, rounded to a hundredth of a cent.
fn usd(pico: i128) -> String {
    const STEP: i128 = 100_000_000;
    const STEPS_PER_USD: i128 = 10_000;
    let sign = if pico < 0 { "-" } else { "" };
    let steps = (pico.abs() + STEP / 2) / STEP;
    format!(
        "{sign}${}.{:04}",
        steps / STEPS_PER_USD,
        steps % STEPS_PER_USD
    )
}

fn percent(part: i128, whole: i128) -> String {
    if whole == 0 {
        return "of nothing".to_owned();
    }
    format!("{} %", (part * 100 + whole / 2) / whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Totals;

    fn run(id: &str, cost_pico: Option<i128>) -> RunSummary {
        let mut totals = Totals::default();
        totals.cost_pico = cost_pico;
        totals.unpriced = u64::from(cost_pico.is_none());
        RunSummary {
            id: id.to_owned(),
            source: "header".to_owned(),
            app: None,
            client: None,
            models: Vec::new(),
            started_ms: 0,
            ended_ms: 0,
            threads: 1,
            totals,
        }
    }

    #[test]
    fn the_conclusion_is_computed_from_the_records() {
        let runs = [
            run(WITHOUT, Some(100_000_000_000)),
            run(WITH, Some(25_000_000_000)),
            run(BREAKER, Some(110_000_000_000)),
            run(LOOP, Some(30_000_000_000)),
        ];
        let said = conclusion(&runs);
        assert!(said.contains("$0.1000 without and $0.0250 with"), "{said}");
        assert!(said.contains("$0.0750 saved (75 %)"), "{said}");
        assert!(
            said.contains("it cost $0.1100; ") && said.ends_with("cost $0.0300."),
            "{said}"
        );
    }

    #[test]
    fn an_unknown_cost_stays_unknown() {
        let said = conclusion(&[run(WITHOUT, None), run(WITH, Some(1))]);
        assert!(said.contains("not known") && !said.contains('$'), "{said}");
        assert!(conclusion(&[]).contains("not known"));
    }

    #[test]
    fn money_is_rounded_for_people() {
        assert_eq!(usd(1_234_560_000_000), "$1.2346");
        assert_eq!(usd(-50_000_000), "-$0.0001");
        assert_eq!(usd(0), "$0.0000");
    }
}
