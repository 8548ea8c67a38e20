//! The least that recorded traffic could have cost with the whole future known.
//!
//! Each piece of prompt between two neighbouring positions of a prefix is looked at alone: at each
//! request that contains it, it is read (when it is alive), written for five minutes or an hour, or
//! left uncached. Dynamic programming over these requests finds the cheapest sequence, and the sum
//! over all pieces is a lower bound of what any choice of markers costs: every choice does one of
//! these things with each piece, under rules at least as strict. All requests with a piece contain
//! what stands before it, so that the best choices of the pieces mostly fit together and the bound
//! is nearly reached.
//!
//! Lifetimes: a prefix's lifetime should never change while a thread runs, since measurements disagree
//! about whether its entry is still found then. So in [`optimum`] no living piece changes its
//! lifetime: it is written anew for another one only when it is dead. [`optimum_with_flips`] is the
//! bound without that.
//!
//! With flips, pieces do one thing for each other: an entry holds all of its prefix, and only what was not
//! read is billed as written. So whatever is read at a request can live for an hour from then on
//! at no cost of its own, when something behind it is written for an hour.
//!
//! Where it is too low, mostly by little: more than four markers would be needed; nothing is worth
//! its hour behind what profits from it; a long lifetime is wanted deep in a prompt whose front
//! needs only a short one; requests that start while an answer is awaited.

use super::strategies::{Request, Tally, Traffic};
use crate::provider::view::Ttl;

/// A cost that no sequence reaches.
const NEVER: u64 = u64::MAX;

/// What a piece is after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not in the cache.
    Absent,
    /// In the cache for five minutes from the newest request with it.
    Short,
    /// For an hour.
    Long,
    /// Written for five minutes, to be read once the answer has begun.
    ShortSoon,
    /// For an hour.
    LongSoon,
}

impl State {
    const ALL: [Self; 5] = [
        Self::Absent,
        Self::Short,
        Self::Long,
        Self::ShortSoon,
        Self::LongSoon,
    ];
}

/// What a request does with a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Uncached,
    Read,
    Write(Ttl),
}

/// How the cheapest way into a state came about: the state before it, and the act.
type Step = [(State, Act); 5];

/// A piece in a request.
#[derive(Debug, Clone, Copy, Default)]
struct Occurrence {
    /// The request's number.
    request: u32,
    /// Something behind the piece can be written.
    inner: bool,
    /// Tokens of the piece there.
    tokens: u64,
}

/// Tokens and cost of each request in the order of the traffic, in the cheapest case in which no
/// living piece of a prompt changes its lifetime.
#[must_use]
pub fn optimum(traffic: &Traffic) -> Vec<Tally> {
    least(traffic, false)
}

/// The same where lifetimes may change: a bound for every choice of markers.
#[must_use]
pub fn optimum_with_flips(traffic: &Traffic) -> Vec<Tally> {
    least(traffic, true)
}

fn least(traffic: &Traffic, flips: bool) -> Vec<Tally> {
    let requests = traffic.requests();
    let mut tallies = vec![Tally::default(); requests.len()];
    let (starts, occurrences) = by_piece(traffic, &mut tallies);
    let mut steps: Vec<Step> = Vec::new();
    for piece in starts.windows(2) {
        let own = &occurrences[piece[0]..piece[1]];
        if !own.is_empty() {
            cheapest(requests, own, flips, &mut steps, &mut tallies);
        }
    }
    for (request, tally) in requests.iter().zip(&mut tallies) {
        request.price(tally);
    }
    tallies
}

/// The requests of each piece in order, one piece after the other, and where each begins. What can
/// never be in the cache goes to the tallies at once.
fn by_piece(traffic: &Traffic, tallies: &mut [Tally]) -> (Vec<usize>, Vec<Occurrence>) {
    let requests = traffic.requests();
    let mut starts = vec![0; traffic.nodes() + 1];
    for request in requests {
        for position in &request.positions[shortest(request)..request.cacheable()] {
            starts[position.node as usize + 1] += 1;
        }
    }
    for node in 1..starts.len() {
        starts[node] += starts[node - 1];
    }
    let mut next = starts.clone();
    let mut occurrences = vec![Occurrence::default(); starts.last().copied().unwrap_or(0)];
    for (index, (request, tally)) in requests.iter().zip(tallies).enumerate() {
        let mut upto = 0;
        let count = request.cacheable();
        let pieces = request.positions[..count].iter().enumerate();
        for (at, position) in pieces.skip(shortest(request)) {
            let slot = &mut next[position.node as usize];
            occurrences[*slot] = Occurrence {
                request: index as u32,
                inner: at + 1 < count,
                tokens: position.upto - upto,
            };
            *slot += 1;
            upto = position.upto;
        }
        tally.uncached = request.tokens - upto;
    }
    (starts, occurrences)
}

/// Index of the first position at which an entry can stand: what is shorter than the minimum is in
/// the cache only with what follows it, and is part of that piece. (All requests with one prefix are
/// of one model, and so have one minimum.)
fn shortest(request: &Request) -> usize {
    let positions = &request.positions;
    let first = positions.partition_point(|position| position.upto < request.min_tokens);
    first.min(request.cacheable())
}

/// The cheapest sequence for one piece, added to the tallies of its requests.
fn cheapest(
    requests: &[Request],
    occurrences: &[Occurrence],
    flips: bool,
    steps: &mut Vec<Step>,
    tallies: &mut [Tally],
) {
    let mut ways = Ways::new(flips);
    steps.clear();
    let mut previous_ms = None;
    for piece in occurrences {
        let request = &requests[piece.request as usize];
        let now = request.recorded.at_ms;
        if let Some(previous) = previous_ms {
            ways.pass(now, now.saturating_sub(previous));
        }
        steps.push(ways.step(request, piece));
        previous_ms = Some(now);
    }
    let mut state = ways.best();
    for (step, piece) in steps.iter().zip(occurrences).rev() {
        let (before, act) = step[state as usize];
        let tally = &mut tallies[piece.request as usize];
        let tokens = piece.tokens;
        match act {
            Act::Uncached => tally.uncached += tokens,
            Act::Read => tally.read += tokens,
            Act::Write(ttl) if ttl.is_long() => tally.write_1h += tokens,
            Act::Write(_) => tally.write_5m += tokens,
        }
        state = before;
    }
}

/// The cheapest ways so far into each state.
struct Ways {
    /// Living pieces may change their lifetime.
    flips: bool,
    cost: [u64; 5],
    /// The state after the last request from which the cost of each came, since time moves them.
    from: [State; 5],
    /// When what is written can be read at the earliest, for the two states that wait for it.
    ready_ms: [i64; 5],
}

impl Ways {
    fn new(flips: bool) -> Self {
        let mut cost = [NEVER; 5];
        cost[State::Absent as usize] = 0;
        Self {
            flips,
            cost,
            from: State::ALL,
            ready_ms: [i64::MAX; 5],
        }
    }

    /// Time passes until `now`, `gap` milliseconds after the last request with the piece.
    fn pass(&mut self, now: i64, gap: i64) {
        self.from = State::ALL;
        for (ttl, here, soon) in [
            (Ttl::M5, State::Short, State::ShortSoon),
            (Ttl::H1, State::Long, State::LongSoon),
        ] {
            if gap >= ttl.ms() {
                self.fold(here, State::Absent);
                self.fold(soon, State::Absent);
            } else if self.ready_ms[soon as usize] <= now {
                self.fold(soon, here);
            }
        }
    }

    /// Moves one state's way into another, where it is the cheaper one.
    fn fold(&mut self, old: State, new: State) {
        let (old, new) = (old as usize, new as usize);
        if self.cost[old] < self.cost[new] {
            self.cost[new] = self.cost[old];
            self.from[new] = self.from[old];
        }
        self.cost[old] = NEVER;
        self.ready_ms[old] = i64::MAX;
    }

    /// A request with the piece.
    fn step(&mut self, request: &Request, piece: &Occurrence) -> Step {
        let rates = request.rates();
        let priced = |pico: u64| piece.tokens.saturating_mul(pico);
        let (uncached, read) = (priced(rates.input_pico), priced(rates.read_pico));
        let (short, long) = (priced(rates.write_5m_pico), priced(rates.write_1h_pico));
        let (begins, write_short, write_long) =
            (request.begins_ms, Act::Write(Ttl::M5), Act::Write(Ttl::H1));
        let flips = self.flips;
        let mut cost = [NEVER; 5];
        let mut ready_ms = [i64::MAX; 5];
        let mut step: Step = [(State::Absent, Act::Uncached); 5];
        let mut way = |from: State, to: State, act: Act, price: u64, ready: i64| {
            let before = self.cost[from as usize];
            let lasts = |state| matches!(state, State::Long | State::LongSoon);
            let flip = from != State::Absent && lasts(from) != lasts(to);
            if before == NEVER || (flip && !flips) {
                return;
            }
            let (to, sum) = (to as usize, before.saturating_add(price));
            // Of two ways into a waiting state the cheaper one is kept, and the earlier time: that
            // is at most too good.
            ready_ms[to] = ready_ms[to].min(ready);
            if sum < cost[to] {
                cost[to] = sum;
                step[to] = (self.from[from as usize], act);
            }
        };
        let never = i64::MAX;
        way(State::Absent, State::Absent, Act::Uncached, uncached, never);
        way(State::Absent, State::ShortSoon, write_short, short, begins);
        way(State::Absent, State::LongSoon, write_long, long, begins);
        for here in [State::Short, State::Long] {
            way(here, here, Act::Read, read, never);
            if piece.inner {
                way(here, State::Long, Act::Read, read, never);
            }
            // Prices under which a read is not the cheapest are odd, but a user may set them.
            way(here, here, Act::Uncached, uncached, never);
            way(here, here, write_short, short, never);
            // Nothing forbids a second entry with the longer lifetime beside the first.
            way(here, State::Long, write_long, long, never);
        }
        for soon in [State::ShortSoon, State::LongSoon] {
            let ready = self.ready_ms[soon as usize];
            way(soon, soon, Act::Uncached, uncached, ready);
            way(soon, soon, write_short, short, ready.min(begins));
            way(soon, State::LongSoon, write_long, long, ready.min(begins));
        }
        self.cost = cost;
        self.ready_ms = ready_ms;
        step
    }

    fn best(&self) -> State {
        let all = State::ALL.into_iter();
        all.min_by_key(|state| self.cost[*state as usize])
            .unwrap_or(State::Absent)
    }
}

#[cfg(test)]
mod tests;
