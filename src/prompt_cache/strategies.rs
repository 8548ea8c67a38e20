//! What recorded traffic would have cost under other choices of breakpoints.
//!
//! [`Traffic`] is a time series of requests as hashes and sizes. [`replay`] sends it through a model
//! of the provider's cache with the breakpoints that a [`Policy`] chooses, and tells the tokens and
//! the cost of each request. Pure and deterministic: the same traffic gives the same numbers.
//!
//! The rules are the documented ones of August 2026: an entry is written at each marker, a marker
//! looks back over 20 blocks, itself included, and then goes on from the next earlier marker; no
//! entry below the model's minimum; a lifetime counts from the start of the request, a read renews
//! it and those on its path; an entry can be read once the answer to its writer has begun; the
//! span up to the highest one-hour marker behind the read is billed as one-hour write, the rest up
//! to the last marker as five-minute write. Left out: the breakpoint that the provider itself puts
//! behind the results of its own tools.

mod cache;
mod choose;
mod fill;

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use self::cache::Cache;
use super::optimum;
use super::plan::{DEFAULT_BYTES_PER_TOKEN_MILLI, UNKNOWN_MINIMUM_TOKENS};
use super::trail::{Mark, Step, Trail};
use crate::provider::view::{BlockKind, Section, Ttl, Unmarkable};
use crate::usage::Rates;

/// From the start of a request until its answer begins, where nobody measured it. Half a second
/// to a few seconds are usual.
const ASSUMED_HEAD_MS: i64 = 1_000;
/// Tokens of a picture whose size is not known: about those of one of a megapixel.
const IMAGE_TOKENS: u64 = 1_300;
/// Prices in a ratio as most models have it, for requests without a known price. They decide what
/// the optimum prefers, and are never shown as money.
const USUAL_RATES: Rates = Rates {
    input_pico: 100,
    output_pico: 500,
    read_pico: 10,
    write_5m_pico: 125,
    write_1h_pico: 200,
};

/// One recorded request that the provider answered.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its start, UTC milliseconds.
    pub at_ms: i64,
    /// When its answer began, UTC milliseconds. `None` where nobody knows: then one second after
    /// the start, and no later than the next request of the thread.
    pub begins_ms: Option<i64>,
    /// What separates two caches of the provider beside the model (upstream and credential).
    pub scope: u64,
    /// Number of its run; only the caller knows what it means.
    pub run: u32,
    /// Number of its thread, over all runs.
    pub thread: u32,
    /// Its blocks, and its breakpoints as they were sent.
    pub trail: Trail,
    /// Why a block must not carry a breakpoint, by block. `None` where only the trail is known,
    /// which tells most of it (see [`unmarkable_of`]).
    pub unmarkable: Option<Box<[Option<Unmarkable>]>>,
    /// It makes the model call a tool; `false` where that is not known.
    pub forced: bool,
    /// Tokens of the prompt as the provider counted them; `None` lets them be estimated.
    pub prompt_tokens: Option<u64>,
    /// Bytes per token in thousandths for that estimate; 0 for unknown.
    pub bytes_per_token_milli: u32,
    /// Smallest prefix that the model caches, in tokens; `None` for unknown, then
    /// [`UNKNOWN_MINIMUM_TOKENS`] is assumed.
    pub min_tokens: Option<u32>,
    /// What the model costs for a prompt of this length; `None` where it has no known price.
    pub rates: Option<Rates>,
}

/// How breakpoints are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// As they were sent: the client's, and what prefixgate added.
    AsSent,
    /// The client's only.
    Client,
    /// None at all.
    None,
    /// One, on the last block that may carry one, as the provider's top-level marker does.
    Automatic,
    /// One at the end of the system prompt (or of the tools, where there is none) and one on the
    /// newest block.
    SystemTail,
    /// What prefixgate's planner adds to the client's own.
    Fill,
    /// The least that any choice could have cost with the whole future known, if no prefix may change
    /// its lifetime; see [`optimum`].
    Optimum,
}

impl Policy {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::AsSent,
        Self::Client,
        Self::None,
        Self::Automatic,
        Self::SystemTail,
        Self::Fill,
        Self::Optimum,
    ];

    /// A stable word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AsSent => "as_sent",
            Self::Client => "client",
            Self::None => "none",
            Self::Automatic => "automatic",
            Self::SystemTail => "system_tail",
            Self::Fill => "fill",
            Self::Optimum => "optimum",
        }
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == word);
        found.ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|policy| policy.as_str()).collect();
            format!("`{word}` is no policy: write some of {}", words.join(","))
        })
    }
}

/// Tokens of prompts in the four kinds that are billed apart, and what they cost. The cost of the
/// output is the same under every policy and is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Read from the cache.
    pub read: u64,
    /// Written for five minutes.
    pub write_5m: u64,
    /// Written for one hour.
    pub write_1h: u64,
    /// Neither.
    pub uncached: u64,
    /// Their cost in pico-USD, of the requests whose model has a known price.
    pub cost_pico: u128,
}

impl Tally {
    /// All tokens.
    #[must_use]
    pub fn prompt(&self) -> u64 {
        self.read + self.written() + self.uncached
    }

    /// Tokens written, of both lifetimes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.write_5m + self.write_1h
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.write_5m += other.write_5m;
        self.write_1h += other.write_1h;
        self.uncached += other.uncached;
        self.cost_pico += other.cost_pico;
    }

    /// The tokens at these prices.
    fn priced(&mut self, rates: &Rates) {
        let of = |tokens: u64, pico: u64| u128::from(tokens) * u128::from(pico);
        self.cost_pico = of(self.read, rates.read_pico)
            + of(self.write_5m, rates.write_5m_pico)
            + of(self.write_1h, rates.write_1h_pico)
            + of(self.uncached, rates.input_pico);
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.add(&one);
            sum
        })
    }
}

/// A place in the prefix at which an entry can stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    /// Number of the prefix that ends here; equal in two requests exactly where the provider takes
    /// their prefixes for equal.
    pub(super) node: u32,
    /// Tokens up to here.
    pub(super) upto: u64,
}

/// A request as the model of the cache needs it.
#[derive(Debug)]
pub struct Request {
    /// What was recorded.
    pub recorded: Recorded,
    /// When its answer began or is taken to have begun, UTC milliseconds.
    pub begins_ms: i64,
    /// Tokens of the prompt, counted or estimated.
    pub tokens: u64,
    pub(super) positions: Box<[Position]>,
    /// Positions up to and including each block.
    after: Box<[u32]>,
    unmarkable: Box<[Option<Unmarkable>]>,
    pub(super) min_tokens: u64,
}

impl Request {
    /// The position of a marker on a block; `None` where nothing of the prefix is before it.
    fn position_of(&self, block: usize) -> Option<usize> {
        (*self.after.get(block)? as usize).checked_sub(1)
    }

    /// The block at whose end a position stands.
    fn block_of(&self, position: usize) -> usize {
        self.after
            .partition_point(|after| *after as usize <= position)
    }

    /// Whether a block may carry a marker.
    #[must_use]
    pub fn markable(&self, block: usize) -> bool {
        self.unmarkable.get(block).is_some_and(Option::is_none)
    }

    /// Positions of which any choice of markers can make an entry: up to the last block that may
    /// carry one, or that the client marked whatever we know of it. 0 when that is below the
    /// model's minimum.
    pub(super) fn cacheable(&self) -> usize {
        let allowed = |why: &Option<Unmarkable>| matches!(why, None | Some(Unmarkable::Unknown));
        let last = self.unmarkable.iter().rposition(allowed);
        let marked = self.recorded.trail.marks.iter().map(|m| m.at as usize);
        let end = marked.chain(last).max();
        let end = end.and_then(|block| self.position_of(block));
        match end.map(|end| (end + 1, self.positions[end].upto)) {
            Some((count, tokens)) if tokens >= self.min_tokens => count,
            _ => 0,
        }
    }

    pub(super) fn rates(&self) -> &Rates {
        self.recorded.rates.as_ref().unwrap_or(&USUAL_RATES)
    }

    /// Bytes per token in thousandths, as this request's own numbers have it.
    fn bytes_per_token_milli(&self) -> u32 {
        let bytes: u64 = self
            .recorded
            .trail
            .steps
            .iter()
            .map(|s| u64::from(s.len))
            .sum();
        let milli = bytes.saturating_mul(1000).checked_div(self.tokens);
        milli.map_or(0, |milli| u32::try_from(milli).unwrap_or(u32::MAX))
    }

    /// Gives a tally its cost, where the model has one.
    pub(super) fn price(&self, tally: &mut Tally) {
        if let Some(rates) = &self.recorded.rates {
            tally.priced(rates);
        }
    }
}

/// A time series of requests.
#[derive(Debug)]
pub struct Traffic {
    requests: Vec<Request>,
    nodes: usize,
}

impl Traffic {
    /// Puts requests in the order of their start; of those that start at once, the given order
    /// stays.
    #[must_use]
    pub fn new(mut recorded: Vec<Recorded>) -> Self {
        recorded.sort_by_key(|request| request.at_ms);
        let mut next: HashMap<u32, (i64, u32)> = HashMap::new();
        let mut begins: Vec<i64> = recorded
            .iter()
            .rev()
            .map(|request| {
                // Who goes on with a conversation has seen the answer.
                let messages = request.trail.messages;
                let follower = next
                    .insert(request.thread, (request.at_ms, messages))
                    .filter(|(_, longer)| *longer > messages);
                let assumed = request.at_ms.saturating_add(ASSUMED_HEAD_MS);
                let seen = follower.map_or(assumed, |(at, _)| assumed.min(at));
                request.begins_ms.unwrap_or(seen)
            })
            .collect();
        begins.reverse();
        let mut nodes = HashMap::new();
        let requests = recorded
            .into_iter()
            .zip(begins)
            .map(|(recorded, begins_ms)| prepare(recorded, begins_ms, &mut nodes))
            .collect();
        Self {
            requests,
            nodes: nodes.len(),
        }
    }

    /// The requests in order.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Number of different prefixes.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }
}

/// What a policy may know when a request arrives.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The requests before it, in order.
    pub earlier: &'a [Tally],
    /// Index of the block at which the longest entry ends that lives on its path, whether or not a
    /// marker will find it.
    pub read_at: Option<usize>,
    /// Index of the block at which the longest prefix on its path ends that is just being written.
    pub pending_at: Option<usize>,
    /// The lifetime of the longest living entry of tools and system.
    pub head_ttl: Option<Ttl>,
}

/// Tokens and cost of each request under a policy, in the order of [`Traffic::requests`].
#[must_use]
pub fn replay(traffic: &Traffic, policy: Policy) -> Vec<Tally> {
    match policy {
        Policy::AsSent => simulate(traffic, |request, _| request.recorded.trail.marks.clone()),
        Policy::Client => simulate(traffic, |request, _| choose::client(request)),
        Policy::None => simulate(traffic, |_, _| Vec::new()),
        Policy::Automatic => simulate(traffic, |request, _| choose::automatic(request)),
        Policy::SystemTail => simulate(traffic, |request, _| choose::system_tail(request)),
        Policy::Fill => {
            let mut fill = fill::Fill::default();
            simulate(traffic, |request, seen| fill.marks(traffic, request, &seen))
        }
        Policy::Optimum => optimum::optimum(traffic),
    }
}

/// The same for any choice of breakpoints: `choose` is given each request in order, and what can
/// be known by then.
#[must_use]
pub fn simulate(
    traffic: &Traffic,
    mut choose: impl FnMut(&Request, Seen<'_>) -> Vec<Mark>,
) -> Vec<Tally> {
    let mut cache = Cache::new(traffic.nodes);
    let mut tallies = Vec::with_capacity(traffic.requests.len());
    for request in &traffic.requests {
        let (longest, head_ttl) = cache.alive(request);
        let seen = Seen {
            earlier: &tallies,
            read_at: longest.map(|position| request.block_of(position)),
            pending_at: cache
                .awaited(request)
                .filter(|at| longest.is_none_or(|longest| *at > longest))
                .map(|position| request.block_of(position)),
            head_ttl,
        };
        let marks = choose(request, seen);
        let mut placed: Vec<(usize, Ttl)> = marks
            .iter()
            // A lifetime that this version does not know is taken for the provider's default.
            .filter_map(|mark| {
                let position = request.position_of(mark.at as usize)?;
                Some((position, mark.ttl.unwrap_or(Ttl::M5)))
            })
            .collect();
        placed.sort_by_key(|(position, _)| *position);
        let mut tally = cache.send(request, &placed);
        request.price(&mut tally);
        tallies.push(tally);
    }
    tallies
}

/// Tokens of a prompt: as counted, or estimated from the bytes of its blocks.
#[must_use]
pub fn tokens_of(trail: &Trail, counted: Option<u64>, bytes_per_token_milli: u32) -> u64 {
    let milli = match bytes_per_token_milli {
        0 => u64::from(DEFAULT_BYTES_PER_TOKEN_MILLI),
        known => u64::from(known),
    };
    counted.unwrap_or_else(|| {
        let blocks = trail.steps.iter().filter(|step| step.counts);
        blocks.map(|step| weight(step, milli)).sum::<u64>() / milli
    })
}

/// Thousandths of bytes of text with about as many tokens as a block.
fn weight(step: &Step, milli: u64) -> u64 {
    let bytes = u64::from(step.len) * 1000;
    match step.kind {
        BlockKind::Image => bytes.min(IMAGE_TOKENS * milli),
        _ => bytes,
    }
}

/// Why a block must not carry a breakpoint, as far as a trail tells: whether a text is empty or a
/// call belongs to a program is not in it.
#[must_use]
pub fn unmarkable_of(step: &Step) -> Option<Unmarkable> {
    match (step.counts, step.section, step.kind) {
        (false, Section::Tools, _) => Some(Unmarkable::Deferred),
        (false, _, _) => Some(Unmarkable::Attribution),
        (true, _, BlockKind::Thinking) => Some(Unmarkable::Thinking),
        (true, _, BlockKind::Other) => Some(Unmarkable::Unknown),
        _ => None,
    }
}

/// Prefixes by what they extend, the block, and what else is in the key at that level.
type Nodes = HashMap<(u32, u64, u64), u32>;

/// What stands before the first block.
const ROOT: u32 = u32::MAX;

fn prepare(recorded: Recorded, begins_ms: i64, nodes: &mut Nodes) -> Request {
    let trail = &recorded.trail;
    let salts = salts(&recorded);
    let milli = match recorded.bytes_per_token_milli {
        0 => u64::from(DEFAULT_BYTES_PER_TOKEN_MILLI),
        known => u64::from(known),
    };
    let tokens = tokens_of(
        trail,
        recorded.prompt_tokens,
        recorded.bytes_per_token_milli,
    );
    let counted = trail.steps.iter().filter(|step| step.counts);
    let whole: u64 = counted.map(|step| weight(step, milli)).sum();
    let mut positions: Vec<Position> = Vec::with_capacity(trail.steps.len());
    let (mut node, mut sum) = (ROOT, 0);
    let mut add = |positions: &mut Vec<Position>, step: &Step, section: Section| {
        let key = (node, step.hash, salts[section as usize]);
        let fresh = u32::try_from(nodes.len()).unwrap_or(ROOT - 1);
        node = *nodes.entry(key).or_insert(fresh);
        sum += weight(step, milli);
        let upto = u128::from(tokens) * u128::from(sum) / u128::from(whole.max(1));
        positions.push(Position {
            node,
            upto: u64::try_from(upto).unwrap_or(tokens),
        });
    };
    let mut after = Vec::with_capacity(trail.steps.len());
    // What the provider renders behind the tools, though it stands among them.
    let mut searches: Vec<Step> = Vec::new();
    for step in &trail.steps {
        if step.section != Section::Tools {
            for search in searches.drain(..) {
                add(&mut positions, &search, Section::System);
            }
        }
        if step.section == Section::Tools && step.kind == BlockKind::ServerTool {
            searches.push(*step);
        } else if step.counts {
            add(&mut positions, step, step.section);
        }
        after.push(u32::try_from(positions.len()).unwrap_or(u32::MAX));
    }
    let unmarkable = match &recorded.unmarkable {
        Some(known) if known.len() == trail.steps.len() => known.clone(),
        _ => trail.steps.iter().map(unmarkable_of).collect(),
    };
    let min_tokens = recorded.min_tokens.unwrap_or(UNKNOWN_MINIMUM_TOKENS);
    Request {
        begins_ms,
        tokens,
        positions: positions.into(),
        after: after.into(),
        unmarkable,
        min_tokens: min_tokens.into(),
        recorded,
    }
}

/// What is part of the keys of a level beside the blocks, by section.
fn salts(recorded: &Recorded) -> [u64; 3] {
    let trail = &recorded.trail;
    let mut bytes = Vec::with_capacity(64 + trail.model.len());
    bytes.extend(recorded.scope.to_le_bytes());
    bytes.push(trail.fast_beta.into());
    bytes.extend(trail.model.as_bytes());
    [Section::Tools, Section::System, Section::Messages].map(|section| {
        for setting in trail.settings.iter().filter(|s| s.from == section) {
            bytes.push(0xff);
            bytes.extend(setting.name.as_bytes());
            bytes.extend(setting.value.to_le_bytes());
        }
        // Two levels without settings of their own still have different keys.
        bytes.push(section as u8);
        xxh3_64(&bytes)
    })
}

#[cfg(test)]
pub(crate) mod tests;
