//! Sums over requests: the one place that says what counts, for every report and every store.

use crate::prompt_cache::verdict::{Status, Verdict};
use crate::trace::{Outcome, RequestKind, TurnRecord};
use crate::usage::Usage;

/// Number of kinds of tokens that are summed up.
pub(super) const KINDS: usize = 7;
/// Names of the kinds, which every store has as columns: those of the prompt, then the output.
pub(super) const KIND_COLUMNS: [&str; KINDS] = [
    "uncached",
    "read",
    "write_5m",
    "write_1h",
    "write_30m",
    "write_12h",
    "output",
];
/// In SQL the tokens of a whole prompt, NULL unless all kinds of it are known, as [`Usage::prompt`]
/// has them: a provider tells one pair of lifetimes or the other. `column` gives a kind as a wide
/// integer.
pub(super) fn prompt_sql(column: impl Fn(&str) -> String) -> String {
    let pair = |short, long| format!("{} + {}", column(short), column(long));
    let (minutes, hours) = (pair("write_5m", "write_1h"), pair("write_30m", "write_12h"));
    format!(
        "{} + {} + coalesce({minutes} + {hours}, {minutes}, {hours})",
        column("uncached"),
        column("read")
    )
}
/// Where the kinds have what was read.
const READ: usize = 1;

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

    /// In the order of [`KIND_COLUMNS`].
    fn kinds(&mut self) -> [&mut Option<u64>; KINDS] {
        [
            &mut self.uncached,
            &mut self.read,
            &mut self.write_5m,
            &mut self.write_1h,
            &mut self.write_30m,
            &mut self.write_12h,
            &mut self.output,
        ]
    }

    fn add(&mut self, more: [Option<u128>; KINDS]) {
        for (sum, more) in self.kinds().into_iter().zip(more) {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(saturated(more)));
            }
        }
    }
}

/// The kinds of a usage, in the order of [`KIND_COLUMNS`].
fn kinds_of(usage: &Usage) -> [Option<u64>; KINDS] {
    [
        usage.uncached,
        usage.read,
        usage.write_5m,
        usage.write_1h,
        usage.write_30m,
        usage.write_12h,
        usage.output,
    ]
}

/// The usage of which a store has these kinds, in the order of [`KIND_COLUMNS`].
pub(super) fn usage_of(kinds: [Option<u64>; KINDS]) -> Usage {
    let [
        uncached,
        read,
        write_5m,
        write_1h,
        write_30m,
        write_12h,
        output,
    ] = kinds;
    Usage {
        uncached,
        read,
        write_5m,
        write_1h,
        write_30m,
        write_12h,
        output,
        ..Usage::default()
    }
}

/// Tokens end at the largest integer: nothing that is real comes near it.
pub(super) fn saturated(tokens: u128) -> u64 {
    u64::try_from(tokens).unwrap_or(u64::MAX)
}

/// A sum of money as part of a larger one.
pub(super) fn signed(pico: u128) -> i128 {
    i128::try_from(pico).unwrap_or(i128::MAX)
}

/// What a verdict says of a loss; of several requests the sums of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) status: Status,
    pub(super) lost_tokens: Option<u128>,
    pub(super) lost_pico: Option<u128>,
}

impl From<&Verdict> for Judged {
    fn from(verdict: &Verdict) -> Self {
        Self {
            status: verdict.status,
            lost_tokens: verdict.lost_tokens.map(u128::from),
            lost_pico: verdict.lost_pico.map(u128::from),
        }
    }
}

impl Judged {
    /// Whether less was read than was there. SQL says the same in
    /// [`BREAK`](super::audit::BREAK).
    pub(super) fn is_break(&self) -> bool {
        matches!(self.status, Status::Partial | Status::Miss)
            || self.lost_tokens.is_some_and(|n| n > 0)
    }
}

/// What decides how a request counts; or how several do that count alike. Then everything but the
/// amounts is the same for all of them, which of the amounts are known too, and the amounts are
/// sums. (Of the attempt only whether it is a retry has to be the same, of the status whether it is
/// an error, of the lost tokens whether there are any.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fact {
    /// Number of requests.
    pub(super) count: u64,
    pub(super) kind: RequestKind,
    pub(super) attempt: u32,
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    /// Tokens in the order of [`KIND_COLUMNS`].
    pub(super) tokens: [Option<u128>; KINDS],
    /// Tokens of the whole prompt; unknown unless every kind of it is known, see
    /// [`Usage::prompt`].
    pub(super) prompt: Option<u128>,
    pub(super) usage_complete: bool,
    pub(super) usage_estimated: bool,
    pub(super) cost_pico: Option<u128>,
    pub(super) cost_no_cache_pico: Option<u128>,
    pub(super) judged: Option<Judged>,
}

impl From<&TurnRecord> for Fact {
    fn from(turn: &TurnRecord) -> Self {
        Self {
            usage_complete: turn.usage_complete,
            usage_estimated: turn.usage_estimated,
            cost_pico: turn.cost_pico.map(u128::from),
            cost_no_cache_pico: turn.cost_no_cache_pico.map(u128::from),
            judged: turn.cache.verdict.as_ref().map(Judged::from),
            ..Self::one(
                turn.kind,
                turn.attempt,
                turn.outcome,
                turn.status,
                &turn.usage,
            )
        }
    }
}

impl Fact {
    /// One request of which nothing else is known.
    pub(super) fn one(
        kind: RequestKind,
        attempt: u32,
        outcome: Outcome,
        status: Option<u16>,
        usage: &Usage,
    ) -> Self {
        Self {
            count: 1,
            kind,
            attempt,
            outcome,
            status,
            tokens: kinds_of(usage).map(|known| known.map(u128::from)),
            prompt: usage.prompt().map(u128::from),
            usage_complete: false,
            usage_estimated: false,
            cost_pico: None,
            cost_no_cache_pico: None,
            judged: None,
        }
    }

    /// Whether the request is a turn of its own: it was given on, and is not a client's retry.
    pub(super) fn is_turn(&self) -> bool {
        self.kind == RequestKind::Turn && self.attempt <= 1 && self.outcome.forwarded()
    }

    /// Whether the provider may have charged for it. It does not for what never reached it, nor
    /// for an answer that is an error from its status on.
    pub(super) fn billable(&self) -> bool {
        let nothing_told = self.cost_pico.is_none() && self.tokens.iter().all(Option::is_none);
        let error_status = self.outcome == Outcome::UpstreamError
            && self.status.is_some_and(|status| status >= 400);
        !(nothing_told && (error_status || !self.outcome.forwarded()))
    }

    /// How many of the requests these are, if it holds for them.
    pub(super) fn count_if(&self, holds: bool) -> u64 {
        if holds { self.count } else { 0 }
    }

    /// Tokens of the prompts and what of them was read, where all kinds were told.
    pub(super) fn prompt_and_read(&self) -> Option<(u64, u64)> {
        let read = self.tokens[READ].unwrap_or(0);
        Some((saturated(self.prompt?), saturated(read)))
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

    /// Adds a request, or several that count alike: the one place that says what counts.
    pub(super) fn add_fact(&mut self, fact: &Fact) {
        match fact.kind {
            RequestKind::Turn => {
                self.requests += fact.count;
                self.turns += fact.count_if(fact.is_turn());
                self.errors += fact.count_if(fact.outcome.is_error());
                self.add_judged(fact);
            }
            RequestKind::KeepWarm => self.keep_warm += fact.count,
            _ => return,
        }
        self.add_bill(fact);
    }

    fn add_judged(&mut self, fact: &Fact) {
        let Some(judged) = fact.judged else { return };
        self.judged += fact.count;
        if !judged.is_break() {
            return;
        }
        self.breaks += fact.count;
        let lost = saturated(judged.lost_tokens.unwrap_or(0));
        self.lost_tokens = self.lost_tokens.saturating_add(lost);
        match judged.lost_pico {
            Some(pico) => self.lost_pico = self.lost_pico.saturating_add(signed(pico)),
            None => self.breaks_unpriced += fact.count,
        }
    }

    /// Tokens and money.
    fn add_bill(&mut self, fact: &Fact) {
        self.estimated += fact.count_if(fact.usage_estimated);
        if fact.billable() {
            self.unpriced += fact.count_if(fact.cost_pico.is_none());
            self.incomplete += fact.count_if(!fact.usage_complete);
        }
        self.tokens.add(fact.tokens);
        if let Some(cost) = fact.cost_pico.map(signed) {
            let sum = self.cost_pico.unwrap_or(0);
            self.cost_pico = Some(sum.saturating_add(cost));
            let without = match fact.kind {
                RequestKind::KeepWarm => Some(0),
                _ => fact.cost_no_cache_pico.map(signed),
            };
            if let Some(without) = without {
                let sum = self.saving_pico.unwrap_or(0);
                self.saving_pico = Some(sum.saturating_add(without.saturating_sub(cost)));
                let sum = self.cost_no_cache_pico.unwrap_or(0);
                self.cost_no_cache_pico = Some(sum.saturating_add(without));
            }
        }
        if let Some((prompt, read)) = fact.prompt_and_read() {
            self.prompt = self.prompt.saturating_add(prompt);
            self.read = self.read.saturating_add(read);
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
        let mut tokens = other.tokens;
        self.tokens
            .add(tokens.kinds().map(|known| known.map(u128::from)));
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn fact(outcome: Outcome, status: Option<u16>) -> Fact {
        Fact::one(RequestKind::Turn, 1, outcome, status, &Usage::default())
    }

    fn answered(read: u64, uncached: u64, cost: Option<u64>) -> Fact {
        let usage = Usage {
            uncached: Some(uncached),
            read: Some(read),
            write_5m: Some(0),
            write_1h: Some(0),
            output: Some(10),
            ..Usage::default()
        };
        let cost = cost.map(u128::from);
        Fact {
            usage_complete: true,
            cost_pico: cost,
            cost_no_cache_pico: cost.map(|c| c * 3),
            ..Fact::one(RequestKind::Turn, 1, Outcome::Ok, Some(200), &usage)
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

    /// What has to be the same for requests to count alike.
    fn class(fact: &Fact) -> String {
        let known = |amount: Option<u128>| amount.is_some();
        let tokens = fact.tokens.map(known);
        let judged = fact.judged.map(|judged| {
            let lost = (judged.lost_tokens.map(|n| n > 0), known(judged.lost_pico));
            (judged.status, lost)
        });
        let class = (
            (fact.kind, fact.attempt > 1, fact.outcome),
            fact.status.is_some_and(|status| status >= 400),
            (tokens, known(fact.prompt)),
            (fact.usage_complete, fact.usage_estimated),
            (known(fact.cost_pico), known(fact.cost_no_cache_pico)),
            judged,
        );
        format!("{class:?}")
    }

    fn plus(a: Option<u128>, b: Option<u128>) -> Option<u128> {
        Some(a? + b?)
    }

    /// Both, as one.
    fn joined(a: &Fact, b: &Fact) -> Fact {
        let mut sum = *a;
        sum.count += b.count;
        for (sum, more) in sum.tokens.iter_mut().zip(b.tokens) {
            *sum = plus(*sum, more);
        }
        sum.prompt = plus(a.prompt, b.prompt);
        sum.cost_pico = plus(a.cost_pico, b.cost_pico);
        sum.cost_no_cache_pico = plus(a.cost_no_cache_pico, b.cost_no_cache_pico);
        sum.judged = a.judged.zip(b.judged).map(|(a, b)| Judged {
            status: a.status,
            lost_tokens: plus(a.lost_tokens, b.lost_tokens),
            lost_pico: plus(a.lost_pico, b.lost_pico),
        });
        sum
    }

    fn any_fact() -> impl Strategy<Value = Fact> {
        let amount = || {
            let some = prop_oneof![Just(0), 1..10_000_u64, Just(u64::MAX - 1), Just(u64::MAX)];
            proptest::option::of(some)
        };
        let kinds = [
            RequestKind::Turn,
            RequestKind::KeepWarm,
            RequestKind::CountTokens,
        ];
        let judged = (proptest::sample::select(Status::ALL), amount(), amount());
        (
            (proptest::sample::select(kinds.to_vec()), 0..4_u32),
            proptest::sample::select(Outcome::ALL),
            proptest::option::of(proptest::sample::select(vec![200, 399, 400, 529])),
            proptest::array::uniform7(amount()),
            (any::<bool>(), any::<bool>()),
            (amount(), amount()),
            proptest::option::of(judged),
        )
            .prop_map(
                |((kind, attempt), outcome, status, tokens, flags, costs, judged)| Fact {
                    usage_complete: flags.0,
                    usage_estimated: flags.1,
                    cost_pico: costs.0.map(u128::from),
                    cost_no_cache_pico: costs.1.map(u128::from),
                    judged: judged.map(|(status, tokens, pico)| Judged {
                        status,
                        lost_tokens: tokens.map(u128::from),
                        lost_pico: pico.map(u128::from),
                    }),
                    ..Fact::one(kind, attempt, outcome, status, &usage_of(tokens))
                },
            )
    }

    proptest! {
        /// A store may sum up what counts alike.
        #[test]
        fn requests_that_count_alike_are_their_sum(
            facts in proptest::collection::vec(any_fact(), 0..40),
            repeats in 1..4_usize,
        ) {
            // Several of each, so that there is something to be summed up.
            let facts = facts.repeat(repeats);
            let mut classes: BTreeMap<String, Fact> = BTreeMap::new();
            for fact in &facts {
                let sum = classes.get(&class(fact)).map_or(*fact, |sum| joined(sum, fact));
                classes.insert(class(fact), sum);
            }
            let classes: Vec<Fact> = classes.into_values().collect();
            prop_assert!(repeats == 1 || facts.is_empty() || classes.len() < facts.len());
            prop_assert_eq!(sum(&classes), sum(&facts));
        }
    }
}
