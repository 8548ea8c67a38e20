//! The loop as a workflow of a durable engine, [Restate](https://restate.dev) (feature `restate`).
//!
//! The machine is the same; what differs is who remembers. Here the engine keeps the journal: every
//! answer of the model and every call of a tool is a step whose outcome it has before the next one
//! begins. When the worker dies, the engine gives the run to the next one, which goes through the
//! recorded steps without doing them again and goes on behind the last.
//!
//! A step that was under way when the worker died was done, or not, or in part: the engine would do
//! it again. For an answer of the model that is right. For calls it is not: the step before them
//! records who began them ([`steps`]), so that a worker that meets the call of another one answers
//! it as interrupted, unless its tool may be called again.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use prefixgate::agent::restate::{Worker, serve};
//! # async fn example(worker: Worker) -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:9080").await?;
//! serve(worker, listener).await;
//! # Ok(())
//! # }
//! ```
//!
//! Registered with the engine (`POST /deployments`), a run is begun by `POST /Agent/<run>/run/send`
//! with an [`Order`] and gives a [`Report`]. The engine begins a run of one id once.

mod service;
mod steps;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::machine::{Outcome, Setup, Spent};
use super::model::{Endpoint, Headers};
use super::tools::Toolbox;
use crate::clock::Clock;

pub use service::serve;

/// What runs work with; clones are the same.
#[derive(Clone)]
pub struct Worker {
    /// The model.
    pub endpoint: Arc<Endpoint>,
    /// The tools.
    pub toolbox: Arc<Toolbox>,
    /// The time of events.
    pub clock: Clock,
    /// Attempts for one answer.
    pub attempts: u32,
    /// Headers of every request.
    pub headers: Headers,
}

/// A run to be begun.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// What it begins with. The id of the run is the engine's key.
    pub setup: Setup,
    /// What the user wants.
    pub task: String,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// The text of the last answer.
    pub answer: Option<String>,
    /// Answers of the model.
    pub turns: u32,
    /// What it has used.
    pub spent: Spent,
}
