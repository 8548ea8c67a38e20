//! What has happened since the user last spoke, as far as the detectors need it.

use serde::{Deserialize, Serialize};

use super::rounds::{Item, Rounds};
use super::{Detector, Policy};
use crate::bounded::Map;
use crate::guard::calls::{Call, pair};
use crate::guard::failure::{Error, Outcome};

/// Calls that are looked back at. What was not seen among them is new.
const WINDOW: u32 = 4096;
/// Errors of one tool that are counted apart.
const ERRORS: usize = 16;
/// Things that a tool has failed on with one error, counted apart.
const TARGETS: usize = 8;

/// A call that has its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    pub call: Call,
    pub outcome: Outcome,
    /// Number of the tool's name.
    pub name: u8,
    /// Number of the answer that made the call.
    pub turn: u32,
    /// Its place among all calls.
    pub order: u32,
}

impl Fact {
    /// Hash of the call and how it ended.
    fn whole(&self) -> u64 {
        match self.outcome {
            Outcome::Fine(result) => pair(self.call.key, result),
            // A result is no error of the same text.
            Outcome::Failed(error) => pair(self.call.key, !error.strict),
        }
    }
}

/// A loop that the newest step belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub detector: Detector,
    /// What tells it from other loops of its kind.
    pub id: u64,
    /// Numbers of the names of its tools; as many as `period` count.
    pub names: [u8; 4],
    pub period: u8,
    pub count: u32,
    /// The count before the newest step.
    pub before: u32,
    /// Number of the answer that made the first of its calls.
    pub since: u32,
}

/// The same call with the same result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Repeat {
    last: u32,
    count: u32,
    since: u32,
}

/// The same call failing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Failing {
    loose: u64,
    last: u32,
    count: u32,
    since: u32,
}

/// Failures, at most one an answer: what a model asks for at once, it asks for before it has seen
/// the first error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Run {
    count: u32,
    since: u32,
    turn: u32,
}

impl Run {
    fn more(&mut self, turn: u32) {
        if self.count == 0 {
            self.since = turn;
        }
        if self.count == 0 || self.turn != turn {
            self.count = self.count.saturating_add(1);
        }
        self.turn = turn;
    }
}

/// One error of one tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SameError {
    strict: u64,
    last: u32,
    /// On whatever target, since the tool last succeeded.
    any: Run,
    /// By target, since the tool last succeeded on it; the newest last.
    on: Vec<(u64, Run)>,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stretch {
    /// Calls so far.
    seq: u32,
    /// The last call whose result was new, and the last one of those that succeeded.
    last_new: u32,
    last_new_success: u32,
    repeats: Map<u64, Repeat>,
    failing: Map<u64, Failing>,
    errors: Map<u64, Vec<SameError>>,
    rounds: Rounds,
}

impl Stretch {
    /// Takes the calls of one answer whose results came together, in the order of the calls, and
    /// adds the loops they belong to from their thresholds on.
    pub(super) fn step(
        &mut self,
        facts: &[Fact],
        body: &[u8],
        policy: &Policy,
        found: &mut Vec<Found>,
    ) {
        for fact in facts {
            self.seq = self.seq.saturating_add(1);
            match fact.outcome {
                Outcome::Fine(_) => self.succeeded(fact, body, policy, found),
                Outcome::Failed(error) => self.failed(fact, error, body, policy, found),
            }
        }
        self.turns(facts, policy, found);
        self.forget();
    }

    fn succeeded(&mut self, fact: &Fact, body: &[u8], policy: &Policy, found: &mut Vec<Found>) {
        let whole = fact.whole();
        let last_new = self.last_new;
        if !self.knows(whole) {
            self.last_new = self.seq;
            self.last_new_success = self.seq;
        }
        let seq = self.seq;
        let repeat = self.repeats.entry(whole).or_insert(Repeat {
            last: 0,
            count: 0,
            since: fact.turn,
        });
        if repeat.count == 0 || repeat.last < last_new || self.last_new == seq {
            (repeat.count, repeat.since) = (0, fact.turn);
        }
        repeat.count = repeat.count.saturating_add(1);
        repeat.last = seq;
        let (count, since) = (repeat.count, repeat.since);
        report(
            policy,
            found,
            one(Detector::NoProgress, whole, fact, count, since),
        );
        self.failing.remove(&fact.call.key);
        if let Some(errors) = self.errors.get_mut(&fact.call.tool) {
            let target = fact.call.acts_on(body);
            for error in errors {
                error.any = Run::default();
                error.on.retain(|(on, _)| *on != target);
            }
        }
    }

    fn failed(
        &mut self,
        fact: &Fact,
        error: Error,
        body: &[u8],
        policy: &Policy,
        found: &mut Vec<Found>,
    ) {
        let (seq, turn) = (self.seq, fact.turn);
        let whole = fact.whole();
        if !self.knows(whole) {
            self.last_new = seq;
        }
        // Only known from now on: a failure is never a step forward.
        let known = self.repeats.entry(whole).or_insert(Repeat {
            last: seq,
            count: 0,
            since: turn,
        });
        known.last = seq;

        let last_success = self.last_new_success;
        let failing = self.failing.entry(fact.call.key).or_insert(Failing {
            loose: error.loose,
            last: seq,
            count: 0,
            since: turn,
        });
        let gone = failing.last < last_success || failing.last.saturating_add(WINDOW) < seq;
        if failing.loose != error.loose || gone {
            *failing = Failing {
                loose: error.loose,
                last: seq,
                count: 0,
                since: turn,
            };
        }
        failing.count = failing.count.saturating_add(1);
        failing.last = seq;
        let call = one(
            Detector::SameCall,
            fact.call.key,
            fact,
            failing.count,
            failing.since,
        );
        let strictest = policy.same_call.at(call.count);
        report(policy, found, call);

        if error.bare {
            return;
        }
        let run = self.same_error(fact, error, body);
        // The same calls are told once, unless more is to be done about the error.
        if policy.same_error.at(run.count) > strictest {
            let id = pair(fact.call.tool, error.strict);
            report(
                policy,
                found,
                one(Detector::SameError, id, fact, run.count, run.since),
            );
        }
    }

    /// Counts a failure by tool and error.
    fn same_error(&mut self, fact: &Fact, error: Error, body: &[u8]) -> Run {
        let seq = self.seq;
        let target = fact.call.acts_on(body);
        let errors = self.errors.entry(fact.call.tool).or_default();
        errors.retain(|known| known.last.saturating_add(WINDOW) >= seq);
        let at = errors.iter().position(|known| known.strict == error.strict);
        let mut same = match at {
            Some(at) => errors.remove(at),
            None => SameError {
                strict: error.strict,
                last: seq,
                any: Run::default(),
                on: Vec::new(),
            },
        };
        if errors.len() == ERRORS {
            errors.remove(0);
        }
        same.last = seq;
        same.any.more(fact.turn);
        let at = same.on.iter().position(|(on, _)| *on == target);
        let (_, mut run) = at.map_or((target, Run::default()), |at| same.on.remove(at));
        run.more(fact.turn);
        if same.on.len() == TARGETS {
            same.on.remove(0);
        }
        same.on.push((target, run));
        let most = if same.any.count > run.count {
            same.any
        } else {
            run
        };
        errors.push(same);
        most
    }

    /// Calls that take turns.
    fn turns(&mut self, facts: &[Fact], policy: &Policy, found: &mut Vec<Found>) {
        let item = |fact: &Fact| Item {
            key: fact.call.key,
            whole: fact.whole(),
            name: fact.name,
            turn: fact.turn,
        };
        if let [fact] = facts {
            self.rounds.step(&[item(fact)]);
        } else {
            let mut items: Vec<Item> = facts.iter().map(item).collect();
            items.sort_unstable_by_key(|item| item.key);
            self.rounds.step(&items);
        }
        let Some(cycle) = self.rounds.cycle() else {
            return;
        };
        let members = &cycle.members[..cycle.period];
        let found_cycle = Found {
            detector: Detector::Cycle,
            id: members.iter().fold(0, |id, member| pair(id, member.whole)),
            names: cycle.members.map(|member| member.name),
            period: cycle.period as u8,
            count: cycle.rounds,
            before: cycle.before,
            since: members[0].turn,
        };
        report(policy, found, found_cycle);
    }

    /// Whether a call has ended like this before.
    fn knows(&self, whole: u64) -> bool {
        let known = self.repeats.get(&whole);
        known.is_some_and(|known| known.last.saturating_add(WINDOW) >= self.seq)
    }

    /// Drops what is too far back to matter, now and then.
    fn forget(&mut self) {
        let (seq, most) = (self.seq, 2 * WINDOW as usize);
        let near = |last: u32| last.saturating_add(WINDOW) >= seq;
        if self.repeats.len() > most {
            self.repeats.retain(|_, known| near(known.last));
        }
        if self.failing.len() > most {
            self.failing.retain(|_, known| near(known.last));
        }
        if self.errors.len() > most {
            self.errors
                .retain(|_, errors| errors.iter().any(|known| near(known.last)));
        }
    }

    /// Keeps the newest entries only, and nothing of the memory beyond them.
    pub(super) fn keep(&mut self, most: usize) {
        keep(&mut self.repeats, most, |known| known.last);
        keep(&mut self.failing, most, |known| known.last);
        for errors in self.errors.values_mut() {
            errors.drain(..errors.len().saturating_sub(most / 16));
            for error in &mut *errors {
                error.on.drain(..error.on.len().saturating_sub(most / 16));
                error.on.shrink_to_fit();
            }
            errors.shrink_to_fit();
        }
        keep(&mut self.errors, most / 8, |errors| {
            errors.last().map_or(0, |known| known.last)
        });
    }
}

/// Keeps the newest entries of a map.
pub(super) fn keep<V>(map: &mut Map<u64, V>, most: usize, last: impl Fn(&V) -> u32) {
    if map.len() > most {
        let mut ages: Vec<u32> = map.values().map(&last).collect();
        ages.sort_unstable_by(|one, other| other.cmp(one));
        let oldest = ages[most];
        map.retain(|_, known| last(known) > oldest);
    }
    map.shrink_to_fit();
}

/// A loop of one call or tool.
fn one(detector: Detector, id: u64, fact: &Fact, count: u32, since: u32) -> Found {
    Found {
        detector,
        id,
        names: [fact.name; 4],
        period: 1,
        count,
        before: count - 1,
        since,
    }
}

/// Adds a loop that has reached its threshold; of one that is there already the higher count stays.
fn report(policy: &Policy, found: &mut Vec<Found>, new: Found) {
    if policy.rule(new.detector).at(new.count).is_none() {
        return;
    }
    let same = |old: &&mut Found| old.detector == new.detector && old.id == new.id;
    match found.iter_mut().find(same) {
        Some(old) if new.count > old.count => *old = new,
        Some(_) => {}
        None => found.push(new),
    }
}
