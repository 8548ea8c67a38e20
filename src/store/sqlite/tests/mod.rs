//! The store against real files.

use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::guard::loops::Finding;
use crate::prompt_cache::verdict::{Excerpt, Reason, Status, Verdict, What, Whose};
use crate::provider::view::Ttl;
use crate::store::{Filter, Questions};
use crate::trace::{
    CacheRecord, Entry, EventKind, EventRecord, GuardRecord, Inspection, Outcome, Placed,
    RequestKind, Sink, ToolCallRecord, TurnRecord, intern,
};
use crate::usage::Usage;

mod answers;
mod audit;
mod files;
mod guards;
#[cfg(target_os = "linux")]
mod measure;
mod retention;
mod savings;
mod spent;
mod writing;

const ALL: Filter = Filter {
    since_ms: None,
    until_ms: None,
    app: None,
    run: None,
    limit: 1_000_000,
};

/// 2026-03-01T12:00:00Z.
pub(crate) const NOON: i64 = 1_772_366_400_000;

pub(crate) fn store() -> (TempDir, Sqlite) {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    (dir, store)
}

/// An answered turn of a sensible size; `n` makes it one of its own.
pub(crate) fn turn(run: &str, n: u32) -> TurnRecord {
    TurnRecord {
        id: Uuid::now_v7(),
        kind: RequestKind::Turn,
        run_id: run.into(),
        run_source: "header",
        thread_id: "main".into(),
        parent_thread: None,
        agent: None,
        parent_agent: None,
        turn: n,
        attempt: 1,
        app: Some("review".into()),
        client: Some("agent/1.0".into()),
        upstream: "anthropic".into(),
        credential: Some("c0ffee".into()),
        method: "POST".into(),
        path: "/v1/messages".into(),
        model_requested: Some("alias".into()),
        model_served: Some("model-1".into()),
        started_ms: NOON + i64::from(n) * 1_000,
        overhead_us: Some(120),
        head_us: Some(300_000),
        first_token_us: Some(400_000),
        duration_us: 900_000,
        status: Some(200),
        outcome: Outcome::Ok,
        stop_reason: Some("tool_use".into()),
        error_type: None,
        error_message: None,
        streamed: true,
        usage: Usage {
            uncached: Some(70),
            read: Some(30),
            write_5m: Some(0),
            write_1h: Some(0),
            output: Some(10),
            ..Usage::default()
        },
        usage_complete: true,
        usage_estimated: false,
        cost_pico: Some(360_000_000),
        cost_no_cache_pico: Some(400_000_000),
        price_version: Some("1".into()),
        inspection: Inspection::Inspected,
        request_bytes: 10_000,
        sent_bytes: 10_100,
        response_bytes: 2_000,
        blocks: 40,
        messages: 20,
        tools: 12,
        markers_client: 1,
        markers_added: vec![
            Placed {
                path: "system[1]".into(),
                ttl: Ttl::H1,
                offset: 1_000,
            },
            Placed {
                path: "messages[19].content[0]".into(),
                ttl: Ttl::M5,
                offset: 9_900,
            },
        ],
        dry_run: false,
        root: Some("0123456789abcdef".into()),
        chain: Some(format!("chain {n}")),
        response_id: Some(format!("msg_{n}")),
        request_id: Some(format!("req_{n}")),
        native_diagnosis: None,
        cache: CacheRecord::default(),
        traceparent: None,
        guard: GuardRecord::default(),
        warnings: Vec::new(),
    }
}

/// A verdict of a loss at a place.
pub(crate) fn verdict(status: Status, reason: Reason, path: Option<&str>) -> Verdict {
    Verdict {
        status,
        reason: Some(reason),
        first_changed: path.map(Into::into),
        offset: path.map(|_| 142),
        what: path.map(|_| What::Clock),
        detail: "a time moved on".into(),
        whose: Some(Whose::Client),
        lost_tokens: Some(1_000),
        lost_pico: Some(3_450_000_000),
        excerpt: None,
    }
}

pub(crate) fn call(turn: &TurnRecord, call_id: &str) -> ToolCallRecord {
    ToolCallRecord {
        turn_id: turn.id,
        run_id: turn.run_id.clone(),
        thread_id: turn.thread_id.clone(),
        call_id: call_id.into(),
        name: "Bash".into(),
        input_hash: "hash".into(),
        input_bytes: 40,
        asked_ms: turn.started_ms + 900,
        status: crate::trace::CallStatus::Pending,
        latency_ms: None,
        result_bytes: None,
        wrong: None,
        retries: 0,
    }
}

/// An event of a run, `s` seconds after noon.
pub(crate) fn event(kind: EventKind, name: &str, run: &str, s: i64) -> EventRecord {
    EventRecord {
        id: Uuid::now_v7(),
        at_ms: NOON + s * 1_000,
        kind,
        name: name.into(),
        run_id: run.into(),
        thread_id: "main".into(),
        turn_id: None,
        app: Some("review".into()),
        scope: String::new(),
        action: String::new(),
        value: None,
        limit: None,
        level: None,
        pico: None,
        tools: Vec::new(),
    }
}

fn write(store: &mut Sqlite, turns: impl IntoIterator<Item = TurnRecord>) {
    let batch: Vec<Entry> = turns
        .into_iter()
        .map(|t| Entry::Turn(Box::new(t)))
        .collect();
    store.write(&batch).unwrap();
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    let count = || proptest::option::of(0..=i64::MAX as u64);
    let excerpt =
        (any::<String>(), any::<String>()).prop_map(|(before, after)| Excerpt { before, after });
    (
        proptest::sample::select(Status::ALL),
        proptest::option::of(proptest::sample::select(Reason::ALL)),
        proptest::option::of(proptest::sample::select(What::ALL)),
        proptest::option::of(proptest::sample::select(Whose::ALL)),
        proptest::option::of(any::<String>()),
        proptest::option::of(any::<u32>()),
        any::<String>(),
        (count(), count()),
        proptest::option::of(excerpt),
    )
        .prop_map(
            |(status, reason, what, whose, first_changed, offset, detail, lost, excerpt)| Verdict {
                status,
                reason,
                first_changed,
                offset,
                what,
                detail,
                whose,
                lost_tokens: lost.0,
                lost_pico: lost.1,
                excerpt,
            },
        )
}

fn any_cache() -> impl Strategy<Value = CacheRecord> {
    let counts = proptest::collection::vec(proptest::option::of(0..=i64::MAX as u64), 5);
    let id = || proptest::option::of(any::<u128>().prop_map(Uuid::from_u128));
    let word = |words: &[&'static str]| {
        proptest::option::of(proptest::sample::select(words.to_vec()).prop_map(intern))
    };
    (
        proptest::option::of(any_verdict()),
        word(&["not_json", "no_history"]),
        word(&["off", "dry-run", "fill", "replace", "holdout"]),
        word(&["tool_order", "warm_first", "keep_warm"]),
        counts,
        (id(), id()),
        proptest::option::of(any::<bool>()),
        proptest::option::of(any::<i64>()),
        proptest::collection::vec(any::<u8>(), 0..64),
    )
        .prop_map(
            |(
                verdict,
                unjudged,
                policy,
                helper,
                counts,
                ids,
                native_agrees,
                helper_pico,
                trail,
            )| {
                CacheRecord {
                    verdict,
                    unjudged,
                    policy,
                    expected_read: counts[0],
                    read_of: ids.0,
                    premium_pico: counts[1],
                    duplicate_of: ids.1,
                    duplicate_tokens: counts[2],
                    duplicate_pico: counts[3],
                    native_agrees,
                    helper,
                    helper_tokens: counts[4],
                    helper_pico,
                    trail,
                }
            },
        )
}

fn any_guard() -> impl Strategy<Value = GuardRecord> {
    let names = || proptest::collection::vec(any::<String>(), 0..4);
    let finding = (
        any::<[String; 2]>(),
        names(),
        any::<[u32; 3]>(),
        any::<bool>(),
    )
        .prop_map(
            |([detector, action], tools, [count, period, turns], fresh)| Finding {
                detector,
                tools,
                count,
                period,
                turns,
                action,
                fresh,
            },
        );
    let told = || proptest::option::of(any::<String>());
    let record = (
        proptest::collection::vec(finding, 0..3),
        [told(), told(), told(), told()],
        any::<[Option<u64>; 2]>(),
        any::<u32>(),
    )
        .prop_map(
            |(findings, [action, cap, cap_scope, policy], [loop_pico, booked_pico], hints)| {
                GuardRecord {
                    findings,
                    action,
                    loop_pico,
                    cap,
                    cap_scope,
                    booked_pico,
                    policy,
                    hints,
                }
            },
        );
    prop_oneof![Just(GuardRecord::default()), record]
}

fn any_event() -> impl Strategy<Value = EventRecord> {
    let number = || proptest::option::of(0..=i64::MAX as u64);
    (
        any::<(u128, i64, Option<u128>)>(),
        proptest::sample::select(EventKind::ALL),
        any::<[String; 5]>(),
        any::<Option<String>>(),
        [number(), number(), number()],
        any::<Option<u32>>(),
        proptest::collection::vec(any::<String>(), 0..4),
    )
        .prop_map(|(ids, kind, text, app, numbers, level, tools)| {
            let ((id, at_ms, turn_id), [name, run_id, thread_id, scope, action]) = (ids, text);
            let [value, limit, pico] = numbers;
            EventRecord {
                id: Uuid::from_u128(id),
                at_ms,
                kind,
                name,
                run_id,
                thread_id,
                turn_id: turn_id.map(Uuid::from_u128),
                app,
                scope,
                action,
                value,
                limit,
                level,
                pico,
                tools,
            }
        })
}

/// Any record that the types allow, up to SQLite's largest integer.
fn any_turn() -> impl Strategy<Value = TurnRecord> {
    let text = || proptest::collection::vec(any::<String>(), 8);
    let told = || proptest::collection::vec(proptest::option::of(any::<String>()), 18);
    let counts = || proptest::collection::vec(proptest::option::of(0..=i64::MAX as u64), 12);
    let sizes = || proptest::collection::vec(0..=i64::MAX as u64, 4);
    let small = || proptest::collection::vec(any::<u32>(), 6);
    let flags = || proptest::collection::vec(any::<bool>(), 5);
    let placed = || {
        let one =
            (any::<String>(), any::<bool>(), any::<u32>()).prop_map(|(path, hour, offset)| {
                let ttl = if hour { Ttl::H1 } else { Ttl::M5 };
                Placed { path, ttl, offset }
            });
        proptest::collection::vec(one, 0..4)
    };
    let kinds = (
        proptest::sample::select(RequestKind::ALL),
        proptest::sample::select(Outcome::ALL),
        proptest::sample::select(vec![
            Inspection::Inspected,
            Inspection::NotWanted,
            Inspection::NotInspected("not_json"),
        ]),
        proptest::sample::select(vec!["header", "chain", "none"]),
        any::<u128>(),
        any::<i64>(),
        proptest::option::of(any::<u16>()),
    );
    let warnings = proptest::collection::vec(any::<String>(), 0..4);
    (
        text(),
        told(),
        counts(),
        sizes(),
        small(),
        flags(),
        placed(),
        kinds,
        warnings,
        (any_cache(), any_guard()),
    )
        .prop_map(
            |(text, told, counts, sizes, small, flags, markers_added, kinds, warnings, said)| {
                let (cache, guard) = said;
                let (kind, outcome, inspection, source, id, started_ms, status) = kinds;
                let mut text = text.into_iter();
                let mut text = || text.next().unwrap();
                let mut told = told.into_iter();
                let mut told = || told.next().unwrap();
                TurnRecord {
                    id: Uuid::from_u128(id),
                    kind,
                    run_id: text(),
                    run_source: intern(source),
                    thread_id: text(),
                    parent_thread: told(),
                    agent: told(),
                    parent_agent: told(),
                    turn: small[0],
                    attempt: small[1],
                    app: told(),
                    client: told(),
                    upstream: text(),
                    credential: told(),
                    method: text(),
                    path: text(),
                    model_requested: told(),
                    model_served: told(),
                    started_ms,
                    overhead_us: counts[0],
                    head_us: counts[1],
                    first_token_us: counts[2],
                    duration_us: sizes[0],
                    status,
                    outcome,
                    stop_reason: told(),
                    error_type: told(),
                    error_message: told(),
                    streamed: flags[0],
                    usage: Usage {
                        uncached: counts[3],
                        read: counts[4],
                        write_5m: counts[5],
                        write_1h: counts[6],
                        write_30m: counts[5],
                        write_12h: counts[6],
                        output: counts[7],
                        reasoning: counts[8],
                        web_searches: counts[9],
                        split_inferred: flags[1],
                    },
                    usage_complete: flags[2],
                    usage_estimated: flags[3],
                    cost_pico: counts[10],
                    cost_no_cache_pico: counts[11],
                    price_version: told(),
                    inspection,
                    request_bytes: sizes[1],
                    sent_bytes: sizes[2],
                    response_bytes: sizes[3],
                    blocks: small[2],
                    messages: small[3],
                    tools: small[4],
                    markers_client: small[5],
                    markers_added,
                    dry_run: flags[4],
                    root: told(),
                    chain: told(),
                    response_id: told(),
                    request_id: told(),
                    native_diagnosis: told(),
                    traceparent: told(),
                    cache,
                    guard,
                    warnings,
                }
            },
        )
}
