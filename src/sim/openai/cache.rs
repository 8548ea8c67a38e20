//! The prompt cache of the OpenAI side, written from the SDK documents alone.

use std::collections::HashMap;

use super::prompt::{Hash, MIN_TOKENS, Position, STEP, Walked};

/// Breakpoints of the conversation that a read considers, the latest first. Source: SDK docs, Nov 2026.
const MATCHED: usize = 80;

/// Breakpoints that one request writes. Source: SDK docs, Nov 2026.
const WRITTEN: usize = 4;

/// Entries kept; the ones that expire first go first.
const MAX_ENTRIES: usize = 400_000;

/// Lifetime of a breakpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// Thirty minutes.
    #[default]
    HalfHour,
    /// Twelve hours.
    HalfDay,
}

impl Life {
    /// Reads the API's word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "30m" => Some(Self::HalfHour),
            "12h" => Some(Self::HalfDay),
            _ => None,
        }
    }

    /// As the API spells it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::HalfHour => "30m",
            Self::HalfDay => "12h",
        }
    }

    fn ms(self) -> u64 {
        match self {
            Self::HalfHour => 1_800_000,
            Self::HalfDay => 43_200_000,
        }
    }
}

/// Input tokens of one request of the OpenAI side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The whole prompt.
    pub total: u64,
    /// Read from the cache.
    pub read: u64,
    /// Written for thirty minutes; 0 on models that do not bill writes.
    pub write_30m: u64,
    /// Written for twelve hours.
    pub write_12h: u64,
}

impl Tokens {
    /// All billed writes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.write_30m + self.write_12h
    }

    /// Neither read nor written.
    #[must_use]
    pub fn uncached(&self) -> u64 {
        self.total.saturating_sub(self.read + self.written())
    }
}

/// How a request wants to be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// gpt-5.6 and later.
    Breakpoints {
        /// One implicit breakpoint at the end of the input.
        implicit: bool,
        /// For breakpoints without a lifetime of their own.
        life: Life,
    },
    /// Older models: steps of the longest common prefix, kept that many milliseconds after their
    /// last use.
    Steps {
        /// Milliseconds.
        keep_ms: u64,
    },
}

/// What a request will write once its answer begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    entries: Vec<(Hash, u64)>,
}

/// All entries: the prefix and the time it expires. A prefix contains the credential and everything
/// else that tells caches apart.
#[derive(Debug, Default)]
pub struct Cache {
    entries: HashMap<Hash, u64>,
}

impl Cache {
    /// What a request that starts at `now_ms` reads and will write.
    pub fn look(&mut self, walked: &Walked, caching: Caching, now_ms: u64) -> (Tokens, Pending) {
        match caching {
            Caching::Steps { keep_ms } => self.steps(walked, keep_ms, now_ms),
            Caching::Breakpoints { implicit, life } => {
                self.breakpoints(walked, implicit, life, now_ms)
            }
        }
    }

    fn alive(&self, hash: &Hash, now_ms: u64) -> bool {
        self.entries.get(hash).is_some_and(|end| *end > now_ms)
    }

    fn steps(&mut self, walked: &Walked, keep_ms: u64, now_ms: u64) -> (Tokens, Pending) {
        let steps = &walked.steps;
        let hit = steps.iter().rposition(|step| self.alive(step, now_ms));
        let read = hit.map_or(0, |at| MIN_TOKENS + at as u64 * STEP);
        let end = now_ms + keep_ms;
        if let Some(hit) = hit {
            for step in &steps[..=hit] {
                if let Some(entry) = self.entries.get_mut(step) {
                    *entry = (*entry).max(end);
                }
            }
        }
        let tokens = Tokens {
            total: walked.total,
            read,
            ..Tokens::default()
        };
        let entries = steps.iter().map(|step| (*step, end)).collect();
        (tokens, Pending { entries })
    }

    fn breakpoints(
        &self,
        walked: &Walked,
        implicit: bool,
        life: Life,
        now_ms: u64,
    ) -> (Tokens, Pending) {
        let mut tokens = Tokens {
            total: walked.total,
            ..Tokens::default()
        };
        let long_enough: Vec<&Position> = walked
            .positions
            .iter()
            .filter(|position| position.tokens >= MIN_TOKENS)
            .collect();
        let explicit = || {
            long_enough
                .iter()
                .filter_map(|position| Some((*position, position.marker?.life.unwrap_or(life))))
        };
        let hit = long_enough
            .iter()
            .rev()
            .filter(|position| position.marker.is_some() || (implicit && position.turn_end))
            .take(MATCHED)
            .find(|position| self.alive(&position.chain, now_ms));
        tokens.read = hit.map_or(0, |hit| hit.tokens);
        let end = long_enough.last().filter(|_| implicit);
        let room = WRITTEN - usize::from(implicit);
        let skipped = explicit().count().saturating_sub(room);
        let mut written: Vec<(&Position, Life)> = explicit().skip(skipped).collect();
        if let Some(end) = end
            && written
                .last()
                .is_none_or(|(last, _)| last.chain != end.chain)
        {
            written.push((end, life));
        }
        written.retain(|(position, _)| position.tokens > tokens.read);
        // A token that two breakpoints cover is billed for the longer of their lifetimes.
        let reach = |life: Life| {
            written
                .iter()
                .filter(|(_, own)| *own >= life)
                .map(|(position, _)| position.tokens)
                .max()
                .unwrap_or(tokens.read)
        };
        let (half_day, all) = (reach(Life::HalfDay), reach(Life::HalfHour));
        tokens.write_12h = half_day - tokens.read;
        tokens.write_30m = all - half_day;
        let entries = written
            .iter()
            .map(|(position, life)| (position.chain, now_ms + life.ms()))
            .collect();
        (tokens, Pending { entries })
    }

    /// The answer has begun: what the request wrote can be read from now on.
    pub fn commit(&mut self, pending: &Pending) {
        for (hash, end) in &pending.entries {
            let entry = self.entries.entry(*hash).or_insert(*end);
            *entry = (*entry).max(*end);
        }
        if self.entries.len() > MAX_ENTRIES {
            let mut ends: Vec<u64> = self.entries.values().copied().collect();
            let middle = ends.len() / 2;
            let (_, cut, _) = ends.select_nth_unstable(middle);
            let cut = *cut;
            self.entries.retain(|_, end| *end > cut);
        }
    }

    /// Forgets everything, as a provider may at any time.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::openai::prompt::{Key, Marker, Piece, Said, walk};

    /// A text of that many tokens that no other name begins with.
    fn text(name: &str, tokens: usize) -> Piece {
        let width = tokens * 4;
        let content = format!("{name:<width$}");
        Piece::new(Said::User(String::new()), "user", content)
    }

    fn model(name: &str) -> Piece {
        Piece::new(Said::Model, "assistant", name.into())
    }

    fn marked(piece: Piece, life: Option<Life>) -> Piece {
        Piece {
            marker: Some(Marker { life }),
            ..piece
        }
    }

    const IMPLICIT: Caching = Caching::Breakpoints {
        implicit: true,
        life: Life::HalfHour,
    };
    const EXPLICIT: Caching = Caching::Breakpoints {
        implicit: false,
        life: Life::HalfHour,
    };
    const OLD: Caching = Caching::Steps { keep_ms: 600_000 };

    /// (read, written for 30m, written for 12h, uncached)
    fn ask(cache: &mut Cache, caching: Caching, now: u64, pieces: &[Piece]) -> [u64; 4] {
        let walked = walk(&Key::default(), pieces);
        let (tokens, pending) = cache.look(&walked, caching, now);
        cache.commit(&pending);
        [
            tokens.read,
            tokens.write_30m,
            tokens.write_12h,
            tokens.uncached(),
        ]
    }

    #[test]
    fn the_implicit_breakpoint_is_read_by_the_next_turn() {
        let cache = &mut Cache::default();
        let first = [text("a", 2_000)];
        let second = [text("a", 2_000), model("answer"), text("b", 500)];
        assert_eq!(ask(cache, IMPLICIT, 0, &first), [0, 2_000, 0, 0]);
        assert_eq!(ask(cache, IMPLICIT, 1, &second), [2_000, 502, 0, 0]);
        assert_eq!(ask(cache, IMPLICIT, 2, &second), [2_502, 0, 0, 0]);
    }

    #[test]
    fn below_1024_tokens_nothing_is_cached() {
        let cache = &mut Cache::default();
        for caching in [IMPLICIT, OLD] {
            for _ in 0..2 {
                let asked = ask(cache, caching, 0, &[text("a", 1_023)]);
                assert_eq!(asked, [0, 0, 0, 1_023]);
            }
        }
        assert_eq!(
            ask(cache, IMPLICIT, 0, &[text("a", 1_024)]),
            [0, 1_024, 0, 0]
        );
    }

    #[test]
    fn a_breakpoint_lives_from_its_write_and_no_read_extends_it() {
        let cache = &mut Cache::default();
        let pieces = [text("a", 2_000)];
        ask(cache, IMPLICIT, 0, &pieces);
        assert_eq!(ask(cache, IMPLICIT, 1_799_999, &pieces)[0], 2_000);
        assert_eq!(ask(cache, IMPLICIT, 1_800_000, &pieces), [0, 2_000, 0, 0]);
        let long = [marked(text("b", 2_000), Some(Life::HalfDay))];
        ask(cache, EXPLICIT, 0, &long);
        assert_eq!(ask(cache, EXPLICIT, 43_199_999, &long)[0], 2_000);
        assert_eq!(ask(cache, EXPLICIT, 43_200_000, &long)[0], 0);
    }

    #[test]
    fn explicit_mode_caches_at_explicit_breakpoints_only() {
        let cache = &mut Cache::default();
        let none = [text("a", 2_000)];
        assert_eq!(ask(cache, EXPLICIT, 0, &none), [0, 0, 0, 2_000]);
        assert_eq!(ask(cache, EXPLICIT, 0, &none), [0, 0, 0, 2_000]);
        let one = [marked(text("a", 2_000), None), text("tail", 100)];
        assert_eq!(ask(cache, EXPLICIT, 0, &one), [0, 2_000, 0, 100]);
        let other = [marked(text("a", 2_000), None), text("other", 300)];
        assert_eq!(ask(cache, EXPLICIT, 0, &other), [2_000, 0, 0, 300]);
    }

    #[test]
    fn a_request_writes_its_latest_breakpoints() {
        let five = |caching| {
            let cache = &mut Cache::default();
            let pieces: Vec<Piece> = (0..5)
                .map(|n| marked(text(&n.to_string(), 2_000), None))
                .chain([text("end", 100)])
                .collect();
            ask(cache, caching, 0, &pieces);
            (1..=5usize)
                .filter(|n| ask(cache, EXPLICIT, 0, &pieces[..*n])[0] == *n as u64 * 2_000)
                .collect::<Vec<_>>()
        };
        // Asking for a prefix writes it as well, so only hits on its very end count.
        assert_eq!(five(EXPLICIT), [2, 3, 4, 5]);
        assert_eq!(five(IMPLICIT), [3, 4, 5]);
    }

    #[test]
    fn a_token_is_billed_for_the_longest_lifetime_that_covers_it() {
        let cache = &mut Cache::default();
        let pieces = [
            marked(text("a", 1_100), None),
            marked(text("b", 1_000), Some(Life::HalfDay)),
            text("c", 500),
        ];
        assert_eq!(ask(cache, IMPLICIT, 0, &pieces), [0, 500, 2_100, 0]);
    }

    #[test]
    fn reads_consider_the_latest_eighty_breakpoints() {
        let conversation = |turns: usize| {
            let mut pieces = vec![text("start", 2_000)];
            for turn in 0..turns {
                pieces.push(model("m"));
                pieces.push(text(&format!("t{turn}"), 2));
            }
            pieces
        };
        let read = |turns| {
            let cache = &mut Cache::default();
            ask(cache, IMPLICIT, 0, &conversation(0));
            ask(cache, IMPLICIT, 0, &conversation(turns))[0]
        };
        assert_eq!(read(79), 2_000);
        assert_eq!(read(80), 0);
    }

    #[test]
    fn older_models_read_in_steps_of_the_common_prefix_and_do_not_bill_writes() {
        let cache = &mut Cache::default();
        assert_eq!(ask(cache, OLD, 0, &[text("a", 1_500)]), [0, 0, 0, 1_500]);
        // 1,408 = 11 * 128.
        let longer = [text("a", 1_500), model("m"), text("b", 100)];
        assert_eq!(ask(cache, OLD, 0, &longer)[0], 1_408);
        // A read keeps the prefix alive; without one it is gone.
        assert_eq!(ask(cache, OLD, 599_999, &[text("a", 1_500)])[0], 1_408);
        assert_eq!(ask(cache, OLD, 1_199_998, &[text("a", 1_500)])[0], 1_408);
        assert_eq!(ask(cache, OLD, 1_799_998, &[text("a", 1_500)])[0], 0);
    }
}
