//! Whole runs: through the gateway, and at the command line.

mod command;
mod killed;
mod repetition;
mod scene;
mod sixty;
mod traced;
pub mod world;
