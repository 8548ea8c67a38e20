//! Seeds against a real database.

use std::sync::Arc;

use super::*;
use crate::guard::caps::{Amounts, Ask, Limits};
use crate::proxy::ledger::{Ledger, Reserved};
use crate::store::{NOON, test_store, test_turn};
use crate::trace::{Entry, RequestKind, Sink, TurnRecord};

fn write(store: &mut Sqlite, turns: impl IntoIterator<Item = TurnRecord>) {
    let batch: Vec<Entry> = turns
        .into_iter()
        .map(|turn| Entry::Turn(Box::new(turn)))
        .collect();
    store.write(&batch).unwrap();
}

#[test]
fn days_are_those_of_the_zone() {
    let kolkata = TimeZone::get("Asia/Kolkata").unwrap();
    // 2026-03-01T12:00Z; half a day and a second later it is tomorrow in UTC too.
    assert_eq!(day(NOON, &TimeZone::UTC), "2026-03-01");
    assert_eq!(day(NOON + 43_201_000, &TimeZone::UTC), "2026-03-02");
    assert_eq!(day(NOON + 23_401_000, &kolkata), "2026-03-02");
    let (since, until) = range("2026-03-01", &kolkata).unwrap();
    assert_eq!(since, NOON - 43_200_000 - 19_800_000);
    assert_eq!(until - since, 86_400_000);
    // A day on which the clocks are put forward has 23 hours.
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let (since, until) = range("2026-03-29", &berlin).unwrap();
    assert_eq!(until - since, 23 * 3_600_000);
    assert_eq!(day(since, &berlin), "2026-03-29");
    assert_eq!(day(until - 1, &berlin), "2026-03-29");
    assert_eq!(day(until, &berlin), "2026-03-30");
    for now in [i64::MIN, i64::MAX] {
        assert!(!day(now, &berlin).is_empty());
    }
    assert!(range("yesterday", &berlin).is_err());
}

#[test]
fn a_scope_begins_with_what_its_turns_in_the_database_add_up_to() {
    let (dir, mut store) = test_store();
    let mut unnamed = test_turn("found", 2);
    unnamed.run_source = "content";
    let mut yesterday = test_turn("r", 3);
    yesterday.started_ms = NOON - 43_200_001;
    let mut anonymous = test_turn("other", 4);
    anonymous.credential = None;
    write(
        &mut store,
        [test_turn("r", 1), unnamed, yesterday, anonymous],
    );
    let seeds = StoreSeeds::new(dir.path().into(), TimeZone::UTC);
    let day = || "2026-03-01".to_owned();
    let of = |n: u64, first_ms| Seed {
        spent: Amounts {
            turns: n,
            input: 100 * n,
            output: 10 * n,
            pico: 360_000_000 * n,
        },
        first_ms,
    };
    for (scope, seed) in [
        (Scope::Run("r".into()), of(2, Some(NOON - 43_200_001))),
        (Scope::Run("unheard of".into()), of(0, None)),
        (
            Scope::Key("c0ffee".into(), day()),
            of(2, Some(NOON + 1_000)),
        ),
        (
            Scope::Unnamed("c0ffee".into(), day()),
            of(1, Some(NOON + 2_000)),
        ),
        (
            Scope::Key(NO_CREDENTIAL.into(), day()),
            of(1, Some(NOON + 4_000)),
        ),
        (Scope::Unnamed(NO_CREDENTIAL.into(), day()), of(0, None)),
    ] {
        assert_eq!(seeds.seed(&scope), Ok(seed), "{scope:?}");
    }
    assert!(
        seeds
            .seed(&Scope::Key("c0ffee".into(), "?".into()))
            .is_err()
    );
}

#[test]
fn a_database_that_is_missing_or_broken_is_an_error_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let seeds = StoreSeeds::new(dir.path().into(), TimeZone::UTC);
    let scope = Scope::Run("r".into());
    let why = seeds.seed(&scope).unwrap_err();
    assert!(why.contains("no trace database"), "{why}");
    Sqlite::open(dir.path()).unwrap();
    assert_eq!(seeds.seed(&scope), Ok(Seed::default()));
}

#[tokio::test]
async fn d13_after_a_restart_the_spent_amount_is_not_back_at_zero() {
    let (dir, mut store) = test_store();
    let mut warm = test_turn("r", 4);
    warm.kind = RequestKind::KeepWarm;
    write(
        &mut store,
        [
            test_turn("r", 1),
            test_turn("r", 2),
            test_turn("r", 3),
            warm,
        ],
    );
    let seeds = StoreSeeds::new(dir.path().into(), TimeZone::UTC);
    let ledger = Ledger::local(Arc::new(seeds), vec![50, 80, 100]);
    let limits = Limits {
        usd_pico: Some(5 * 360_000_000),
        turns: Some(4),
        ..Limits::default()
    };
    let ask = || Ask {
        scopes: vec![(Scope::Run("r".into()), limits)],
        most: Amounts {
            turns: 1,
            pico: 360_000_000,
            ..Amounts::default()
        },
        agent: "main".into(),
        depth: 0,
        now_ms: NOON + 60_000,
    };
    let reserved = ledger.reserve(ask()).await;
    let Reserved::Granted { hold, left, .. } = reserved else {
        panic!("{reserved:?}");
    };
    assert_eq!((left[0].1.turns, left[0].1.usd_pico), (Some(0), Some(0)));
    let reserved = ledger.reserve(ask()).await;
    let Reserved::Denied { denied, .. } = reserved else {
        panic!("{reserved:?}");
    };
    assert_eq!((denied.spent, denied.held, denied.limit), (3, 1, 4));
    ledger.settle(hold, Amounts::default(), true, NOON, |_| {});
}
