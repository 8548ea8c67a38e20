//! Real faults of other gateways, by id.

use super::*;
use crate::usage::price::{FALLBACK_PRICE, REQUESTED_MODEL, UNKNOWN_MODEL, UNKNOWN_USAGE};

#[test]
fn c01_both_conventions_cost_what_they_should() {
    let book = book();
    let turn = answer("test-sonnet", usage(12, 50_000, 1000, 0, 200));
    assert_eq!(cost(&book, &turn), "0.021786");
    assert_eq!(turn.usage.prompt(), Some(51_012));
    let inclusive = answer("test-sonnet", usage(1012, 50_000, 0, 0, 200));
    assert_eq!(cost(&book, &inclusive), "0.021036");
    for turn in [&turn, &inclusive] {
        let Priced::Known { no_cache_pico, .. } = book.price(P, turn, None, NOV_29) else {
            panic!("priced");
        };
        assert_eq!(usd(no_cache_pico), "0.156036", "51,012 at 3 and 200 at 15");
    }
}

#[test]
fn c05_writes_are_priced_by_their_lifetime() {
    let book = book();
    for (five, hour, expected) in [
        (4000, 6000, "0.05253"),
        (0, 10_000, "0.06153"),
        (10_000, 0, "0.03903"),
    ] {
        let turn = answer("test-sonnet", usage(10, 0, five, hour, 100));
        assert_eq!(cost(&book, &turn), expected);
    }
}

#[test]
fn c06_an_unknown_kind_is_not_free() {
    let book = book();
    let mut turn = answer("test-sonnet", usage(25, 4000, 0, 0, 200));
    // With the output estimated by the caller there is a price.
    assert_eq!(cost(&book, &turn), "0.004275");
    turn.usage.output = None;
    let priced = book.price(P, &turn, None, NOV_29);
    assert_eq!(reason(&priced), (UNKNOWN_USAGE, Some(1_275_000_000)));
    turn.usage = Usage::default();
    let priced = book.price(P, &turn, None, NOV_29);
    assert_eq!(reason(&priced), (UNKNOWN_USAGE, None));
}

#[test]
fn c08_an_unknown_model_is_unpriced_and_spellings_resolve_by_rule() {
    let book = book();
    let tokens = usage(1_000_000, 0, 0, 0, 50_000);
    let unknown = book.price(P, &answer("test-unlisted-9", tokens), None, NOV_29);
    assert_eq!(reason(&unknown), (UNKNOWN_MODEL, None));
    assert_eq!(book.model(P, "test-unlisted-9", NOV_29).label, None);
    assert_eq!(book.model(P, "test-unlisted-9", NOV_29).rates, None);

    for name in [
        "test-sonnet",
        "vendor/test-sonnet",
        "test-sonnet-20261101",
        "test-sonnet[1m]",
    ] {
        assert_eq!(cost(&book, &answer(name, tokens)), "3.75", "{name}");
        assert_eq!(
            book.model(P, name, NOV_29).label.as_deref(),
            Some("test-sonnet")
        );
    }
    for name in [
        "test-sonnet-mini",
        "test-sonne",
        "test",
        "my-test-sonnet",
        "",
        " ",
    ] {
        let priced = book.price(P, &answer(name, tokens), None, NOV_29);
        assert_eq!(reason(&priced).0, UNKNOWN_MODEL, "{name}");
    }

    for name in [
        "claude-haiku-4-5-mini",
        "claude-opus-5-6",
        "claude-fable-5-2-pro",
        "claude",
    ] {
        let priced = book.price(P, &answer(name, tokens), None, NOV_29);
        assert_eq!(reason(&priced), (UNKNOWN_MODEL, None), "{name}");
    }

    // (iii) a price for whatever is unknown, which shows that it was used.
    let fallback = PriceOverride {
        model: "*".into(),
        ..test_sonnet()
    };
    let book = PriceBook::new(&[fallback]).unwrap();
    let priced = book.price(P, &answer("test-unlisted-9", tokens), None, NOV_29);
    assert_eq!(priced.pico().map(usd).as_deref(), Some("3.75"));
    assert_eq!(notes(&priced), [FALLBACK_PRICE]);
    assert_eq!(
        book.model(P, "test-unlisted-9", NOV_29).label,
        None,
        "labels stay bounded"
    );
    let known = book.price(P, &answer("claude-opus-5", tokens), None, NOV_29);
    assert_eq!(
        known.pico().map(usd).as_deref(),
        Some("6.25"),
        "known models keep their price"
    );
}

#[test]
fn c13_a_hundred_small_prices_are_exactly_the_cap() {
    let book = book();
    let turn = answer("test-sonnet", usage(70, 0, 0, 0, 10));
    let cap = 36_000_000_000_u64;
    let (mut spent, mut forwarded) = (0_u64, 0);
    for _ in 0..101 {
        if spent >= cap {
            continue;
        }
        forwarded += 1;
        spent += book.price(P, &turn, None, NOV_29).pico().unwrap();
    }
    assert_eq!(forwarded, 100);
    assert_eq!(usd(spent), "0.036");
}

#[test]
fn c15_the_model_that_served_decides() {
    let book = book();
    let mut turn = answer("test-sonnet-20261101", usage(1000, 0, 0, 0, 100));
    let priced = |turn: &Metered| book.price(P, turn, Some("test-alias"), NOV_29);
    assert_eq!(priced(&turn).pico().map(usd).as_deref(), Some("0.0045"));
    // An answering model without a price is not saved by the name of the request.
    turn.model = Some("test-small".into());
    let swapped = book.price(P, &turn, Some("test-sonnet"), NOV_29);
    assert_eq!(reason(&swapped), (UNKNOWN_MODEL, None));
    turn.model = None;
    let asked = book.price(P, &turn, Some("test-sonnet"), NOV_29);
    assert_eq!(asked.pico().map(usd).as_deref(), Some("0.0045"));
    assert_eq!(notes(&asked), [REQUESTED_MODEL]);
    assert_eq!(
        reason(&book.price(P, &turn, None, NOV_29)),
        (UNKNOWN_MODEL, None)
    );
}
