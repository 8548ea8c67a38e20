//! Properties over any usage.

use proptest::prelude::*;

use super::*;
use crate::usage::price::COST_OVERFLOW;

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

/// Numbers of every size, not only huge ones.
fn any_scale() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(n, shift)| n >> shift)
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
    fn the_sum_is_the_sum(a in any_scale(), b in any_scale(), c in any_scale(), d in any_scale(), e in any_scale()) {
        // Written out anew, in 128 bits and with the prices of the cases' table.
        let wide = |tokens: u64, pico: u128| u128::from(tokens) * pico;
        let expected = wide(a, 3_000_000) + wide(b, 300_000) + wide(c, 3_750_000)
            + wide(d, 6_000_000) + wide(e, 15_000_000);
        let uncached = [a, b, c, d].map(|tokens| wide(tokens, 3_000_000)).iter().sum::<u128>() + wide(e, 15_000_000);
        match book().price(P, &answer("test-sonnet", usage(a, b, c, d, e)), None, NOV_29) {
            Priced::Known { pico, no_cache_pico, .. } => {
                prop_assert_eq!(u128::from(pico), expected);
                prop_assert_eq!(u128::from(no_cache_pico), uncached);
            }
            Priced::Unpriced { reason, lower_bound_pico } => {
                prop_assert_eq!(reason, COST_OVERFLOW);
                prop_assert!(expected.max(uncached) > u128::from(u64::MAX));
                prop_assert!(u128::from(lower_bound_pico.unwrap()) <= expected);
            }
        }
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
