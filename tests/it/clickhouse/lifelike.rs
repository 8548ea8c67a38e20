//! Records of runs as agents make them, by chance from a seed: around two changes of summer time, with
//! many that start in the same millisecond.

use prefixgate::prompt_cache::verdict::{Reason, Status, Verdict, What, Whose};
use prefixgate::provider::view::Ttl;
use prefixgate::trace::{
    CacheRecord, CallStatus, Entry, EventKind, EventRecord, Outcome, Placed, RequestKind,
    ToolCallRecord, TurnRecord, intern,
};
use prefixgate::usage::Usage;
use uuid::Uuid;

use super::records::Dice;

pub const RUNS: [&str; 9] = [
    "plain",
    "it's a `run`\\\n",
    "\u{1F642}",
    "alone 1",
    "alone 2",
    "filled 1",
    "filled 2",
    "planned",
    "unnamed",
];
const APPS: [Option<&str>; 4] = [Some("review"), Some("it's `an` \\app"), Some(""), None];
const MODELS: [&str; 3] = ["claude-sonnet-5", "claude-opus-5", "other"];
const THREADS: [&str; 3] = ["main", "sub-1", "sub-2"];
const PATHS: [&str; 12] = [
    "messages[7].content[2]",
    "messages[8].content[2]",
    "messages[123].content[0].text",
    "messages[3]",
    "messages[3].x[y].z[",
    "messages[3].x[4",
    "messages[[3]].x[12]]",
    "tools[3]",
    "tools[4]",
    "system[0].text",
    "",
    "tool_choice",
];
const TOOLS: [&str; 5] = ["Bash", "Read", "it's", "mcp__db__query", ""];

pub fn at(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

fn moments(dice: &mut Dice, n: usize) -> Vec<i64> {
    let starts = [at("2025-10-25T12:00:00Z"), at("2026-03-28T12:00:00Z")];
    let mut moments: Vec<_> = (0..n)
        .map(|_| {
            let within = i64::try_from(dice.below(36 * 3_600)).unwrap() * 1_000;
            // Often the same second, seldom its own millisecond.
            let odd = if dice.below(4) == 0 {
                dice.below(1_000)
            } else {
                0
            };
            dice.one(&starts) + within / 20_000 * 20_000 + i64::try_from(odd).unwrap()
        })
        .collect();
    moments.sort_unstable();
    moments
}

fn any_id(dice: &mut Dice) -> Uuid {
    let mut half = || u64::try_from(dice.below(1 << 31)).unwrap() << 33 | 0x5bd1_e995;
    Uuid::from_u64_pair(half(), half())
}

fn often<T>(dice: &mut Dice, of_ten: usize, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
    (dice.below(10) < of_ten).then(|| make(dice))
}

fn amount(dice: &mut Dice, most: usize) -> u64 {
    u64::try_from(dice.below(most)).unwrap()
}

fn verdict(dice: &mut Dice) -> Verdict {
    let status = dice.one(Status::ALL);
    Verdict {
        status,
        reason: often(dice, 9, |d| d.one(Reason::ALL)),
        first_changed: often(dice, 8, |d| d.one(&PATHS).to_owned()),
        offset: often(dice, 5, |d| u32::try_from(d.below(9_000)).unwrap()),
        what: often(dice, 6, |d| d.one(&What::ALL[..3])),
        detail: "what happened".to_owned(),
        whose: often(dice, 7, |d| d.one(Whose::ALL)),
        lost_tokens: often(dice, 7, |d| d.one(&[0, 0, 1, 900, 12_345])),
        lost_pico: often(dice, 7, |d| amount(d, 1 << 30) * 1_000),
        excerpt: None,
    }
}

fn usage(dice: &mut Dice) -> Usage {
    // All of it for most; else parts.
    let told = if dice.below(8) == 0 { 6 } else { 10 };
    Usage {
        uncached: often(dice, told, |d| amount(d, 3_000)),
        read: often(dice, told, |d| d.one(&[0, 0, 1_024, 50_000])),
        write_5m: often(dice, told, |d| d.one(&[0, 700, 2_000])),
        write_1h: often(dice, told, |d| d.one(&[0, 0, 0, 5_000])),
        output: often(dice, told, |d| amount(d, 900)),
        ..Usage::default()
    }
}

fn cache(dice: &mut Dice, run: usize, before: &[TurnRecord]) -> CacheRecord {
    let near = |dice: &mut Dice| {
        let recent = &before[before.len().saturating_sub(60)..];
        recent.get(dice.below(recent.len().max(1))).map(|t| t.id)
    };
    let policy = match RUNS[run] {
        "alone 1" | "alone 2" => Some("holdout"),
        "filled 1" => Some("fill"),
        "filled 2" => Some("replace"),
        "planned" => Some("dry-run"),
        "unnamed" => None,
        _ => Some("off"),
    };
    let judged = often(dice, 7, verdict);
    CacheRecord {
        unjudged: match judged {
            Some(_) => None,
            None => dice.one(&[None, Some("not_json"), Some("no_history")]),
        }
        .map(intern),
        verdict: judged,
        policy: policy.map(intern),
        expected_read: often(dice, 5, |d| amount(d, 9_000)),
        read_of: often(dice, 5, near).flatten(),
        premium_pico: often(dice, 7, |d| d.one(&[0, 5_000, 5_000, 123_456_789])),
        duplicate_of: often(dice, 1, near).flatten(),
        duplicate_tokens: often(dice, 6, |d| amount(d, 4_000)),
        duplicate_pico: often(dice, 6, |d| d.one(&[7, 7, 99_000])),
        native_agrees: often(dice, 3, |d| d.below(2) == 0),
        helper: often(dice, 2, |d| intern(d.one(&["tool_order", "keep_warm"]))),
        helper_tokens: often(dice, 6, |d| amount(d, 4_000)),
        helper_pico: often(dice, 6, |d| d.one(&[-900_000, 0, 1_000_000])),
        trail: Vec::new(),
    }
}

fn turn(dice: &mut Dice, started_ms: i64, before: &[TurnRecord]) -> TurnRecord {
    let kinds = [
        RequestKind::Turn,
        RequestKind::Turn,
        RequestKind::Turn,
        RequestKind::Turn,
        RequestKind::Turn,
        RequestKind::KeepWarm,
        RequestKind::CountTokens,
    ];
    let id = any_id(dice);
    let upstream = dice.one(&["anthropic", "elsewhere"]);
    let mut turn = TurnRecord::begin(id, dice.one(&kinds), upstream, started_ms);
    let run = dice.below(RUNS.len());
    RUNS[run].clone_into(&mut turn.run_id);
    turn.run_source = intern(dice.one(&["header", "chain"]));
    dice.one(&THREADS).clone_into(&mut turn.thread_id);
    if turn.thread_id != "main" {
        turn.parent_thread = often(dice, 5, |d| d.one(&["main", "sub-1"]).to_owned());
        turn.agent = often(dice, 5, |d| d.one(&["explorer", "writer"]).to_owned());
    }
    turn.turn = u32::try_from(before.len()).unwrap();
    turn.attempt = dice.one(&[1, 1, 1, 1, 2, 3]);
    turn.app = dice.one(&APPS).map(str::to_owned);
    turn.client = often(dice, 8, |d| d.one(&["agent/1.0", "agent/1.1"]).to_owned());
    turn.credential = often(dice, 8, |d| d.one(&["c0ffee", "beef"]).to_owned());
    turn.model_requested = often(dice, 9, |d| d.one(&MODELS).to_owned());
    turn.model_served = often(dice, 7, |d| d.one(&MODELS).to_owned());
    turn.duration_us = amount(dice, 90_000_000);
    turn.outcome = if dice.below(3) > 0 {
        Outcome::Ok
    } else {
        dice.one(Outcome::ALL)
    };
    turn.status = often(dice, 9, |d| d.one(&[200, 200, 399, 400, 429, 529]));
    if turn.outcome == Outcome::Ok || dice.below(3) == 0 {
        turn.usage = usage(dice);
        turn.cost_pico = often(dice, 8, |d| amount(d, 1 << 30) * 1_000);
        turn.cost_no_cache_pico = often(dice, 8, |d| amount(d, 1 << 30) * 1_000);
        turn.usage_complete = dice.below(9) > 0;
        turn.usage_estimated = dice.below(9) == 0;
    }
    turn.cache = cache(dice, run, before);
    turn.dry_run = RUNS[run] == "planned" && dice.below(3) > 0;
    turn.markers_added = (0..dice.below(4))
        .map(|n| Placed {
            path: format!("messages[{n}]"),
            ttl: Ttl::M5,
            offset: 1,
        })
        .collect();
    turn.native_diagnosis = often(dice, 2, |d| {
        d.one(&["system_changed", "messages_changed"]).to_owned()
    });
    turn
}

/// A call as it was asked for, and perhaps as it ended.
fn calls(dice: &mut Dice, turn: &TurnRecord, n: usize) -> Vec<ToolCallRecord> {
    let asked = ToolCallRecord {
        turn_id: turn.id,
        run_id: turn.run_id.clone(),
        thread_id: turn.thread_id.clone(),
        call_id: format!("toolu_{n}"),
        name: dice.one(&TOOLS).to_owned(),
        input_hash: "hash".into(),
        input_bytes: amount(dice, 900),
        asked_ms: turn.started_ms + i64::try_from(turn.duration_us / 1_000).unwrap(),
        status: CallStatus::Pending,
        latency_ms: None,
        result_bytes: None,
        wrong: often(dice, 2, |d| intern(d.one(&["undeclared", "invalid_input"]))),
        retries: dice.one(&[0, 0, 0, 1, 2]),
    };
    let ended = often(dice, 8, |d| ToolCallRecord {
        status: d.one(&[
            CallStatus::Ok,
            CallStatus::Failed,
            CallStatus::Unanswered,
            CallStatus::Incomplete,
        ]),
        latency_ms: often(d, 8, |d| d.one(&[3, 3, 5, 900]) + amount(d, 40)),
        result_bytes: Some(7),
        ..asked.clone()
    });
    std::iter::once(asked).chain(ended).collect()
}

fn event(dice: &mut Dice, turn: &TurnRecord) -> EventRecord {
    let kind = dice.one(EventKind::ALL);
    EventRecord {
        id: any_id(dice),
        at_ms: turn.started_ms / 60_000 * 60_000,
        kind,
        name: match kind {
            EventKind::Loop => dice.one(&["same_call", "same_error"]),
            _ => dice.one(&["usd", "turns"]),
        }
        .to_owned(),
        run_id: turn.run_id.clone(),
        thread_id: turn.thread_id.clone(),
        turn_id: Some(turn.id),
        app: turn.app.clone(),
        scope: dice.one(&["run", "key"]).to_owned(),
        action: dice.one(&["", "warn", "refused", "block"]).to_owned(),
        value: often(dice, 7, |d| amount(d, 99)),
        limit: often(dice, 7, |d| amount(d, 99)),
        level: often(dice, 7, |d| u32::try_from(d.below(101)).unwrap()),
        pico: often(dice, 7, |d| amount(d, 1 << 30)),
        tools: dice.one(&[
            vec![],
            vec!["Bash".into()],
            vec!["it's".into(), "Read".into()],
        ]),
    }
}

/// `n` requests in the order of their start with their calls and events; a call's end comes later.
pub fn entries(seed: u64, n: usize) -> Vec<Entry> {
    let mut dice = Dice::new(seed);
    let mut turns: Vec<TurnRecord> = Vec::new();
    let mut entries = Vec::new();
    let mut later: Vec<ToolCallRecord> = Vec::new();
    for started_ms in moments(&mut dice, n) {
        let turn = turn(&mut dice, started_ms, &turns);
        for n in 0..dice.below(3) {
            let mut stages = calls(&mut dice, &turn, n).into_iter();
            entries.extend(stages.next().map(|call| Entry::Call(Box::new(call))));
            later.extend(stages);
        }
        if dice.below(4) == 0 {
            entries.push(Entry::Event(Box::new(event(&mut dice, &turn))));
        }
        entries.push(Entry::Turn(Box::new(turn.clone())));
        turns.push(turn);
        if later.len() > 100 {
            entries.extend(later.drain(..).map(|call| Entry::Call(Box::new(call))));
        }
    }
    entries.extend(later.into_iter().map(|call| Entry::Call(Box::new(call))));
    entries
}
