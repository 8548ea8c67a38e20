//! Calls that take turns: a block of two to four calls with the same results, over and over.
//!
//! For each length of a block it is enough to know for how many calls by now each one has equalled
//! the one that stands a block before it.

use serde::{Deserialize, Serialize};

/// Shortest and longest block.
const PERIODS: [usize; 3] = [2, 3, 4];
/// Calls that are remembered: the longest block, and one before it.
const RING: usize = 8;

/// A call with its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Item {
    /// Hash of the call.
    pub key: u64,
    /// Hash of the call and its result.
    pub whole: u64,
    /// Number of the tool's name.
    pub name: u8,
    /// Number of the answer that made the call.
    pub turn: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Streak {
    /// Calls by now that equal the one a block before.
    equal: u32,
    /// Full rounds at the end of the step before.
    before: u32,
    /// Full rounds now.
    rounds: u32,
    /// The first block.
    first: [Item; 4],
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Rounds {
    ring: [Item; RING],
    seen: u32,
    streaks: [Streak; 3],
}

/// A cycle that the newest step belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cycle {
    /// Its calls, as many as `period`, in the order in which it began.
    pub members: [Item; 4],
    /// Calls of a round.
    pub period: usize,
    /// Full rounds now.
    pub rounds: u32,
    /// Full rounds before the newest step.
    pub before: u32,
}

impl Rounds {
    /// Takes the calls of a step, in an order that does not depend on which result came first.
    pub(super) fn step(&mut self, items: &[Item]) {
        for item in items {
            self.push(*item);
        }
        for (streak, period) in self.streaks.iter_mut().zip(PERIODS) {
            streak.before = streak.rounds;
            let period = period as u32;
            streak.rounds = match streak.equal {
                0 => 0,
                equal => equal.saturating_add(period) / period,
            };
        }
    }

    fn push(&mut self, item: Item) {
        let seen = self.seen as usize;
        for (streak, period) in self.streaks.iter_mut().zip(PERIODS) {
            let earlier = |back: usize| self.ring[(seen + RING - back) % RING];
            if seen < period || earlier(period).whole != item.whole {
                streak.equal = 0;
                continue;
            }
            if streak.equal == 0 {
                for (at, member) in streak.first.iter_mut().take(period).enumerate() {
                    *member = earlier(period - at);
                }
            }
            streak.equal = streak.equal.saturating_add(1);
        }
        self.ring[seen % RING] = item;
        // Only the place in the ring matters once it is full.
        self.seen = if seen + 1 == 2 * RING {
            RING as u32
        } else {
            seen as u32 + 1
        };
    }

    /// The shortest block that the newest calls repeat at least twice.
    pub(super) fn cycle(&self) -> Option<Cycle> {
        let of = |(streak, period): (&Streak, usize)| {
            let cycle = Cycle {
                members: streak.first,
                period,
                rounds: streak.rounds,
                before: streak.before,
            };
            (cycle.rounds >= 2 && cycle.is_one()).then_some(cycle)
        };
        self.streaks.iter().zip(PERIODS).find_map(of)
    }
}

impl Cycle {
    /// Whether it is neither one call again and again nor a shorter block.
    fn is_one(&self) -> bool {
        let members = &self.members[..self.period];
        let calls_differ = members.iter().any(|member| member.key != members[0].key);
        let halves_differ = self.period != 4
            || members[0].whole != members[2].whole
            || members[1].whole != members[3].whole;
        calls_differ && halves_differ
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: &str) -> Option<(String, u32, u32)> {
        let mut rounds = Rounds::default();
        for (turn, call) in calls.bytes().enumerate() {
            rounds.step(&[Item {
                // Upper and lower case are one call with two results.
                key: u64::from(call.to_ascii_lowercase()),
                whole: u64::from(call),
                name: call,
                turn: turn as u32,
            }]);
        }
        rounds.cycle().map(|cycle| {
            let members = cycle.members[..cycle.period].iter();
            (
                members.map(|m| char::from(m.name)).collect(),
                cycle.rounds,
                cycle.before,
            )
        })
    }

    #[test]
    fn d05_full_rounds_are_counted_for_blocks_of_two_to_four() {
        for (calls, found) in [
            ("aba", None),
            ("abab", Some(("ab", 2, 1))),
            ("ababa", Some(("ab", 2, 2))),
            ("ababab", Some(("ab", 3, 2))),
            ("xyababab", Some(("ab", 3, 2))),
            ("abcabcabc", Some(("abc", 3, 2))),
            ("abcdabcdabcd", Some(("abcd", 3, 2))),
            ("aabaabaab", Some(("aab", 3, 2))),
            ("abacabacabac", Some(("abac", 3, 2))),
            ("aaaaaaaaa", None),
            ("aAaAaAaA", None),
            ("abAbabAbx", None),
            ("abaBabac", None),
            ("abcdeabcdeabcde", None),
        ] {
            let found =
                found.map(|(members, rounds, before)| (String::from(members), rounds, before));
            assert_eq!(after(calls), found, "{calls}");
        }
        let long = "ab".repeat(1000);
        assert_eq!(after(&long), Some(("ab".into(), 1000, 999)));
    }
}
