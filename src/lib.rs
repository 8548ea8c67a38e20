#![doc = include_str!("ARCHITECTURE.md")]

// In the order in which data flows; ARCHITECTURE says which floor may use which.
pub mod cli;
pub mod config;
pub mod server;

pub mod proxy;
pub mod run;

mod bounded;
pub mod clock;
pub mod guard;
pub mod prompt_cache;
pub mod provider;
pub mod redact;
pub mod spool;
pub mod sse;
pub mod text;
pub mod usage;

pub mod export;
pub mod store;
pub mod trace;
pub mod web;

pub mod agent;
pub mod sim;
