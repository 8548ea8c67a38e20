//! The command line: one file a subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ConfigError;

pub mod agent;
pub mod alert;
pub mod audit;
pub mod check;
pub mod demo;
pub mod doctor;
pub mod export;
mod log;
mod reach;
pub mod replay;
pub mod report;
pub mod run;
pub mod serve;
pub mod sim;
pub mod spool;

/// Exit code for wrong usage or configuration.
pub const EXIT_USAGE: u8 = 2;

/// LLM-API caching proxy and observability gateway.
#[derive(Debug, Parser)]
#[command(name = "prefixgate", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway
    Serve(serve::Args),
    /// Show runs, turns and spend from the trace database
    Report(report::Args),
    /// Show what broke the prompt cache, and what was written for nothing
    Audit(audit::Args),
    /// Send recorded traffic through caching policies: what would each have cost?
    Replay(replay::Args),
    /// Run scripted agents against a simulated provider and report what the cache saved
    Demo(demo::Args),
    /// Run a command (an agent) through the gateway, starting one if needed
    Run(run::Args),
    /// Check the set-up and say what to do
    Doctor(doctor::Args),
    /// Move what the trace database has to ClickHouse
    Export(export::Args),
    /// Validate a configuration file
    Check(check::Args),
    /// Send a test alert to every webhook
    Alert(alert::Args),
    /// Show, queue again or give up what waits on disk for ClickHouse and OTLP
    Spool(spool::Args),
    /// Give a task to the reference agent
    Agent(Box<agent::Args>),
    /// Run the simulated provider
    Sim(sim::Args),
}

/// Runs the subcommand; the exit code is 0 (done), 1 (failed) or 2 (usage or configuration).
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Serve(args) => serve::main(args),
        Command::Report(args) => report::main(args),
        Command::Audit(args) => audit::main(args),
        Command::Replay(args) => replay::main(args),
        Command::Demo(args) => demo::main(args),
        Command::Run(args) => run::main(args),
        Command::Doctor(args) => doctor::main(args),
        Command::Export(args) => export::main(args),
        Command::Check(args) => check::main(args),
        Command::Alert(args) => alert::main(args),
        Command::Spool(args) => spool::main(args),
        Command::Agent(args) => agent::main(*args),
        Command::Sim(args) => sim::main(args),
    };
    result.unwrap_or_else(|error| {
        // One problem a line, each with its place first, so that editors and scripts can read it.
        if let Some(error) = error.downcast_ref::<ConfigError>() {
            eprintln!("{error}");
            return ExitCode::from(EXIT_USAGE);
        }
        eprintln!("prefixgate: {error:#}");
        ExitCode::FAILURE
    })
}

/// Writes to stdout. A reader that has gone away (`| head`) is no failure.
///
/// # Errors
/// Any other failure to write.
pub fn print(text: &str) -> std::io::Result<()> {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
