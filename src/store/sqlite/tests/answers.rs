//! The questions.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::*;
use crate::store::{By, Spend, Totals};
use crate::trace::CallStatus;

fn at(time: &str) -> i64 {
    time.parse::<Timestamp>().unwrap().as_millisecond()
}

fn costs(spend: &[Spend]) -> Vec<(Option<&str>, Option<i128>)> {
    spend
        .iter()
        .map(|s| (s.key.as_deref(), s.totals.known_cost()))
        .collect()
}

const USD: i128 = 1_000_000_000_000;

/// The input of CASES E13.
fn e13() -> (TempDir, Sqlite) {
    let (dir, mut store) = store();
    let started = |time: &str, usd: u64| {
        let mut one = turn("r", 1);
        one.id = Uuid::now_v7();
        one.started_ms = at(time);
        one.cost_pico = Some(usd * 1_000_000_000_000);
        one
    };
    let mut failed = started("2026-03-05T23:59:59.900Z", 0);
    failed.outcome = Outcome::UpstreamError;
    failed.status = Some(529);
    failed.usage = Usage::default();
    failed.usage_complete = false;
    failed.cost_pico = None;
    failed.duration_us = 60_000_000;
    write(
        &mut store,
        [
            started("2026-03-01T23:30:00Z", 1),
            started("2026-03-02T00:30:00Z", 2),
            failed,
        ],
    );
    (dir, store)
}

#[test]
fn e13_days_are_those_of_the_zone_and_of_the_start() {
    let (_dir, store) = e13();
    let days = |zone: &str| {
        let zone = TimeZone::get(zone).unwrap();
        store.spend(By::Day, &ALL, &zone).unwrap()
    };
    let (d1, d2) = (Some("2026-03-01"), Some("2026-03-02"));
    assert_eq!(
        costs(&days("UTC")),
        [
            (d1, Some(USD)),
            (d2, Some(2 * USD)),
            (Some("2026-03-05"), Some(0))
        ]
    );
    assert_eq!(
        costs(&days("Asia/Kolkata")),
        [(d2, Some(3 * USD)), (Some("2026-03-06"), Some(0))]
    );
    assert_eq!(
        costs(&days("America/Los_Angeles")),
        [(d1, Some(3 * USD)), (Some("2026-03-05"), Some(0))]
    );
}

#[test]
fn e13_single_days_and_the_last_hour_are_half_open_ranges() {
    let (_dir, store) = e13();
    let in_range = |since: i64, until: i64| {
        let filter = Filter {
            since_ms: Some(since),
            until_ms: Some(until),
            ..ALL
        };
        let spend = store.spend(By::App, &filter, &TimeZone::UTC).unwrap();
        spend
            .iter()
            .filter_map(|s| s.totals.cost_pico)
            .sum::<i128>()
            / USD
    };
    for (zone, first, second) in [
        ("UTC", 1, 2),
        ("Asia/Kolkata", 0, 3),
        ("America/Los_Angeles", 3, 0),
    ] {
        let zone = TimeZone::get(zone).unwrap();
        let day = |day: i8| {
            let start = jiff::civil::date(2026, 3, day)
                .to_zoned(zone.clone())
                .unwrap();
            start.timestamp().as_millisecond()
        };
        assert_eq!(
            (in_range(day(1), day(2)), in_range(day(2), day(3))),
            (first, second)
        );
        assert_eq!(in_range(day(1), day(3)), first + second);
    }
    let now = at("2026-03-02T01:00:00Z");
    assert_eq!(in_range(now - 3_600_000, now), 2);
}

#[test]
fn e13_days_partition_every_range_in_every_zone() {
    let (_dir, mut store) = store();
    // Both changes of summer time, a leap day's neighbour, and a zone that skipped a whole day.
    let starts = [
        "2026-03-08T09:59:59.999Z",
        "2026-11-01T08:59:00Z",
        "2011-12-30T09:59:59Z",
        "2011-12-30T10:00:00Z",
        "2028-02-29T23:59:59.999Z",
        "1969-12-31T23:59:59.999Z",
    ];
    let turns: Vec<_> = (0..240)
        .map(|n| {
            let mut one = turn("r", n);
            let start = at(starts[n as usize % starts.len()]);
            one.started_ms = start + (i64::from(n) - 120) * 1_234_567;
            one.cost_pico = Some(1 + u64::from(n));
            one
        })
        .collect();
    let total: i128 = turns
        .iter()
        .filter_map(|t| t.cost_pico)
        .map(i128::from)
        .sum();
    write(&mut store, turns);
    for zone in [
        "UTC",
        "Asia/Kolkata",
        "America/Los_Angeles",
        "Pacific/Apia",
        "America/St_Johns",
    ] {
        let zone = TimeZone::get(zone).unwrap();
        let days = store.spend(By::Day, &ALL, &zone).unwrap();
        let sum: i128 = days.iter().filter_map(|d| d.totals.cost_pico).sum();
        assert_eq!(sum, total);
        assert_eq!(days.iter().map(|d| d.totals.requests).sum::<u64>(), 240);
        assert!(days.is_sorted_by(|a, b| a.key < b.key));
    }
}

/// CASES C13, the part of the records: sums of money are exact.
#[test]
fn c13_a_hundred_and_one_small_costs_sum_up_exactly() {
    let (_dir, mut store) = store();
    write(&mut store, (1..=101).map(|n| turn("r", n)));
    let run = &store.runs(&ALL).unwrap()[0];
    assert_eq!(run.totals.cost_pico, Some(36_360_000_000));
    let rows = store.turns("r", &ALL, false).unwrap();
    let sum: u64 = rows.iter().filter_map(|t| t.cost_pico).sum();
    assert_eq!(i128::from(sum), 36_360_000_000);
}

#[test]
fn sums_do_not_end_where_integers_of_the_store_do() {
    let (_dir, mut store) = store();
    let dear = |n| TurnRecord {
        cost_pico: Some(i64::MAX as u64),
        ..turn("r", n)
    };
    write(&mut store, (1..=3).map(dear));
    let run = &store.runs(&ALL).unwrap()[0];
    assert_eq!(run.totals.cost_pico, Some(3 * i128::from(i64::MAX)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever the records: a run is the sum of its turns, and groups are the sum of the runs.
    #[test]
    fn every_sum_is_the_sum_of_its_rows(turns in proptest::collection::vec(any_turn(), 1..40)) {
        let (_dir, mut store) = store();
        let turns: Vec<_> = turns.into_iter().enumerate().map(|(n, mut one)| {
            one.run_id = format!("run {}", n % 3);
            one.started_ms %= 1 << 50;
            one
        }).collect();
        write(&mut store, turns);
        let mut all = crate::store::Totals::default();
        for run in store.runs(&ALL).unwrap() {
            let mut sum = crate::store::Totals::default();
            let rows = store.turns(&run.id, &ALL, true).unwrap();
            rows.iter().for_each(|row| sum.add(row));
            prop_assert_eq!(run.totals, sum);
            all.merge(&sum);
        }
        for by in [By::App, By::Model, By::Day] {
            let mut sum = crate::store::Totals::default();
            for group in store.spend(by, &ALL, &TimeZone::UTC).unwrap() {
                sum.merge(&group.totals);
            }
            prop_assert_eq!(sum, all);
        }
    }
}

#[test]
fn requests_of_our_own_cost_and_are_no_turns() {
    let (_dir, mut store) = store();
    let mut own = turn("r", 0);
    own.kind = RequestKind::KeepWarm;
    own.started_ms = NOON + 3_000_000;
    own.client = Some("prefixgate".into());
    own.cost_no_cache_pico = Some(400_000_000);
    write(&mut store, [turn("r", 1), own]);
    let run = &store.runs(&ALL).unwrap()[0];
    let totals = run.totals;
    assert_eq!((totals.turns, totals.requests, totals.keep_warm), (1, 1, 1));
    assert_eq!(totals.known_cost(), Some(720_000_000));
    assert_eq!(totals.tokens.read, Some(60));
    // Without a cache nothing would have been sent: 40 saved by the turn, 360 lost again.
    assert_eq!(totals.saving_pico, Some(40_000_000 - 360_000_000));
    assert_eq!(totals.cost_no_cache_pico, Some(400_000_000));
    assert_eq!(run.client.as_deref(), Some("agent/1.0"));
    assert_eq!(run.ended_ms, NOON + 1_900);
    let spend = store.spend(By::App, &ALL, &TimeZone::UTC).unwrap();
    assert_eq!(spend[0].totals, totals);
    assert_eq!(store.turns("r", &ALL, false).unwrap().len(), 1);
}

#[test]
fn breaks_are_summed_up_and_what_was_never_judged_is_unknown() {
    let (_dir, mut store) = store();
    let judged = |n, verdict| {
        let mut one = turn("r", n);
        one.cache.verdict = verdict;
        one
    };
    write(&mut store, [judged(1, None)]);
    let totals = store.runs(&ALL).unwrap()[0].totals;
    assert_eq!((totals.judged, totals.known_loss()), (0, None));
    let unpriced = Verdict {
        lost_pico: None,
        ..verdict(Status::Miss, Reason::Tools, None)
    };
    write(&mut store, [judged(2, Some(unpriced))]);
    assert_eq!(store.runs(&ALL).unwrap()[0].totals.known_loss(), None);
    let cold = Verdict {
        status: Status::Cold,
        reason: None,
        lost_tokens: Some(0),
        lost_pico: Some(0),
        ..verdict(Status::Cold, Reason::Tools, None)
    };
    let broken = verdict(Status::Partial, Reason::Messages, None);
    write(&mut store, [judged(3, Some(cold)), judged(4, Some(broken))]);
    let totals = store.runs(&ALL).unwrap()[0].totals;
    assert_eq!(
        (totals.judged, totals.breaks, totals.breaks_unpriced),
        (3, 2, 1)
    );
    assert_eq!(
        (totals.lost_tokens, totals.known_loss()),
        (2_000, Some(3_450_000_000))
    );
}

#[test]
fn only_turns_count() {
    let (_dir, mut store) = store();
    let other = |kind| TurnRecord {
        kind,
        ..turn("r", 0)
    };
    let costly = [RequestKind::Turn, RequestKind::KeepWarm];
    let kinds = RequestKind::ALL.iter().filter(|k| !costly.contains(k));
    write(&mut store, kinds.map(|kind| other(*kind)));
    assert_eq!(store.runs(&ALL).unwrap(), []);
    assert_eq!(store.spend(By::App, &ALL, &TimeZone::UTC).unwrap(), []);
    assert_eq!(store.turns("r", &ALL, false).unwrap(), []);
    write(&mut store, [turn("r", 1)]);
    assert_eq!(store.runs(&ALL).unwrap()[0].totals.requests, 1);
    assert_eq!(
        store.turns("r", &ALL, true).unwrap().len(),
        RequestKind::ALL.len() - 1
    );
}

#[test]
fn a_run_is_listed_as_a_whole_and_the_most_recently_active_comes_first() {
    let (_dir, mut store) = store();
    let mut late = turn("old", 2_000);
    late.client = None;
    late.thread_id = "sub".into();
    late.model_served = Some("model-2".into());
    write(&mut store, [turn("old", 1), turn("new", 1_000), late]);
    let filter = Filter {
        since_ms: Some(NOON + 1_500_000),
        ..ALL
    };
    let runs = store.runs(&filter).unwrap();
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!(
        (run.id.as_str(), run.totals.turns, run.threads),
        ("old", 2, 2)
    );
    assert_eq!(run.started_ms, NOON + 1_000);
    assert_eq!(run.ended_ms, NOON + 2_000_900);
    assert_eq!(run.client.as_deref(), Some("agent/1.0"));
    assert_eq!(run.models, ["model-1", "model-2"]);
    let order: Vec<_> = store
        .runs(&ALL)
        .unwrap()
        .into_iter()
        .map(|r| r.id)
        .collect();
    assert_eq!(order, ["old", "new"]);
    let one = Filter { limit: 1, ..ALL };
    assert_eq!(store.runs(&one).unwrap().len(), 1);
}

#[test]
fn spend_is_grouped_by_who_answered_and_asked_and_sorted_by_cost() {
    let (_dir, mut store) = store();
    let mut other = turn("r", 2);
    other.app = None;
    other.model_served = None;
    other.cost_pico = Some(900_000_000);
    let mut unpriced = turn("r", 3);
    unpriced.app = Some("batch".into());
    unpriced.cost_pico = None;
    write(&mut store, [turn("r", 1), other, unpriced]);
    let by_model = store.spend(By::Model, &ALL, &TimeZone::UTC).unwrap();
    let (alias, model) = (Some("alias"), Some("model-1"));
    assert_eq!(
        costs(&by_model),
        [(alias, Some(900_000_000)), (model, Some(360_000_000))]
    );
    let by_app = store.spend(By::App, &ALL, &TimeZone::UTC).unwrap();
    assert_eq!(
        costs(&by_app),
        [
            (None, Some(900_000_000)),
            (Some("review"), Some(360_000_000)),
            (Some("batch"), None)
        ]
    );
    let one = Filter {
        app: Some("review".into()),
        ..ALL
    };
    assert_eq!(
        store.spend(By::Model, &one, &TimeZone::UTC).unwrap().len(),
        1
    );
    assert_eq!(store.runs(&one).unwrap()[0].totals.requests, 3);
}

#[test]
fn threads_are_seeded_with_their_newest_answered_turn() {
    let (_dir, mut store) = store();
    let mut failed = turn("a", 3);
    failed.outcome = Outcome::UpstreamError;
    failed.response_id = None;
    let mut sub = turn("a", 1);
    sub.thread_id = "sub".into();
    sub.parent_thread = Some("main".into());
    let old = TurnRecord {
        started_ms: NOON - 1,
        ..turn("old", 1)
    };
    write(&mut store, [turn("a", 1), turn("a", 2), failed, sub, old]);
    let seeds = store.recent_threads(10, NOON).unwrap();
    let names: Vec<_> = seeds
        .iter()
        .map(|s| (s.run_id.as_str(), s.thread_id.as_str()))
        .collect();
    assert_eq!(names, [("a", "main"), ("a", "sub")]);
    let main = &seeds[0];
    assert_eq!((main.turn, main.response_id.as_deref()), (3, Some("msg_2")));
    assert_eq!(main.chain.as_deref(), Some("chain 2"));
    assert_eq!(seeds[1].parent_thread.as_deref(), Some("main"));
    assert_eq!(store.recent_threads(1, NOON).unwrap().len(), 1);
}

#[test]
fn threads_are_seeded_with_the_rules_that_bind_them() {
    let (_dir, mut store) = store();
    let in_thread = |thread: &str, n: u32, policy: Option<&str>| {
        let mut one = turn("a", n);
        one.thread_id = thread.into();
        one.guard.policy = policy.map(Into::into);
        one
    };
    // Refused before anybody looked at its history: that does not unbind the thread.
    let mut refused = in_thread("bound", 3, None);
    refused.outcome = Outcome::Refused;
    refused.response_id = None;
    refused.guard.cap = Some("usd".into());
    let mut elsewhere = in_thread("free", 1, Some("of another run"));
    elsewhere.run_id = "b".into();
    write(
        &mut store,
        [
            in_thread("bound", 1, Some("earlier")),
            in_thread("bound", 2, Some("3:hint")),
            refused,
            in_thread("free", 4, None),
            elsewhere,
        ],
    );
    let seeds = store.recent_threads(10, NOON).unwrap();
    let policies: Vec<_> = seeds
        .iter()
        .map(|s| (s.run_id.as_str(), s.thread_id.as_str(), s.policy.as_deref()))
        .collect();
    assert_eq!(
        policies,
        [
            ("a", "free", None),
            ("a", "bound", Some("3:hint")),
            ("b", "free", Some("of another run")),
        ]
    );
}

#[test]
fn a_word_of_a_later_version_is_an_error_that_says_so() {
    let (_dir, mut store) = store();
    write(&mut store, [turn("r", 1)]);
    store
        .connection
        .execute("UPDATE turns SET outcome = 'evaporated'", [])
        .unwrap();
    for error in [
        store.runs(&ALL).unwrap_err(),
        store.turns("r", &ALL, false).unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("`evaporated` as outcome"),
            "{error}"
        );
    }
}

#[test]
fn spend_by_key_upstream_and_hour_is_that_of_the_range() {
    let (_dir, mut store) = store();
    let mut rows = vec![turn("r", 1), turn("r", 2), turn("r", 3)];
    rows[0].credential = Some("k1".into());
    rows[1].credential = Some("k2".into());
    rows[2].credential = None;
    rows[2].upstream = "eu".into();
    // 12:00, 12:59:59.999 and 13:00 UTC; an offset of 45 minutes puts a border between the first two.
    rows[0].started_ms = NOON;
    rows[1].started_ms = NOON + 3_599_999;
    rows[2].started_ms = NOON + 3_600_000;
    write(&mut store, rows);
    let of = |by, zone: &str| {
        let zone = TimeZone::get(zone).unwrap();
        let groups = store.spend(by, &ALL, &zone).unwrap();
        let mut all = Totals::default();
        groups.iter().for_each(|g| all.merge(&g.totals));
        assert_eq!(all.requests, 3);
        let named = groups.into_iter().map(|g| (g.key, g.totals.requests));
        named.collect::<Vec<_>>()
    };
    let key = |name: &str| Some(name.to_owned());
    let mut keys = of(By::Key, "UTC");
    keys.sort();
    assert_eq!(keys, [(None, 1), (key("k1"), 1), (key("k2"), 1)]);
    assert!(of(By::Upstream, "UTC").contains(&(key("eu"), 1)));
    let day = day_of(NOON);
    let hour = |h: u32, n: u64| (Some(format!("{day}T{h:02}")), n);
    assert_eq!(of(By::Hour, "UTC"), [hour(12, 2), hour(13, 1)]);
    // UTC+5:45
    assert_eq!(of(By::Hour, "Asia/Kathmandu"), [hour(17, 1), hour(18, 2)]);
}

fn day_of(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms).unwrap();
    TimeZone::UTC.to_datetime(at).date().to_string()
}

#[test]
fn a_tree_has_each_thread_with_its_parent_and_tool_calls() {
    let (_dir, mut store) = store();
    let mut rows = vec![turn("r", 1), turn("r", 2), turn("r", 3), turn("other", 1)];
    rows[1].thread_id = "sub".into();
    rows[1].parent_thread = Some(rows[0].thread_id.clone());
    rows[1].agent = Some("reviewer".into());
    let mut asked = vec![
        call(&rows[0], "a"),
        call(&rows[0], "b"),
        call(&rows[1], "c"),
    ];
    asked[1].status = CallStatus::Failed;
    write(&mut store, rows.clone());
    let calls: Vec<_> = asked
        .into_iter()
        .map(|c| Entry::Call(Box::new(c)))
        .collect();
    store.write(&calls).unwrap();
    let tree = store.tree("r", &ALL).unwrap();
    let seen: Vec<_> = (tree.iter())
        .map(|t| {
            (
                t.id.as_str(),
                t.parent.as_deref(),
                t.calls,
                t.failed,
                t.totals.requests,
            )
        })
        .collect();
    let main = rows[0].thread_id.as_str();
    assert_eq!(seen, [(main, None, 2, 1, 2), ("sub", Some(main), 1, 0, 1)]);
    assert_eq!(tree[1].agent.as_deref(), Some("reviewer"));
    assert_eq!(tree[0].started_ms, rows[0].started_ms);
    let last = &rows[2];
    let end = last.started_ms + i64::try_from(last.duration_us / 1_000).unwrap();
    assert_eq!(tree[0].ended_ms, end);
    // What a tree adds up to is what the run costs.
    let mut all = Totals::default();
    tree.iter().for_each(|t| all.merge(&t.totals));
    let run = &store.runs(&ALL).unwrap();
    let run = run.iter().find(|run| run.id == "r").unwrap();
    assert_eq!(all, run.totals);
}
