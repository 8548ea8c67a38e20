use proptest::prelude::*;

use super::*;
use crate::prompt_cache::chain::Hasher;
use crate::prompt_cache::trail::Betas;
use crate::provider::wire::Wire;

fn section() -> impl Strategy<Value = Section> {
    prop_oneof![
        Just(Section::Tools),
        Just(Section::System),
        Just(Section::Messages)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let place = (section(), 0..9_u8, 0..5_u8, any::<bool>());
    (0..6_u64, any::<u32>(), place).prop_map(|(hash, len, (section, kind, role, counts))| Step {
        hash,
        len: len % 300,
        section,
        kind: kind_of(kind).unwrap(),
        role: role_of(role).unwrap(),
        counts,
    })
}

fn trail() -> impl Strategy<Value = Trail> {
    let setting = (0..NAMES.len(), section(), any::<u64>()).prop_map(|(name, from, value)| {
        let name = NAMES[name];
        Setting { name, from, value }
    });
    let mark = (any::<u32>(), 0..5_u8, any::<bool>());
    (
        prop::collection::vec(step(), 0..12),
        prop::collection::vec(setting, 0..3),
        prop::collection::vec(mark, 0..4),
        "[a-z]{0,3}",
        (0..3_u64, any::<bool>(), any::<u32>(), any::<u32>()),
    )
        .prop_map(
            |(steps, settings, marks, model, (betas, fast_beta, head, messages))| {
                let count = u32::try_from(steps.len()).unwrap();
                let marks = marks.into_iter().filter(|_| count > 0);
                Trail {
                    marks: marks
                        .map(|(at, ttl, ours)| Mark {
                            at: at % count,
                            ttl: ttl_of(ttl).unwrap(),
                            ours,
                        })
                        .collect(),
                    settings,
                    model: model.into(),
                    betas,
                    fast_beta,
                    head: head % (count + 1),
                    messages,
                    steps: steps.into(),
                }
            },
        )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(now in trail(), before in trail()) {
        let whole = encode(&now, None);
        prop_assert_eq!(decode(&whole, None), Ok(now.clone()));
        prop_assert_eq!(base(&whole), Ok(None));
        let new = encode(&now, Some(&before));
        prop_assert_eq!(decode(&new, Some(&before)), Ok(now));
        prop_assert_eq!(base(&new), Ok(Some(checksum(&before))));
    }

    #[test]
    fn a_wrong_base_is_noticed(now in trail(), before in trail(), other in trail()) {
        prop_assume!(before != other);
        let new = encode(&now, Some(&before));
        prop_assert_eq!(decode(&new, Some(&other)), Err(Reason::Base));
        prop_assert_eq!(decode(&new, None), Err(Reason::Base));
    }

    #[test]
    fn damage_is_an_error_or_another_trail_and_never_a_panic(
        now in trail(),
        before in trail(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        garbage in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        for mut bytes in [encode(&now, None), encode(&now, Some(&before))] {
            let cut = at.index(bytes.len());
            prop_assert!(decode(&bytes[..cut], Some(&before)).is_err());
            bytes[cut] = byte;
            let _ = decode(&bytes, Some(&before));
            bytes.extend(&garbage);
            let _ = decode(&bytes, Some(&before));
        }
        let mut bytes = vec![FORMAT];
        bytes.extend(garbage);
        let _ = decode(&bytes, Some(&before));
    }
}

/// A conversation of `turns` turns whose system prompt has a clock.
fn conversation(turns: usize, clock: &str) -> Trail {
    let mut messages = vec![r#"{"role":"user","content":"begin"}"#.to_owned()];
    for turn in 0..turns {
        messages.push(format!(r#"{{"role":"assistant","content":"a{turn}"}}"#));
        messages.push(format!(r#"{{"role":"user","content":"u{turn}"}}"#));
    }
    let body = format!(
        r#"{{"model":"m","system":"It is {clock}.","messages":[{}]}}"#,
        messages.join(",")
    );
    of_body(&body)
}

fn of_body(body: &str) -> Trail {
    of_wire(Wire::Messages, body)
}

fn of_wire(wire: Wire, body: &str) -> Trail {
    let hasher = Hasher::new([7; 32]);
    let view = wire.view(body.as_bytes()).unwrap();
    let chain = hasher.chain(body.as_bytes(), &view, b"scope");
    let marks = Vec::new();
    Trail::new(
        &hasher,
        body.as_bytes(),
        &view,
        &chain,
        Betas::default(),
        marks,
    )
}

#[test]
fn a_turn_costs_what_is_new_in_it() {
    let before = conversation(300, "12:00");
    let whole = encode(&before, None).len();
    assert!(whole > 600 * STEP_BYTES, "{whole}");
    let grown = encode(&conversation(301, "12:00"), Some(&before)).len();
    assert!(grown < 60, "{grown}");
    let clock = encode(&conversation(301, "12:01"), Some(&before)).len();
    assert!(
        clock < 80,
        "{clock}: what stands behind a change is copied too"
    );
}

#[test]
fn every_setting_of_a_request_has_a_code() {
    let body = r#"{"model":"m","speed":"fast","tool_choice":{"type":"any"},
        "thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"low"},
        "messages":[{"role":"user","content":[
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"aa"}},
            {"type":"document","citations":{"enabled":true},"source":{"type":"text","data":"x"}}]}]}"#;
    let chat = r#"{"model":"m","prompt_cache_key":"k","service_tier":"flex","verbosity":"low",
        "response_format":{"type":"json_object"},"reasoning_effort":"low","messages":[]}"#;
    let responses = r#"{"model":"m","prompt":{"id":"p"},"prompt_cache_key":"k","service_tier":"flex",
        "text":{"format":{"type":"json_object"},"verbosity":"low"},"reasoning":{"effort":"low"},"input":[]}"#;
    let mut named = std::collections::BTreeSet::new();
    for (wire, body) in [
        (Wire::Messages, body),
        (Wire::Chat, chat),
        (Wire::Responses, responses),
    ] {
        let trail = of_wire(wire, body);
        for setting in &trail.settings {
            let name = setting.name;
            assert_ne!(name_code(name), 0, "append `{name}` to NAMES");
            named.insert(name);
        }
        assert_eq!(decode(&encode(&trail, None), None), Ok(trail));
    }
    assert_eq!(named, NAMES.into_iter().collect());
}

#[test]
fn sizes_that_lie_take_no_memory() {
    let mut bytes = vec![FORMAT, MODEL | SETTINGS | BETAS, 0, 0];
    bytes.extend([0; 8]);
    bytes.extend([0, 0]);
    number(&mut bytes, u64::from(u32::MAX));
    assert_eq!(decode(&bytes, None), Err(Reason::Damaged));
    assert_eq!(decode(&[], None), Err(Reason::Empty));
    assert_eq!(decode(&[9, 0], None), Err(Reason::Format));
}
