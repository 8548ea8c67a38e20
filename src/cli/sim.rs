//! `prefixgate sim`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use crate::sim::{Options, Sim};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8789")]
    listen: SocketAddr,
    /// Directory of the files that scripted reads name
    #[arg(long, value_name = "DIR", default_value = ".")]
    workdir: std::path::PathBuf,
    /// Milliseconds before the head of each answer
    #[arg(long, value_name = "MS", default_value_t = 0)]
    head_delay: u64,
    /// Milliseconds before each event of a stream
    #[arg(long, value_name = "MS", default_value_t = 0)]
    event_delay: u64,
}

/// Runs the simulated provider until it is interrupted.
///
/// # Errors
/// When the address cannot be bound.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let workdir = std::path::absolute(&args.workdir)
        .with_context(|| format!("--workdir {} cannot be resolved", args.workdir.display()))?;
    let options = Options {
        listen: args.listen,
        // Ids of two runs must differ: they meet in one trace database.
        seed: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |passed| u64::try_from(passed.as_nanos()).unwrap_or(1)),
        record_requests: 0,
        head_delay: Duration::from_millis(args.head_delay),
        event_delay: Duration::from_millis(args.event_delay),
        workdir: workdir.to_string_lossy().into_owned(),
        ..Options::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let sim =
            Sim::start(options).with_context(|| format!("cannot listen on {}", args.listen))?;
        println!("listening sim={}", sim.base_url());
        interrupted().await?;
        sim.shutdown().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Waits for Ctrl-C or SIGTERM.
///
/// # Errors
/// When the signals cannot be watched.
pub(super) async fn interrupted() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch SIGTERM")?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.context("cannot watch Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}
