//! `prefixgate agent`: the reference loop client at the command line.
//!
//! Settings → `compose` (model, tools, journal, listeners) → the run → summary and exit code.
//! Progress goes to stderr, and nothing but the final answer to stdout, so that it can be piped.

mod compose;
mod known;
mod line;
mod outcomes;
mod runs;
mod servers;
mod settings;
mod simulated;
mod start;
mod stop;
mod summary;
mod terminal;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;

use settings::Common;

/// Worker threads: the loop itself, and one that is free while a tool or the disk has the other.
const WORKERS: usize = 2;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = outcomes::HELP,
    after_help = outcomes::HELP
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// What to do; `-` reads it from stdin
    #[arg(value_name = "TASK")]
    task: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// What can be done with runs that are there.
#[derive(Debug, Subcommand)]
enum Command {
    /// Go on with a run that was stopped, killed or ended by a cap
    Resume(Box<start::Resume>),
    /// List the runs that are kept
    List(runs::List),
    /// Show what happened in a run
    Show(runs::Show),
    /// Begin a run with what another was after a turn
    Fork(runs::Fork),
}

/// Runs it. The exit code is that of the outcome.
///
/// # Errors
/// It cannot start, or the journal cannot be written.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(Command::List(args)) => runs::list(&args),
        Some(Command::Show(args)) => runs::show(&args),
        Some(Command::Fork(args)) => runs::fork(&args),
        Some(Command::Resume(args)) => block_on(start::resume(*args)),
        None => block_on(start::begin(args.task, args.common)),
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(work);
    // A tool that does not end has been told to; nobody waits for it.
    runtime.shutdown_background();
    code
}
