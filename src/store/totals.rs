//! Sums over requests: the one place that says what counts, for every report and every store.

use crate::prompt_cache::verdict::{Status, Verdict};
use crate::trace::{Outcome, RequestKind, TurnRecord};
use crate::usage::Usage;

/// Sums of tokens. `None` as long as no request said anything about a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Neither read from nor written to the cache.
    pub uncached: Option<u64>,
    /// Read from the cache.
    pub read: Option<u64>,
    /// Written for five minutes.
    pub write_5m: Option<u64>,
    /// Written for one hour.
    pub write_1h: Option<u64>,
    /// Written for thirty minutes.
    pub write_30m: Option<u64>,
    /// Written for twelve hours.
    pub write_12h: Option<u64>,
    /// Output, reasoning included.
    pub output: Option<u64>,
}

impl Tokens {
    /// Written, of all lifetimes; unknown only if none is known.
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        [self.write_5m, self.write_1h, self.write_30m, self.write_12h]
            .into_iter()
            .flatten()
            .reduce(u64::saturating_add)
    }

    fn add(&mut self, usage: &Usage) {
        for (sum, value) in [
            (&mut self.uncached, usage.uncached),
            (&mut self.read, usage.read),
            (&mut self.write_5m, usage.write_5m),
            (&mut self.write_1h, usage.write_1h),
            (&mut self.write_30m, usage.write_30m),
            (&mut self.write_12h, usage.write_12h),
            (&mut self.output, usage.output),
        ] {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0).saturating_add(value));
            }
        }
    }
}

/// What a verdict says of a loss.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    pub(super) status: Status,
    pub(super) lost_tokens: Option<u64>,
    pub(super) lost_pico: Option<u64>,
}

impl From<&Verdict> for Judged {
    fn from(verdict: &Verdict) -> Self {
        Self {
            status: verdict.status,
            lost_tokens: verdict.lost_tokens,
            lost_pico: verdict.lost_pico,
        }
    }
}

impl Judged {
    /// Whether less was read than was there. SQL says the same in `turns_by_break`.
    pub(super) fn is_break(&self) -> bool {
        matches!(self.status, Status::Partial | Status::Miss)
            || self.lost_tokens.is_some_and(|n| n > 0)
    }
}

/// What decides how one request counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    pub(super) kind: RequestKind,
    pub(super) attempt: u32,
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    pub(super) usage: Usage,
    pub(super) usage_complete: bool,
    pub(super) usage_estimated: bool,
    pub(super) cost_pico: Option<u64>,
    pub(super) cost_no_cache_pico: Option<u64>,
    pub(super) judged: Option<Judged>,
}

impl From<&TurnRecord> for Fact {
    fn from(turn: &TurnRecord) -> Self {
        Self {
            kind: turn.kind,
            attempt: turn.attempt,
            outcome: turn.outcome,
            status: turn.status,
            usage: turn.usage,
            usage_complete: turn.usage_complete,
            usage_estimated: turn.usage_estimated,
            cost_pico: turn.cost_pico,
            cost_no_cache_pico: turn.cost_no_cache_pico,
            judged: turn.cache.verdict.as_ref().map(Judged::from),
        }
    }
}

impl Fact {
    /// Whether the request is a turn of its own: it was given on, and is not a client's retry.
    pub(super) fn is_turn(&self) -> bool {
        self.kind == RequestKind::Turn && self.attempt <= 1 && self.outcome.forwarded()
    }

    /// Whether the provider may have charged for it. It does not for what never reached it, nor
    /// for an answer that is an error from its status on.
    pub(super) fn billable(&self) -> bool {
        let usage = &self.usage;
        let nothing_told = self.cost_pico.is_none()
            && usage.inputs().iter().all(Option::is_none)
            && usage.output.is_none();
        let error_status = self.outcome == Outcome::UpstreamError
            && self.status.is_some_and(|status| status >= 400);
        !(nothing_told && (error_status || !self.outcome.forwarded()))
    }
}

/// Sums over requests of kind `turn`, and the tokens and cost of those of kind `keep_warm`, which
/// prefixgate sends on its own account: they are no requests of the client, but somebody pays for
/// them. Without a cache they would not be sent, so that all they cost is a saving lost. Every other
/// kind is left out. Money is exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Turns: requests that were given on, each with all its retries counted once.
    pub turns: u64,
    /// Requests, retries and refused ones included.
    pub requests: u64,
    /// Requests that went wrong or were refused.
    pub errors: u64,
    /// Requests of our own that kept a prefix in the cache; in none of the numbers above.
    pub keep_warm: u64,
    /// Turns with a verdict.
    pub judged: u64,
    /// Turns of which less was read than was there.
    pub breaks: u64,
    /// Breaks whose loss in money is not known.
    pub breaks_unpriced: u64,
    /// Tokens that were there and were not read, over the breaks of which they are known.
    pub lost_tokens: u64,
    /// Sum of the known losses in pico-USD. See [`Totals::known_loss`].
    pub lost_pico: i128,
    /// Requests that may have been charged for and have no known cost.
    pub unpriced: u64,
    /// Requests that may have been charged for and whose final usage was not seen.
    pub incomplete: u64,
    /// Requests with estimated usage.
    pub estimated: u64,
    /// Tokens.
    pub tokens: Tokens,
    /// Sum of the known costs in pico-USD; `None` when there is none. See [`Totals::known_cost`].
    pub cost_pico: Option<i128>,
    /// What the same would have cost without any cache in pico-USD, over the requests of which
    /// both costs are known.
    pub cost_no_cache_pico: Option<i128>,
    /// What the cache saved (negative: what it cost more) in pico-USD, over the requests of which
    /// both costs are known.
    pub saving_pico: Option<i128>,
    /// Whole prompts and what of them was read, over the requests that told all kinds.
    prompt: u64,
    read: u64,
}

impl Totals {
    /// Adds one request; of which kinds count, and how, see above.
    pub fn add(&mut self, turn: &TurnRecord) {
        self.add_fact(&Fact::from(turn));
    }

    pub(super) fn add_fact(&mut self, fact: &Fact) {
        match fact.kind {
            RequestKind::Turn => {
                self.requests += 1;
                self.turns += u64::from(fact.is_turn());
                self.errors += u64::from(fact.outcome.is_error());
                self.add_judged(fact.judged);
            }
            RequestKind::KeepWarm => self.keep_warm += 1,
            _ => return,
        }
        self.add_bill(fact);
    }

    fn add_judged(&mut self, judged: Option<Judged>) {
        let Some(judged) = judged else { return };
        self.judged += 1;
        if !judged.is_break() {
            return;
        }
        self.breaks += 1;
        let lost = judged.lost_tokens.unwrap_or(0);
        self.lost_tokens = self.lost_tokens.saturating_add(lost);
        match judged.lost_pico {
            Some(pico) => self.lost_pico += i128::from(pico),
            None => self.breaks_unpriced += 1,
        }
    }

    /// Tokens and money.
    fn add_bill(&mut self, fact: &Fact) {
        self.estimated += u64::from(fact.usage_estimated);
        if fact.billable() {
            self.unpriced += u64::from(fact.cost_pico.is_none());
            self.incomplete += u64::from(!fact.usage_complete);
        }
        self.tokens.add(&fact.usage);
        if let Some(cost) = fact.cost_pico {
            self.cost_pico = Some(self.cost_pico.unwrap_or(0) + i128::from(cost));
            let without = match fact.kind {
                RequestKind::KeepWarm => Some(0),
                _ => fact.cost_no_cache_pico,
            };
            if let Some(without) = without {
                let saved = i128::from(without) - i128::from(cost);
                self.saving_pico = Some(self.saving_pico.unwrap_or(0) + saved);
                let sum = self.cost_no_cache_pico.unwrap_or(0);
                self.cost_no_cache_pico = Some(sum + i128::from(without));
            }
        }
        if let Some(prompt) = fact.usage.prompt() {
            self.prompt = self.prompt.saturating_add(prompt);
            self.read = self.read.saturating_add(fact.usage.read.unwrap_or(0));
        }
    }

    /// Adds other sums, of other requests.
    pub fn merge(&mut self, other: &Self) {
        fn plus<T: std::ops::Add<Output = T>>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            }
        }
        self.turns += other.turns;
        self.requests += other.requests;
        self.errors += other.errors;
        self.keep_warm += other.keep_warm;
        self.judged += other.judged;
        self.breaks += other.breaks;
        self.breaks_unpriced += other.breaks_unpriced;
        self.lost_tokens = self.lost_tokens.saturating_add(other.lost_tokens);
        self.lost_pico += other.lost_pico;
        self.unpriced += other.unpriced;
        self.incomplete += other.incomplete;
        self.estimated += other.estimated;
        let tokens = other.tokens;
        self.tokens.add(&Usage {
            uncached: tokens.uncached,
            read: tokens.read,
            write_5m: tokens.write_5m,
            write_1h: tokens.write_1h,
            write_30m: tokens.write_30m,
            write_12h: tokens.write_12h,
            output: tokens.output,
            ..Usage::default()
        });
        self.cost_pico = plus(self.cost_pico, other.cost_pico);
        self.cost_no_cache_pico = plus(self.cost_no_cache_pico, other.cost_no_cache_pico);
        self.saving_pico = plus(self.saving_pico, other.saving_pico);
        self.prompt = self.prompt.saturating_add(other.prompt);
        self.read = self.read.saturating_add(other.read);
    }

    /// Known cost in pico-USD; zero when there was nothing to pay for, `None` when nothing of what
    /// there was is priced.
    #[must_use]
    pub fn known_cost(&self) -> Option<i128> {
        match self.cost_pico {
            None if self.unpriced == 0 => Some(0),
            cost => cost,
        }
    }

    /// Whether [`Totals::known_cost`] is all there is to pay.
    #[must_use]
    pub fn cost_complete(&self) -> bool {
        self.unpriced == 0 && self.incomplete == 0
    }

    /// What the breaks cost more than reading would have, in pico-USD, as far as it is known;
    /// `None` when no turn was judged, or no loss of those there were is priced.
    #[must_use]
    pub fn known_loss(&self) -> Option<i128> {
        let nothing_known =
            self.judged == 0 || (self.breaks > 0 && self.breaks_unpriced == self.breaks);
        (!nothing_known).then_some(self.lost_pico)
    }

    /// Tokens of the whole prompts, over the requests that told all kinds.
    #[must_use]
    pub fn prompt(&self) -> Option<u64> {
        (self.prompt > 0).then_some(self.prompt)
    }

    /// Tokens read from the cache per prompt token, over the requests that told all kinds.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people, not money")]
        (self.prompt > 0).then(|| self.read as f64 / self.prompt as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(outcome: Outcome, status: Option<u16>) -> Fact {
        Fact {
            kind: RequestKind::Turn,
            attempt: 1,
            outcome,
            status,
            usage: Usage::default(),
            usage_complete: false,
            usage_estimated: false,
            cost_pico: None,
            cost_no_cache_pico: None,
            judged: None,
        }
    }

    fn answered(read: u64, uncached: u64, cost: Option<u64>) -> Fact {
        Fact {
            usage: Usage {
                uncached: Some(uncached),
                read: Some(read),
                write_5m: Some(0),
                write_1h: Some(0),
                output: Some(10),
                ..Usage::default()
            },
            usage_complete: true,
            cost_pico: cost,
            cost_no_cache_pico: cost.map(|c| c * 3),
            ..fact(Outcome::Ok, Some(200))
        }
    }

    fn sum(facts: &[Fact]) -> Totals {
        let mut totals = Totals::default();
        facts.iter().for_each(|f| totals.add_fact(f));
        totals
    }

    #[test]
    fn a_retry_is_no_turn_but_its_tokens_and_cost_count() {
        let retry = Fact {
            attempt: 2,
            ..answered(0, 100, Some(5))
        };
        let totals = sum(&[answered(0, 100, Some(7)), retry]);
        assert_eq!((totals.turns, totals.requests), (1, 2));
        assert_eq!(totals.known_cost(), Some(12));
        assert_eq!(totals.tokens.uncached, Some(200));
    }

    #[test]
    fn what_was_refused_is_no_turn_and_costs_nothing() {
        let totals = sum(&[
            fact(Outcome::Refused, Some(400)),
            fact(Outcome::ClientError, Some(413)),
            fact(Outcome::UpstreamError, Some(429)),
        ]);
        assert_eq!((totals.turns, totals.requests, totals.errors), (1, 3, 3));
        assert_eq!(totals.known_cost(), Some(0));
        assert!(totals.cost_complete());
        assert_eq!(totals.tokens, Tokens::default());
        assert_eq!(totals.hit_ratio(), None);
    }

    #[test]
    fn unknown_is_never_zero() {
        // Broken off, or an error inside a stream that had begun: something was generated.
        for unknown in [
            fact(Outcome::UpstreamCut, Some(200)),
            fact(Outcome::UpstreamError, Some(200)),
            fact(Outcome::UpstreamUnreachable, Some(502)),
            fact(Outcome::ClientAbort, None),
        ] {
            let totals = sum(&[unknown]);
            assert_eq!(totals.known_cost(), None);
            assert!(!totals.cost_complete());
            let totals = sum(&[unknown, answered(0, 1, Some(4))]);
            assert_eq!(totals.known_cost(), Some(4));
            assert!(!totals.cost_complete());
            assert_eq!((totals.unpriced, totals.incomplete), (1, 1));
        }
    }

    #[test]
    fn an_unpriced_model_leaves_its_tokens_and_marks_the_sum() {
        let totals = sum(&[answered(900, 100, None), answered(0, 1_000, Some(9))]);
        assert_eq!(totals.tokens.read, Some(900));
        assert_eq!(totals.hit_ratio(), Some(0.45));
        assert_eq!((totals.unpriced, totals.incomplete), (1, 0));
        assert_eq!(totals.saving_pico, Some(18));
        assert!(!totals.cost_complete());
    }

    #[test]
    fn a_cache_that_was_written_for_nothing_saves_a_negative_sum() {
        let wasted = Fact {
            cost_pico: Some(125),
            cost_no_cache_pico: Some(100),
            ..answered(0, 0, None)
        };
        assert_eq!(sum(&[wasted]).saving_pico, Some(-25));
    }

    #[test]
    fn merging_is_adding() {
        let facts = [
            answered(900, 100, None),
            fact(Outcome::Refused, Some(400)),
            answered(0, 1_000, Some(9)),
            fact(Outcome::UpstreamCut, Some(200)),
        ];
        let mut merged = sum(&facts[..2]);
        merged.merge(&sum(&facts[2..]));
        assert_eq!(merged, sum(&facts));
    }
}
