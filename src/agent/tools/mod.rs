//! Tools: what they are, how they are found, checked and called.
//!
//! Every failure that the model can do something about is a result that says so: an unknown name
//! (with the nearest known ones), an input that breaks the schema (with every violation), a time
//! limit, a panic, an error of the outside world. Only what no model can mend ends the run
//! ([`ToolError::Exception`]).
//!
//! A tool is declared from a Rust type ([`typed`]), from a JSON Schema ([`raw`]), or by the trait
//! [`Tool`] itself:
//!
//! ```
//! use prefixgate::agent::tools::{Manners, Toolbox, typed};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add {
//!     /// First summand
//!     a: i64,
//!     /// Second summand
//!     b: i64,
//! }
//!
//! let mut toolbox = Toolbox::new();
//! toolbox.add(typed::<Add, _, _>(
//!     "add",
//!     "Adds two whole numbers. Use it for every sum. Example: {\"a\": 2, \"b\": 3} gives 5.",
//!     Manners::READS,
//!     |input, _context| async move { Ok((input.a + input.b).to_string()) },
//! ));
//! ```
//!
//! | file | what is there |
//! |---|---|
//! | `declare` | tools from a type or a schema, and a function |
//! | `toolbox` | the tools of an agent by name, each with its compiled schema |
//! | `call` | the check of one call, and what the model reads of a failure |
//! | `batch` | the calls of one answer, each a task of its own |
//! | `presence` | calls that nobody waits for any more but that have not come back |
//! | `builtin` | files, commands, pages |
//! | `mcp` | tools of MCP servers |

mod batch;
mod builtin;
mod call;
mod context;
mod cut;
mod declare;
mod error;
#[cfg(feature = "mcp")]
pub mod mcp;
mod presence;
mod process;
mod schema;
mod toolbox;

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

pub use batch::{Batch, CANCEL_GRACE, CallEnd};
pub use builtin::{
    CALL_KEY, Commands, Fetch, Root, builtin, edit_file, fetch_url, list_files, read_file,
    run_command, search_files, write_file,
};
pub use context::CallContext;
pub use cut::cut;
pub use declare::{raw, typed};
pub use error::{ToolError, ToolResult, Violation};
pub use presence::MAX_ABANDONED;
pub use toolbox::{DEFAULT_MAX_RESULT, Toolbox};

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
    /// Puts something into a state that the call names whole: runs alone, and may be made again.
    pub const SETS: Self = Self {
        serial: true,
        idempotent: true,
        limit: Some(DEFAULT_LIMIT),
    };

    /// The same with another time limit.
    #[must_use]
    pub const fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// A tool.
pub trait Tool: Send + Sync {
    /// How it is told to the model.
    fn spec(&self) -> ToolSpec;

    /// How it behaves.
    fn manners(&self) -> Manners;

    /// Makes a call. The input has been checked against the schema.
    ///
    /// It runs as a task of its own: a panic or a time limit there harms no other call. The task is
    /// dropped when its result is not wanted any more, so what must be cleaned up is cleaned up by
    /// a `Drop`. It must not block its thread; [`CallContext::blocking`] is for work that does.
    fn call(&self, input: Value, context: CallContext) -> BoxFuture<'static, ToolResult>;
}
