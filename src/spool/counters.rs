//! What became of the records of a spool, counted over all processes that have used it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a record will never reach the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There was no room within the bound.
    Full,
    /// The disk did not take it.
    Disk,
    /// It was on the disk and cannot be read.
    Damaged,
    /// The store will never take it. It is set aside where there is room for that.
    Refused,
    /// Somebody has discarded what was waiting.
    Discarded,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::Full,
        Self::Disk,
        Self::Damaged,
        Self::Refused,
        Self::Discarded,
    ];

    /// The stable word, for labels and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Disk => "disk",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
            Self::Discarded => "discarded",
        }
    }
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Records that were written to the spool.
    pub appended: u64,
    /// Records that were dropped before they were written: part of `dropped`, under `full` or `disk`.
    pub turned_away: u64,
    /// Records that the store has taken.
    pub delivered: u64,
    /// Records that were dropped, in the order of [`Reason::ALL`].
    pub dropped: [u64; Reason::ALL.len()],
}

impl Counted {
    /// Records that were handed to the spool.
    #[must_use]
    pub const fn accepted(&self) -> u64 {
        self.appended + self.turned_away
    }

    /// Records that were dropped for one reason.
    #[must_use]
    pub const fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Records that were dropped, for whatever reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

/// The counts as they grow. They begin with what earlier processes have left.
///
/// Changed under the lock of the spool's state only, so that what is persisted is consistent; read
/// from anywhere.
#[derive(Debug, Default)]
pub struct Counters {
    appended: AtomicU64,
    turned_away: AtomicU64,
    delivered: AtomicU64,
    dropped: [AtomicU64; Reason::ALL.len()],
}

impl Counters {
    pub(super) fn starting_with(counted: &Counted) -> Self {
        Self {
            appended: counted.appended.into(),
            turned_away: counted.turned_away.into(),
            delivered: counted.delivered.into(),
            dropped: counted.dropped.map(AtomicU64::new),
        }
    }

    /// The counts now.
    #[must_use]
    pub fn now(&self) -> Counted {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            appended: read(&self.appended),
            turned_away: read(&self.turned_away),
            delivered: read(&self.delivered),
            dropped: std::array::from_fn(|reason| read(&self.dropped[reason])),
        }
    }

    pub(super) fn add_appended(&self, records: u64) {
        self.appended.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn add_turned_away(&self, reason: Reason, records: u64) {
        self.turned_away.fetch_add(records, Ordering::Relaxed);
        self.add_dropped(reason, records);
    }

    pub(super) fn add_delivered(&self, records: u64) {
        self.delivered.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, reason: Reason, records: u64) {
        self.dropped[reason as usize].fetch_add(records, Ordering::Relaxed);
    }
}
