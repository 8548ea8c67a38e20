//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Cancels at the first signal, and exits at the second. Signals are watched when this returns.
///
/// # Errors
/// They cannot be watched.
pub fn watch(quiet: bool) -> std::io::Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        next().await;
        cancel.cancel();
        if !quiet {
            eprintln!("\nstopping (again to exit at once)");
        }
        next().await;
        std::process::exit(INTERRUPTED);
    });
    Ok(token)
}
