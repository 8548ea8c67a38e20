//! Where records go, and the questions asked of them.

mod audit;
pub mod clickhouse;
mod error;
mod groups;
mod guards;
mod placed;
mod questions;
mod savings;
mod sqlite;
mod totals;

pub use audit::{
    Agreement, Culprit, CulpritBy, Culprits, Disagreement, Duplicate, Duplicates, Loss, Place,
    Strikes, Sum, Unread, Unreads, Verdicts, generalised,
};
pub use clickhouse::{ClickHouseAnswers, ClickHouseSink};
pub use error::StoreError;
pub use guards::{CapSeen, LoopSeen, ToolSeen};
pub use questions::{By, Filter, Questions, RunSummary, Spend, ThreadSummary};
pub use savings::{Compared, DryRun, HelperSaving, Savings, Side};
pub use sqlite::{FILE_NAME, Of, Spent, Sqlite, ThreadSeed};
pub use totals::{Tokens, Totals};

#[cfg(test)]
pub(crate) use sqlite::tests::{
    NOON, call as test_call, event as test_event, store as test_store, turn as test_turn,
    verdict as test_verdict,
};
