//! The life of a turn in the shadow cache: announced, begun, settled or abandoned.

use uuid::Uuid;

use super::flight::{Flight, Marked, Passed};
use super::table::Entry;
use super::{Expected, Key, Known, Look, Shadow, index, window};
use crate::provider::view::{BlockKind, Section, Ttl};
use crate::usage::Usage;

/// Entries on one path that are remembered with a turn, the longest ones.
const MAX_PATH: usize = 1024;

/// An estimate of tokens is believed when it is off by this factor at most, in thousandths: tool
/// definitions have a third less bytes per token than prose.
const BELIEVED_MILLI: u64 = 1_500;

/// What the usage of a turn says about the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The entry that was read; its turn is the one that wrote it. `None` when nothing was read, or
    /// when it cannot be told which one it was.
    pub read: Option<Known>,
    /// The longest prefix that this turn wrote.
    pub written: Option<Known>,
    /// The longest entry that was there by all rules, and evidently was not.
    pub gone: Option<Known>,
    /// How many such entries there were. They are no longer held, unless written anew.
    pub removed: u32,
    /// The longest prefix that this turn wrote though another turn (the one named) had been writing
    /// it at the same time: it was paid twice.
    pub twice: Option<Known>,
}

/// Which entry a turn read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    At(u32),
    /// Something, but nobody knows which.
    Unknown,
}

impl Shadow {
    /// A turn goes upstream with these breakpoints: what it will write is noted, and what it will
    /// read lives on from now. Gives what it can find. A turn that is announced again (with other
    /// breakpoints) replaces itself.
    pub fn pending(&mut self, turn: Uuid, look: &Look) -> Expected {
        self.abandoned(turn);
        let expected = self.look(look);
        let read = expected.read.map(|known| known.at);
        let flight = self.flight(turn, look, read);
        for passed in flight.path.iter().filter(|_| flight.renews) {
            if passed.expires_ms > look.now_ms && read.is_some_and(|read| passed.at <= read) {
                refresh(self, passed, look.now_ms);
            }
        }
        self.flights.start(flight);
        expected
    }

    /// The answer of a turn has begun: what it writes can be read from now on.
    pub fn began(&mut self, turn: Uuid) {
        let Self { flights, table, .. } = self;
        let Some(flight) = flights.begin(turn) else {
            return;
        };
        for mark in flight.marks.iter().filter(|mark| mark.writes) {
            let entry = Entry::new(turn, flight.start_ms, mark.ttl.unwrap_or(Ttl::M5));
            table.insert(mark.key, joined(table.get(&mark.key), entry, flight));
        }
    }

    /// The turn came to nothing: an error, or nobody who waited for the answer. What had begun
    /// stays.
    pub fn abandoned(&mut self, turn: Uuid) {
        let Some(flight) = self.flights.end(turn).filter(|flight| !flight.began) else {
            return;
        };
        for passed in &flight.path {
            self.restore(passed, &flight);
        }
    }

    /// The turn has been answered with this usage, which is taken for the truth. Of an answer in
    /// several steps it must be the usage of the first step: sums say nothing about places.
    pub fn settled(&mut self, turn: Uuid, usage: &Usage) -> Outcome {
        self.began(turn);
        let mut outcome = Outcome::default();
        let Some(flight) = self.flights.end(turn) else {
            return outcome;
        };
        let read = self.what_was_read(&flight, usage);
        if let Some(read) = read {
            self.refresh_what_was_read(&flight, read);
        }
        match (read, usage.written()) {
            (_, Some(0)) => self.nothing_written(&flight, read),
            (Some(read), Some(written)) => {
                self.written(&flight, read, written, usage, &mut outcome);
            }
            _ => {}
        }
        if let (Some(read), Some(tokens)) = (read, usage.read) {
            self.remove_what_is_gone(&flight, read, tokens, usage, &mut outcome);
            if let Read::At(at) = read {
                outcome.read = self.learn_read(&flight, at, tokens, usage);
            }
        }
        outcome
    }

    /// What is to be remembered of a turn until it is settled.
    fn flight(&self, turn: Uuid, look: &Look, read: Option<u32>) -> Flight {
        let steps = &look.trail.steps;
        let windows: Vec<(usize, usize)> = look
            .marks_back()
            .map(|(at, ..)| match look.automatic {
                Some(_) => (0, at),
                None => (window(steps, at, self.counting), at),
            })
            .collect();
        let places = look.places();
        let last_mark = windows.first().map(|(_, at)| *at);
        let mut marks = Vec::with_capacity(look.marks.len());
        let mut path = Vec::new();
        let mut bytes = 0;
        let (mut server_tools, mut provider_marks) = (false, false);
        for at in 0..look.len() {
            let Some(key) = look.key(at) else { continue };
            bytes += u64::from(steps[at].len);
            if steps[at].kind == BlockKind::ServerTool && steps[at].section == Section::Messages {
                server_tools = true;
                provider_marks |= last_mark.is_some_and(|last| at > last);
            }
            let entry = self.table.get(&key).filter(|e| e.remembered(look.now_ms));
            let entry = entry.map(|entry| (entry.turn, entry.expires_ms));
            // What another turn is writing may begin before the provider looks at this one.
            let writer = || Some((self.flights.writer(&key)?.turn, look.now_ms));
            if let Some((turn, expires_ms)) = entry.or_else(writer) {
                path.push(Passed {
                    key,
                    turn,
                    at: index(at),
                    bytes,
                    expires_ms,
                    seen: match &places {
                        Some(places) => places.contains(&at),
                        None => windows
                            .iter()
                            .any(|(low, high)| (*low..=*high).contains(&at)),
                    },
                });
            }
            if windows.iter().any(|(_, mark)| *mark == at) {
                let mark = look.marks.iter().find(|mark| mark.at as usize == at);
                let beyond = read.is_none_or(|read| index(at) > read);
                let tokens = by_ratio(bytes, look.bytes_per_token_milli);
                let tokens = self.tokens_at(&key).or(tokens);
                marks.push(Marked {
                    key,
                    at: index(at),
                    bytes,
                    ttl: mark.and_then(|mark| mark.ttl),
                    writes: beyond && long_enough(tokens, look.min_tokens),
                });
            }
        }
        path.drain(..path.len().saturating_sub(MAX_PATH));
        path.shrink_to_fit();
        Flight {
            turn,
            start_ms: look.now_ms,
            marks,
            path,
            read,
            bytes,
            min_tokens: look.min_tokens,
            bytes_per_token_milli: look.bytes_per_token_milli,
            step: look
                .automatic
                .map_or(1, |rules| u64::from(rules.step.max(1))),
            renews: look.automatic.is_none_or(|rules| !rules.at_breakpoints),
            server_tools,
            provider_marks,
            began: false,
        }
    }

    /// `None` while the provider has not said what was read.
    fn what_was_read(&self, flight: &Flight, usage: &Usage) -> Option<Read> {
        let tokens = usage.read?;
        if tokens == 0 {
            return Some(Read::Nothing);
        }
        let told = |key: &Key| {
            let tokens = self.tokens_at(key)?;
            Some(tokens - tokens % flight.step)
        };
        let exact = |passed: &&Passed| told(&passed.key) == Some(tokens);
        if let Some(passed) = flight.path.iter().rev().find(exact) {
            return Some(Read::At(passed.at));
        }
        if flight.server_tools {
            // The provider's own breakpoints are nowhere in our books.
            return Some(Read::Unknown);
        }
        // Of those with unknown tokens, the one whose estimate is nearest. Only what a breakpoint
        // sees can have been read, and longer prefixes have more tokens than shorter ones.
        let known = |passed: &Passed| told(&passed.key);
        let above = flight.path.iter().rev();
        let above = above.filter(|p| known(p).is_some_and(|known| known < tokens));
        let above = above.map(|passed| passed.at).next();
        let below = flight.path.iter();
        let below = below.filter(|p| known(p).is_some_and(|known| known > tokens));
        let below = below.map(|passed| passed.at).next();
        let between = |at: u32| above.is_none_or(|a| at > a) && below.is_none_or(|b| at < b);
        let living = |p: &&Passed| p.seen && p.expires_ms > flight.start_ms && known(p).is_none();
        let entries = flight.path.iter().filter(living);
        let entries = entries.map(|passed| (passed.at, passed.bytes));
        // Nothing written though something was read: then the last breakpoint was there already.
        let last = flight.marks.last().filter(|_| usage.written() == Some(0));
        let last = last.map(|mark| (mark.at, mark.bytes));
        let nearest = entries
            .chain(last)
            .filter(|(at, _)| between(*at))
            .filter_map(|(at, bytes)| {
                let off = off_by_milli(estimate(flight, usage, bytes)?, tokens);
                // What should be read is believed before its neighbours.
                let other = flight.read != Some(at);
                (off <= BELIEVED_MILLI).then_some((other, off, std::cmp::Reverse(at)))
            })
            .min();
        Some(nearest.map_or(Read::Unknown, |(_, _, at)| Read::At(at.0)))
    }

    fn refresh_what_was_read(&mut self, flight: &Flight, read: Read) {
        let until = match read {
            Read::Nothing => None,
            Read::At(at) => Some(at),
            Read::Unknown => return,
        };
        for passed in flight.path.iter().filter(|_| flight.renews) {
            if until.is_none_or(|until| passed.at > until) {
                self.restore(passed, flight);
            } else if passed.expires_ms > flight.start_ms || until == Some(passed.at) {
                // What was read was there, whatever we thought of its lifetime.
                refresh(self, passed, flight.start_ms);
            }
        }
    }

    /// Takes back what this turn was assumed to write, but for the prefix that it read.
    fn nothing_written(&mut self, flight: &Flight, read: Option<Read>) {
        for mark in &flight.marks {
            if read != Some(Read::At(mark.at)) {
                self.remove_own(mark, flight);
            }
        }
    }

    /// Corrects what this turn was assumed to write.
    fn written(
        &mut self,
        flight: &Flight,
        read: Read,
        written: u64,
        usage: &Usage,
        outcome: &mut Outcome,
    ) {
        let Some(last) = flight.marks.last() else {
            return;
        };
        let beyond = |mark: &Marked| match read {
            Read::Nothing => true,
            Read::At(at) => mark.at > at,
            Read::Unknown => mark.writes || mark.at == last.at,
        };
        for mark in &flight.marks {
            let read_here = read == Read::At(mark.at);
            let tokens = self
                .tokens_at(&mark.key)
                .or_else(|| estimate(flight, usage, mark.bytes));
            let is_last = mark.at == last.at;
            let writes = beyond(mark) && (is_last || long_enough(tokens, flight.min_tokens));
            if !writes {
                if !read_here {
                    self.remove_own(mark, flight);
                }
                continue;
            }
            let mut entry = Entry::new(flight.turn, flight.start_ms, lived(flight, mark, usage));
            let living = |p: &&Passed| p.key == mark.key && p.expires_ms > flight.start_ms;
            let passed = flight.path.iter().find(living);
            let old = self.table.get(&mark.key).copied();
            match old {
                // It was there by our books, and it was written all the same.
                Some(old) if passed.is_some_and(|p| p.turn == old.turn) => {
                    entry.exact = old.exact;
                }
                Some(old) if old.turn == flight.turn => {
                    entry = corrected(&old, entry, mark, flight)
                }
                Some(old) => {
                    if old.expires_ms > flight.start_ms {
                        outcome.twice = Some(old.known(mark.at as usize));
                    }
                    entry = joined(Some(&old), entry, flight);
                }
                None => {}
            }
            if let (Some(read), false) = (usage.read, flight.provider_marks) {
                if is_last {
                    entry.learn(read.saturating_add(written));
                } else if hour_end(flight, usage) == Some(mark.at) {
                    entry.learn(read.saturating_add(usage.write_1h.unwrap_or(0)));
                }
            }
            self.table.insert(mark.key, entry);
            let known = Known {
                turn: flight.turn,
                ..entry.known(mark.at as usize)
            };
            outcome.written = Some(known);
        }
        if let Some(twice) = &mut outcome.twice {
            let key = flight.marks.iter().find(|mark| mark.at == twice.at);
            twice.tokens = key.and_then(|mark| self.tokens_at(&mark.key));
        }
    }

    /// Removes entries that a breakpoint saw and that were not read though they are longer.
    fn remove_what_is_gone(
        &mut self,
        flight: &Flight,
        read: Read,
        tokens: u64,
        usage: &Usage,
        outcome: &mut Outcome,
    ) {
        for passed in &flight.path {
            if !passed.seen || passed.expires_ms <= flight.start_ms {
                continue;
            }
            let longer = match read {
                Read::Nothing => true,
                Read::At(at) => passed.at > at,
                Read::Unknown => match self.tokens_at(&passed.key) {
                    Some(known) => known - known % flight.step > tokens,
                    None => estimate(flight, usage, passed.bytes)
                        .is_some_and(|e| e > tokens && off_by_milli(e, tokens) > BELIEVED_MILLI),
                },
            };
            if !longer {
                continue;
            }
            outcome.removed += 1;
            let entry = self.table.get(&passed.key).copied();
            outcome.gone = Some(Known {
                at: passed.at,
                tokens: entry.and_then(|entry| entry.tokens()),
                turn: passed.turn,
                expires_ms: passed.expires_ms,
            });
            // Unless it has been written anew since.
            if entry.is_some_and(|entry| entry.turn == passed.turn) {
                self.table.remove(&passed.key);
            }
        }
    }

    /// The entry that was read has exactly the tokens that were read.
    fn learn_read(
        &mut self,
        flight: &Flight,
        at: u32,
        tokens: u64,
        usage: &Usage,
    ) -> Option<Known> {
        let passed = flight.path.iter().find(|passed| passed.at == at);
        let mark = flight.marks.iter().find(|mark| mark.at == at);
        let key = passed.map(|p| p.key).or(mark.map(|m| m.key))?;
        if self.table.get(&key).is_none() {
            // It was there and we did not know; who wrote it, nobody knows.
            let ttl = mark.map_or(Ttl::M5, |mark| lived(flight, mark, usage));
            let entry = Entry::new(flight.turn, flight.start_ms, ttl);
            self.table.insert(key, entry);
        }
        let entry = self.table.get_mut(&key)?;
        // By estimate it may have been a neighbour of it, of which nobody knows.
        if flight.step == 1 && (flight.read == Some(at) || passed.is_none()) {
            entry.learn(tokens);
        }
        let known = entry.known(at as usize);
        (known.turn != flight.turn).then_some(known)
    }

    /// Removes what this turn was assumed to write at a breakpoint.
    fn remove_own(&mut self, mark: &Marked, flight: &Flight) {
        let own = |entry: &Entry| entry.turn == flight.turn;
        if self.table.get(&mark.key).is_some_and(own) {
            self.table.remove(&mark.key);
        }
    }

    /// Takes back what this turn's reading would have prolonged, unless something else has prolonged
    /// the entry since.
    fn restore(&mut self, passed: &Passed, flight: &Flight) {
        let refreshed = flight.renews
            && passed.expires_ms > flight.start_ms
            && flight.read.is_some_and(|read| passed.at <= read);
        if let Some(entry) = self.table.get_mut(&passed.key)
            && refreshed
            && entry.turn == passed.turn
            && entry.expires_ms == flight.start_ms.saturating_add(entry.ttl.ms())
        {
            entry.expires_ms = entry.expires_ms.min(passed.expires_ms);
        }
    }
}

/// An entry that was read at `start_ms` lives its whole lifetime from there.
fn refresh(shadow: &mut Shadow, passed: &Passed, start_ms: i64) {
    if let Some(entry) = shadow.table.get_mut(&passed.key)
        && entry.turn == passed.turn
    {
        let fresh = start_ms.saturating_add(entry.ttl.ms());
        entry.expires_ms = entry.expires_ms.max(fresh);
    }
}

/// What is written where something may be already: it keeps its writer while it lives, and the
/// longer life. Tokens of a prefix stay what they are.
fn joined(old: Option<&Entry>, new: Entry, flight: &Flight) -> Entry {
    let Some(old) = old else { return new };
    let living = old.expires_ms > flight.start_ms;
    let longer = old.expires_ms >= new.expires_ms;
    let life = if living && longer { *old } else { new };
    Entry {
        turn: if living { old.turn } else { new.turn },
        exact: if new.exact > 0 { new.exact } else { old.exact },
        ..life
    }
}

/// What a turn wrote, with the lifetime that its usage shows. Whoever has read it since, or given it
/// a longer life, is not undone.
fn corrected(old: &Entry, new: Entry, mark: &Marked, flight: &Flight) -> Entry {
    if old.ttl == new.ttl || mark.ttl.unwrap_or(Ttl::M5) != old.ttl {
        return joined(Some(old), new, flight);
    }
    let since_ms = old.expires_ms.saturating_sub(old.ttl.ms());
    Entry {
        expires_ms: since_ms.saturating_add(new.ttl.ms()),
        ttl: new.ttl,
        ..*old
    }
}

/// The lifetime of what was written at a breakpoint: the one asked for, where the split of the
/// usage does not say otherwise. One hour comes before five minutes.
fn lived(flight: &Flight, mark: &Marked, usage: &Usage) -> Ttl {
    let asked = mark.ttl.unwrap_or(Ttl::M5);
    let (Some(short), Some(hour), false) = (usage.write_5m, usage.write_1h, usage.split_inferred)
    else {
        return asked;
    };
    let last = flight.marks.last().is_some_and(|last| last.at == mark.at);
    match (short > 0, hour > 0) {
        (false, false) => asked,
        (true, false) => Ttl::M5,
        (false, true) => Ttl::H1,
        (true, true) if last => Ttl::M5,
        (true, true) => match flight
            .marks
            .iter()
            .rev()
            .skip(1)
            .any(|m| m.ttl == Some(Ttl::H1))
        {
            true => asked,
            false => Ttl::H1,
        },
    }
}

/// Where the part ends that was written for one hour, when a part for five minutes follows: at the
/// last breakpoint with one hour.
fn hour_end(flight: &Flight, usage: &Usage) -> Option<u32> {
    if usage.split_inferred || usage.write_1h? == 0 || usage.write_5m? == 0 {
        return None;
    }
    let mut marks = flight.marks.iter().rev();
    let hour = marks.find(|mark| mark.ttl != Some(Ttl::M5))?;
    hour.ttl.map(|_| hour.at)
}

/// Tokens of a prefix by its share of the bytes, where usage tells the tokens of a longer one; else
/// by the ratio. Never exact.
fn estimate(flight: &Flight, usage: &Usage, bytes: u64) -> Option<u64> {
    let share = |tokens: u64, of: u64| {
        let tokens = u128::from(tokens) * u128::from(bytes) / u128::from(of.max(1));
        u64::try_from(tokens).ok()
    };
    let written = usage.written().filter(|written| *written > 0);
    if let (Some(read), Some(written), Some(last)) = (usage.read, written, flight.marks.last()) {
        return share(read.saturating_add(written), last.bytes);
    }
    match usage.prompt() {
        Some(tokens) => share(tokens, flight.bytes),
        None => by_ratio(bytes, flight.bytes_per_token_milli),
    }
}

fn by_ratio(bytes: u64, bytes_per_token_milli: u32) -> Option<u64> {
    let tokens = bytes.saturating_mul(1000);
    tokens.checked_div(u64::from(bytes_per_token_milli))
}

/// Where the size or the minimum is not known, a prefix is taken for long enough.
fn long_enough(tokens: Option<u64>, min: Option<u32>) -> bool {
    match (tokens, min) {
        (Some(tokens), Some(min)) => tokens >= u64::from(min),
        _ => true,
    }
}

/// By which factor two numbers differ, in thousandths.
fn off_by_milli(a: u64, b: u64) -> u64 {
    let (small, large) = (a.min(b).max(1), a.max(b).max(1));
    large.saturating_mul(1000) / small
}
