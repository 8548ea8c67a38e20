//! Tiers, dates, multipliers, fees and steps.

use super::*;
use crate::usage::price::{
    COST_OVERFLOW, GEO_AT_BASE, NO_FAST_PRICE, NO_WEB_SEARCH_PRICE, UNKNOWN_MODEL,
};

#[test]
fn haiku_5_5_is_priced_by_the_length_of_each_step() {
    let book = book();
    let id = "claude-haiku-5-5";
    // The border itself is still cheap; read and written tokens count to the prompt.
    assert_eq!(
        cost(&book, &answer(id, usage(1000, 99_000, 0, 0, 10))),
        "0.001095"
    );
    assert_eq!(
        cost(&book, &answer(id, usage(1001, 99_000, 0, 0, 10))),
        "0.0054755"
    );
    assert_eq!(
        cost(&book, &answer(id, usage(0, 0, 0, 100_001, 0))),
        "0.100001"
    );
    // Two steps below the border are not one above it.
    let step = |usage| Iteration {
        kind: "message".into(),
        model: None,
        usage,
    };
    let mut turn = answer(id, usage(120_000, 0, 0, 0, 200));
    turn.iterations = vec![step(usage(60_000, 0, 0, 0, 100)); 2];
    assert_eq!(cost(&book, &turn), "0.0121");
}

#[test]
fn dates_decide() {
    let book = book();
    let read = answer("claude-sonnet-5-5", usage(0, 1_000_000, 0, 0, 0));
    let priced = |turn: &Metered, at| book.price(P, turn, None, at).pico().map(usd);
    assert_eq!(priced(&read, SEPT_30).as_deref(), Some("0.2"));
    assert_eq!(priced(&read, OCT_07 - 1).as_deref(), Some("0.2"));
    assert_eq!(priced(&read, OCT_07).as_deref(), Some("0.1"));

    let mut fast = answer("claude-opus-4-8", usage(1_000_000, 0, 0, 0, 0));
    fast.speed = Speed::Fast;
    assert_eq!(priced(&fast, NOV_30 - 1).as_deref(), Some("10"));
    let after = book.price(P, &fast, None, NOV_30);
    assert_eq!(
        reason(&after),
        (NO_FAST_PRICE, Some(per_mtok("5") * 1_000_000))
    );

    // Dated prices inside the bundled data: the old long-context premium, before and after its end.
    let long = answer("claude-sonnet-4-6", usage(300_000, 0, 0, 0, 0));
    let march_12 = 1_773_273_600_000;
    assert_eq!(priced(&long, march_12).as_deref(), Some("1.8"));
    assert_eq!(priced(&long, NOV_29).as_deref(), Some("0.9"));
    assert_eq!(
        priced(&long, march_12).as_deref(),
        Some("1.8"),
        "going back in time works"
    );
}

#[test]
fn multipliers_are_exact() {
    let book = book();
    let mut turn = answer("claude-haiku-5-5", usage(0, 1, 0, 0, 0));
    let priced = |turn: &Metered| book.price(P, turn, None, NOV_29).pico();
    assert_eq!(priced(&turn), Some(10_000));
    turn.tier = ServiceTier::Batch;
    turn.geo = Some("US".into());
    assert_eq!(priced(&turn), Some(5_500));
    let mut turn = answer("claude-opus-5-5", usage(1_000_000, 0, 0, 0, 0));
    turn.speed = Speed::Fast;
    turn.geo = Some("us".into());
    assert_eq!(cost(&book, &turn), "8.8");
    turn.tier = ServiceTier::Priority;
    assert_eq!(cost(&book, &turn), "8.8");

    turn.geo = Some("eu".into());
    assert_eq!(notes(&book.price(P, &turn, None, NOV_29)), [GEO_AT_BASE]);
    turn.geo = Some("global".into());
    assert!(notes(&book.price(P, &turn, None, NOV_29)).is_empty());
}

#[test]
fn searches_are_billed_per_piece_and_never_multiplied() {
    let book = book();
    let mut turn = answer("test-sonnet", usage(1000, 0, 0, 0, 100));
    turn.usage.web_searches = Some(3);
    assert_eq!(cost(&book, &turn), "0.0345");
    turn.tier = ServiceTier::Batch;
    assert_eq!(cost(&book, &turn), "0.03225");
    turn.usage.web_searches = None;
    assert_eq!(
        cost(&book, &turn),
        "0.00225",
        "a provider that reports no searches made none"
    );
    turn.usage.web_searches = Some(1);
    turn.tier = ServiceTier::Standard;
    let elsewhere = book.price("no-such-provider", &turn, None, NOV_29);
    assert_eq!(
        reason(&elsewhere),
        (NO_WEB_SEARCH_PRICE, Some(4_500_000_000))
    );
}

#[test]
fn steps_are_summed_each_with_its_own_model() {
    let book = book();
    let step = |model: Option<&str>, usage| Iteration {
        kind: "message".into(),
        model: model.map(Into::into),
        usage,
    };
    let mut turn = answer("claude-opus-5-5", usage(9, 9, 9, 9, 9));
    turn.iterations = vec![
        step(None, usage(1000, 0, 0, 0, 100)),
        step(Some("claude-haiku-4-5"), usage(1000, 0, 0, 0, 100)),
    ];
    // 4 * 1000 + 20 * 100 and 1 * 1000 + 5 * 100, per million; the totals are not added again.
    assert_eq!(cost(&book, &turn), "0.0075");
    turn.iterations
        .push(step(Some("test-unlisted-9"), usage(1, 0, 0, 0, 1)));
    let priced = book.price(P, &turn, None, NOV_29);
    assert_eq!(reason(&priced), (UNKNOWN_MODEL, Some(7_500_000_000)));
}

#[test]
fn an_unknown_saving_does_not_hide_a_known_cost() {
    let absurd = PriceOverride {
        input_pico: u64::MAX,
        ..test_sonnet()
    };
    let book = PriceBook::new(&[absurd]).unwrap();
    let reads = answer("test-sonnet", usage(0, 1_000_000, 0, 0, 0));
    let priced = book.price(P, &reads, None, NOV_29);
    assert_eq!(reason(&priced), (COST_OVERFLOW, Some(300_000_000_000)));
}
