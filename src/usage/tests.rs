//! The price engine as a whole: the provider's table, the cases, and properties over any usage.

use std::sync::Arc;

use proptest::prelude::*;

use super::price::{
    COST_OVERFLOW, FALLBACK_PRICE, GEO_AT_BASE, NO_FAST_PRICE, NO_TIER_PRICE, NO_WEB_SEARCH_PRICE,
    NO_WRITE_1H_PRICE, REQUESTED_MODEL, UNKNOWN_MODEL, UNKNOWN_USAGE,
};
use super::*;

/// Midnights UTC.
const SEPT_30: i64 = 1_790_726_400_000;
const OCT_07: i64 = 1_791_331_200_000;
const NOV_29: i64 = 1_795_910_400_000;
const NOV_30: i64 = 1_795_996_800_000;

const P: &str = "anthropic";

fn per_mtok(text: &str) -> u64 {
    pico_from_decimal_usd_per_mtok(text).unwrap()
}

/// The model of the cases' price table.
fn test_sonnet() -> PriceOverride {
    PriceOverride {
        model: "test-sonnet".into(),
        input_pico: per_mtok("3.00"),
        output_pico: per_mtok("15.00"),
        read_pico: per_mtok("0.30"),
        write_5m_pico: per_mtok("3.75"),
        write_1h_pico: per_mtok("6.00"),
        min_cache_tokens: Some(1024),
    }
}

fn book() -> PriceBook {
    PriceBook::new(&[test_sonnet()]).unwrap()
}

fn usage(uncached: u64, read: u64, write_5m: u64, write_1h: u64, output: u64) -> Usage {
    Usage {
        uncached: Some(uncached),
        read: Some(read),
        write_5m: Some(write_5m),
        write_1h: Some(write_1h),
        output: Some(output),
        ..Usage::default()
    }
}

fn answer(model: &str, usage: Usage) -> Metered {
    Metered {
        model: Some(model.into()),
        usage,
        ..Metered::default()
    }
}

fn cost(book: &PriceBook, metered: &Metered) -> String {
    match book.price(P, metered, None, NOV_29) {
        Priced::Known { pico, .. } => usd(pico),
        unpriced @ Priced::Unpriced { .. } => format!("{unpriced:?}"),
    }
}

fn reason(priced: &Priced) -> (&'static str, Option<u64>) {
    match priced {
        Priced::Unpriced {
            reason,
            lower_bound_pico,
        } => (reason, *lower_bound_pico),
        Priced::Known { .. } => ("known", None),
    }
}

fn notes(priced: &Priced) -> Vec<&'static str> {
    match priced {
        Priced::Known { notes, .. } => notes.clone(),
        Priced::Unpriced { .. } => vec!["unpriced"],
    }
}

/// id, input, output, 5m write, 1h write, read (USD per million), minimum, fast, us: provider facts of 2026-11-29.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    u32,
    bool,
    bool,
);
#[rustfmt::skip]
const TABLE: [Row; 22] = [
    ("claude-fable-5-2",  "8",  "40", "10",    "16",  "0.20", 512,  true,  true),
    ("claude-mythos-5-2", "8",  "40", "10",    "16",  "0.20", 512,  true,  true),
    ("claude-fable-5-1",  "10", "50", "12.5",  "20",  "0.25", 512,  false, true),
    ("claude-mythos-5-1", "10", "50", "12.5",  "20",  "0.25", 512,  false, true),
    ("claude-fable-5",    "10", "50", "12.5",  "20",  "1.00", 512,  false, true),
    ("claude-mythos-5",   "10", "50", "12.5",  "20",  "1.00", 512,  false, true),
    ("claude-opus-5-5",   "4",  "20", "5",     "8",   "0.20", 512,  true,  true),
    ("claude-opus-5",     "5",  "25", "6.25",  "10",  "0.50", 512,  true,  true),
    ("claude-opus-4-8",   "5",  "25", "6.25",  "10",  "0.50", 1024, true,  true),
    ("claude-opus-4-7",   "5",  "25", "6.25",  "10",  "0.50", 2048, false, true),
    ("claude-opus-4-6",   "5",  "25", "6.25",  "10",  "0.50", 4096, false, true),
    ("claude-opus-4-5",   "5",  "25", "6.25",  "10",  "0.50", 4096, false, false),
    ("claude-sonnet-5-5", "2",  "10", "2.5",   "4",   "0.10", 512,  false, true),
    ("claude-sonnet-5",   "2",  "10", "2.5",   "4",   "0.20", 1024, false, true),
    ("claude-sonnet-4-6", "3",  "15", "3.75",  "6",   "0.30", 1024, false, true),
    ("claude-sonnet-4-5", "3",  "15", "3.75",  "6",   "0.30", 1024, false, false),
    ("claude-haiku-4-5",  "1",  "5",  "1.25",  "2",   "0.10", 4096, false, false),
    ("claude-opus-4-1",   "15", "75", "18.75", "30",  "1.5",  1024, false, false),
    ("claude-opus-4",     "15", "75", "18.75", "30",  "1.5",  1024, false, false),
    ("claude-sonnet-4",   "3",  "15", "3.75",  "6",   "0.3",  1024, false, false),
    ("claude-3-5-haiku",  "0.8", "4", "1",     "1.6", "0.08", 2048, false, false),
    ("claude-haiku-5-5",  "0.10", "0.50", "0.125", "0.20", "0.01", 512, false, true),
];

#[test]
fn every_row_of_the_providers_table_comes_out_right() {
    let book = book();
    for (id, input, output, write_5m, write_1h, read, minimum, fast, us) in TABLE {
        let facts = book.model(P, id, NOV_29);
        let expected = Rates {
            input_pico: per_mtok(input),
            output_pico: per_mtok(output),
            read_pico: per_mtok(read),
            write_5m_pico: per_mtok(write_5m),
            write_1h_pico: per_mtok(write_1h),
        };
        assert_eq!(facts.rates, Some(expected), "{id}");
        assert_eq!(facts.min_cache_tokens, Some(minimum), "{id}");
        assert!(facts.label.is_some(), "{id}");

        // 1,000 tokens of each kind, so that nothing is rounded and no tier is reached.
        let plain = u128::from(expected.input_pico + expected.output_pico + expected.read_pico)
            + u128::from(expected.write_5m_pico + expected.write_1h_pico);
        let plain = u64::try_from(plain * 1000).unwrap();
        let mut turn = answer(id, usage(1000, 1000, 1000, 1000, 1000));
        let priced = |turn: &Metered, at| book.price(P, turn, None, at).pico();
        assert_eq!(priced(&turn, NOV_29), Some(plain), "{id}");
        turn.tier = ServiceTier::Batch;
        assert_eq!(priced(&turn, NOV_29), Some(plain / 2), "{id} batch");
        turn.geo = Some("us".into());
        let place = if us { plain / 20 * 11 } else { plain / 2 };
        assert_eq!(priced(&turn, NOV_29), Some(place), "{id} batch us");
        turn.tier = ServiceTier::Standard;
        turn.geo = None;
        turn.speed = Speed::Fast;
        let priced = book.price(P, &turn, None, NOV_29);
        if fast {
            assert_eq!(priced.pico(), Some(plain * 2), "{id} fast");
        } else {
            assert_eq!(reason(&priced), (NO_FAST_PRICE, Some(plain)), "{id} fast");
        }
    }
}

#[test]
fn sizes_of_tokens_are_an_assumption_by_generation() {
    let book = book();
    let bytes = |id| book.model(P, id, NOV_29).bytes_per_token_milli;
    for old in [
        "claude-sonnet-4-6",
        "claude-opus-4-6",
        "claude-haiku-4-5",
        "test-unlisted-9",
    ] {
        assert_eq!(bytes(old), 3500, "{old}");
    }
    for new in [
        "claude-opus-4-7",
        "claude-opus-4-8",
        "claude-sonnet-5",
        "claude-haiku-5-5",
    ] {
        assert_eq!(bytes(new), 2700, "{new}");
    }
}

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
fn spellings_of_clouds_resolve_to_the_model() {
    let book = book();
    for name in [
        "us.anthropic.claude-opus-5-5",
        "us.anthropic.claude-opus-5-5-v1:0",
        "anthropic.claude-opus-5-5",
        "claude-opus-5-5@20260922",
        "anthropic/claude-opus-5.5",
        "claude-opus-5-5[1m]",
    ] {
        let facts = book.model(P, name, NOV_29);
        assert_eq!(facts.label.as_deref(), Some("claude-opus-5-5"), "{name}");
        assert_eq!(facts.min_cache_tokens, Some(512), "{name}");
    }
    // A regional endpoint of Bedrock costs 10 % more, a global one does not; the minimum is the same.
    let input = |name| {
        book.model("bedrock", name, NOV_29)
            .rates
            .map(|r| r.input_pico)
    };
    assert_eq!(input("us.anthropic.claude-opus-5-5"), Some(per_mtok("4.4")));
    assert_eq!(
        input("global.anthropic.claude-opus-5-5"),
        Some(per_mtok("4"))
    );
    let facts = book.model("aws", "us.anthropic.claude-haiku-4-5-20251001-v1:0", NOV_29);
    assert_eq!(facts.min_cache_tokens, Some(4096));
    assert_eq!(
        book.model("aws", "us.anthropic.claude-fable-5-2", NOV_29)
            .rates,
        None
    );
    // Vertex: same price as direct, also for what only the overlay knows.
    let fable = book.model("vertex", "claude-fable-5-2", NOV_29);
    assert_eq!(fable.rates, book.model(P, "claude-fable-5-2", NOV_29).rates);
    assert_eq!(fable.label.as_deref(), Some("claude-fable-5-2"));
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

#[test]
fn the_users_price_wins_and_says_so() {
    let own = PriceOverride {
        model: "Claude-Opus-5".into(),
        min_cache_tokens: None,
        ..test_sonnet()
    };
    let book = PriceBook::new(&[own]).unwrap();
    assert_eq!(book.version(), "genai-0.2.1+overlay-2026-11-29");
    let version = |model| match book.price(P, &answer(model, usage(1, 0, 0, 0, 0)), None, NOV_29) {
        Priced::Known { pico, version, .. } => (pico, version.to_string()),
        unpriced @ Priced::Unpriced { .. } => panic!("{unpriced:?}"),
    };
    let user = "genai-0.2.1+overlay-2026-11-29+user";
    assert_eq!(
        version("claude-opus-5-20260801"),
        (per_mtok("3"), user.into())
    );
    assert_eq!(
        version("claude-opus-4-7"),
        (per_mtok("5"), book.version().into())
    );
    let facts = book.model(P, "claude-opus-5", NOV_29);
    assert_eq!(
        facts.min_cache_tokens,
        Some(512),
        "what the user does not say stays known"
    );

    let twice = PriceBook::new(&[test_sonnet(), test_sonnet()]).unwrap_err();
    assert_eq!(twice, PriceError::Duplicate("test-sonnet".into()));
    let nameless = PriceOverride {
        model: " ".into(),
        ..test_sonnet()
    };
    assert_eq!(
        PriceBook::new(&[nameless]).unwrap_err(),
        PriceError::BadModel
    );
}

#[test]
fn other_providers_come_from_the_bundled_data() {
    let book = book();
    let rates = |id| book.model("openai", id, NOV_29).rates.unwrap();
    for (id, input, output, write, read) in [
        ("gpt-6.2-astra", "8", "40", "10", "0.40"),
        ("gpt-6.2-sol", "2", "10", "2.5", "0.10"),
        ("gpt-6-astra", "10", "50", "12.5", "1.00"),
        ("gpt-6.1-sol", "2", "10", "2.5", "0.10"),
        ("gpt-6-sol", "2", "10", "2.5", "0.20"),
        ("gpt-6.1-terra", "1", "5", "1.25", "0.05"),
        ("gpt-6-luna", "0.10", "0.50", "0.125", "0.01"),
        ("gpt-5.6-sol", "4", "20", "5", "0.40"),
        ("gpt-5.6-terra", "2", "12", "2.5", "0.20"),
        ("gpt-5.6-luna", "0.20", "1.20", "0.25", "0.02"),
        ("gpt-5.5", "5", "30", "5", "0.50"),
        ("gpt-5.4-mini", "0.75", "4.5", "0.75", "0.075"),
        ("gpt-5-2025-08-07", "1.25", "10", "1.25", "0.125"),
    ] {
        let found = rates(id);
        assert_eq!(
            [
                found.input_pico,
                found.output_pico,
                found.write_5m_pico,
                found.read_pico
            ],
            [input, output, write, read].map(per_mtok),
            "{id}"
        );
    }
    let priced = |turn: &Metered| book.price("openai", turn, None, NOV_29);
    // Above 272,000 tokens the whole request doubles, output grows by half.
    for id in ["gpt-6-sol", "gpt-6.2-sol"] {
        let long = answer(id, usage(272_001, 0, 0, 0, 1000));
        assert_eq!(
            priced(&long).pico().map(usd).as_deref(),
            Some("1.103004"),
            "{id}"
        );
    }
    let mut turn = answer("gpt-6-sol", usage(1000, 0, 0, 0, 0));
    turn.tier = ServiceTier::Priority;
    assert_eq!(priced(&turn).pico().map(usd).as_deref(), Some("0.004"));
    turn.model = Some("gpt-5.4".into());
    assert_eq!(reason(&priced(&turn)), (NO_TIER_PRICE, None));
    let hour = answer("gpt-6-sol", usage(0, 0, 0, 1000, 0));
    assert_eq!(
        reason(&priced(&hour)),
        (NO_WRITE_1H_PRICE, Some(2_500_000_000))
    );
}

#[test]
fn the_memory_of_spellings_is_bounded_and_shared() {
    let book = book();
    let first = book.model(P, "claude-opus-5", NOV_29).label.unwrap();
    let again = book.model(P, "claude-opus-5", NOV_29).label.unwrap();
    assert!(
        Arc::ptr_eq(&first, &again),
        "a hit hands out what is remembered"
    );
    let before = book.remembered();
    for n in 0..5000 {
        let _ = book.model("no-such-provider", &format!("made-up-{n}"), NOV_29);
        assert!(book.remembered() <= 2048);
    }
    assert!(before >= 1);
    assert_eq!(book.model(P, &"x".repeat(1 << 20), NOV_29).label, None);
    assert!(book.remembered() <= 2048);
}

#[test]
fn every_bundled_model_can_be_asked_for() {
    let book = book();
    for provider in [
        "anthropic",
        "aws",
        "google",
        "openai",
        "azure",
        "deepseek",
        "x-ai",
    ] {
        for id in PriceBook::known_ids(provider) {
            let facts = book.model(provider, &id, NOV_29);
            let priced = book.price(provider, &answer(&id, usage(1, 1, 1, 0, 1)), None, NOV_29);
            assert_eq!(
                facts.rates.is_some(),
                reason(&priced).0 == "known",
                "{provider} {id}"
            );
        }
    }
}

const MODELS: [&str; 6] = [
    "test-sonnet",
    "claude-haiku-5-5",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-fable-5-2",
    "test-unlisted-9",
];

fn modifiers() -> impl Strategy<Value = (ServiceTier, Speed, Option<String>)> {
    (
        prop_oneof![
            Just(ServiceTier::Standard),
            Just(ServiceTier::Priority),
            Just(ServiceTier::Batch)
        ],
        prop_oneof![Just(Speed::Standard), Just(Speed::Fast)],
        prop_oneof![
            Just(None),
            Just(Some("us".to_owned())),
            Just(Some("eu".to_owned()))
        ],
    )
}

fn tokens(max: u64) -> impl Strategy<Value = Usage> {
    (0..=max, 0..=max, 0..=max, 0..=max, 0..=max).prop_map(|(a, b, c, d, e)| usage(a, b, c, d, e))
}

fn any_usage() -> impl Strategy<Value = Usage> {
    let kind = || {
        prop_oneof![
            Just(None),
            any::<u64>().prop_map(Some),
            Just(Some(u64::MAX)),
            Just(Some(0))
        ]
    };
    (kind(), kind(), kind(), kind(), kind(), kind()).prop_map(|(a, b, c, d, e, searches)| Usage {
        uncached: a,
        read: b,
        write_5m: c,
        write_1h: d,
        output: e,
        web_searches: searches,
        ..Usage::default()
    })
}

fn sum(a: &Usage, b: &Usage) -> Usage {
    let add = |a: Option<u64>, b: Option<u64>| a.unwrap() + b.unwrap();
    usage(
        add(a.uncached, b.uncached),
        add(a.read, b.read),
        add(a.write_5m, b.write_5m),
        add(a.write_1h, b.write_1h),
        add(a.output, b.output),
    )
}

proptest! {
    #[test]
    fn cost_is_additive_and_never_falls_with_more_tokens(
        a in tokens(10_000),
        b in tokens(10_000),
        (tier, speed, geo) in modifiers(),
    ) {
        let book = book();
        // Opus 5.5 has every multiplier; 80,000 tokens stay below every tier.
        let priced = |usage: Usage| {
            let turn = Metered { tier, speed, geo: geo.clone(), ..answer("claude-opus-5-5", usage) };
            book.price(P, &turn, None, NOV_29).pico().unwrap()
        };
        // All of its prices are multiples of 20 pico, so that no multiplier makes a fraction.
        prop_assert_eq!(priced(a) + priced(b), priced(sum(&a, &b)));
        prop_assert!(priced(a) <= priced(sum(&a, &b)));
    }

    #[test]
    fn without_a_cache_reads_would_have_cost_more(a in tokens(1_000_000)) {
        let book = book();
        let reads = Usage { write_5m: Some(0), write_1h: Some(0), ..a };
        let Priced::Known { pico, no_cache_pico, .. } =
            book.price(P, &answer("claude-haiku-5-5", reads), None, NOV_29) else {
            panic!("priced");
        };
        prop_assert!(pico <= no_cache_pico);
    }

    #[test]
    fn any_usage_is_survived(
        model in 0..MODELS.len(),
        other in 0..MODELS.len(),
        main in any_usage(),
        steps in proptest::collection::vec(any_usage(), 0..4),
        (tier, speed, geo) in modifiers(),
        at_ms in any::<i64>(),
    ) {
        let book = book();
        let iterations = steps
            .into_iter()
            .enumerate()
            .map(|(n, usage)| Iteration {
                kind: "message".into(),
                model: (n % 2 == 1).then(|| MODELS[other].to_owned()),
                usage,
            })
            .collect();
        let turn = Metered { tier, speed, geo, iterations, ..answer(MODELS[model], main) };
        match book.price(P, &turn, None, at_ms) {
            Priced::Known { .. } => {}
            Priced::Unpriced { reason: COST_OVERFLOW, lower_bound_pico } => {
                prop_assert!(lower_bound_pico.is_some());
            }
            Priced::Unpriced { reason, .. } => prop_assert!(!reason.is_empty()),
        }
    }
}
