//! `prefixgate agent`: the reference loop client at the command line.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::agent::budget::Budget;
use crate::agent::driver::{Agent, Delegated, Options, Parts};
use crate::agent::journal::InMemory;
use crate::agent::machine::{Limits, Setup};
use crate::agent::model::{Endpoint, format_of};
use crate::agent::notice::{Listener, Notice};
use crate::agent::tools::{Root, Toolbox, builtin};
use crate::clock::Clock;
use crate::config::Config;
use crate::provider::wire::Wire;
use crate::usage::PriceBook;

const SYSTEM: &str = "You are a careful agent that works in a directory with the tools you have.";

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do
    task: String,
    /// Model to ask
    #[arg(long, default_value = "claude-sonnet-5")]
    model: String,
    /// Base URL of the provider, or of the gateway
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8790")]
    base_url: String,
    /// Directory that the tools see
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
}

/// Runs it.
///
/// # Errors
/// It cannot start, or the journal cannot be written.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(run(args))
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let format = format_of(Wire::Messages).context("no such format")?;
    let config = Config::embedded(PathBuf::new());
    let endpoint = Endpoint {
        format,
        base: args.base_url.trim_end_matches('/').to_owned(),
        key: std::env::var("ANTHROPIC_API_KEY").unwrap_or_default(),
        client: crate::proxy::upstream::clients(&config)?.pooled,
        prices: Arc::new(PriceBook::new(&[])?),
        provider: "anthropic".to_owned(),
        silence: Duration::from_secs(300),
    };
    let root = Root::new(&args.root).with_context(|| args.root.display().to_string())?;
    let mut toolbox = Toolbox::new();
    for tool in builtin(&root) {
        toolbox.add(tool);
    }
    let setup = Setup {
        run: uuid::Uuid::now_v7().to_string(),
        agent: "main".to_owned(),
        parent: None,
        depth: 0,
        wire: Wire::Messages,
        model: args.model,
        system: SYSTEM.to_owned(),
        tools: toolbox.specs(),
        max_tokens: 8192,
        effort: None,
        window: 200_000,
        compact_at: 160_000,
        limits: Limits::default(),
        loop_threshold: 3,
    };
    let parts = Parts {
        endpoint: Arc::new(endpoint),
        toolbox: Arc::new(toolbox),
        journal: Box::new(InMemory::default()),
        listener: Arc::new(Terminal),
        budget: Budget::default(),
        delegated: Delegated::default(),
        cancelled: CancellationToken::new(),
        clock: Clock::Real,
        options: Options::default(),
    };
    let mut agent = Agent::begin(parts, setup, &args.task)?;
    let outcome = agent.go().await?;
    Ok(ExitCode::from(outcome.exit_code()))
}

struct Terminal;

impl Listener for Terminal {
    fn notice(&self, _agent: &str, notice: Notice<'_>) {
        let mut out = std::io::stderr().lock();
        // A terminal that has gone away is told nothing.
        let _ = match notice {
            Notice::Text(text) => write!(out, "{text}"),
            Notice::CallBegan { call, .. } => writeln!(out, "\n> {}", call.name),
            Notice::Ended { outcome, run } => writeln!(
                out,
                "\n{}: {} turns, {} tokens",
                outcome.as_str(),
                run.turns(),
                run.spent().tokens()
            ),
            _ => Ok(()),
        };
    }
}
