//! Integration tests: one binary, real sockets, the real program.

// Helpers of tests are outside of the functions that clippy knows as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accounting;
mod agents;
mod alerts;
mod cache;
mod capture;
mod cli_config;
mod clickhouse;
mod clickhouse_dashboards;
mod docker;
mod doctor_stores;
mod guard;
mod otlp;
mod policies;
mod prometheus;
mod remotes;
mod replay;
mod shared_books;
mod stores;
mod support;
mod wire;
