//! What a set of markers is worth, in the price of tokens.
//!
//! What a request writes is billed as a span from where its read ends to its last marker. So the
//! last marker decides the premium, and markers before it are free anchors. Against that stands what
//! is read now, and what is read later: a span is read as far as the last anchor that survives. Its
//! worth when it is read is what writing it then would cost more, since whoever reads it would else
//! have to write it for those after; with a steady chance `p` of a successor this places a marker
//! exactly where always writing is cheaper than never: `p / (1 - p) > (write - input) / (input - read)`.

use super::spots::{previous_end, read_at, stable_end};
use super::{REACH, Situation, Sizes};
use crate::prompt_cache::habits::Within;
use crate::provider::view::{Section, Ttl};
use crate::usage::Rates;

/// A marker: index of its block, lifetime.
pub(super) type Mark = (usize, Ttl);

/// A marker that is long enough to do anything, with what does not depend on the markers beside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    pub(super) at: usize,
    ttl: Ttl,
    /// Up to and with its block.
    tokens: f64,
    /// What a token of it is worth that is read later.
    gain: f64,
}

/// How surely the previous turn's entry is still there, where the shadow cache knows of none and the
/// request still has all of it.
const UNSEEN: f64 = 0.1;
/// What an anchor is worth for which no use is known, per token below it: just enough to fill a
/// slot that nothing better wants.
const SPARE: f64 = 1e-4;

/// What it is worth, per token of the request, that the last entry is read by a marker at its very
/// place and not by looking back: more than any number of such anchors.
const EXACT: f64 = 1e-3;

/// What a set of markers is worth.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Value {
    /// What it is expected to save.
    pub(super) real: f64,
    /// What anchors add for what is not known, to decide what else goes into free slots.
    pub(super) spare: f64,
}

/// Prices and chances of one request.
pub(super) struct Worth<'a> {
    situation: &'a Situation<'a>,
    sizes: &'a Sizes,
    input: f64,
    read: f64,
    write_5m: f64,
    write_1h: f64,
    tools_len: usize,
    head_len: usize,
    stable_end: usize,
    /// Tokens as far as another request is just writing.
    pending: f64,
    entry: Option<Entry>,
}

/// Where the read can end.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: usize,
    /// How surely it is there.
    sure: f64,
    /// Up to and with its block.
    tokens: f64,
}

impl<'a> Worth<'a> {
    pub(super) fn new(situation: &'a Situation, sizes: &'a Sizes) -> Self {
        let rates = situation
            .rates
            .filter(|rates| rates.input_pico > 0)
            .unwrap_or(USUAL);
        let view = situation.view;
        let tools = view
            .blocks
            .iter()
            .take_while(|b| b.section == Section::Tools);
        let unseen = || {
            let end = previous_end(situation).filter(|end| *end < view.blocks.len())?;
            Some((end, UNSEEN * situation.outlook.all))
        };
        Self {
            situation,
            sizes,
            input: rates.input_pico as f64,
            read: rates.read_pico as f64,
            write_5m: rates.write_5m_pico as f64,
            write_1h: rates.write_1h_pico as f64,
            tools_len: tools.count(),
            head_len: view.head_len(),
            stable_end: stable_end(situation).unwrap_or(0),
            pending: situation
                .pending_at
                .and_then(|at| usize::try_from(at).ok())
                .filter(|at| *at < view.blocks.len())
                .map_or(0.0, |at| sizes.tokens(at)),
            entry: read_at(situation)
                .map(|at| (at, 1.0))
                .or_else(unseen)
                .map(|(at, sure)| Entry {
                    at,
                    sure,
                    tokens: sizes.tokens(at),
                }),
        }
    }

    /// A marker, weighed; `None` where the prefix is too short to be cached.
    pub(super) fn anchor(&self, (at, ttl): Mark) -> Option<Anchor> {
        self.sizes.long_enough(at).then(|| Anchor {
            at,
            ttl,
            tokens: self.sizes.tokens(at),
            gain: self.gain(at, ttl),
        })
    }

    /// What markers in provider order are worth.
    pub(super) fn of_marks(&self, marks: &[Mark]) -> Value {
        let anchors: Vec<Anchor> = marks.iter().filter_map(|m| self.anchor(*m)).collect();
        self.of(&anchors)
    }

    /// The same of those that do anything.
    pub(super) fn of(&self, anchors: &[Anchor]) -> Value {
        let mut value = Value::default();
        let Some(last) = anchors.last() else {
            return value;
        };
        // Reading, now.
        let found = self.entry.filter(|entry| {
            let far = |anchor: &Anchor| anchor.at.checked_sub(entry.at);
            anchors
                .iter()
                .any(|a| far(a).is_some_and(|far| far < REACH))
        });
        if let Some(entry) = &found {
            if entry.sure < 1.0 {
                value.spare += entry.sure * entry.tokens * (self.input - self.read);
            }
            if anchors.iter().any(|anchor| anchor.at == entry.at) {
                value.spare += EXACT * last.tokens * self.input;
            }
        }
        let found = found.filter(|entry| entry.sure >= 1.0);
        let have = found.map_or(0.0, |entry| entry.tokens);
        value.real += have * (self.input - self.read);
        // Writing, now.
        let lasting = anchors.iter().rfind(|anchor| anchor.ttl.is_long());
        let lasting = lasting.map_or(have, |anchor| anchor.tokens.max(have));
        value.real -= (lasting - have) * (self.write_1h - self.input);
        value.real -= (last.tokens.max(lasting) - lasting) * (self.write_5m - self.input);
        // Reading, later: each span as far as its anchor. What another request is just writing will
        // be there without us.
        let mut done = self.pending;
        let mut read_on = |tokens: f64, gain: f64| {
            let span = (tokens - done).max(0.0);
            done += span;
            span * gain
        };
        let mut entry = found;
        for anchor in anchors {
            // What is read now lives on from its read, marked or not.
            if let Some(known) = entry.take_if(|known| known.at <= anchor.at) {
                value.real += read_on(known.tokens, self.gain(known.at, anchor.ttl));
            }
            value.real += read_on(anchor.tokens, anchor.gain);
            if anchor.at < last.at {
                value.spare += SPARE * anchor.tokens * self.input;
            }
        }
        value
    }

    /// A difference in price below which nothing is lost: rounding.
    pub(super) fn nothing(&self) -> f64 {
        self.input * 1e-6
    }

    /// In thousandths of the price of an input token.
    pub(super) fn thousandths(&self, value: f64) -> i64 {
        // Saturates, and nothing here is not a number.
        (value / self.input * 1000.0).round() as i64
    }

    fn write(&self, ttl: Ttl) -> f64 {
        if ttl.is_long() {
            self.write_1h
        } else {
            self.write_5m
        }
    }

    /// What a token is worth of an entry that ends at a block, by the chance that it is read.
    fn gain(&self, at: usize, ttl: Ttl) -> f64 {
        self.chance(at, ttl) * (self.write(ttl) - self.read)
    }

    /// The chance that an entry which ends at a block is read in its lifetime.
    fn chance(&self, at: usize, ttl: Ttl) -> f64 {
        let of = |within: Within| {
            if ttl == Ttl::M5 { within.m5 } else { within.h1 }
        };
        let outlook = &self.situation.outlook;
        let next = of(outlook.next);
        if at >= self.head_len {
            let held = match outlook.stable {
                Some((_, held)) if at < self.stable_end => held,
                _ => outlook.all,
            };
            return next * held;
        }
        let head = (next * outlook.head).max(of(outlook.root));
        if at >= self.tools_len {
            return head;
        }
        head.max(outlook.tools * next.max(of(outlook.app)))
    }

    /// The lifetime that is cheaper for a thread's turns.
    pub(super) fn thread_ttl(&self) -> Ttl {
        self.cheaper(self.situation.outlook.thread, self.situation.outlook.growth)
    }

    /// The lifetime that is cheaper for tools and system, which do not grow.
    pub(super) fn head_ttl(&self) -> Ttl {
        self.cheaper(self.situation.outlook.root, 0.0)
    }

    /// One hour where the rewrites that it saves cost more than the dearer writes: of what is new in
    /// each turn, and of everything after a pause that outlasts the hour as well.
    fn cheaper(&self, gaps: Within, growth: f64) -> Ttl {
        let saved = (gaps.h1 - gaps.m5) * (self.write_5m - self.read);
        let dearer = (self.write_1h - self.write_5m) * (growth + (1.0 - gaps.h1));
        // Equal prices mean that there is no such lifetime.
        if self.write_1h > self.write_5m && saved > dearer {
            Ttl::H1
        } else {
            Ttl::M5
        }
    }
}

/// Prices of which only the ratios matter.
const USUAL: Rates = Rates {
    input_pico: 1000,
    output_pico: 5000,
    read_pico: 100,
    write_5m_pico: 1250,
    write_1h_pico: 2000,
};
