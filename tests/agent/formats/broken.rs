//! Streams that fail in the middle, in all formats: by the provider's word, or by the connection.

use std::time::Duration;

use prefixgate::agent::model::{Ask, Attempt, Failure};
use prefixgate::agent::talk::Entry;
use prefixgate::provider::wire::Wire;
use prefixgate::sim::{Fault, Options, Sim};

use super::support::{FORMATS, SSE_HEAD, Step, chunk, endpoint, setup};

/// The beginning of a stream, then a reset once it has been read.
pub fn resetting(events: &str) -> Vec<Step> {
    let mut bytes = SSE_HEAD.to_vec();
    bytes.extend(chunk(events.as_bytes()));
    vec![
        Step::Write(bytes),
        Step::Pause(Duration::from_millis(50)),
        Step::Reset,
    ]
}

/// Asks the simulated provider for a text and a call, with a failure inside.
async fn ask(wire: Wire, model: &str, fault: Fault, silence: Duration) -> Result<(), Attempt> {
    let sim = Sim::start(Options {
        fault,
        ..Options::default()
    })
    .unwrap();
    let mut endpoint = endpoint(wire, &sim.base_url());
    endpoint.silence = silence;
    let setup = setup(wire, model);
    let entries = [Entry::User {
        results: Vec::new(),
        texts: vec!["[[plan:shell_ok,end]]".to_owned()],
    }];
    let body = endpoint.format.request(&Ask {
        setup: &setup,
        entries: &entries,
        aside: None,
        max_tokens: 1000,
    });
    let reply = endpoint.ask(model, body, &Vec::new(), &mut |_| {}).await;
    reply.map(|reply| assert_eq!(reply.whole.answer.calls().count(), 1, "{wire:?}"))
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn errors_inside_streams_are_told_by_whether_asking_again_helps() {
    for (kind, again, word) in [
        ("sse_overloaded", true, "verloaded"),
        ("sse_api_error", true, "error"),
        ("sse_rate_limit", true, "rate_limit"),
        ("sse_invalid", false, "invalid"),
        ("sse_permission", false, "permission"),
    ] {
        for (wire, model) in FORMATS {
            let fault = Fault {
                inject: Some(kind.to_owned()),
                ..Fault::default()
            };
            let attempt = ask(wire, model, fault, LONG).await.unwrap_err();
            let expected = if again {
                Failure::Again(None)
            } else {
                Failure::Final
            };
            assert_eq!(attempt.failure, expected, "{wire:?} {kind}: {attempt}");
            assert!(attempt.reason.contains(word), "{wire:?} {kind}: {attempt}");
            assert!(attempt.reason.contains("gave the answer up"), "{attempt}");
        }
    }
}

#[tokio::test]
async fn cut_and_silent_streams_are_asked_for_again_and_keep_what_they_cost() {
    for (wire, model) in FORMATS {
        for (kind, word) in [
            ("drop", "broke off"),
            ("cut", "broke off"),
            ("stall", "silent"),
        ] {
            let fault = Fault {
                inject: Some(kind.to_owned()),
                ..Fault::default()
            };
            let silence = if kind == "stall" {
                Duration::from_millis(300)
            } else {
                LONG
            };
            let attempt = ask(wire, model, fault, silence).await.unwrap_err();
            assert_eq!(attempt.failure, Failure::Again(None), "{wire:?} {kind}");
            assert!(attempt.reason.contains(word), "{wire:?} {kind}: {attempt}");
            // Only Messages tells the prompt at the beginning.
            let known = attempt.bill.usage.prompt().is_some();
            assert_eq!(known, wire == Wire::Messages, "{wire:?} {kind}");
            assert_eq!(attempt.bill.pico.is_some(), known);
        }
    }
}

#[tokio::test]
async fn no_head_and_no_connection_are_asked_for_again() {
    for (kind, word) in [("stall0", "silent"), ("drop0", "cannot be reached")] {
        let fault = Fault {
            inject: Some(kind.to_owned()),
            ..Fault::default()
        };
        let silence = Duration::from_millis(300);
        let attempt = ask(Wire::Messages, "claude-sonnet-5", fault, silence)
            .await
            .unwrap_err();
        assert_eq!(attempt.failure, Failure::Again(None));
        assert!(attempt.reason.contains(word), "{attempt}");
    }
    let endpoint = endpoint(Wire::Chat, "http://127.0.0.1:1");
    let attempt = endpoint
        .ask("m", Vec::new(), &Vec::new(), &mut |_| {})
        .await
        .unwrap_err();
    assert!(
        attempt
            .reason
            .contains("http://127.0.0.1:1 cannot be reached"),
        "{attempt}"
    );
}

#[tokio::test]
async fn an_answer_that_comes_encoded_all_the_same_is_read() {
    let gzip = |kind: &str| Fault {
        inject: Some(kind.to_owned()),
        ..Fault::default()
    };
    for (wire, model) in FORMATS {
        ask(wire, model, gzip("gzip"), LONG).await.unwrap();
        let attempt = ask(wire, model, gzip("gzip_bad"), LONG).await.unwrap_err();
        assert_eq!(attempt.failure, Failure::Again(None), "{wire:?}: {attempt}");
    }
}

#[tokio::test]
async fn characters_split_over_writes_are_read() {
    for (wire, model) in FORMATS {
        let fault = Fault {
            split: Some(1),
            ..Fault::default()
        };
        ask(wire, model, fault, LONG).await.unwrap();
    }
}
