//! Eight days of records in which everything happens that a dashboard shows, across a change of
//! clocks in Europe.

use prefixgate::prompt_cache::verdict::{Reason, Status, Verdict, What, Whose};
use prefixgate::trace::{
    CallStatus, Entry, EventKind, EventRecord, Inspection, Outcome, RequestKind, ToolCallRecord,
    TurnRecord,
};
use prefixgate::usage::Usage;
use uuid::Uuid;

/// 2026-10-20T00:00:00Z.
pub const BEGIN: i64 = 1_792_454_400_000;
const STEP: i64 = 47 * 60_000 + 1_234;
const TURNS: u32 = 260;
/// After the last turn.
pub const END: i64 = BEGIN + STEP * TURNS as i64 + 1;
pub const KEY: &str = "00112233445566778899aabbccddeeff";

fn id(number: u32, what: u8) -> Uuid {
    Uuid::from_u64_pair(u64::from(number) << 8 | u64::from(what), u64::from(number))
}

/// The name of a run, with what must be quoted.
pub fn run(number: u32) -> String {
    format!("it's run {}", number / 13)
}

pub fn turn_id(number: u32) -> String {
    id(number, 0).to_string()
}

fn app(number: u32) -> Option<String> {
    [Some("it's"), Some("shop"), None][number as usize % 3].map(str::to_owned)
}

fn turn(number: u32) -> TurnRecord {
    let kind = match number % 29 {
        28 => RequestKind::KeepWarm,
        27 => RequestKind::CountTokens,
        _ => RequestKind::Turn,
    };
    let second = number % 2 == 1;
    let upstream = if second { "anthropic" } else { "openai" };
    let started = BEGIN + STEP * i64::from(number);
    let mut turn = TurnRecord::begin(id(number, 0), kind, upstream, started);
    turn.run_id = run(number);
    turn.run_source = "header";
    if number % 4 == 3 {
        turn.thread_id = "agent-1".to_owned();
        turn.parent_thread = Some("main".to_owned());
        turn.agent = Some("reviewer".to_owned());
    }
    turn.turn = number % 13 + 1;
    turn.attempt = if number % 19 == 18 { 2 } else { 1 };
    turn.app = app(number);
    turn.client = Some("agent/1".to_owned());
    turn.credential = second.then(|| KEY.to_owned());
    let model = if second { "claude-sonnet-5" } else { "gpt-6" };
    turn.model_requested = Some(model.to_owned());
    turn.duration_us = 3_000_000 + u64::from(number) * 1_000;
    turn.overhead_us = Some(150 + u64::from(number));
    turn.status = Some(200);
    turn.outcome = match number % 11 {
        5 => Outcome::UpstreamError,
        7 => Outcome::Refused,
        9 => Outcome::UpstreamCut,
        _ => Outcome::Ok,
    };
    turn.inspection = Inspection::Inspected;
    match turn.outcome {
        Outcome::Refused => {
            turn.status = Some(402);
            turn.error_type = Some("cap".to_owned());
            return turn;
        }
        Outcome::UpstreamError => {
            turn.status = Some(529);
            turn.error_type = Some("overloaded_error".to_owned());
            return turn;
        }
        Outcome::UpstreamCut => turn.error_type = Some("cut".to_owned()),
        _ => turn.usage_complete = true,
    }
    turn.model_served = Some(model.to_owned());
    turn.first_token_us = Some(700_000 + u64::from(number) * 500);
    turn.usage = Usage {
        uncached: Some(40),
        read: Some(9_000 + u64::from(number)),
        write_5m: Some(700),
        write_1h: Some(0),
        output: Some(300),
        ..Usage::default()
    };
    if number % 23 != 22 {
        turn.cost_pico = Some(9_876_543_210 + u64::from(number));
        turn.cost_no_cache_pico = Some(34_567_890_123);
    }
    let lost = kind == RequestKind::Turn && number % 7 == 3;
    turn.cache.verdict = Some(Verdict {
        status: if lost { Status::Miss } else { Status::Extended },
        reason: lost.then_some(Reason::Messages),
        first_changed: lost.then(|| format!("messages[{number}].content[0]")),
        offset: None,
        what: lost.then_some(What::ResultPruned),
        detail: "A tool result is gone".to_owned(),
        whose: lost.then_some(Whose::Client),
        lost_tokens: lost.then_some(8_000),
        lost_pico: (lost && number % 5 != 4).then_some(1_234_567_891),
        excerpt: None,
    });
    if lost {
        turn.native_diagnosis = Some("messages changed".to_owned());
        turn.cache.native_agrees = Some(true);
    }
    turn
}

fn calls(number: u32) -> Vec<Entry> {
    let all = [
        CallStatus::Ok,
        CallStatus::Failed,
        CallStatus::Unanswered,
        CallStatus::Pending,
        CallStatus::Incomplete,
    ];
    let call = |place: u32| {
        let turn = turn(number);
        let status = all[(number + place) as usize % all.len()];
        let answered = matches!(status, CallStatus::Ok | CallStatus::Failed);
        Entry::Call(Box::new(ToolCallRecord {
            turn_id: turn.id,
            run_id: turn.run_id,
            thread_id: turn.thread_id,
            call_id: format!("call-{number}-{place}"),
            name: ["Bash", "Read"][place as usize].to_owned(),
            input_hash: "ab".to_owned(),
            input_bytes: 99,
            asked_ms: turn.started_ms + 3_000,
            status,
            latency_ms: answered.then_some(250),
            result_bytes: answered.then_some(2_000),
            wrong: number.is_multiple_of(31).then_some("invalid_input"),
            retries: number % 3,
        }))
    };
    (0..2).map(call).collect()
}

fn events(number: u32) -> Vec<Entry> {
    let kinds: &[(EventKind, &str, &str)] = match number % 10 {
        1 | 4 => &[(EventKind::Loop, "same_call", "hint")],
        5 => &[
            (EventKind::CapLevel, "usd", ""),
            (EventKind::CapRefused, "usd", "refused"),
        ],
        8 => &[
            (EventKind::CapUnenforced, "usd", ""),
            (EventKind::CapLevel, "wall_time", ""),
        ],
        9 => &[(EventKind::Alert, "culprit", "")],
        _ => &[],
    };
    let event = |(place, (kind, name, action)): (usize, &(EventKind, &str, &str))| {
        let is_loop = *kind == EventKind::Loop;
        Entry::Event(Box::new(EventRecord {
            id: id(number, u8::try_from(place).unwrap() + 1),
            at_ms: BEGIN + STEP * i64::from(number) + 5_000,
            kind: *kind,
            name: (*name).to_owned(),
            run_id: run(number),
            thread_id: if is_loop { "main" } else { "" }.to_owned(),
            turn_id: Some(id(number, 0)),
            app: app(number),
            scope: if is_loop { "" } else { "run" }.to_owned(),
            action: (*action).to_owned(),
            value: Some(5),
            limit: Some(5),
            level: (*kind == EventKind::CapLevel).then_some(80),
            pico: is_loop.then_some(2_000_000_000),
            tools: if is_loop {
                vec!["Bash".to_owned()]
            } else {
                Vec::new()
            },
        }))
    };
    kinds.iter().enumerate().map(event).collect()
}

pub fn turns() -> Vec<TurnRecord> {
    (0..TURNS).map(turn).collect()
}

/// All records in the order in which they would be delivered.
pub fn entries() -> Vec<Entry> {
    (0..TURNS)
        .flat_map(|number| {
            let mut all = vec![Entry::Turn(Box::new(turn(number)))];
            all.extend(calls(number));
            all.extend(events(number));
            all
        })
        .collect()
}
