use super::*;
use crate::prompt_cache::trail::Setting;
use crate::provider::view::Role;
use crate::usage::Usage;

mod file;
mod settled;

const MINUTE: i64 = 60_000;
const START: i64 = 1_800_000_000_000;
/// Bytes of every block of these tests: 100 tokens by the ratio of these tests.
const LEN: u32 = 400;

/// A request in the making: the hash of a block follows from its number.
#[derive(Clone)]
struct Prompt {
    blocks: Vec<(Section, BlockKind, u64, bool)>,
    model: &'static str,
    fast_beta: bool,
    settings: Vec<Setting>,
    marks: Vec<Mark>,
    min_tokens: Option<u32>,
    ratio: u32,
    now_ms: i64,
}

impl Prompt {
    /// A tool (block 0), a system prompt (1), and texts (2 and on).
    fn of(texts: u64) -> Self {
        let mut blocks = vec![
            (Section::Tools, BlockKind::Tool, 0, true),
            (Section::System, BlockKind::Text, 1, true),
        ];
        blocks.extend((2..texts + 2).map(|n| (Section::Messages, BlockKind::Text, n, true)));
        Self {
            blocks,
            model: "m",
            fast_beta: false,
            settings: Vec::new(),
            marks: Vec::new(),
            min_tokens: None,
            ratio: 4000,
            now_ms: START,
        }
    }

    fn kinds(mut self, kind: BlockKind, count: u64) -> Self {
        let from = self.blocks.len() as u64;
        let more = (from..from + count).map(|n| (Section::Messages, kind, n, true));
        self.blocks.extend(more);
        self
    }

    fn texts(self, count: u64) -> Self {
        self.kinds(BlockKind::Text, count)
    }

    /// Blocks that no other prompt has.
    fn other(mut self, name: u64) -> Self {
        let block = (Section::Messages, BlockKind::Text, 1_000_000 + name, true);
        self.blocks.push(block);
        self
    }

    fn mark(self, at: u32, ttl: Ttl) -> Self {
        self.marked(at, Some(ttl))
    }

    fn marked(mut self, at: u32, ttl: Option<Ttl>) -> Self {
        let ours = false;
        self.marks.push(Mark { at, ttl, ours });
        self
    }

    fn m5(self, at: u32) -> Self {
        self.mark(at, Ttl::M5)
    }

    fn last(self) -> Self {
        let at = self.blocks.len() as u32 - 1;
        self.m5(at)
    }

    /// At another time, in milliseconds after the start of the test.
    fn later(mut self, ms: i64) -> Self {
        self.now_ms = START + ms;
        self
    }

    fn setting(mut self, name: &'static str, from: Section, value: u64) -> Self {
        self.settings.push(Setting { name, from, value });
        self
    }

    /// Looks as this request.
    fn with<T>(&self, act: impl FnOnce(&Look) -> T) -> T {
        let hasher = Hasher::new([1; 32]);
        let mut link = hasher.keyed("scope", b"scope");
        let mut at = Vec::new();
        let steps = self.blocks.iter().map(|(section, kind, number, counts)| {
            if *counts {
                link = hasher.extend(link, &number.to_le_bytes());
            }
            at.push(link);
            Step {
                hash: *number,
                len: LEN,
                section: *section,
                kind: *kind,
                role: (*section == Section::Messages).then_some(Role::User),
                counts: *counts,
            }
        });
        let trail = Trail {
            steps: steps.collect(),
            marks: self.marks.clone(),
            settings: self.settings.clone(),
            model: self.model.into(),
            betas: 0,
            fast_beta: self.fast_beta,
            head: 2,
            messages: 1,
        };
        act(&Look {
            automatic: None,
            trail: &trail,
            at: &at,
            levels: &Levels::of(&hasher, &trail),
            min_tokens: self.min_tokens,
            bytes_per_token_milli: self.ratio,
            now_ms: self.now_ms,
            marks: &trail.marks,
        })
    }
}

fn turn(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn usage(read: u64, write_5m: u64, write_1h: u64, uncached: u64) -> Usage {
    Usage {
        uncached: Some(uncached),
        read: Some(read),
        write_5m: Some(write_5m),
        write_1h: Some(write_1h),
        ..Usage::default()
    }
}

fn shadow() -> Shadow {
    Shadow::new(1 << 20)
}

impl Shadow {
    fn ask(&self, prompt: &Prompt) -> Expected {
        prompt.with(|look| self.look(look))
    }
    fn announce(&mut self, number: u128, prompt: &Prompt) -> Expected {
        prompt.with(|look| self.pending(turn(number), look))
    }
    /// A turn whose answer has begun, and whose usage nobody knows.
    fn write(&mut self, number: u128, prompt: &Prompt) {
        self.announce(number, prompt);
        self.began(turn(number));
        self.settled(turn(number), &Usage::default());
    }
    fn reads(&self, prompt: &Prompt) -> Option<u32> {
        self.ask(prompt).read.map(|known| known.at)
    }
    fn alive(&self, prompt: &Prompt) -> Option<u32> {
        self.ask(prompt).alive.map(|known| known.at)
    }
    fn tokens(&self, prompt: &Prompt, at: usize) -> Option<u64> {
        prompt.with(|look| self.tokens_at(&look.key(at).unwrap()))
    }
    fn begin_and_settle(&mut self, number: u128, usage: &Usage) -> Outcome {
        self.began(turn(number));
        self.settled(turn(number), usage)
    }
}

#[test]
fn nothing_is_there_at_first_and_a_written_prefix_is_there_then() {
    let mut shadow = shadow();
    let first = Prompt::of(3).last();
    assert_eq!(shadow.announce(1, &first), Expected::default());
    shadow.began(turn(1));
    let known = shadow.ask(&Prompt::of(5).last()).read.unwrap();
    let expected = Known {
        at: 4,
        tokens: None,
        turn: turn(1),
        expires_ms: START + 5 * MINUTE,
    };
    assert_eq!(known, expected);
}

#[test]
fn a_breakpoint_looks_back_over_twenty_positions_itself_included() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).last());
    let near = Prompt::of(3).texts(19).last();
    let far = Prompt::of(3).texts(20).last();
    assert_eq!(shadow.reads(&near), Some(4));
    assert_eq!(shadow.reads(&far), None);
    assert_eq!(shadow.alive(&far), Some(4), "it is there all the same");
    let pinned = Prompt::of(3).texts(20).m5(4).last();
    assert_eq!(
        shadow.reads(&pinned),
        Some(4),
        "the next earlier breakpoint"
    );
    assert_eq!(shadow.reads(&Prompt::of(3).texts(9)), None, "no breakpoint");
}

#[test]
fn the_deepest_entry_of_the_last_breakpoint_that_finds_one_is_read() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).m5(1).m5(3).m5(4));
    assert_eq!(shadow.reads(&Prompt::of(3).m5(4)), Some(4));
    assert_eq!(shadow.reads(&Prompt::of(3).m5(3)), Some(3));
    assert_eq!(shadow.reads(&Prompt::of(3).m5(2)), Some(1));
    assert_eq!(shadow.alive(&Prompt::of(3).m5(2)), Some(4));
    assert_eq!(shadow.reads(&Prompt::of(3).texts(30).m5(2).last()), Some(1));
}

#[test]
fn a_run_of_calls_or_of_results_counts_once_where_that_is_the_rule() {
    use BlockKind::{ToolResult, ToolUse};
    let mut grouped = shadow();
    let mut single = shadow().counting(Counting::PerBlock);
    for shadow in [&mut grouped, &mut single] {
        shadow.write(1, &Prompt::of(3).last());
    }
    let after = || Prompt::of(3).kinds(ToolUse, 30).kinds(ToolResult, 30);
    // The two runs and 17 texts are 19 positions, and the written one is the twentieth.
    assert_eq!(grouped.reads(&after().texts(17).last()), Some(4));
    assert_eq!(grouped.reads(&after().texts(18).last()), None);
    assert_eq!(single.reads(&after().last()), None);
    assert_eq!(
        grouped.reads(&after().m5(20)),
        Some(4),
        "from inside of a run"
    );
    let mut mixed = Prompt::of(3);
    for _ in 0..10 {
        mixed = mixed.kinds(ToolUse, 1).kinds(ToolResult, 1);
    }
    assert_eq!(grouped.reads(&mixed.clone().last()), None, "twenty runs");
    mixed.blocks.pop();
    assert_eq!(grouped.reads(&mixed.last()), Some(4));
    assert_eq!(
        grouped.reads(&Prompt::of(3).kinds(BlockKind::ServerTool, 20).last()),
        None
    );
}

#[test]
fn blocks_outside_of_the_prefix_are_no_positions() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).last());
    let mut prompt = Prompt::of(3).texts(19).last();
    for _ in 0..5 {
        prompt
            .blocks
            .insert(7, (Section::Messages, BlockKind::Text, 77, false));
    }
    prompt.marks[0].at += 5;
    assert_eq!(shadow.reads(&prompt), Some(4));
    prompt.marks[0].at = 7;
    assert_eq!(
        shadow.reads(&prompt),
        None,
        "a breakpoint on one of them is none"
    );
    prompt.marks[0].at = 999;
    assert_eq!(shadow.reads(&prompt), None, "nor is one beyond the end");
}

#[test]
fn an_entry_is_readable_once_the_answer_to_its_writer_has_begun() {
    let mut shadow = shadow();
    let prompt = Prompt::of(3).m5(1).m5(4);
    shadow.announce(1, &prompt);
    shadow.announce(2, &prompt.clone().later(1000));
    let found = shadow.ask(&prompt);
    assert_eq!((found.read, found.alive, found.expired), (None, None, None));
    let pending = found.pending.unwrap();
    assert_eq!(
        (pending.at, pending.turn, pending.tokens),
        (4, turn(1), None)
    );
    assert_eq!(pending.expires_ms, START + 5 * MINUTE);
    let branch = Prompt::of(2).other(1).last();
    assert_eq!(
        shadow.ask(&branch).pending.unwrap().at,
        1,
        "the part that is shared"
    );

    shadow.abandoned(turn(1));
    let pending = shadow.ask(&prompt).pending.unwrap();
    assert_eq!(pending.turn, turn(2), "the other one still writes it");
    shadow.began(turn(2));
    let found = shadow.ask(&prompt);
    assert_eq!(found.read.map(|known| known.turn), Some(turn(2)));
    assert_eq!(found.pending, None);
    shadow.announce(3, &Prompt::of(9).last());
    assert_eq!(shadow.ask(&Prompt::of(9).last()).pending.unwrap().at, 10);
    assert_eq!(shadow.ask(&prompt).pending, None);
}

#[test]
fn what_is_read_is_not_written_again() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).m5(1).m5(4));
    let next = Prompt::of(5).m5(1).m5(4).m5(6);
    shadow.announce(2, &next);
    let found = shadow.ask(&next);
    assert_eq!(found.pending.unwrap().at, 6);
    shadow.announce(3, &Prompt::of(3).m5(1).m5(4));
    assert_eq!(shadow.ask(&next).pending.unwrap().turn, turn(2));
    assert_eq!(shadow.under_way(), 2);
    shadow.began(turn(2));
    shadow.began(turn(3));
    let writers: Vec<Uuid> = [1, 4, 6]
        .map(|at| shadow.ask(&next.clone().m5(at)).alive.map(|_| at))
        .into_iter()
        .flatten()
        .map(|at| {
            let only = Prompt::of(5).m5(at);
            shadow.ask(&only).read.unwrap().turn
        })
        .collect();
    assert_eq!(writers, [turn(1), turn(1), turn(2)]);
}

#[test]
fn lifetimes_count_from_the_start_of_the_request() {
    for (ttl, life) in [
        (Some(Ttl::M5), 5 * MINUTE),
        (Some(Ttl::H1), 60 * MINUTE),
        (None, 5 * MINUTE),
    ] {
        let mut shadow = shadow();
        // However long the answer takes: no time is told when it begins.
        shadow.write(1, &Prompt::of(3).marked(4, ttl));
        let prompt = Prompt::of(3).last();
        assert_eq!(shadow.reads(&prompt.clone().later(life - 1)), Some(4));
        let after = shadow.ask(&prompt.clone().later(life));
        assert_eq!((after.read, after.alive), (None, None));
        assert_eq!(after.expired.unwrap().at, 4);
        let day = life + KEEP_EXPIRED_MS;
        assert!(shadow.ask(&prompt.clone().later(day - 1)).expired.is_some());
        assert_eq!(shadow.ask(&prompt.later(day)), Expected::default());
    }
}

#[test]
fn what_is_expired_or_being_written_is_told_only_where_it_is_longer_than_what_lives() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).mark(1, Ttl::H1).m5(4));
    let found = shadow.ask(&Prompt::of(3).last().later(6 * MINUTE));
    assert_eq!((found.alive.unwrap().at, found.expired.unwrap().at), (1, 4));
    assert_eq!(found.read.unwrap().at, 1);
    shadow.write(2, &Prompt::of(6).last().later(6 * MINUTE));
    let found = shadow.ask(&Prompt::of(6).last().later(7 * MINUTE));
    assert_eq!((found.alive.unwrap().at, found.expired), (7, None));
    shadow.announce(3, &Prompt::of(4).m5(5).later(7 * MINUTE));
    let found = shadow.ask(&Prompt::of(6).last().later(7 * MINUTE));
    assert_eq!(found.pending, None);
}

#[test]
fn reading_refreshes_the_entry_and_the_shorter_ones_on_its_path() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).m5(1).m5(3).m5(4));
    shadow.write(2, &Prompt::of(2).other(5).last());
    shadow.announce(3, &Prompt::of(2).m5(3).later(4 * MINUTE));
    let at = |shadow: &Shadow, prompt: Prompt| {
        let found = shadow.ask(&prompt.later(6 * MINUTE));
        (
            found.read.map(|known| known.at),
            found.expired.map(|known| known.at),
        )
    };
    assert_eq!(at(&shadow, Prompt::of(1).m5(1)), (Some(1), None));
    assert_eq!(
        at(&shadow, Prompt::of(3).m5(4)),
        (Some(3), Some(4)),
        "not the longer one"
    );
    assert_eq!(
        at(&shadow, Prompt::of(2).other(5).m5(4)),
        (Some(3), Some(4)),
        "nor its sibling"
    );
    let refreshed = shadow.ask(&Prompt::of(2).last().later(6 * MINUTE)).read;
    assert_eq!(refreshed.unwrap().expires_ms, START + 9 * MINUTE);
    // A long life is not cut by a read.
    shadow.write(4, &Prompt::of(1).other(7).mark(3, Ttl::H1));
    shadow.announce(5, &Prompt::of(1).other(7).last().later(MINUTE));
    let long = shadow.ask(&Prompt::of(1).other(7).last()).read.unwrap();
    assert_eq!(long.expires_ms, START + 61 * MINUTE);
}

#[test]
fn a_turn_that_came_to_nothing_has_neither_read_nor_written() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).last());
    let next = Prompt::of(5).last();
    shadow.announce(2, &next.clone().later(MINUTE));
    shadow.abandoned(turn(2));
    let found = shadow.ask(&next.clone().later(2 * MINUTE));
    assert_eq!(found.read.unwrap().expires_ms, START + 5 * MINUTE);
    assert_eq!(found.pending, None);
    // Unless something else has read it since.
    shadow.announce(3, &next.clone().later(2 * MINUTE));
    shadow.announce(4, &next.clone().later(3 * MINUTE));
    shadow.abandoned(turn(3));
    let found = shadow.ask(&next.clone().later(3 * MINUTE));
    assert_eq!(found.read.unwrap().expires_ms, START + 8 * MINUTE);
    // What had begun stays.
    shadow.began(turn(4));
    shadow.abandoned(turn(4));
    assert_eq!(shadow.reads(&next.later(4 * MINUTE)), Some(6));
    assert_eq!(shadow.under_way(), 0);
}

#[test]
fn a_turn_that_is_announced_again_replaces_itself() {
    let mut shadow = shadow();
    shadow.announce(1, &Prompt::of(3).m5(1).m5(4));
    shadow.announce(1, &Prompt::of(3).m5(1));
    assert_eq!(shadow.under_way(), 1);
    assert_eq!(shadow.ask(&Prompt::of(3).last()).pending.unwrap().at, 1);
    shadow.began(turn(1));
    assert_eq!(shadow.alive(&Prompt::of(3)), Some(1));
}

#[test]
fn the_lifetime_is_no_part_of_the_key() {
    let mut shadow = shadow();
    shadow.write(1, &Prompt::of(3).m5(4));
    assert_eq!(shadow.reads(&Prompt::of(3).mark(4, Ttl::H1)), Some(4));
    // Parallel writers with different lifetimes: the longer one counts, the first is the writer.
    let prompt = |ttl| Prompt::of(3).other(1).mark(5, ttl);
    for order in [[(2, Ttl::M5), (3, Ttl::H1)], [(2, Ttl::H1), (3, Ttl::M5)]] {
        let mut shadow = self::shadow();
        for (number, ttl) in order {
            shadow.announce(number, &prompt(ttl));
        }
        shadow.began(turn(2));
        shadow.began(turn(3));
        let known = shadow.ask(&prompt(Ttl::M5)).read.unwrap();
        assert_eq!(
            (known.turn, known.expires_ms),
            (turn(2), START + 60 * MINUTE)
        );
    }
}

#[test]
fn nothing_shorter_than_the_minimum_is_written_where_both_are_known() {
    let written = |min_tokens, ratio| {
        let mut shadow = shadow();
        let mut prompt = Prompt::of(3).m5(1).m5(4);
        (prompt.min_tokens, prompt.ratio) = (min_tokens, ratio);
        shadow.announce(1, &prompt);
        shadow.began(turn(1));
        let at = |at| shadow.reads(&Prompt::of(3).m5(at)) == Some(at);
        (at(1), at(4))
    };
    assert_eq!(written(Some(200), 4000), (true, true));
    assert_eq!(written(Some(201), 4000), (false, true));
    assert_eq!(written(Some(501), 4000), (false, false));
    assert_eq!(written(Some(501), 0), (true, true), "no estimate");
    assert_eq!(written(None, 4000), (true, true));
}

#[test]
fn each_level_has_what_counts_from_it_in_its_key() {
    let mut shadow = shadow();
    let prompt = || Prompt::of(1).m5(0).m5(1).m5(2);
    shadow.write(1, &prompt());
    let reads = |prompt: Prompt| shadow.reads(&prompt);
    assert_eq!(reads(prompt()), Some(2));
    let other = Prompt {
        model: "n",
        ..prompt()
    };
    assert_eq!(reads(other), None);
    let beta = Prompt {
        fast_beta: true,
        ..prompt()
    };
    assert_eq!(reads(beta), None);
    assert_eq!(
        reads(prompt().setting("tool_choice", Section::Messages, 1)),
        Some(1)
    );
    assert_eq!(
        reads(prompt().setting("speed", Section::System, 1)),
        Some(0)
    );
    assert_eq!(reads(prompt().setting("x", Section::Tools, 1)), None);

    shadow.write(2, &prompt().setting("speed", Section::System, 1));
    let reads = |prompt: Prompt| shadow.reads(&prompt);
    assert_eq!(
        reads(prompt().setting("speed", Section::System, 1)),
        Some(2)
    );
    assert_eq!(
        reads(prompt().setting("speed", Section::System, 2)),
        Some(0)
    );
    assert_eq!(reads(prompt().setting("spee", Section::System, 1)), Some(0));
    let both = prompt().setting("speed", Section::System, 1);
    assert_eq!(
        reads(both.setting("tool_choice", Section::Messages, 1)),
        Some(1)
    );
}

#[test]
fn turns_under_way_are_bounded_and_the_oldest_are_forgotten() {
    let mut shadow = shadow();
    shadow.write(0, &Prompt::of(300).m5(1).last());
    for number in 1..20_000_u64 {
        shadow.announce(
            u128::from(number),
            &Prompt::of(1).other(number).m5(1).last(),
        );
    }
    assert!(shadow.under_way() > 50);
    assert!(shadow.bytes() <= 1 << 20, "{}", shadow.bytes());
    let pending = |shadow: &Shadow, number| shadow.ask(&Prompt::of(1).other(number).last()).pending;
    assert!(pending(&shadow, 19_999).is_some());
    assert_eq!(pending(&shadow, 1), None);
    shadow.began(turn(1));
    assert_eq!(
        shadow.settled(turn(1), &usage(0, 9, 0, 0)),
        Outcome::default()
    );
    assert_eq!(shadow.len(), 2);
    for number in 1..20_000_u128 {
        shadow.abandoned(turn(number));
    }
    assert_eq!((shadow.under_way(), shadow.flights.bytes()), (0, 0));
}

#[test]
fn an_empty_request_is_no_trouble() {
    let mut shadow = shadow();
    let mut empty = Prompt::of(0);
    empty.blocks.clear();
    assert_eq!(shadow.ask(&empty.clone().m5(0)), Expected::default());
    shadow.write(1, &empty.m5(0));
    assert!(shadow.is_empty());
}
