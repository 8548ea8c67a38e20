//! What the cache, the helpers and the inserted breakpoints have saved. Values and their sums; no
//! store.

use std::collections::{BTreeMap, HashSet};

use super::audit::Sum;
use super::totals::{Fact, Totals};
use crate::trace::RequestKind;

/// The word of a run that was left alone, so that others can be compared with it.
const HOLDOUT: &str = "holdout";
/// The word of a policy that only says what it would do.
const DRY_RUN: &str = "dry-run";

/// What was saved in a range.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Savings {
    /// All requests of the range: what the cache saved against no cache.
    pub totals: Totals,
    /// By helper, in the order of their names.
    pub helpers: Vec<HelperSaving>,
    /// Runs left alone against runs with inserted breakpoints, by application and model.
    pub compared: Vec<Compared>,
    /// What a dry run planned.
    pub dry_run: DryRun,
}

/// What a helper saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelperSaving {
    /// Its word.
    pub helper: String,
    /// Requests on which it acted, its own among them.
    pub requests: u64,
    /// Requests that it sent itself.
    pub own_requests: u64,
    /// What those cost, in pico-USD.
    pub own_cost: Sum,
    /// Tokens that were read thanks to it.
    pub tokens: Sum,
    /// What it saved in pico-USD, its cost taken off; negative where it cost more.
    pub pico: Sum,
}

/// What was planned and not done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Turns.
    pub turns: u64,
    /// Turns that would have been given a breakpoint.
    pub turns_planned: u64,
    /// Breakpoints that would have been placed.
    pub markers: u64,
}

/// The same application and model with inserted breakpoints and without.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Application.
    pub app: Option<String>,
    /// Model that answered, or was asked for.
    pub model: Option<String>,
    /// Runs that were left alone.
    pub holdout: Side,
    /// Runs whose requests were given breakpoints.
    pub inserted: Side,
}

impl Compared {
    /// Runs that each side must have before a difference means anything.
    pub const MIN_RUNS: u64 = 5;

    /// Whether both sides have enough runs.
    #[must_use]
    pub fn enough(&self) -> bool {
        self.holdout.runs.min(self.inserted.runs) >= Self::MIN_RUNS
    }

    /// What a thousand prompt tokens cost less with insertion, in pico-USD (negative: more), and
    /// that as a share of their cost without. `None` with too few runs, or unknown costs.
    #[must_use]
    pub fn saving(&self) -> Option<(i128, f64)> {
        let (alone, inserted) = (self.holdout.per_thousand()?, self.inserted.per_thousand()?);
        if !self.enough() || alone == 0 {
            return None;
        }
        let saved = alone - inserted;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people, not money")]
        let share = saved as f64 / alone as f64;
        Some((saved, share))
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Side {
    /// Runs.
    pub runs: u64,
    /// Turns.
    pub turns: u64,
    /// Requests that may have been charged for, and whose cost or prompt is unknown: they are in
    /// no cost below.
    pub unpriced: u64,
    /// Turns among the requests that make up the cost.
    priced_turns: u64,
    /// Cost of the requests of which cost and prompt are known, in pico-USD. Requests that a helper
    /// sent for them are added.
    cost_pico: i128,
    /// Tokens of the prompts of the same requests; what helpers sent is left out, as no client
    /// asked for it.
    prompt: u64,
    /// What of them was read.
    read: u64,
}

impl Side {
    fn add(&mut self, fact: &Fact) {
        self.turns += u64::from(fact.is_turn());
        let cost = fact.cost_pico.map(i128::from);
        if fact.kind == RequestKind::KeepWarm {
            self.cost_pico += cost.unwrap_or(0);
            self.unpriced += u64::from(cost.is_none());
            return;
        }
        match (cost, fact.usage.prompt()) {
            (Some(cost), Some(prompt)) => {
                self.cost_pico += cost;
                self.prompt = self.prompt.saturating_add(prompt);
                self.read = self.read.saturating_add(fact.usage.read.unwrap_or(0));
                self.priced_turns += u64::from(fact.is_turn());
            }
            _ => self.unpriced += u64::from(fact.billable()),
        }
    }

    /// Cost of a turn in pico-USD, rounded.
    #[must_use]
    pub fn per_turn(&self) -> Option<i128> {
        divided(self.cost_pico, i128::from(self.priced_turns))
    }

    /// Cost per thousand prompt tokens (output included) in pico-USD, rounded.
    #[must_use]
    pub fn per_thousand(&self) -> Option<i128> {
        divided(self.cost_pico.checked_mul(1_000)?, i128::from(self.prompt))
    }

    /// Tokens read per prompt token.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people, not money")]
        (self.prompt > 0).then(|| self.read as f64 / self.prompt as f64)
    }
}

/// A sum of costs in equal parts, rounded half up; `None` of no parts.
fn divided(sum: i128, parts: i128) -> Option<i128> {
    (parts > 0).then(|| (sum + parts / 2).div_euclid(parts))
}

/// What decides how a request counts for savings.
#[derive(Debug, Clone)]
pub(super) struct SavingFact<'a> {
    pub(super) fact: Fact,
    pub(super) run_id: &'a str,
    pub(super) app: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) policy: Option<&'a str>,
    pub(super) helper: Option<&'a str>,
    pub(super) helper_tokens: Option<u64>,
    pub(super) helper_pico: Option<i64>,
    /// Breakpoints that were only planned.
    pub(super) planned: u64,
}

/// A side with the names of its runs.
#[derive(Debug, Default)]
struct OpenSide {
    side: Side,
    runs: HashSet<String>,
}

impl OpenSide {
    fn add(&mut self, from: &SavingFact<'_>) {
        self.side.add(&from.fact);
        if from.fact.is_turn() && !self.runs.contains(from.run_id) {
            self.runs.insert(from.run_id.to_owned());
            self.side.runs += 1;
        }
    }
}

/// Application and model.
type Group = (Option<String>, Option<String>);

/// Collects savings, in any order.
#[derive(Debug, Default)]
pub(super) struct Collected {
    totals: Totals,
    helpers: BTreeMap<String, HelperSaving>,
    /// Left alone, and given breakpoints.
    groups: BTreeMap<Group, [OpenSide; 2]>,
    dry_run: DryRun,
}

impl Collected {
    pub(super) fn add(&mut self, from: &SavingFact<'_>) {
        self.totals.add_fact(&from.fact);
        if let Some(helper) = from.helper {
            let sum = self.helpers.entry(helper.to_owned()).or_default();
            sum.requests += 1;
            sum.tokens.add(from.helper_tokens);
            sum.pico.add(from.helper_pico);
            if from.fact.kind == RequestKind::KeepWarm {
                sum.own_requests += 1;
                sum.own_cost.add(from.fact.cost_pico);
            }
        }
        let side = match from.policy {
            Some(HOLDOUT) => 0,
            Some("fill" | "replace") => 1,
            Some(DRY_RUN) if from.fact.is_turn() => {
                self.dry_run.turns += 1;
                self.dry_run.turns_planned += u64::from(from.planned > 0);
                self.dry_run.markers = self.dry_run.markers.saturating_add(from.planned);
                return;
            }
            _ => return,
        };
        let group = (from.app.map(Into::into), from.model.map(Into::into));
        self.groups.entry(group).or_default()[side].add(from);
    }

    pub(super) fn finish(self) -> Savings {
        let helpers = self
            .helpers
            .into_iter()
            .map(|(helper, sum)| HelperSaving { helper, ..sum });
        // Where no run was left alone there is nothing to compare.
        let compared = self
            .groups
            .into_iter()
            .filter(|(_, [alone, _])| alone.side != Side::default())
            .map(|((app, model), [alone, inserted])| Compared {
                app,
                model,
                holdout: alone.side,
                inserted: inserted.side,
            });
        Savings {
            totals: self.totals,
            helpers: helpers.collect(),
            compared: compared.collect(),
            dry_run: self.dry_run,
        }
    }
}
