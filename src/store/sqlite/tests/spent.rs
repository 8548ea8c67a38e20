//! What runs and keys have used.

use super::*;
use crate::guard::caps::Amounts;
use crate::store::{Of, Spent};

fn amounts(turns: u64, input: u64, output: u64, pico: u64) -> Amounts {
    Amounts {
        turns,
        input,
        output,
        pico,
    }
}

#[test]
fn only_answered_turns_count_and_everything_that_cost_money() {
    let (_dir, mut store) = store();
    let mut unknown = turn("r", 2);
    unknown.usage = Usage {
        write_5m: Some(3),
        write_1h: Some(4),
        ..Usage::default()
    };
    unknown.cost_pico = None;
    let mut refused = turn("r", 3);
    refused.outcome = Outcome::Refused;
    (refused.usage, refused.cost_pico) = (Usage::default(), None);
    let mut failed = turn("r", 4);
    (failed.status, failed.outcome) = (Some(529), Outcome::UpstreamError);
    (failed.usage, failed.cost_pico) = (Usage::default(), None);
    let mut unreached = failed.clone();
    unreached.id = Uuid::now_v7();
    unreached.status = None;
    let mut warm = turn("r", 5);
    warm.kind = RequestKind::KeepWarm;
    let mut counted = turn("r", 0);
    counted.kind = RequestKind::CountTokens;
    let rows = [
        turn("r", 1),
        unknown,
        refused,
        failed,
        unreached,
        warm,
        counted,
    ];
    write(&mut store, rows);
    write(&mut store, [turn("other", 1)]);
    assert_eq!(
        store.spent(Of::Run("r")).unwrap(),
        Spent {
            spent: amounts(2, 107, 10, 720_000_000),
            first_ms: Some(NOON),
        }
    );
    assert_eq!(store.spent(Of::Run("none")).unwrap(), Spent::default());
}

#[test]
fn what_was_booked_stands_in_for_a_cost_that_is_not_known() {
    let (_dir, mut store) = store();
    let mut cut = turn("r", 2);
    (cut.status, cut.outcome, cut.cost_pico) = (None, Outcome::ClientAbort, None);
    let mut unpriced = turn("r", 3);
    unpriced.cost_pico = None;
    write(&mut store, [turn("r", 1), cut, unpriced]);
    let guard = |n: u32, json: &str| {
        let sql = "UPDATE turns SET guard = ?1 WHERE turn = ?2";
        store.connection.execute(sql, (json, n)).unwrap();
    };
    guard(1, r#"{"booked_pico":5}"#);
    guard(2, r#"{"booked_pico":7}"#);
    guard(3, r#"{"booked_pico":18446744073709551615}"#);
    let spent = store.spent(Of::Run("r")).unwrap().spent;
    let pico = 360_000_000 + 7 + i64::MAX as u64;
    assert_eq!(spent, amounts(2, 200, 20, pico));
}

#[test]
fn a_key_is_summed_over_a_range_and_without_the_runs_that_were_named() {
    let (_dir, mut store) = store();
    let sources = [
        "header", "label", "client", "body", "content", "chain", "trace", "none",
    ];
    let rows = sources.into_iter().zip(1..).map(|(source, n)| TurnRecord {
        run_source: source,
        ..turn(source, n)
    });
    write(&mut store, rows);
    let nobody = TurnRecord {
        credential: None,
        run_source: "none",
        ..turn("x", 9)
    };
    write(&mut store, [nobody]);
    let of = |credential, since_ms, until_ms, unnamed_only| {
        let of = Of::Credential {
            credential,
            since_ms,
            until_ms,
            unnamed_only,
        };
        let found = store.spent(of).unwrap();
        (found.spent.turns, found.first_ms)
    };
    let key = Some("c0ffee");
    assert_eq!(of(key, 0, i64::MAX, false), (8, Some(NOON + 1_000)));
    assert_eq!(of(key, 0, i64::MAX, true), (4, Some(NOON + 5_000)));
    assert_eq!(of(None, 0, i64::MAX, true), (1, Some(NOON + 9_000)));
    assert_eq!(of(Some("other"), 0, i64::MAX, false), (0, None));
    let range = (NOON + 2_000, NOON + 4_000);
    assert_eq!(of(key, range.0, range.1, false), (2, Some(NOON + 2_000)));
}

#[test]
fn sums_beyond_sixty_four_bits_stay_at_the_top() {
    let (_dir, mut store) = store();
    let huge = |n| TurnRecord {
        cost_pico: Some(i64::MAX as u64),
        usage: Usage {
            read: Some(i64::MAX as u64),
            ..Usage::default()
        },
        ..turn("r", n)
    };
    write(&mut store, (1..=3).map(huge));
    let spent = store.spent(Of::Run("r")).unwrap().spent;
    assert_eq!(spent, amounts(3, u64::MAX, 0, u64::MAX));
}

#[test]
fn questions_for_caps_go_by_an_index() {
    let (_dir, store) = store();
    for (condition, index) in [
        ("run_id = 'r'", "turns_by_run"),
        (
            "started_ms >= 1 AND started_ms < 2 AND credential IS 'c'",
            "turns_by_start",
        ),
    ] {
        let plan: String = store
            .connection
            .query_row(
                &format!("EXPLAIN QUERY PLAN SELECT guard FROM turns WHERE {condition}"),
                [],
                |row| row.get(3),
            )
            .unwrap();
        assert!(plan.contains(index), "{plan}");
    }
}
