//! How many runs are at work.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntGauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::bounded::Map;

/// A run that was silent for so long is not at work.
const ACTIVE: Duration = Duration::from_mins(5);
/// Runs that are counted at most.
pub(super) const MAX_RUNS: usize = 10_000;
/// What is over is looked for at most so often while there are too many.
const TIDY: Duration = Duration::from_secs(1);

/// When each run was last heard of, by a hash of its name. Counts when it is asked.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    gauge: IntGauge,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    hasher: RandomState,
    last: Map<u64, Instant>,
    tidied: Instant,
}

impl Runs {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let gauge = IntGauge::new(
            "prefixgate_runs_active",
            "Runs with a turn in the last five minutes; more than 10000 are not counted",
        )?;
        let seen = Seen {
            hasher: RandomState::new(),
            last: Map::default(),
            tidied: Instant::now(),
        };
        Ok(Self {
            gauge,
            seen: Arc::new(Mutex::new(seen)),
        })
    }

    /// A turn of this run has ended.
    pub(super) fn heard_of(&self, run: &str, now: Instant) {
        let mut seen = self.lock();
        let key = seen.hasher.hash_one(run);
        if seen.last.len() >= MAX_RUNS && !seen.last.contains_key(&key) {
            if now.duration_since(seen.tidied) < TIDY {
                return;
            }
            seen.tidy(now);
            if seen.last.len() >= MAX_RUNS {
                return;
            }
        }
        seen.last.insert(key, now);
    }

    /// Runs at work.
    pub(super) fn active(&self, now: Instant) -> usize {
        let mut seen = self.lock();
        seen.tidy(now);
        seen.last.len()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn tidy(&mut self, now: Instant) {
        self.last
            .retain(|_, last| now.duration_since(*last) < ACTIVE);
        self.tidied = now;
    }
}

impl Collector for Runs {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let active = self.active(Instant::now());
        self.gauge.set(i64::try_from(active).unwrap_or(i64::MAX));
        self.gauge.collect()
    }
}
