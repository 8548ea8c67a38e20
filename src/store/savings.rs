//! What the cache, the helpers and the inserted breakpoints have saved. Values and their sums; no
//! store.

use std::collections::{BTreeMap, HashSet};

use super::audit::Sum;
use super::totals::{Fact, Totals, signed};
use crate::trace::RequestKind;

/// The word of a run that was left alone, so that others can be compared with it.
pub(super) const HOLDOUT: &str = "holdout";
/// The words of the policies that insert breakpoints.
pub(super) const INSERTING: [&str; 2] = ["fill", "replace"];
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
        self.turns += fact.count_if(fact.is_turn());
        let cost = fact.cost_pico.map(signed);
        if fact.kind == RequestKind::KeepWarm {
            self.cost_pico = self.cost_pico.saturating_add(cost.unwrap_or(0));
            self.unpriced += fact.count_if(cost.is_none());
            return;
        }
        match (cost, fact.prompt_and_read()) {
            (Some(cost), Some((prompt, read))) => {
                self.cost_pico = self.cost_pico.saturating_add(cost);
                self.prompt = self.prompt.saturating_add(prompt);
                self.read = self.read.saturating_add(read);
                self.priced_turns += fact.count_if(fact.is_turn());
            }
            _ => self.unpriced += fact.count_if(fact.billable()),
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

/// Whose requests are compared, and which side they are on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) app: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) policy: Option<&'a str>,
}

impl Of<'_> {
    fn side(self) -> Option<usize> {
        match self.policy? {
            HOLDOUT => Some(0),
            policy if INSERTING.contains(&policy) => Some(1),
            _ => None,
        }
    }

    fn group(self) -> Group {
        (self.app.map(Into::into), self.model.map(Into::into))
    }
}

/// What decides how a request counts for savings, or several that count alike.
#[derive(Debug, Clone)]
pub(super) struct SavingFact<'a> {
    pub(super) fact: Fact,
    pub(super) of: Of<'a>,
    pub(super) helper: Option<&'a str>,
    pub(super) helper_tokens: Sum,
    pub(super) helper_pico: Sum,
    /// Requests with breakpoints that were only planned.
    pub(super) planned: u64,
    /// Those breakpoints.
    pub(super) markers: u64,
}

/// A side with the names of its runs.
#[derive(Debug, Default)]
struct OpenSide {
    side: Side,
    runs: HashSet<String>,
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
    /// Adds everything but that the run of a turn is one, see [`Collected::add_run`].
    pub(super) fn add(&mut self, from: &SavingFact<'_>) {
        let fact = &from.fact;
        self.totals.add_fact(fact);
        if let Some(helper) = from.helper {
            let sum = self.helpers.entry(helper.to_owned()).or_default();
            sum.requests += fact.count;
            sum.tokens.merge(&from.helper_tokens);
            sum.pico.merge(&from.helper_pico);
            if fact.kind == RequestKind::KeepWarm {
                sum.own_requests += fact.count;
                sum.own_cost.add_alike(fact.cost_pico, fact.count);
            }
        }
        if from.of.policy == Some(DRY_RUN) && fact.is_turn() {
            self.dry_run.turns += fact.count;
            self.dry_run.turns_planned += from.planned;
            self.dry_run.markers = self.dry_run.markers.saturating_add(from.markers);
        }
        if let Some(open) = self.open(from.of) {
            open.side.add(fact);
        }
    }

    /// Adds the run of a turn; one that was added before is the same.
    pub(super) fn add_run(&mut self, of: Of<'_>, run_id: &str) {
        if let Some(open) = self.open(of)
            && !open.runs.contains(run_id)
        {
            open.runs.insert(run_id.to_owned());
            open.side.runs += 1;
        }
    }

    /// Adds the number of runs that have a turn, of a store that counts them itself.
    pub(super) fn add_runs(&mut self, of: Of<'_>, runs: u64) {
        if let Some(open) = self.open(of) {
            open.side.runs += runs;
        }
    }

    fn open(&mut self, of: Of<'_>) -> Option<&mut OpenSide> {
        let side = of.side()?;
        self.groups.entry(of.group()).or_default().get_mut(side)
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
