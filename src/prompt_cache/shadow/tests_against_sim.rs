//! The shadow cache against the simulated provider's own cache, which shares no code with it:
//! whatever a conversation does, what is predicted to be read is what the usage says.

use proptest::prelude::*;

use super::*;
use crate::prompt_cache::trail::Betas;
use crate::provider::anthropic::request::view;
use crate::sim;
use crate::sim::ask::{Asked, Under};
use crate::usage::Usage;

/// The simulated provider counts a token for four bytes.
const BYTES_PER_TOKEN: usize = 4;

/// Breakpoints this near to the minimum are not set: sizes are estimates, and the estimate counts
/// the bytes of the breakpoints.
const BORDER_PERCENT: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Tool,
    System,
    User,
    Model,
    Call,
    Result,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    kind: Kind,
    id: u64,
    version: u64,
    tokens: usize,
}

impl Piece {
    fn spelled(&self, marker: &str) -> String {
        let Self { id, version, .. } = self;
        let (start, end) = match self.kind {
            Kind::Tool => (
                format!(
                    r#"{{"name":"t{id}","input_schema":{{"type":"object"}},"description":"{version}."#
                ),
                r#"""#,
            ),
            Kind::System | Kind::User | Kind::Model => (
                format!(r#"{{"type":"text","text":"{id}.{version}."#),
                r#"""#,
            ),
            Kind::Call => (
                format!(r#"{{"type":"tool_use","id":"c{id}","name":"t","input":{{"x":"{version}."#),
                r#""}"#,
            ),
            Kind::Result => (
                format!(
                    r#"{{"type":"tool_result","tool_use_id":"c{id}","content":[{{"type":"text","text":"{version}."#
                ),
                r#""}]"#,
            ),
        };
        let rest = (self.tokens * BYTES_PER_TOKEN).saturating_sub(start.len() + end.len() + 1);
        format!("{start}{}{end}{marker}}}", "q".repeat(rest))
    }

    fn counted(&self) -> usize {
        self.spelled("").len().div_ceil(BYTES_PER_TOKEN)
    }

    fn role(&self) -> &'static str {
        match self.kind {
            Kind::Model | Kind::Call => "assistant",
            _ => "user",
        }
    }
}

#[derive(Debug, Clone)]
struct Thread {
    model: &'static str,
    min: usize,
    forced: bool,
    fast: bool,
    pieces: Vec<Piece>,
    /// Where the newest breakpoint of its last request stood.
    wrote: Option<usize>,
}

/// Where breakpoints go, as parts of the conversation's length; `None` for the automatic one.
#[derive(Debug, Clone)]
struct Marks {
    parts: Vec<usize>,
    head: bool,
    previous: bool,
    newest: bool,
    automatic: bool,
    /// So many from the start have the long lifetime.
    long: usize,
}

#[derive(Debug, Clone)]
enum Do {
    Grow(usize, Vec<(u8, usize, usize)>),
    Edit(usize, usize),
    Fork(usize),
    Rewind(usize, usize),
    Choice(usize),
    Speed(usize),
    Model(usize),
    Pause(u64),
    Send(usize, Marks),
    /// Sent, begun and settled at once.
    Turn(usize, Marks),
    Lost(usize, Marks),
    Begin(usize),
    Settle(usize, bool),
}

struct Flying {
    turn: Uuid,
    under: Under,
    tokens: Vec<usize>,
    begun: bool,
}

struct World {
    provider: Asked,
    shadow: Shadow,
    hasher: Hasher,
    threads: Vec<Thread>,
    flying: Vec<Flying>,
    next: u64,
    /// Requests, and those of them that read: so that a test can tell that it tested something.
    sent: usize,
    reads: usize,
}

/// A request as both sides see it.
struct Request {
    body: Vec<u8>,
    chain: crate::prompt_cache::chain::Chain,
    trail: Trail,
    /// Tokens of the prefix after each block, by our own count.
    tokens: Vec<usize>,
}

impl World {
    fn new(counting: Counting) -> Self {
        let piece = |kind, id, tokens| Piece {
            kind,
            id,
            version: 0,
            tokens,
        };
        let pieces = vec![
            piece(Kind::Tool, 1, 300),
            piece(Kind::Tool, 2, 500),
            piece(Kind::System, 3, 900),
            piece(Kind::User, 4, 50),
        ];
        let thread = Thread {
            model: "test-sonnet",
            min: 1024,
            forced: false,
            fast: false,
            pieces,
            wrote: None,
        };
        let theirs = match counting {
            Counting::PerBlock => sim::Counting::PerBlock,
            Counting::Grouped => sim::Counting::Grouped,
        };
        Self {
            provider: Asked::new(theirs),
            shadow: Shadow::new(64 << 20).counting(counting),
            hasher: Hasher::new([9; 32]),
            threads: vec![thread],
            flying: Vec::new(),
            next: 100,
            sent: 0,
            reads: 0,
        }
    }

    fn thread(&mut self, which: usize) -> &mut Thread {
        let count = self.threads.len();
        &mut self.threads[which % count]
    }

    fn request(&self, thread: &Thread, plan: &Marks) -> Request {
        let mut tokens = Vec::new();
        let mut sum = 0;
        for piece in &thread.pieces {
            sum += piece.counted();
            tokens.push(sum);
        }
        let last = thread.pieces.len() - 1;
        let border = thread.min * BORDER_PERCENT / 100;
        let clear = |at: &usize| tokens[*at].abs_diff(thread.min) > border;
        let automatic = plan.automatic && clear(&last);
        let mut at: Vec<usize> = plan.parts.iter().map(|part| part * last / 100).collect();
        at.extend(plan.head.then_some(2));
        at.extend(thread.wrote.filter(|_| plan.previous));
        at.extend(plan.newest.then_some(last));
        at.sort_unstable();
        at.dedup();
        at.retain(|at| *at <= last && clear(at) && !(automatic && *at == last));
        let room = 4 - usize::from(automatic);
        at.drain(..at.len().saturating_sub(room));
        let life = |nth: usize| match nth < plan.long {
            true => r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
            false => r#","cache_control":{"type":"ephemeral"}"#,
        };
        let spelled = |index: usize| {
            let nth = at.iter().position(|at| *at == index);
            thread.pieces[index].spelled(nth.map_or("", life))
        };
        let of = |kind: Kind| {
            let places = (0..=last).filter(|index| thread.pieces[*index].kind == kind);
            places.map(spelled).collect::<Vec<_>>().join(",")
        };
        let messages =
            (0..=last).filter(|i| !matches!(thread.pieces[*i].kind, Kind::Tool | Kind::System));
        let messages = messages.map(|index| {
            let role = thread.pieces[index].role();
            format!(r#"{{"role":"{role}","content":[{}]}}"#, spelled(index))
        });
        let body = format!(
            r#"{{"model":"{}","max_tokens":10{}{}{},"tools":[{}],"system":[{}],"messages":[{}]}}"#,
            thread.model,
            if thread.forced {
                r#","tool_choice":{"type":"any"}"#
            } else {
                ""
            },
            if thread.fast {
                r#","speed":"fast""#
            } else {
                ""
            },
            if automatic { life(at.len()) } else { "" },
            of(Kind::Tool),
            of(Kind::System),
            messages.collect::<Vec<_>>().join(",")
        )
        .into_bytes();
        let view = view(&body).unwrap();
        let chain = self.hasher.chain(&body, &view, b"scope");
        let blocks = view.blocks.iter().enumerate();
        let own = blocks.filter_map(|(at, block)| Some((at, block.marker?.ttl)));
        let auto = view.auto_marker.map(|marker| (last, marker.ttl));
        let marks = own.chain(auto).map(|(at, ttl)| Mark {
            at: at as u32,
            ttl,
            ours: false,
        });
        let marks = marks.collect();
        let trail = Trail::new(&self.hasher, &body, &view, &chain, Betas::default(), marks);
        assert_eq!(trail.steps.len(), tokens.len());
        Request {
            body,
            chain,
            trail,
            tokens,
        }
    }

    fn turn(&mut self) -> Uuid {
        self.next += 1;
        Uuid::from_u128(u128::from(self.next))
    }

    fn announce(&mut self, which: usize, plan: &Marks) -> (Uuid, Request, Expected) {
        let thread = self.thread(which).clone();
        let request = self.request(&thread, plan);
        let turn = self.turn();
        let levels = Levels::of(&self.hasher, &request.trail);
        let look = Look {
            automatic: None,
            trail: &request.trail,
            at: &request.chain.at,
            levels: &levels,
            min_tokens: Some(thread.min as u32),
            bytes_per_token_milli: 1000 * BYTES_PER_TOKEN as u32,
            now_ms: self.provider.now_ms() as i64,
            marks: &request.trail.marks,
        };
        let before = self.shadow.look(&look);
        let expected = self.shadow.pending(turn, &look);
        assert_eq!(before, expected);
        (turn, request, expected)
    }

    fn send(&mut self, which: usize, plan: &Marks) {
        let (turn, request, expected) = self.announce(which, plan);
        let under = self.provider.ask(&request.body).unwrap();
        let said = under.tokens();
        assert_eq!(said.total() as usize, *request.tokens.last().unwrap());
        let tokens_at = |known: &Known| request.tokens[known.at as usize] as u64;
        let predicted = expected.read.as_ref().map_or(0, tokens_at);
        assert_eq!(
            predicted, said.read,
            "{expected:?} {:?}",
            request.trail.marks
        );
        let all = [
            expected.read,
            expected.alive,
            expected.expired,
            expected.pending,
        ];
        for known in all.iter().flatten() {
            assert!(known.tokens.is_none_or(|tokens| tokens == tokens_at(known)));
        }
        self.sent += 1;
        self.reads += usize::from(said.read > 0);
        self.thread(which).wrote = request.trail.last_mark().map(|mark| mark.at as usize);
        self.flying.push(Flying {
            turn,
            under,
            tokens: request.tokens,
            begun: false,
        });
    }

    fn begin(&mut self, which: usize) {
        let Some(which) = which.checked_rem(self.flying.len()) else {
            return;
        };
        let flying = &mut self.flying[which];
        if !flying.begun {
            flying.begun = true;
            self.provider.begin(&mut flying.under);
            self.shadow.began(flying.turn);
        }
    }

    fn settle(&mut self, which: usize, told: bool) {
        let Some(which) = which.checked_rem(self.flying.len()) else {
            return;
        };
        self.begin(which);
        let flying = self.flying.remove(which);
        let said = flying.under.tokens();
        let usage = Usage {
            uncached: Some(said.uncached),
            read: Some(said.read),
            write_5m: Some(said.write_5m),
            write_1h: Some(said.write_1h),
            ..Usage::default()
        };
        if !told {
            let outcome = self.shadow.settled(flying.turn, &Usage::default());
            assert_eq!(outcome, Outcome::default());
            return;
        }
        let outcome = self.shadow.settled(flying.turn, &usage);
        assert_eq!((outcome.gone, outcome.removed), (None, 0));
        let read = outcome
            .read
            .map(|known| flying.tokens[known.at as usize] as u64);
        assert_eq!(read.unwrap_or(0), said.read);
        assert_eq!(
            outcome.read.and_then(|known| known.tokens).unwrap_or(0),
            said.read
        );
        let written = outcome
            .written
            .map(|known| flying.tokens[known.at as usize] as u64);
        assert_eq!(written.is_some(), said.written() > 0);
        if let Some(written) = written {
            assert_eq!(written, said.read + said.written());
            assert_eq!(outcome.written.unwrap().tokens, Some(written));
        }
    }

    fn act(&mut self, act: &Do) {
        match act {
            Do::Grow(which, pieces) => {
                for (kind, count, tokens) in pieces {
                    let kind =
                        [Kind::User, Kind::Model, Kind::Call, Kind::Result][usize::from(*kind)];
                    for _ in 0..*count {
                        self.next += 1;
                        let piece = Piece {
                            kind,
                            id: self.next,
                            version: 0,
                            tokens: *tokens,
                        };
                        self.thread(*which).pieces.push(piece);
                    }
                }
            }
            Do::Edit(which, part) => {
                self.next += 1;
                let version = self.next;
                let pieces = &mut self.thread(*which).pieces;
                let at = part * (pieces.len() - 1) / 100;
                pieces[at].version = version;
            }
            Do::Fork(which) => {
                if self.threads.len() < 6 {
                    let thread = self.thread(*which).clone();
                    self.threads.push(thread);
                }
            }
            Do::Rewind(which, part) => {
                let pieces = &mut self.thread(*which).pieces;
                pieces.truncate(4 + part * (pieces.len() - 4) / 100);
            }
            Do::Choice(which) => self.thread(*which).forced ^= true,
            Do::Speed(which) => self.thread(*which).fast ^= true,
            Do::Model(which) => {
                let thread = self.thread(*which);
                (thread.model, thread.min) = match thread.min {
                    1024 => ("test-small", 4096),
                    _ => ("test-sonnet", 1024),
                };
            }
            Do::Pause(ms) => self.provider.clock.advance(*ms),
            Do::Send(which, plan) => self.send(*which, plan),
            Do::Turn(which, plan) => {
                self.send(*which, plan);
                self.settle(self.flying.len() - 1, true);
            }
            Do::Lost(which, plan) => {
                let (turn, ..) = self.announce(*which, plan);
                self.shadow.abandoned(turn);
            }
            Do::Begin(which) => self.begin(*which),
            Do::Settle(which, told) => self.settle(*which, *told),
        }
    }
}

fn some_marks() -> impl Strategy<Value = Marks> {
    let parts = prop::collection::vec(0..=100_usize, 0..3);
    let automatic = prop::bool::weighted(0.15);
    let common = prop::bool::weighted(0.6);
    (parts, common, any::<bool>(), common, automatic, 0..6_usize).prop_map(
        |(parts, head, previous, newest, automatic, long)| Marks {
            parts,
            head,
            previous,
            newest,
            automatic,
            long: [0, 0, 0, 1, 2, 4][long],
        },
    )
}

fn some_act() -> impl Strategy<Value = Do> {
    let which = 0..6_usize;
    let tokens = prop::sample::select(vec![30, 200, 700, 2500]);
    let pieces = prop::collection::vec((0..4_u8, 1..26_usize, tokens), 1..4);
    let pauses = vec![
        1_u64, 1_000, 30_000, 240_000, 299_999, 300_000, 300_001, 600_000, 3_599_999, 3_600_000,
        90_000_000,
    ];
    prop_oneof![
        6 => (which.clone(), pieces).prop_map(|(which, pieces)| Do::Grow(which, pieces)),
        1 => (which.clone(), 0..=100_usize).prop_map(|(which, part)| Do::Edit(which, part)),
        1 => which.clone().prop_map(Do::Fork),
        1 => (which.clone(), 0..=100_usize).prop_map(|(which, part)| Do::Rewind(which, part)),
        1 => which.clone().prop_map(Do::Choice),
        1 => which.clone().prop_map(Do::Speed),
        1 => which.clone().prop_map(Do::Model),
        4 => prop::sample::select(pauses).prop_map(Do::Pause),
        5 => (which.clone(), some_marks()).prop_map(|(which, marks)| Do::Send(which, marks)),
        8 => (which.clone(), some_marks()).prop_map(|(which, marks)| Do::Turn(which, marks)),
        1 => (which.clone(), some_marks()).prop_map(|(which, marks)| Do::Lost(which, marks)),
        4 => which.clone().prop_map(Do::Begin),
        4 => (which, prop::bool::weighted(0.8)).prop_map(|(which, told)| Do::Settle(which, told)),
    ]
}

/// Conversations of the test below; `PROPTEST_CASES` asks for more.
const CASES: u32 = 96;

#[test]
fn what_is_predicted_is_what_is_read() {
    let more = std::env::var("PROPTEST_CASES").ok();
    let cases = more.and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let seen = std::cell::Cell::new((0, 0));
    let acts = prop::collection::vec(some_act(), 1..90);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    proptest::test_runner::TestRunner::new(config)
        .run(&(any::<bool>(), acts), |(grouped, acts)| {
            let counting = match grouped {
                true => Counting::Grouped,
                false => Counting::PerBlock,
            };
            let mut world = World::new(counting);
            for act in &acts {
                world.act(act);
            }
            let (sent, reads) = seen.get();
            seen.set((sent + world.sent, reads + world.reads));
            Ok(())
        })
        .unwrap();
    let (sent, reads) = seen.get();
    assert!(sent > 5 * cases as usize, "{sent} requests");
    assert!(
        reads > sent / 10 && reads < sent * 9 / 10,
        "{reads} of {sent} read"
    );
}

#[test]
fn after_an_eviction_one_turn_puts_it_right() {
    let marks = || Marks {
        parts: Vec::new(),
        head: true,
        previous: false,
        newest: true,
        automatic: false,
        long: 0,
    };
    let mut world = World::new(Counting::PerBlock);
    world.act(&Do::Turn(0, marks()));
    world.act(&Do::Grow(0, vec![(0, 2, 200)]));
    world.provider.evict();
    let (turn, request, expected) = world.announce(0, &marks());
    assert_eq!(expected.read.map(|known| known.at), Some(3));
    let mut under = world.provider.ask(&request.body).unwrap();
    let said = under.tokens();
    assert_eq!(said.read, 0);
    world.provider.begin(&mut under);
    let usage = Usage {
        uncached: Some(said.uncached),
        read: Some(0),
        write_5m: Some(said.write_5m),
        write_1h: Some(0),
        ..Usage::default()
    };
    let outcome = world.shadow.settled(turn, &usage);
    let gone = outcome.gone.unwrap();
    assert_eq!((gone.at, gone.tokens), (3, Some(request.tokens[3] as u64)));
    assert_eq!(outcome.removed, 2);
    world.act(&Do::Turn(0, marks()));
    world.act(&Do::Grow(0, vec![(0, 1, 30)]));
    world.act(&Do::Turn(0, marks()));
    assert_eq!((world.sent, world.reads), (3, 2));
}
