//! How the forwarding goes, for metrics, the status and the log.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::{Counted, Monitor, Waiting};
use super::{Hooks, OnChange};
use crate::clock::Clock;
use crate::text;

/// Transitions are logged once in so long.
const QUIET: Duration = Duration::from_secs(60);
/// Bytes of an error that are kept.
const MAX_ERROR: usize = 500;

/// Failed attempts by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    /// The store was down, or asked for time.
    pub later: u64,
    /// It did not answer in time.
    pub timeout: u64,
    /// It refused a batch or a part of one.
    pub refused: u64,
    /// The spool itself could not be read or written.
    pub disk: u64,
}

/// How it goes at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Since when the store has not answered, Unix milliseconds; `None` if it is not known to be down.
    pub down_since_ms: Option<i64>,
    /// The newest failure and its time, Unix milliseconds.
    pub last_error: Option<(i64, String)>,
    /// Failed attempts of this process.
    pub failures: Failures,
    /// What waits, with the age of the oldest.
    pub waiting: Waiting,
    /// Age of the oldest record that waits.
    pub oldest_age: Option<Duration>,
    /// Bytes of the spool's segments on disk.
    pub disk_bytes: u64,
    /// What became of the records, over all processes.
    pub counted: Counted,
}

/// The store has gone down, or is up again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It does not answer, or takes nothing.
    Down {
        /// What it said.
        why: String,
    },
    /// It answers again.
    Up {
        /// How long it was down.
        after: Duration,
        /// Records that are waiting for it.
        waiting: u64,
    },
}

/// How the forwarding goes. Cheap to clone; the spool stays locked as long as one is left.
#[derive(Clone)]
pub struct Progress(Arc<Inner>);

struct Inner {
    store: String,
    monitor: Monitor,
    clock: Clock,
    changed: Option<OnChange>,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    down: Option<Down>,
    last_error: Option<(i64, String)>,
    failures: Failures,
    said: Option<Instant>,
    /// Outages that were not logged.
    unsaid: u64,
}

#[derive(Debug, Clone, Copy)]
struct Down {
    since: Instant,
    since_ms: i64,
    said: bool,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.0.store).finish()
    }
}

impl Progress {
    pub(super) fn new(store: String, monitor: Monitor, hooks: &Hooks) -> Self {
        Self(Arc::new(Inner {
            store,
            monitor,
            clock: hooks.clock.clone(),
            changed: hooks.changed.clone(),
            now: Mutex::default(),
        }))
    }

    /// The name of the store.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.0.store
    }

    /// How it goes now.
    #[must_use]
    pub fn view(&self) -> View {
        let waiting = self.0.monitor.waiting();
        let disk_bytes = self.0.monitor.disk_bytes();
        let counted = self.0.monitor.counters().now();
        let now_ms = self.0.clock.utc_ms();
        let age = |oldest: i64| {
            Duration::from_millis(now_ms.saturating_sub(oldest).max(0).unsigned_abs())
        };
        let now = self.now();
        View {
            down_since_ms: now.down.map(|down| down.since_ms),
            last_error: now.last_error.clone(),
            failures: now.failures,
            waiting,
            oldest_age: waiting.oldest_ms.map(age),
            disk_bytes,
            counted,
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, why: &str, count: impl FnOnce(&mut Failures)) -> MutexGuard<'_, Now> {
        let error = text::prefix(why, MAX_ERROR).to_owned();
        let mut now = self.now();
        count(&mut now.failures);
        now.last_error = Some((self.0.clock.utc_ms(), error));
        now
    }

    pub(super) fn refused(&self, why: &str) {
        drop(self.failed(why, |failures| failures.refused += 1));
    }

    pub(super) fn disk_failed(&self, why: &str) {
        let mut now = self.failed(why, |failures| failures.disk += 1);
        let said = now.said;
        if due(said) {
            now.said = Some(Instant::now());
            drop(now);
            tracing::warn!(store = self.store(), why, "the spool cannot be read");
        }
    }

    /// An attempt has failed. The first of an outage is told.
    pub(super) fn down(&self, why: &str, timeout: bool) {
        let mut now = self.failed(why, |failures| {
            if timeout {
                failures.timeout += 1;
            } else {
                failures.later += 1;
            }
        });
        if now.down.is_some() {
            return;
        }
        let said = due(now.said);
        now.down = Some(Down {
            since: Instant::now(),
            since_ms: self.0.clock.utc_ms(),
            said,
        });
        let mut unsaid = 0;
        if said {
            now.said = Some(Instant::now());
            unsaid = std::mem::take(&mut now.unsaid);
        } else {
            now.unsaid += 1;
        }
        let why = now
            .last_error
            .as_ref()
            .map_or_else(String::new, |(_, why)| why.clone());
        drop(now);
        if said {
            tracing::warn!(
                store = self.store(), %why, not_logged = unsaid,
                "a store takes nothing: records wait in its spool"
            );
        }
        self.tell(&Change::Down { why });
    }

    /// The store has answered.
    pub(super) fn up(&self) {
        let Some(down) = self.now().down.take() else {
            return;
        };
        let after = down.since.elapsed();
        let waiting = self.0.monitor.waiting().records;
        if down.said {
            tracing::info!(
                store = self.store(),
                after_s = after.as_secs(),
                waiting,
                "a store is up again"
            );
        }
        self.tell(&Change::Up { after, waiting });
    }

    fn tell(&self, change: &Change) {
        if let Some(changed) = &self.0.changed {
            changed(change);
        }
    }
}

fn due(said: Option<Instant>) -> bool {
    said.is_none_or(|said| said.elapsed() >= QUIET)
}
