//! Names, overrides and what is remembered.

use std::sync::Arc;

use super::*;

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
