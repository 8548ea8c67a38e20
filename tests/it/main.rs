//! Integration tests: one binary, real sockets, the real program.

mod cli_config;
mod support;
