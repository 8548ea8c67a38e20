//! The binary: parse, run the subcommand.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    prefixgate::cli::main(prefixgate::cli::Cli::parse())
}
