//! Integer counts that fade.

use super::{H1_MS, M5_MS, Stop};

/// Sums above this are halved, so that about the last hundred events decide.
const FULL: u16 = 96;

/// How long it took until a prefix was wanted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// Within five minutes.
    Soon,
    /// Within an hour.
    Hour,
    /// Later or never.
    Later,
}

impl Gap {
    pub(super) fn of(ms: i64) -> Self {
        if ms <= M5_MS {
            Self::Soon
        } else if ms <= H1_MS {
            Self::Hour
        } else {
            Self::Later
        }
    }
}

/// How many gaps of each kind there were.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gaps {
    pub(super) soon: u16,
    pub(super) hour: u16,
    pub(super) later: u16,
}

impl Gaps {
    pub(super) fn add(&mut self, gap: Gap) {
        match gap {
            Gap::Soon => self.soon += 1,
            Gap::Hour => self.hour += 1,
            Gap::Later => self.later += 1,
        }
        if self.soon + self.hour + self.later > FULL {
            self.soon /= 2;
            self.hour /= 2;
            self.later /= 2;
        }
    }

    pub(super) fn total(&self) -> f64 {
        f64::from(self.soon) + f64::from(self.hour) + f64::from(self.later)
    }
}

/// Classes of stops that gaps are counted for.
pub(super) const STOPS: [Stop; 2] = [Stop::ToolUse, Stop::Other];

/// Gaps by why the answer before them ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stops {
    tool_use: Gaps,
    other: Gaps,
}

impl Stops {
    pub(super) fn of(&self, stop: Stop) -> &Gaps {
        match stop {
            Stop::ToolUse => &self.tool_use,
            Stop::Other | Stop::Failed => &self.other,
        }
    }

    pub(super) fn of_mut(&mut self, stop: Stop) -> &mut Gaps {
        match stop {
            Stop::ToolUse => &mut self.tool_use,
            Stop::Other | Stop::Failed => &mut self.other,
        }
    }
}

/// How often something held and how often not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    yes: u16,
    no: u16,
}

impl Kept {
    pub(super) fn add(&mut self, held: bool, weight: u16) {
        if held {
            self.yes += 1;
        } else {
            self.no += weight;
        }
        if self.yes + self.no > FULL {
            self.yes /= 2;
            self.no /= 2;
        }
    }

    /// What was counted as a no has turned out to be a yes.
    pub(super) fn correct(&mut self) {
        self.take_back();
        self.add(true, 1);
    }

    /// As if the newest no had not been counted.
    pub(super) fn take_back(&mut self) {
        self.no = self.no.saturating_sub(1);
    }

    /// The share of yes, where `prior` counts for `weight` events.
    pub(super) fn share(&self, prior: f64, weight: f64) -> f64 {
        (prior * weight + f64::from(self.yes)) / (weight + f64::from(self.yes) + f64::from(self.no))
    }
}

/// Bytes that were new in their turn, and bytes that the turn before had already.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SizeSums {
    new: u64,
    old: u64,
}

impl SizeSums {
    pub(super) fn add(&mut self, before: Option<u64>, now: u64) {
        let old = before.unwrap_or(0).min(now);
        self.new = self.new.saturating_add(now - old);
        self.old = self.old.saturating_add(old);
        // 64 MB: some hundred turns of a long conversation.
        if self.new.saturating_add(self.old) > 64 << 20 {
            self.new /= 2;
            self.old /= 2;
        }
    }

    /// New to old, where `prior` counts for `weight` bytes of old.
    pub(super) fn ratio(&self, prior: f64, weight: f64) -> f64 {
        (prior * weight + self.new as f64) / (weight + self.old as f64)
    }
}
