use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::prompt_cache::chain::Hasher;
use crate::prompt_cache::plan::Policy;
use crate::prompt_cache::trail::Betas;
use crate::provider::anthropic::request::view;

const START: i64 = 1_800_000_000_000;
const MIB: usize = 1 << 20;

/// What the gateway does around the engine.
struct Gate {
    hasher: Hasher,
    engine: Engine,
    now_ms: i64,
    turns: u128,
}

/// A request under way.
struct Sent {
    thread: u64,
    turn: Uuid,
    prepared: Prepared,
    expected: Expected,
    tokens: u64,
}

impl Gate {
    fn new(bytes: usize) -> Self {
        Self::with(Engine::new(bytes, false), START)
    }

    fn with(engine: Engine, now_ms: i64) -> Self {
        Self {
            hasher: Hasher::new([3; 32]),
            engine,
            now_ms,
            turns: 0,
        }
    }

    fn send(&mut self, thread: u64, number: u32, body: &Bytes) -> Sent {
        self.now_ms += 10;
        self.turns += 1;
        let view = view(body).unwrap();
        let chain = self.hasher.chain(body, &view, b"scope");
        let request = Request {
            hasher: &self.hasher,
            body,
            view: &view,
            betas: Betas::default(),
            left_out: &[],
            thread,
            turn: number,
            app: 1,
            root_seen: false,
            previous_blocks: None,
            insertion_off: false,
            policy: Some(Policy::Fill),
            rates: None,
            min_tokens: Some(100),
            bytes_per_token_milli: 4_000,
            now_ms: self.now_ms,
        };
        let mut prepared = self.engine.prepare(&request, chain);
        let plan = prepared.plan.take().unwrap();
        prepared.trail.marks = marks_after(&view, &plan);
        let turn = Uuid::from_u128(self.turns);
        let look = look(&prepared, self.now_ms);
        let expected = self.engine.sent(turn, &look);
        Sent {
            thread,
            turn,
            expected,
            tokens: body.len() as u64 / 4,
            prepared,
        }
    }

    /// The provider reads what we expect, and writes up to the last breakpoint.
    fn answer(&mut self, sent: Sent) -> Outcome {
        let engine = &self.engine;
        engine.began(sent.turn);
        let read = sent.expected.read.and_then(|known| known.tokens);
        let read = read.unwrap_or(0);
        let marked = sent.prepared.trail.last_mark().is_some();
        let usage = Usage {
            uncached: Some(if marked { 0 } else { sent.tokens - read }),
            read: Some(read),
            write_5m: Some(if marked { sent.tokens - read } else { 0 }),
            write_1h: Some(0),
            ..Usage::default()
        };
        engine.ended(1, sent.thread, habits::Stop::ToolUse, self.now_ms + 5);
        let outcome = engine.settled(sent.turn, &usage);
        engine.remember(
            sent.thread,
            Arc::new(Past {
                trail: Arc::new(sent.prepared.trail),
                turn_id: sent.turn,
                started_ms: self.now_ms,
                ended_ms: self.now_ms + 5,
                usage,
                response_id: Some("msg_01".into()),
                model_served: None,
                stop_reason: Some("tool_use".into()),
                client_order: sent.thread.is_multiple_of(2).then_some(7),
            }),
        );
        outcome
    }

    fn turn(&mut self, thread: u64, number: u32, blocks: usize) -> Outcome {
        let sent = self.send(thread, number, &body(thread, blocks));
        self.answer(sent)
    }
}

fn look(prepared: &Prepared, now_ms: i64) -> Look<'_> {
    Look {
        automatic: None,
        trail: &prepared.trail,
        at: &prepared.at,
        levels: &prepared.levels,
        min_tokens: Some(100),
        bytes_per_token_milli: 4_000,
        now_ms,
        marks: &prepared.trail.marks,
    }
}

/// A conversation of so many texts behind a system prompt; one with more texts goes on with one
/// that has fewer.
fn body(thread: u64, texts: usize) -> Bytes {
    let text = |n: usize| format!(r#"{{"type":"text","text":"{thread} says {n} in a few words"}}"#);
    let message = |n: usize| {
        let role = if n.is_multiple_of(2) {
            "user"
        } else {
            "assistant"
        };
        let blocks: Vec<_> = (n * 8..texts.min(n * 8 + 8)).map(text).collect();
        format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(","))
    };
    let messages: Vec<_> = (0..texts.div_ceil(8)).map(message).collect();
    let rules = "Keep to the rules. ".repeat(40);
    format!(
        r#"{{"model":"claude-opus-5","max_tokens":9,"tools":[{{"name":"t","input_schema":{{}}}}],"system":[{{"type":"text","text":"{rules}"}}],"messages":[{}]}}"#,
        messages.join(",")
    )
    .into()
}

/// An engine that has seen a few conversations.
fn used() -> Gate {
    let mut gate = Gate::new(MIB);
    for thread in 0..12 {
        gate.turn(thread, 1, 30);
        gate.turn(thread, 2, 46);
    }
    gate
}

#[test]
fn what_is_written_down_is_the_same_after_a_restart() {
    let mut before = used();
    let bytes = before.engine.encode();
    let after = Engine::decode(&bytes, MIB, false, before.now_ms).unwrap();
    let mut after = Gate::with(after, before.now_ms);
    after.turns = before.turns;
    for thread in 0..12 {
        let here = before.send(thread, 3, &body(thread, 62));
        let there = after.send(thread, 3, &body(thread, 62));
        assert!(here.expected.read.is_some());
        assert_eq!(here.expected, there.expected);
        assert!(here.prepared.compared.past.is_some());
        assert_eq!(here.prepared.compared.past, there.prepared.compared.past);
        assert_eq!(here.prepared.compared.kept, there.prepared.compared.kept);
        assert_eq!(here.prepared.trail, there.prepared.trail);
    }
    assert_eq!(before.engine.bytes()[2], after.engine.bytes()[2]);
    let nothing = Engine::new(MIB, false).encode();
    let nothing = Engine::decode(&nothing, MIB, false, START).unwrap();
    assert_eq!(nothing.bytes()[2], 0);
}

#[test]
fn the_same_requests_give_the_same_memory() {
    let (one, two) = (used(), used());
    assert_eq!(one.engine.encode(), two.engine.encode());
    assert_eq!(one.engine.bytes(), two.engine.bytes());
}

#[test]
fn a_smaller_memory_keeps_the_newest() {
    let mut gate = Gate::new(4 * MIB);
    for thread in 0..300 {
        gate.turn(thread, 1, 60);
    }
    let bytes = gate.engine.encode();
    let limit = MIB / 4;
    let small = Engine::decode(&bytes, limit, false, gate.now_ms).unwrap();
    assert!(small.bytes().iter().sum::<usize>() <= limit);
    let mut small = Gate::with(small, gate.now_ms);
    let newest = small.send(299, 2, &body(299, 76));
    assert!(newest.prepared.compared.past.is_some());
    let oldest = small.send(0, 2, &body(0, 76));
    assert!(oldest.prepared.compared.past.is_none());
}

#[test]
fn lifetimes_go_on_while_nothing_runs() {
    let gate = used();
    let bytes = gate.engine.encode();
    let read = |later_ms: i64| {
        let engine = Engine::decode(&bytes, MIB, false, gate.now_ms + later_ms).unwrap();
        let mut gate = Gate::with(engine, gate.now_ms + later_ms);
        gate.turns = 1000;
        gate.send(3, 3, &body(3, 62)).expected
    };
    assert!(read(290_000).read.is_some());
    let late = read(310_000);
    assert!(late.read.is_none() && late.expired.is_some());
}

#[test]
fn foreign_bytes_are_told_from_damaged_ones() {
    let decode = |bytes: &[u8]| Engine::decode(bytes, MIB, false, START).map(|_| ());
    assert_eq!(decode(b""), Err(Damaged::Foreign));
    assert_eq!(decode(b"pgcache0 and more"), Err(Damaged::Foreign));
    assert_eq!(decode(b"pgcache1"), Err(Damaged::Checksum));
    let mut bytes = used().engine.encode();
    bytes.push(0);
    assert_eq!(decode(&bytes), Err(Damaged::Checksum));
    // A checksum that fits makes nothing true.
    let signed = |content: &[u8]| {
        let mut bytes = b"pgcache1".to_vec();
        bytes.extend_from_slice(content);
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        decode(&bytes)
    };
    assert_eq!(signed(b""), Err(Damaged::Content("shadow cache")));
    assert_eq!(signed(&[255; 64]), Err(Damaged::Content("shadow cache")));
    let empty = Engine::new(MIB, false).encode();
    let mut content = empty[8..empty.len() - 8].to_vec();
    assert_eq!(signed(&content), Ok(()));
    content.push(1);
    assert_eq!(signed(&content), Err(Damaged::Content("threads")));
    let count = content.len() - 9;
    content[count] = 200;
    assert_eq!(signed(&content), Err(Damaged::Content("threads")));
}

#[test]
fn an_unknown_usage_promises_nothing() {
    let mut gate = used();
    let sent = gate.send(1, 3, &body(1, 62));
    let past = sent.prepared.compared.past.unwrap();
    let tokens = body(1, 46).len() as u64 / 4;
    assert_eq!(past.readable(), Some(tokens));
    let with = |usage| Past {
        usage,
        ..(*past).clone()
    };
    let read_only = Usage {
        read: Some(5),
        ..Usage::default()
    };
    assert_eq!(with(read_only).readable(), None);
    assert_eq!(with(Usage::default()).readable(), None);
}

/// Ten thousand conversations with 60 to 700 blocks, a thousand of them always under way.
#[test]
fn many_live_threads_stay_within_the_memory() {
    const THREADS: u64 = 10_000;
    let views: Vec<(Bytes, RequestView)> = (0..9)
        .map(|size| {
            let body = body(size, 60 + 80 * size as usize);
            let view = view(&body).unwrap();
            (body, view)
        })
        .collect();
    let hasher = Hasher::new([5; 32]);
    let known: Vec<_> = views
        .iter()
        .map(|(body, view)| {
            let chain = hasher.chain(body, view, b"scope");
            let trail = Trail::new(&hasher, body, view, &chain, Betas::default(), Vec::new());
            (trail, chain)
        })
        .collect();
    for bytes in [16 * MIB, 64 * MIB] {
        let mut gate = Gate::new(bytes);
        let mut under_way = std::collections::VecDeque::new();
        for thread in 0..THREADS {
            let size = (thread % 9) as usize;
            let ((body, view), (trail, chain)) = (&views[size], &known[size]);
            // The same shape; other blocks behind the head.
            let own = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let (mut trail, mut at) = (trail.clone(), chain.at.clone());
            for (step, at) in trail.steps.iter_mut().zip(&mut at).skip(2) {
                step.hash ^= own;
                for (byte, other) in at.iter_mut().zip(own.to_le_bytes()) {
                    *byte ^= other;
                }
            }
            let last = trail.steps.len() as u32 - 1;
            trail.marks = [1, last / 2, last]
                .map(|at| super::super::trail::Mark {
                    at,
                    ttl: Some(Ttl::M5),
                    ours: true,
                })
                .into();
            gate.turns += 1;
            gate.now_ms += 10;
            let (compared, news) = gate.engine.compare(thread, &trail, body, view);
            gate.engine.learn(body, &news);
            let levels = super::super::shadow::Levels::of(&hasher, &trail);
            let turn = Uuid::from_u128(gate.turns);
            let prepared = Prepared {
                trail,
                at,
                levels,
                compared,
                news,
                next: habits::Within { m5: 0.5, h1: 0.5 },
                plan: None,
            };
            let expected = gate.engine.sent(turn, &look(&prepared, gate.now_ms));
            let tokens = body.len() as u64 / 4;
            under_way.push_back(Sent {
                thread,
                turn,
                prepared,
                expected,
                tokens,
            });
            if under_way.len() > 1_000
                && let Some(oldest) = under_way.pop_front()
            {
                gate.answer(oldest);
            }
            if thread % 100 == 0 {
                let [shadow, keep, pasts] = gate.engine.bytes();
                assert!(shadow <= shadow_bytes(bytes), "{shadow}");
                assert!(shadow + keep + pasts <= bytes, "{shadow} {keep} {pasts}");
            }
        }
        let in_use: usize = gate.engine.bytes().iter().sum();
        assert!(in_use > bytes / 2, "the bound is put to use: {in_use}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_anywhere_is_refused(at in any::<prop::sample::Index>(), bit in 0..8_u32, cut in any::<prop::sample::Index>()) {
        static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let bytes = BYTES.get_or_init(|| used().engine.encode());
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= 1 << bit;
        prop_assert!(Engine::decode(&damaged, MIB, false, START).is_err());
        let shorter = &bytes[..cut.index(bytes.len())];
        prop_assert!(Engine::decode(shorter, MIB, false, START).is_err());
    }
}
