//! Calls that nobody waits for any more, but that have not come back.
//!
//! A task can be dropped, but only while it waits: one that computes without end or blocks its
//! thread goes on, and so does work on a blocking thread. Nothing can end those, so they are
//! counted, and a tool that has left too many behind is not called again until some are back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Calls of one tool that may be abandoned and still under way; beyond them it is refused.
pub const MAX_ABANDONED: usize = 8;

/// The calls of one tool that were abandoned and are still under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Abandoned(Arc<AtomicUsize>);

impl Abandoned {
    /// Whether no further call should be made.
    pub fn too_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MAX_ABANDONED
    }
}

/// One call, as long as anything of it is alive: everything that works for it holds a clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Presence(Arc<Alive>);

#[derive(Debug, Default)]
struct Alive {
    tool: String,
    given_up: AtomicBool,
    among: Abandoned,
}

impl Presence {
    /// A call of a tool.
    pub fn new(tool: &str, among: &Abandoned) -> Self {
        Self(Arc::new(Alive {
            tool: tool.to_owned(),
            given_up: AtomicBool::new(false),
            among: among.clone(),
        }))
    }

    /// Nobody waits for it any more.
    pub fn give_up(&self) {
        if !self.0.given_up.swap(true, Ordering::Relaxed) {
            self.0.among.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if self.given_up.load(Ordering::Relaxed) {
            self.among.0.fetch_sub(1, Ordering::Relaxed);
            tracing::debug!(
                tool = self.tool,
                "a call that was given up has ended; what it gave is dropped"
            );
        }
    }
}
