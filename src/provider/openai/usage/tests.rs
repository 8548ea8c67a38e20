use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const OPENAI: Counting = Counting {
    cached_beside: false,
    reasoning_beside: false,
    absent_is_none: false,
    writes: Ttl::M30,
};

fn read_all(usages: &[Value], counting: Counting, ttl: Option<Ttl>) -> (Answer, bool) {
    let mut meter = Meter::default();
    for usage in usages {
        meter.take(serde_json::from_value(usage.clone()).unwrap_or_else(|_| {
            // A raw value inside cannot be read from a tree.
            serde_json::from_str(&usage.to_string()).unwrap()
        }));
    }
    let mut answer = Answer::default();
    let warning = meter.read_out(&mut answer, counting, ttl);
    assert!(warning.is_none_or(|w| w == INCONSISTENT));
    (answer, warning.is_some())
}

fn usage(usage: Value) -> Usage {
    let (answer, inconsistent) = read_all(&[usage], OPENAI, Some(Ttl::M5));
    assert!(!inconsistent);
    answer.metered.usage
}

fn kinds(usage: &Usage) -> [Option<u64>; 4] {
    [usage.uncached, usage.read, usage.written(), usage.output]
}

/// C01 (2): the cached tokens are part of the prompt and counted once.
#[test]
fn c01_cached_tokens_are_taken_out_of_the_prompt() {
    let chat = usage(json!({
        "prompt_tokens": 51_012, "prompt_tokens_details": {"cached_tokens": 50_000},
        "completion_tokens": 200, "total_tokens": 51_212,
    }));
    assert_eq!(kinds(&chat), [Some(1012), Some(50_000), Some(0), Some(200)]);
    assert_eq!(chat.prompt(), Some(51_012));
    let responses = usage(json!({
        "input_tokens": 51_012, "input_tokens_details": {"cached_tokens": 50_000},
        "output_tokens": 200, "output_tokens_details": {"reasoning_tokens": 128},
    }));
    assert_eq!(kinds(&responses), kinds(&chat));
    assert_eq!(responses.reasoning, Some(128));
}

#[test]
fn writes_are_split_as_told_or_by_what_was_asked_for() {
    let of = |details: Value, counting, ttl| {
        let usage = json!({"prompt_tokens": 5000, "completion_tokens": 1,
            "prompt_tokens_details": details});
        let (answer, inconsistent) = read_all(&[usage], counting, ttl);
        assert!(!inconsistent);
        let usage = answer.metered.usage;
        assert_eq!(usage.uncached, Some(1000));
        (
            [
                usage.write_5m,
                usage.write_1h,
                usage.write_30m,
                usage.write_12h,
            ],
            usage.split_inferred,
        )
    };
    let told = json!({"cached_tokens": 1000, "cache_write_tokens": 3000,
        "cache_write_tokens_details": {"ttl_30m_tokens": 2000, "ttl_12h_tokens": 1000}});
    assert_eq!(
        of(told, OPENAI, Some(Ttl::M30)),
        ([None, None, Some(2000), Some(1000)], false)
    );
    let half = json!({"cached_tokens": 1000, "cache_write_tokens": 3000,
        "cache_write_tokens_details": {"ttl_12h_tokens": 1000}});
    assert_eq!(
        of(half, OPENAI, None),
        ([None, None, Some(2000), Some(1000)], false)
    );
    let sum = json!({"cached_tokens": 1000, "cache_write_tokens": 3000});
    for (ttl, expected) in [
        (None, [None, None, Some(3000), Some(0)]),
        (Some(Ttl::M5), [None, None, Some(3000), Some(0)]),
        (Some(Ttl::M30), [None, None, Some(3000), Some(0)]),
        (Some(Ttl::H1), [None, None, Some(0), Some(3000)]),
        (Some(Ttl::H12), [None, None, Some(0), Some(3000)]),
    ] {
        assert_eq!(of(sum.clone(), OPENAI, ttl), (expected, true), "{ttl:?}");
    }
    let minutes = Counting {
        writes: Ttl::M5,
        ..OPENAI
    };
    assert_eq!(
        of(sum.clone(), minutes, Some(Ttl::H1)),
        ([Some(0), Some(3000), None, None], true)
    );
    assert_eq!(
        of(sum, minutes, None),
        ([Some(3000), Some(0), None, None], true)
    );
}

/// What is absent is unknown, except writes; the size of the prompt is known all the same.
#[test]
fn an_absent_count_of_cached_tokens_is_unknown() {
    for details in [
        json!(null),
        json!({}),
        json!({"cached_tokens": null}),
        json!(7),
    ] {
        let said = json!({"prompt_tokens": 2000, "completion_tokens": 5,
            "prompt_tokens_details": details});
        let (answer, inconsistent) = read_all(std::slice::from_ref(&said), OPENAI, None);
        assert!(!inconsistent);
        assert_eq!(kinds(&answer.metered.usage), [None, None, Some(0), Some(5)]);
        assert_eq!(answer.prompt_tokens, Some(2000));
        let counting = Counting {
            absent_is_none: true,
            ..OPENAI
        };
        let (answer, _) = read_all(&[said], counting, None);
        assert_eq!(
            kinds(&answer.metered.usage),
            [Some(2000), Some(0), Some(0), Some(5)]
        );
    }
    // A reported miss is a zero.
    let miss = usage(json!({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}));
    assert_eq!(kinds(&miss), [Some(9), Some(0), Some(0), None]);
    assert_eq!(usage(json!({})), Usage::default());
    assert_eq!(usage(json!({"completion_tokens": 3})).written(), None);
}

#[test]
fn other_places_of_the_cached_tokens() {
    for (beside, read) in [
        (
            json!({"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}),
            64,
        ),
        (json!({"cached_tokens": 64}), 64),
        (json!({"cache_read_input_tokens": 64}), 64),
        (
            json!({"cached_tokens": 1, "prompt_tokens_details": {"cached_tokens": 64}}),
            64,
        ),
    ] {
        let mut said = beside;
        said["prompt_tokens"] = 100.into();
        let usage = usage(said);
        assert_eq!((usage.read, usage.uncached), (Some(read), Some(100 - read)));
    }
    let written = usage(json!({"prompt_tokens": 100, "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 40}));
    assert_eq!(kinds(&written), [Some(50), Some(10), Some(40), None]);
}

#[test]
fn counts_that_contradict_each_other_are_unknown_and_warned_of() {
    for said in [
        json!({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}}),
        json!({"prompt_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 5}}),
        json!({"prompt_tokens": 10, "prompt_tokens_details": {"cache_write_tokens": 11}}),
        json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 6,
            "cache_write_tokens": 5,
            "cache_write_tokens_details": {"ttl_30m_tokens": 5, "ttl_12h_tokens": 1}}}),
        json!({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 1,
            "cache_write_tokens_details":
                {"ttl_30m_tokens": u64::MAX, "ttl_12h_tokens": u64::MAX}}}),
    ] {
        let (answer, inconsistent) = read_all(std::slice::from_ref(&said), OPENAI, None);
        assert!(inconsistent, "{said}");
        assert_eq!(answer.metered.usage.inputs(), [None; 6], "{said}");
        assert!(answer.prompt_tokens.is_some());
    }
    let (answer, inconsistent) = read_all(
        &[json!({"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 6}})],
        OPENAI,
        None,
    );
    assert!(inconsistent);
    assert_eq!(answer.metered.usage.output, Some(5));
    assert_eq!(answer.metered.usage.reasoning, None);
}

#[test]
fn counts_beside_are_added() {
    let counting = Counting {
        cached_beside: true,
        reasoning_beside: true,
        ..OPENAI
    };
    let said = json!({"prompt_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 50_000, "cache_write_tokens": 1000},
        "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 300}});
    let (answer, inconsistent) = read_all(&[said], counting, None);
    assert!(!inconsistent);
    let usage = answer.metered.usage;
    assert_eq!(
        kinds(&usage),
        [Some(12), Some(50_000), Some(1000), Some(320)]
    );
    assert_eq!(usage.reasoning, Some(300));
    assert_eq!(answer.prompt_tokens, Some(51_012));
}

/// Running totals: nothing is added up, and a field that a later object lacks stays.
#[test]
fn the_last_value_of_every_field_counts() {
    let said = |output: u64, details: Value| json!({"prompt_tokens": 100, "completion_tokens": output, "prompt_tokens_details": details});
    let (answer, _) = read_all(
        &[
            said(1, json!({"cached_tokens": 64})),
            said(2, json!(null)),
            said(7, json!(null)),
        ],
        OPENAI,
        None,
    );
    assert_eq!(
        kinds(&answer.metered.usage),
        [Some(36), Some(64), Some(0), Some(7)]
    );
}

fn count() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0_u64..2000).prop_map(Value::from),
        Just(Value::Null),
        Just(json!(u64::MAX)),
        Just(json!("x")),
    ]
}

proptest! {
    /// Whatever is said: the kinds make up the prompt, reasoning is a part of the output, and all
    /// or nothing is said of the writes.
    #[test]
    fn kinds_never_overlap(
        (prompt, cached, written, m30, h12) in (count(), count(), count(), count(), count()),
        (output, reasoning) in (count(), count()),
        (cached_beside, reasoning_beside, absent_is_none) in any::<(bool, bool, bool)>(),
        (writes, ttl) in (0_usize..4, 0_usize..5),
    ) {
        let counting = Counting { cached_beside, reasoning_beside, absent_is_none,
            writes: Ttl::ALL[writes] };
        let said = json!({"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached,
            "cache_write_tokens": written,
            "cache_write_tokens_details": {"ttl_30m_tokens": m30, "ttl_12h_tokens": h12}},
            "completion_tokens": output,
            "completion_tokens_details": {"reasoning_tokens": reasoning}});
        let (answer, inconsistent) =
            read_all(std::slice::from_ref(&said), counting, Ttl::ALL.get(ttl).copied());
        let usage = answer.metered.usage;
        if let Some(sum) = usage.prompt() {
            prop_assert_eq!(Some(sum), answer.prompt_tokens);
            if !cached_beside {
                prop_assert_eq!(Some(sum), prompt.as_u64());
            }
        }
        if let (Some(reasoning), Some(output)) = (usage.reasoning, usage.output) {
            prop_assert!(reasoning <= output);
        }
        prop_assert_eq!(usage.write_5m.is_some(), usage.write_1h.is_some());
        prop_assert_eq!(usage.write_30m.is_some(), usage.write_12h.is_some());
        prop_assert!(usage.write_5m.is_none() || usage.write_30m.is_none());
        if !inconsistent {
            prop_assert_eq!(usage.written().is_some(), prompt.is_u64());
            prop_assert_eq!(usage.output.is_some(), output.is_u64());
        }
    }
}
