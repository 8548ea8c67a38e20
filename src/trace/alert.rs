//! Alerts on their way to whoever sends them: a bounded queue that never makes a request wait.

use tokio::sync::mpsc;

use super::{EventRecord, Outcome, RequestKind};
use crate::usage::Usage;

/// Alerts and digests that may wait; beyond it they are dropped and counted.
const QUEUE: usize = 1_024;

/// What the alerts hear of.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// Something happened that may be an alert of its own.
    Event(Box<EventRecord>),
    /// A request ended: what rates and ratios are made of.
    Turn(Box<Digest>),
    /// How the spool before a remote store stands; told from time to time.
    Remote(Standing),
}

/// How the spool before a remote store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The store (`clickhouse`, `otlp`).
    pub store: &'static str,
    /// UTC milliseconds.
    pub at_ms: i64,
    /// Since when it has taken nothing, UTC milliseconds; `None` while it does.
    pub down_since_ms: Option<i64>,
    /// Records that wait.
    pub waiting: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that they may take.
    pub limit: u64,
    /// Records that will never reach the store, up to now.
    pub dropped: u64,
}

/// The little of a turn that alerts are made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    /// End of the request, UTC milliseconds.
    pub at_ms: i64,
    /// What it was for.
    pub kind: RequestKind,
    /// How it ended.
    pub outcome: Outcome,
    /// The run.
    pub run_id: String,
    /// The application.
    pub app: Option<String>,
    /// The model that answered, or the one asked for.
    pub model: Option<String>,
    /// Tokens.
    pub usage: Usage,
    /// Pico-USD, where known.
    pub cost_pico: Option<u64>,
    /// Why the model has no price.
    pub unpriced: bool,
    /// The path that broke the cache, and what that cost in pico-USD.
    pub culprit: Option<(String, u64)>,
    /// Records dropped by the recorder up to now.
    pub dropped: u64,
}

/// The request path's side of the queue. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AlertSender {
    queue: Option<mpsc::Sender<Notice>>,
}

impl AlertSender {
    /// A queue, and the side from which it is read.
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Notice>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let queue = Some(sender);
        (Self { queue }, receiver)
    }

    /// Whether anybody listens; where nobody does, nothing needs to be made.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.queue.is_some()
    }

    /// Hands a notice over; `false` when it had to be dropped.
    pub fn send(&self, notice: Notice) -> bool {
        let Some(queue) = &self.queue else {
            return true;
        };
        queue.try_send(notice).is_ok()
    }
}
