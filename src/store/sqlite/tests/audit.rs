//! The questions about the prompt cache.

use jiff::tz::TimeZone;

use super::*;
use crate::store::{Culprit, CulpritBy, Sum};

const MINUTE: i64 = 60_000;

fn broken(run: &str, n: u32, verdict: Verdict) -> TurnRecord {
    let mut one = turn(run, n);
    one.cache.verdict = Some(verdict);
    one
}

fn culprits(store: &Sqlite, by: CulpritBy) -> Vec<Culprit> {
    store.culprits(by, &ALL, &TimeZone::UTC).unwrap().rows
}

fn total(sum: Sum) -> (Option<i128>, u64) {
    (sum.total(), sum.unknown)
}

/// A turn that wrote 20,000 tokens at the start of the test, priced as CASES has it.
fn writer(run: &str, hour: bool) -> TurnRecord {
    let mut one = turn(run, 1);
    one.started_ms = NOON;
    let written = Some(20_000);
    (one.usage.write_5m, one.usage.write_1h) = if hour {
        (Some(0), written)
    } else {
        (written, Some(0))
    };
    one.usage.read = Some(0);
    one.cache.policy = Some("fill");
    // 20,000 x (3.75 - 3.00), or (6.00 - 3.00), USD for a million.
    one.cache.premium_pico = Some(20_000 * if hour { 3_000_000 } else { 750_000 });
    one
}

fn reader(of: &TurnRecord, at_ms: i64) -> TurnRecord {
    let mut one = turn(&of.run_id, 2);
    one.started_ms = at_ms;
    one.usage.read = Some(20_000);
    one.cache.read_of = Some(of.id);
    one
}

fn a13(hour: bool) -> (TempDir, Sqlite) {
    let (dir, mut store) = store();
    let turns: Vec<_> = ["a", "b", "c", "d"].map(|run| writer(run, hour)).into();
    let read = reader(&turns[3], NOON + MINUTE);
    write(&mut store, turns);
    write(&mut store, [read]);
    (dir, store)
}

#[test]
fn a13_written_and_never_read_once_the_lifetime_has_passed() {
    let (_dir, store) = a13(false);
    let early = store.unread(&ALL, NOON + 5 * MINUTE - 1).unwrap();
    assert_eq!((early.rows.len(), early.turns, early.pending), (0, 0, 3));
    let late = store.unread(&ALL, NOON + 6 * MINUTE).unwrap();
    let runs: Vec<_> = late.rows.iter().map(|r| r.place.run_id.as_str()).collect();
    assert_eq!(runs, ["a", "b", "c"]);
    // 0.045 USD.
    assert_eq!(total(late.wasted), (Some(45_000_000_000), 0));
    assert_eq!(total(late.tokens), (Some(60_000), 0));
    assert_eq!((late.pending, late.unattributed), (0, 0));
    let one = Filter { limit: 1, ..ALL };
    let cut = store.unread(&one, NOON + 6 * MINUTE).unwrap();
    assert_eq!((cut.rows.len(), cut.turns), (1, 3));
}

#[test]
fn a13_an_hour_is_waited_for_an_hour_at_its_own_price() {
    let (_dir, store) = a13(true);
    let early = store.unread(&ALL, NOON + 60 * MINUTE - 1).unwrap();
    assert_eq!((early.turns, early.pending), (0, 3));
    let late = store.unread(&ALL, NOON + 60 * MINUTE).unwrap();
    assert_eq!(late.turns, 3);
    assert_eq!(total(late.wasted), (Some(3 * 20_000 * 3_000_000), 0));
    assert!(late.rows.iter().all(|row| row.ttl_ms == 60 * MINUTE));
}

#[test]
fn a_read_counts_whatever_range_and_application_are_asked_for() {
    let (_dir, mut store) = store();
    let one = writer("a", false);
    let mut read = reader(&one, NOON + 4 * MINUTE);
    read.app = Some("other".into());
    write(&mut store, [one, read]);
    let filter = Filter {
        until_ms: Some(NOON + 1),
        app: Some("review".into()),
        ..ALL
    };
    assert_eq!(store.unread(&filter, NOON + 60 * MINUTE).unwrap().turns, 0);
}

#[test]
fn an_entry_that_was_kept_warm_lives_on_and_is_still_not_read() {
    let (_dir, mut store) = store();
    let one = writer("a", false);
    let mut own = reader(&one, NOON + 4 * MINUTE);
    own.kind = RequestKind::KeepWarm;
    write(&mut store, [one, own]);
    let at = |minutes| store.unread(&ALL, NOON + minutes * MINUTE).unwrap();
    assert_eq!((at(8).turns, at(8).pending), (0, 1));
    assert_eq!((at(9).turns, at(9).pending), (1, 0));
}

#[test]
fn what_cannot_be_known_is_not_called_a_waste() {
    let (_dir, mut store) = store();
    // Written before there was an engine.
    let mut old = writer("old", false);
    (old.cache.policy, old.cache.premium_pico) = (None, None);
    // A later turn of the thread read something that the engine could not name.
    let one = writer("a", false);
    let mut read = reader(&one, NOON + MINUTE);
    read.cache.read_of = None;
    // Read too late to be of it.
    let other = writer("b", false);
    let mut late = reader(&other, NOON + 6 * MINUTE);
    late.cache.read_of = None;
    // A provider that takes nothing for writes.
    let mut free = writer("free", false);
    free.cache.premium_pico = Some(0);
    // A model without a price.
    let mut unpriced = writer("unpriced", false);
    unpriced.cache.premium_pico = None;
    write(&mut store, [old, one, read, other, late, free, unpriced]);
    let found = store.unread(&ALL, NOON + 60 * MINUTE).unwrap();
    let runs: Vec<_> = found.rows.iter().map(|r| r.place.run_id.as_str()).collect();
    assert_eq!(runs, ["b", "unpriced"]);
    assert_eq!((found.turns, found.unattributed), (2, 1));
    assert_eq!(total(found.wasted), (Some(15_000_000_000), 1));
}

#[test]
fn culprits_are_the_same_wherever_they_strike_and_the_dearest_comes_first() {
    let (_dir, mut store) = store();
    let clock = || verdict(Status::Partial, Reason::System, Some("system[0].text"));
    let pruned = |path: &str| Verdict {
        what: Some(What::ResultPruned),
        lost_tokens: Some(50_000),
        lost_pico: Some(172_500_000_000),
        ..verdict(Status::Partial, Reason::Messages, Some(path))
    };
    let unknown = Verdict {
        lost_tokens: None,
        lost_pico: None,
        ..clock()
    };
    let hit = Verdict {
        reason: None,
        lost_tokens: Some(0),
        lost_pico: Some(0),
        ..verdict(Status::Extended, Reason::System, None)
    };
    let mut counted = broken("r", 9, clock());
    counted.kind = RequestKind::CountTokens;
    let newest = broken("s", 7, unknown);
    write(
        &mut store,
        [
            broken("r", 1, clock()),
            broken("r", 2, clock()),
            broken("r", 3, pruned("messages[3].content[0]")),
            broken("r", 4, pruned("messages[17].content[2]")),
            broken("r", 5, hit),
            broken("r", 6, verdict(Status::Miss, Reason::Expired, None)),
            newest.clone(),
            counted,
        ],
    );
    let found = store
        .culprits(CulpritBy::Culprit, &ALL, &TimeZone::UTC)
        .unwrap();
    let rows: Vec<_> = found
        .rows
        .iter()
        .map(|c| (c.reason, c.path.as_deref(), c.count, c.runs))
        .collect();
    assert_eq!(
        rows,
        [
            (Some(Reason::Messages), Some("messages[*].content[*]"), 2, 1),
            (Some(Reason::System), Some("system[0].text"), 3, 2),
            (Some(Reason::Expired), None, 1, 1),
        ]
    );
    assert_eq!(total(found.rows[0].pico), (Some(345_000_000_000), 0));
    let clock = &found.rows[1];
    assert_eq!(total(clock.tokens), (Some(2_000), 1));
    assert_eq!(total(clock.pico), (Some(6_900_000_000), 1));
    assert_eq!((clock.last.id, clock.last.turn), (newest.id, 7));
    let losses: Vec<_> = found.losses.iter().map(|l| (l.reason, l.count)).collect();
    assert_eq!(
        losses,
        [
            (Some(Reason::Messages), 2),
            (Some(Reason::System), 3),
            (Some(Reason::Expired), 1)
        ]
    );
    // By run, the clock is two.
    let by_run = culprits(&store, CulpritBy::Run);
    assert_eq!(by_run.len(), 4);
    assert!(by_run.iter().all(|c| c.runs == 1 && c.group.is_some()));
    let one = Filter { limit: 1, ..ALL };
    let cut = store
        .culprits(CulpritBy::Culprit, &one, &TimeZone::UTC)
        .unwrap();
    assert_eq!((cut.rows.len(), cut.all, cut.losses.len()), (1, 3, 3));
    let run = Filter {
        run: Some("s".into()),
        ..ALL
    };
    let of_run = store
        .culprits(CulpritBy::Culprit, &run, &TimeZone::UTC)
        .unwrap();
    assert_eq!(of_run.rows.len(), 1);
}

#[test]
fn culprits_by_application_client_and_day_of_the_zone() {
    let (_dir, mut store) = store();
    let clock = || verdict(Status::Partial, Reason::System, Some("system[0].text"));
    let mut late = broken("r", 1, clock());
    late.started_ms = NOON + 11 * 60 * MINUTE + 30 * MINUTE;
    late.client = Some("agent/1.1".into());
    late.app = None;
    write(&mut store, [broken("r", 2, clock()), late]);
    let groups = |by, zone: &str| {
        let zone = TimeZone::get(zone).unwrap();
        let rows = store.culprits(by, &ALL, &zone).unwrap().rows;
        let mut groups: Vec<_> = rows.into_iter().map(|c| (c.group, c.count)).collect();
        groups.sort();
        groups
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        groups(CulpritBy::App, "UTC"),
        [(None, 1), (some("review"), 1)]
    );
    assert_eq!(
        groups(CulpritBy::Client, "UTC"),
        [(some("agent/1.0"), 1), (some("agent/1.1"), 1)]
    );
    assert_eq!(groups(CulpritBy::Day, "UTC"), [(some("2026-03-01"), 2)]);
    assert_eq!(
        groups(CulpritBy::Day, "Asia/Kolkata"),
        [(some("2026-03-01"), 1), (some("2026-03-02"), 1)]
    );
}

#[test]
fn writes_of_parallel_siblings_say_when_their_size_is_unknown() {
    let (_dir, mut store) = store();
    let first = turn("r", 1);
    let twice = |n, tokens: Option<u64>| {
        let mut one = turn("r", n);
        one.cache.duplicate_of = Some(first.id);
        one.cache.duplicate_tokens = tokens;
        one.cache.duplicate_pico = tokens.map(|n| n * 3_450_000);
        one
    };
    let turns = [
        first.clone(),
        twice(2, Some(10_000)),
        twice(3, None),
        twice(4, Some(20_000)),
    ];
    write(&mut store, turns);
    let found = store.duplicates(&ALL).unwrap();
    assert_eq!(found.turns, 3);
    assert_eq!(total(found.tokens), (Some(30_000), 1));
    assert_eq!(total(found.pico), (Some(103_500_000_000), 1));
    let rows: Vec<_> = found
        .rows
        .iter()
        .map(|r| (r.place.turn, r.tokens))
        .collect();
    assert_eq!(rows, [(4, Some(20_000)), (2, Some(10_000)), (3, None)]);
    assert!(found.rows.iter().all(|row| row.of == first.id));
}

#[test]
fn agreement_with_the_provider() {
    let (_dir, mut store) = store();
    let diagnosed = |n, native: Option<&str>, agrees| {
        let mut one = broken(
            "r",
            n,
            verdict(Status::Miss, Reason::Tools, Some("tools[1]")),
        );
        one.native_diagnosis = native.map(Into::into);
        one.cache.native_agrees = agrees;
        one
    };
    write(
        &mut store,
        [
            diagnosed(1, Some("tools_changed"), Some(true)),
            diagnosed(2, Some("system_changed"), Some(false)),
            diagnosed(3, Some("previous_message_not_found"), None),
            diagnosed(4, None, None),
            diagnosed(5, None, Some(false)),
        ],
    );
    let found = store.agreement(&ALL).unwrap();
    assert_eq!(
        (found.agree, found.disagree, found.not_comparable),
        (1, 2, 1)
    );
    let rows: Vec<_> = found
        .rows
        .iter()
        .map(|r| (r.place.turn, r.reason, r.native.as_deref()))
        .collect();
    assert_eq!(
        rows,
        [
            (5, Some(Reason::Tools), None),
            (2, Some(Reason::Tools), Some("system_changed"))
        ]
    );
}

#[test]
fn verdicts_are_counted_and_so_is_why_there_is_none() {
    let (_dir, mut store) = store();
    let mut unread = turn("r", 3);
    unread.cache.unjudged = Some("not_json");
    let miss = || verdict(Status::Miss, Reason::Tools, None);
    let turns = [
        broken("r", 1, miss()),
        broken("r", 2, miss()),
        unread,
        turn("r", 4),
    ];
    write(&mut store, turns);
    let found = store.verdicts(&ALL).unwrap();
    assert_eq!(
        found.by_status.into_iter().collect::<Vec<_>>(),
        [("miss", 2)]
    );
    let unjudged: Vec<_> = found.unjudged.into_iter().collect();
    assert_eq!(unjudged, [(None, 1), (Some("not_json".into()), 1)]);
}

/// A trace database has millions of wide rows; these questions are about few of them.
#[test]
fn the_questions_use_their_indices() {
    let (_dir, store) = store();
    for (condition, index) in [
        (crate::store::audit::BREAK, "turns_by_break"),
        (crate::store::audit::DIAGNOSED, "turns_by_diagnosis"),
        ("t.duplicate_of IS NOT NULL", "turns_by_duplicate"),
        ("t.read_of = x'00'", "turns_by_read_of"),
        ("t.guard IS NOT NULL", "turns_by_guard"),
    ] {
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT t.app FROM turns t \
             WHERE {condition} AND t.kind = 'turn' AND t.started_ms >= 5 ORDER BY t.started_ms"
        );
        let mut statement = store.connection.prepare(&sql).unwrap();
        let plan: Vec<String> = statement
            .query_map([], |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(plan[0].contains(index), "{condition}: {plan:?}");
    }
}
