//! The binary: parse, run the subcommand.

use std::process::ExitCode;

use clap::Parser;

/// Less waiting between the threads of a turn than with the system's (see `Cargo.toml`).
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    prefixgate::cli::main(prefixgate::cli::Cli::parse())
}
