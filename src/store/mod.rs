//! Where records go, and the questions asked of them.

mod error;
mod questions;
mod sqlite;
mod totals;

pub use error::StoreError;
pub use questions::{By, Filter, Questions, RunSummary, Spend};
pub use sqlite::{FILE_NAME, Sqlite, ThreadSeed};
pub use totals::{Tokens, Totals};

#[cfg(test)]
pub(crate) use sqlite::tests::{NOON, store as test_store, turn as test_turn};
