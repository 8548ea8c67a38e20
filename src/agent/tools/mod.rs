//! Tools: what they are, how they are found, checked and called.
//!
//! Every failure that the model can do something about is a result that says so: an unknown name
//! (with the nearest known ones), an input that breaks the schema (with every violation), a time
//! limit, a panic, an error of the outside world. Only what no model can mend ends the run
//! ([`ToolError::Exception`]).

mod batch;
mod builtin;
mod call;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use batch::{Batch, CallEnd};
pub use builtin::{Root, builtin};

use super::machine::ToolSpec;

/// How long a call may take when its tool says nothing else.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// How a tool behaves beside what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manners {
    /// No other call of the same answer runs at the same time.
    pub serial: bool,
    /// Making a call again does no harm: after a crash it is simply made again. A tool that keeps
    /// its own books by [`CallContext::key`] may say so too.
    pub idempotent: bool,
    /// How long a call may take; `None` for as long as it likes.
    pub limit: Option<Duration>,
}

impl Manners {
    /// Reads only: may run beside others and again.
    pub const READS: Self = Self {
        serial: false,
        idempotent: true,
        limit: Some(DEFAULT_LIMIT),
    };
    /// Changes something: runs alone, and is not made again by itself.
    pub const CHANGES: Self = Self {
        serial: true,
        idempotent: false,
        limit: Some(DEFAULT_LIMIT),
    };
}

/// What a call is told beside its input.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Its idempotency key: the same for the same call, also after a crash.
    pub key: String,
    /// The provider's id of the call.
    pub call: String,
    /// Cancelled when the result is not wanted any more. The call is dropped soon after.
    pub cancelled: CancellationToken,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The outside world said no; the model reads why.
    #[error("{message}")]
    Failed {
        /// A stable word (`not_found`, `invalid_input`, `timeout` ...).
        kind: &'static str,
        /// What happened.
        message: String,
        /// What the model could do about it.
        hint: Option<String>,
        /// The same call may succeed later.
        retryable: bool,
    },
    /// The tool cannot work at all (an expired credential, a schema nobody can meet): the run ends.
    #[error("{0}")]
    Exception(String),
}

impl ToolError {
    /// A failure without advice.
    #[must_use]
    pub fn failed(kind: &'static str, message: impl Into<String>) -> Self {
        Self::Failed {
            kind,
            message: message.into(),
            hint: None,
            retryable: false,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(self, advice: impl Into<String>) -> Self {
        match self {
            Self::Failed {
                kind,
                message,
                retryable,
                ..
            } => Self::Failed {
                kind,
                message,
                hint: Some(advice.into()),
                retryable,
            },
            exception @ Self::Exception(_) => exception,
        }
    }
}

/// What a call gives.
pub type ToolResult = Result<String, ToolError>;

/// A tool.
pub trait Tool: Send + Sync {
    /// How it is told to the model.
    fn spec(&self) -> ToolSpec;

    /// How it behaves.
    fn manners(&self) -> Manners;

    /// Makes a call. The input has been checked against the schema. It runs as a task of its own:
    /// a panic or a time limit there harms no other call.
    fn call(&self, input: Value, context: CallContext) -> BoxFuture<'static, ToolResult>;
}

/// The tools of an agent, in the order in which they are told.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
    by_name: HashMap<String, usize>,
    /// Bytes of a result that the model reads; longer ones lose their middle.
    max_result: usize,
}

/// Bytes of a result that the model reads when nothing else is said.
pub const DEFAULT_MAX_RESULT: usize = 30_000;

impl Toolbox {
    /// An empty box.
    #[must_use]
    pub fn new() -> Self {
        Self {
            max_result: DEFAULT_MAX_RESULT,
            ..Self::default()
        }
    }

    /// Adds a tool; one of the same name takes the place of the earlier one.
    pub fn add(&mut self, tool: Arc<dyn Tool>) {
        let name = tool.spec().name;
        match self.by_name.get(&name) {
            Some(at) => self.tools[*at] = tool,
            None => {
                self.by_name.insert(name, self.tools.len());
                self.tools.push(tool);
            }
        }
    }

    /// How the tools are told.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| tool.spec()).collect()
    }

    /// The tool of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// Names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<(&usize, &str)> = self
            .by_name
            .iter()
            .map(|(name, at)| (at, name.as_str()))
            .collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name)
    }
}
