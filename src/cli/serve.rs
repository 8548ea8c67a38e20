//! `prefixgate serve`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, Options};
use crate::server::Gateway;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
}

/// Runs the gateway until SIGINT or SIGTERM.
///
/// # Errors
/// When something needed at start cannot be had; nothing is bound before the configuration is valid.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.options)?;
    super::log_to_stderr();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let gateway = Gateway::start(config).await?;
        let mut stdout = std::io::stdout().lock();
        writeln!(
            stdout,
            "listening proxy=http://{} admin=http://{}",
            gateway.proxy_addr(),
            gateway.admin_addr()
        )
        .and_then(|()| stdout.flush())
        .context("cannot write to stdout")?;
        drop(stdout);

        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        tracing::info!("draining: no new connections, running turns may end");
        // A second signal ends the drain.
        tokio::select! {
            () = gateway.shutdown() => {}
            _ = terminate.recv() => tracing::warn!("second signal: stopped at once"),
            _ = tokio::signal::ctrl_c() => tracing::warn!("second signal: stopped at once"),
        }
        Ok(ExitCode::SUCCESS)
    })
}
