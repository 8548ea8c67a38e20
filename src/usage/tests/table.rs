//! The providers' tables, row by row.

use super::*;
use crate::usage::price::{NO_FAST_PRICE, NO_TIER_PRICE};

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
    // Thirty minutes cost 1.25 of the input, twelve hours twice that; both in dearer tiers too.
    let long = |short, long, uncached| {
        let usage = Usage {
            uncached: Some(uncached),
            read: Some(0),
            write_30m: Some(short),
            write_12h: Some(long),
            output: Some(0),
            ..Usage::default()
        };
        priced(&answer("gpt-6-sol", usage)).pico().map(usd)
    };
    assert_eq!(long(1000, 0, 0).as_deref(), Some("0.0025"));
    assert_eq!(long(0, 1000, 0).as_deref(), Some("0.005"));
    assert_eq!(long(0, 1000, 272_000).as_deref(), Some("1.098"));
    turn = answer("gpt-6-sol", usage(1000, 0, 0, 0, 0));
    for (tier, cost) in [
        (ServiceTier::Flex, "0.001"),
        (ServiceTier::Ultrafast, "0.012"),
    ] {
        turn.tier = tier;
        assert_eq!(priced(&turn).pico().map(usd).as_deref(), Some(cost));
    }
    // Elsewhere nobody has such a rule.
    let hour = answer("gpt-6-sol", usage(0, 0, 0, 1000, 0));
    let elsewhere = book.price("openrouter", &hour, None, NOV_29);
    assert!(elsewhere.pico().is_none(), "{elsewhere:?}");
}
