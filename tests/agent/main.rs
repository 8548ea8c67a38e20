//! The loop client (`prefixgate::agent`) as its users see it: the library, and the command.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod agents;
mod durable;
mod formats;
#[allow(unused_imports, reason = "these tests use a part of it")]
#[path = "../it/support/mod.rs"]
mod it_support;
mod tools;
mod whole;
