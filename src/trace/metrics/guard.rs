//! The metrics of the guards.

use std::sync::{Mutex, PoisonError};

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use super::{Metrics, OTHER, catch_up};
use crate::guard::caps::Cap;
use crate::guard::loops::{Action, Detector};

/// Levels that get a label of their own; later ones share `other`. Levels come from the settings.
const MAX_LEVEL_LABELS: usize = 10;
/// Words of [`crate::guard::caps::Scope`] in records.
pub(super) const SCOPES: [&str; 3] = ["run", "unnamed", "key"];
/// What becomes of an alert.
pub(super) const RESULTS: [&str; 3] = ["sent", "failed", "dropped"];

/// How books of caps stand that several gateways share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerStats {
    /// They can be reached.
    pub up: bool,
    /// Requests that the books of this process decided on meanwhile.
    pub fallback: u64,
    /// Requests that ended and are not booked yet.
    pub waiting: usize,
    /// Requests that ended and will never be booked.
    pub lost: u64,
}

/// Loops, caps and alerts. Words that are not in their set are counted as `other`.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) loops: IntCounterVec,
    pub(super) refusals: IntCounterVec,
    pub(super) levels: IntCounterVec,
    unenforced: IntCounter,
    hints: IntCounter,
    ledger_unavailable: IntCounter,
    ledger_up: IntGauge,
    ledger_fallback: IntCounter,
    ledger_waiting: IntGauge,
    ledger_lost: IntCounter,
    pub(super) alerts: IntCounterVec,
    /// Levels that have a label.
    known_levels: Mutex<Vec<u32>>,
}

impl Guard {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let plain = |name: &str, help: &str| {
            let metric = IntCounter::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let ledger_up = gauge(
            "prefixgate_ledger_up",
            "Whether the books of the caps can be reached; those of this process always can",
        )?;
        ledger_up.set(1);
        Ok(Self {
            loops: counter(
                "prefixgate_loops_total",
                "Loops that were found or came to a next step, and what is done about them",
                &["detector", "action"],
            )?,
            refusals: counter(
                "prefixgate_cap_refusals_total",
                "Requests that a cap refused",
                &["cap", "scope"],
            )?,
            levels: counter(
                "prefixgate_cap_levels_total",
                "Shares of a cap that were used for the first time, in per cent",
                &["cap", "level"],
            )?,
            unenforced: plain(
                "prefixgate_caps_unenforced_total",
                "Requests whose price is unknown, so that a cap on money could not be enforced",
            )?,
            hints: plain(
                "prefixgate_hints_total",
                "Texts that were put into a history because of a loop",
            )?,
            ledger_unavailable: plain(
                "prefixgate_ledger_unavailable_total",
                "Requests that were refused since the books of the caps could not be reached",
            )?,
            ledger_up,
            ledger_fallback: plain(
                "prefixgate_ledger_fallback_total",
                "Requests that the books of this process decided on while the shared ones were away",
            )?,
            ledger_waiting: gauge(
                "prefixgate_ledger_waiting",
                "Requests that ended and are not in the shared books yet",
            )?,
            ledger_lost: plain(
                "prefixgate_ledger_lost_total",
                "Requests that ended and will never be in the shared books",
            )?,
            alerts: counter(
                "prefixgate_alerts_total",
                "Alerts by what became of them: sent, failed, dropped",
                &["result"],
            )?,
            known_levels: Mutex::default(),
        })
    }

    /// The label of a level, in per cent.
    pub(super) fn level_label(&self, level: u32) -> String {
        let mut known = self
            .known_levels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&level) {
            if known.len() >= MAX_LEVEL_LABELS {
                return OTHER.into();
            }
            known.push(level);
        }
        level.to_string()
    }
}

/// The word itself if it is one of `known`.
fn bounded(word: &str, mut known: impl Iterator<Item = &'static str>) -> &str {
    if known.any(|one| one == word) {
        word
    } else {
        OTHER
    }
}

fn cap_label(cap: &str) -> &str {
    bounded(cap, Cap::ALL.into_iter().map(Cap::as_str))
}

impl Metrics {
    /// Counts a loop that was found or came to a next step of its ladder: words of [`Detector`]
    /// and [`Action`].
    pub fn loop_found(&self, detector: &str, action: &str) {
        let detector = bounded(detector, Detector::ALL.into_iter().map(Detector::as_str));
        let action = bounded(action, Action::ALL.into_iter().map(Action::as_str));
        self.guard
            .loops
            .with_label_values(&[detector, action])
            .inc();
    }

    /// Counts a request that a cap refused: a word of [`Cap`], and `run`, `unnamed` or `key`.
    pub fn cap_refused(&self, cap: &str, scope: &str) {
        let scope = bounded(scope, SCOPES.into_iter());
        self.guard
            .refusals
            .with_label_values(&[cap_label(cap), scope])
            .inc();
    }

    /// Counts a share of a cap that was used for the first time; `level` in per cent.
    pub fn cap_level(&self, cap: &str, level: u32) {
        let level = self.guard.level_label(level);
        self.guard
            .levels
            .with_label_values(&[cap_label(cap), &level])
            .inc();
    }

    /// Counts a request whose price is unknown, so that a cap on money could not be enforced.
    pub fn cap_unenforced(&self) {
        self.guard.unenforced.inc();
    }

    /// Counts texts that were put into a history.
    pub fn hints(&self, texts: u64) {
        self.guard.hints.inc_by(texts);
    }

    /// Counts a request that is refused since the books of the caps could not be reached.
    pub fn ledger_unavailable(&self) {
        self.guard.ledger_unavailable.inc();
    }

    /// Takes over how shared books of caps stand.
    pub fn ledger(&self, stats: &LedgerStats) {
        let _alone = self.alone();
        let guard = &self.guard;
        guard.ledger_up.set(stats.up.into());
        guard
            .ledger_waiting
            .set(i64::try_from(stats.waiting).unwrap_or(i64::MAX));
        catch_up(&guard.ledger_fallback, stats.fallback);
        catch_up(&guard.ledger_lost, stats.lost);
    }

    /// Counts an alert by what became of it: `sent`, `failed` or `dropped`.
    pub fn alert(&self, result: &str) {
        let result = bounded(result, RESULTS.into_iter());
        self.guard.alerts.with_label_values(&[result]).inc();
    }
}
