//! `prefixgate serve`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, GuardOptions, Options};
use crate::server::Gateway;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    guards: GuardOptions,
}

/// Runs the gateway until SIGINT or SIGTERM.
///
/// # Errors
/// When something needed at start cannot be had; nothing is bound before the configuration is valid.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&Options {
        guards: args.guards,
        ..args.options
    })?;
    let _log = super::log::log_to_stderr();
    // Accepting, admin and signals; the workers have runtimes of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        // From here on a signal means a drain: whoever reads the line below may send one at once.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
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

        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("draining: no new connections, running turns may end");
        let second = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("second signal: the drain ends now");
        };
        gateway.shutdown_unless(second).await;
        Ok(ExitCode::SUCCESS)
    })
}
