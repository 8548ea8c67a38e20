//! The book of one scope.

use std::collections::HashSet;

use super::agents::Agents;
use super::rate::Rate;
use super::{Amounts, Ask, Cap, Crossing, Denied, Left, Limits, Scope};

/// The caps on amounts, in the order in which they are looked at.
pub(super) const AMOUNTS: [Cap; 5] = [
    Cap::Turns,
    Cap::Usd,
    Cap::Tokens,
    Cap::InputTokens,
    Cap::OutputTokens,
];
/// When a request that is one too many at a time should be tried again, in milliseconds.
const BUSY_MS: u64 = 1_000;

/// Sums of amounts. Wider than an amount, so that what was added can be taken away again exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    turns: u128,
    input: u128,
    output: u128,
    pico: u128,
}

impl Sums {
    fn with(self, amounts: &Amounts, work: impl Fn(u128, u128) -> u128) -> Self {
        Self {
            turns: work(self.turns, u128::from(amounts.turns)),
            input: work(self.input, u128::from(amounts.input)),
            output: work(self.output, u128::from(amounts.output)),
            pico: work(self.pico, u128::from(amounts.pico)),
        }
    }

    fn add(&mut self, amounts: &Amounts) {
        *self = self.with(amounts, u128::saturating_add);
    }

    fn take(&mut self, amounts: &Amounts) {
        *self = self.with(amounts, u128::saturating_sub);
    }

    /// As far as a cap counts them; 0 for caps that are not on amounts.
    fn of(&self, cap: Cap) -> u128 {
        match cap {
            Cap::Turns => self.turns,
            Cap::InputTokens => self.input,
            Cap::OutputTokens => self.output,
            Cap::Tokens => self.input.saturating_add(self.output),
            Cap::Usd => self.pico,
            Cap::WallTime
            | Cap::Depth
            | Cap::Agents
            | Cap::RequestsPerMinute
            | Cap::Concurrency => 0,
        }
    }
}

impl From<&Amounts> for Sums {
    fn from(amounts: &Amounts) -> Self {
        Self::default().with(amounts, |_, amount| amount)
    }
}

fn count(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// What a scope has used, and what requests under way may still use.
#[derive(Debug, Default)]
pub(super) struct Book {
    spent: Sums,
    held: Sums,
    /// The requests under way.
    holds: HashSet<u128>,
    /// Its first request, UTC milliseconds.
    first_ms: Option<i64>,
    agents: Agents,
    rate: Rate,
    /// For each cap, how many of the levels have been told.
    told: [usize; Cap::ALL.len()],
    /// Levels that it had reached at its beginning are marked as told.
    begun: bool,
    /// When it was last used, UTC milliseconds.
    touched_ms: i64,
}

impl Book {
    /// Begins with what has been spent so far.
    pub(super) fn new(spent: &Amounts, first_ms: Option<i64>, now_ms: i64) -> Self {
        Self {
            spent: spent.into(),
            first_ms,
            touched_ms: now_ms,
            ..Self::default()
        }
    }

    pub(super) fn is_held(&self) -> bool {
        !self.holds.is_empty()
    }

    pub(super) fn touched_ms(&self) -> i64 {
        self.touched_ms
    }

    /// What has been spent and what is held, as far as a cap counts them.
    pub(super) fn figures(&self, cap: Cap) -> (u64, u64) {
        (count(self.spent.of(cap)), count(self.held.of(cap)))
    }

    /// A request asks, whatever comes of it.
    pub(super) fn open(&mut self, limits: &Limits, levels: &[u32], now_ms: i64) {
        self.touched_ms = now_ms;
        self.first_ms.get_or_insert(now_ms);
        if !self.begun {
            self.begun = true;
            for cap in AMOUNTS.into_iter().chain([Cap::WallTime]) {
                if let Some(limit) = limits.of(cap) {
                    self.told[cap as usize] = reached(self.value(cap, now_ms), limit, levels);
                }
            }
        }
    }

    /// The cap that will not let the request pass however often it is tried.
    pub(super) fn hard(&self, scope: &Scope, limits: &Limits, ask: &Ask) -> Option<Denied> {
        let denied = |cap, spent, held, asked, limit| Denied {
            scope: scope.clone(),
            cap,
            spent,
            held,
            asked,
            limit,
            after_ms: None,
        };
        let most = Sums::from(&ask.most);
        for cap in AMOUNTS {
            let Some(limit) = limits.of(cap) else {
                continue;
            };
            let (spent, held, asked) = (self.spent.of(cap), self.held.of(cap), most.of(cap));
            let all = spent.saturating_add(held).saturating_add(asked);
            if spent >= u128::from(limit) || all > u128::from(limit) {
                return Some(denied(cap, count(spent), count(held), count(asked), limit));
            }
        }
        if let Some(limit) = limits.wall_ms {
            let elapsed = self.elapsed_ms(ask.now_ms);
            if elapsed >= limit {
                return Some(denied(Cap::WallTime, elapsed, 0, 0, limit));
            }
        }
        if let Some(limit) = limits.depth
            && ask.depth > limit
        {
            let (depth, limit) = (u64::from(ask.depth), u64::from(limit));
            return Some(denied(Cap::Depth, 0, 0, depth, limit));
        }
        if let Some(limit) = limits.agents
            && !self.agents.is_live(&ask.agent, ask.now_ms)
        {
            let live = self.agents.live(ask.now_ms) as u64;
            if live >= u64::from(limit) {
                return Some(denied(Cap::Agents, live, 0, 1, u64::from(limit)));
            }
        }
        None
    }

    /// The cap that lets the request pass later.
    pub(super) fn soft(&self, scope: &Scope, limits: &Limits, now_ms: i64) -> Option<Denied> {
        let denied = |cap, spent, limit: u32, after_ms| Denied {
            scope: scope.clone(),
            cap,
            spent,
            held: 0,
            asked: 1,
            limit: u64::from(limit),
            after_ms: Some(after_ms),
        };
        if let Some(limit) = limits.requests_per_minute
            && let Err(many) = self.rate.ask(u64::from(limit), now_ms)
        {
            let cap = Cap::RequestsPerMinute;
            return Some(denied(cap, many.count, limit, many.after_ms));
        }
        if let Some(limit) = limits.concurrency {
            let under_way = self.holds.len() as u64;
            if under_way >= u64::from(limit) {
                return Some(denied(Cap::Concurrency, under_way, limit, BUSY_MS));
            }
        }
        None
    }

    /// The request goes upstream.
    pub(super) fn hold(&mut self, ask: &Ask, id: u128) {
        if self.holds.insert(id) {
            self.held.add(&ask.most);
            self.agents.begin(&ask.agent, ask.now_ms);
            self.rate.add(ask.now_ms);
        }
    }

    /// The request has ended. One that holds nothing here began before there was a book: what it
    /// used counts all the same.
    pub(super) fn settle(&mut self, ask: &Ask, id: u128, used: &Amounts, ended: bool, now_ms: i64) {
        if self.holds.remove(&id) {
            self.held.take(&ask.most);
            self.agents.end(&ask.agent, ended, now_ms);
        }
        self.spent.add(used);
        self.touched_ms = now_ms;
    }

    /// Tells the levels of a cap that have been reached and not been told.
    pub(super) fn cross(
        &mut self,
        (scope, limits): (&Scope, &Limits),
        cap: Cap,
        now_ms: i64,
        levels: &[u32],
        to: &mut Vec<Crossing>,
    ) {
        if let Some(limit) = limits.of(cap) {
            let value = self.value(cap, now_ms);
            let like = Crossing {
                scope: scope.clone(),
                cap,
                level: 0,
                value,
                limit,
            };
            self.tell(reached(value, limit, levels), &like, levels, to);
        }
    }

    fn tell(&mut self, reached: usize, like: &Crossing, levels: &[u32], to: &mut Vec<Crossing>) {
        let told = &mut self.told[like.cap as usize];
        for level in levels.iter().take(reached).skip(*told) {
            let level = *level;
            to.push(Crossing {
                level,
                ..like.clone()
            });
        }
        *told = (*told).max(reached);
    }

    /// What is left.
    pub(super) fn left(&self, limits: &Limits, now_ms: i64) -> Left {
        let of = |cap| {
            let limit = u128::from(limits.of(cap)?);
            let taken = self.spent.of(cap).saturating_add(self.held.of(cap));
            Some(count(limit.saturating_sub(taken)))
        };
        let tokens = [Cap::Tokens, Cap::InputTokens, Cap::OutputTokens];
        Left {
            turns: of(Cap::Turns),
            tokens: tokens.into_iter().filter_map(of).min(),
            usd_pico: of(Cap::Usd),
            wall_ms: limits
                .wall_ms
                .map(|limit| limit.saturating_sub(self.elapsed_ms(now_ms))),
        }
    }

    /// What has been used of a cap that has levels.
    fn value(&self, cap: Cap, now_ms: i64) -> u64 {
        match cap {
            Cap::WallTime => self.elapsed_ms(now_ms),
            cap => count(self.spent.of(cap)),
        }
    }

    /// Since the first request; 0 when the clock was set back before it.
    fn elapsed_ms(&self, now_ms: i64) -> u64 {
        let first = self.first_ms.unwrap_or(now_ms);
        u64::try_from(now_ms.saturating_sub(first)).unwrap_or(0)
    }
}

/// How many of the levels (percent, ascending) a value has reached. Nothing used has reached none.
fn reached(value: u64, limit: u64, levels: &[u32]) -> usize {
    let share = u128::from(value) * 100;
    let reach = |level: &&u32| value > 0 && share >= u128::from(**level) * u128::from(limit);
    levels.iter().take_while(reach).count()
}
