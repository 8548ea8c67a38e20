//! What real agents make of caps and of stopped loops: one refused request, a text that their user
//! sees, and an exit code that a script sees.

use serde_json::Value;

use super::clients::{Outcome, Sdk, claude_code};
use super::world::{Finished, Gateway};
use super::{Exchange, Message, path};

const SESSION: &str = "5e0f2f0a-6d5d-4b7e-9d35-0c6c1e0a00a1";
const STEPS: &str = "Please do the test steps. [[plan:shell_ok,shell_ok,shell_ok,shell_ok,end]]";
/// A model that does not learn: six times the same failing call, then an end.
const STUCK: &str = "Please do the test steps. \
                     [[plan:same_fail,same_fail,same_fail,same_fail,same_fail,same_fail,end]]";

fn turns(exchanges: &[Exchange]) -> Vec<&Exchange> {
    exchanges
        .iter()
        .filter(|e| e.request.method() == "POST" && path(&e.request) == "/v1/messages")
        .collect()
}

/// Requests of the client, and those of them that reached the provider.
fn counts(finished: &Finished) -> (usize, usize) {
    let front = finished.front().exchanges();
    let back = finished.back().exchanges();
    (turns(&front).len(), turns(&back).len())
}

fn refused(finished: &Finished) -> Vec<String> {
    let front = finished.front().exchanges();
    turns(&front)
        .iter()
        .filter_map(|e| e.response.as_ref())
        .filter(|answer| answer.status() == 400)
        .map(|answer: &Message| String::from_utf8_lossy(&answer.body).into_owned())
        .collect()
}

async fn claude(config: &str, prompt: &str) -> (Finished, Outcome) {
    let gateway = Gateway::start("fill", Some(config)).await;
    let outcome = claude_code(&gateway.front.url(), SESSION, prompt).await;
    (gateway.finish().await, outcome)
}

async fn sdk(sdk: Sdk, config: &str, mode: &str, prompt: &str) -> (Finished, Outcome) {
    let gateway = Gateway::start("fill", Some(config)).await;
    let url = format!("{}/-/run=guarded", gateway.front.url());
    let outcome = sdk.run(&url, mode, prompt).await;
    (gateway.finish().await, outcome)
}

fn result(outcome: &Outcome) -> String {
    outcome.said["result"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn claude_code_stops_at_a_cap_after_one_refusal() {
    let (finished, outcome) = claude("[caps.run]\nturns = 2\n", STEPS).await;
    assert_eq!(counts(&finished), (3, 2), "{}", finished.story());
    assert_eq!(refused(&finished).len(), 1);
    assert_eq!(outcome.code, Some(1), "{outcome:#?}");
    assert_eq!(outcome.said["is_error"], true);
    let text = result(&outcome);
    for part in ["cap reached", "turns", SESSION, "2 of 2", "caps.run.turns"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn sdks_stop_at_a_cap_after_one_refusal() {
    for of in [Sdk::Python, Sdk::TypeScript] {
        for mode in ["create", "stream", "tools"] {
            let (finished, outcome) = sdk(of, "[caps.run]\nturns = 2\n", mode, STEPS).await;
            assert_eq!(
                counts(&finished),
                (3, 2),
                "{of:?} {mode} {}",
                finished.story()
            );
            assert_eq!(outcome.code, Some(1));
            let error = &outcome.said["error"];
            assert_eq!(error["status"], 400, "{of:?} {mode}: {outcome:#?}");
            assert_eq!(error["body"]["type"], "billing_error");
            let text = error["body"]["message"].as_str().unwrap();
            assert!(
                text.contains("run guarded") && text.contains("caps.run.turns"),
                "{text}"
            );
            assert_eq!(outcome.said["answers"].as_array().unwrap().len(), 2);
        }
    }
}

#[tokio::test]
async fn claude_code_in_a_loop_is_hinted_stopped_or_answered() {
    let (finished, outcome) = claude("[loops]\naction = \"hint\"\n", STUCK).await;
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    assert_eq!(counts(&finished), (7, 7));
    let back = finished.back().exchanges();
    let told: Vec<usize> = turns(&back)
        .iter()
        .map(|e| {
            String::from_utf8_lossy(&e.request.body)
                .matches("[prefixgate]")
                .count()
        })
        .collect();
    assert_eq!(told, [0, 0, 0, 1, 2, 3, 4]);
    let turns_of = finished.turns(SESSION).await;
    for later in &turns_of[1..] {
        // The cache holds over the hints.
        assert!(super::ratio(later) > 0.9, "{later:#}");
    }

    let (finished, outcome) = claude("[loops]\naction = \"block\"\n", STUCK).await;
    assert_eq!(outcome.code, Some(1), "{outcome:#?}");
    assert_eq!(counts(&finished), (4, 3), "{}", finished.story());
    let text = result(&outcome);
    assert!(
        text.contains("loop stopped") && text.contains("3 times"),
        "{text}"
    );

    let (finished, outcome) = claude("[loops]\naction = \"answer\"\n", STUCK).await;
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    assert_eq!(outcome.said["is_error"], false);
    assert_eq!(counts(&finished), (4, 3), "{}", finished.story());
    let text = result(&outcome);
    assert!(
        text.contains("ended by the gateway") && text.contains("3 times"),
        "{text}"
    );
}

/// The tool runner sends only what is new: the history is the provider's.
#[tokio::test]
async fn the_python_tool_runner_in_a_loop_is_hinted_stopped_or_answered() {
    for mode in ["tools", "tools_stream"] {
        let (finished, outcome) =
            sdk(Sdk::Python, "[loops]\naction = \"hint\"\n", mode, STUCK).await;
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        assert_eq!(counts(&finished), (7, 7), "{}", finished.story());
        let back = finished.back().exchanges();
        let continued = turns(&back)
            .iter()
            .filter(|e| String::from_utf8_lossy(&e.request.body).contains("previous_message_id"))
            .count();
        assert_eq!(continued, 6);
        let told: Vec<usize> = turns(&back)
            .iter()
            .map(|e| {
                String::from_utf8_lossy(&e.request.body)
                    .matches("[prefixgate]")
                    .count()
            })
            .collect();
        assert_eq!(told, [0, 0, 0, 1, 1, 1, 1]);

        let (finished, outcome) =
            sdk(Sdk::Python, "[loops]\naction = \"block\"\n", mode, STUCK).await;
        assert_eq!(outcome.code, Some(1), "{outcome:#?}");
        assert_eq!(counts(&finished), (4, 3));
        let error = &outcome.said["error"];
        assert_eq!(error["body"]["type"], "billing_error");
        assert!(
            error["body"]["message"]
                .as_str()
                .unwrap()
                .contains("loop stopped")
        );

        let (finished, outcome) =
            sdk(Sdk::Python, "[loops]\naction = \"answer\"\n", mode, STUCK).await;
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        assert_eq!(counts(&finished), (4, 3));
        let answers = outcome.said["answers"].as_array().unwrap();
        let last: &Value = answers.last().unwrap();
        assert_eq!(last["stop_reason"], "end_turn");
        assert!(
            last["text"]
                .as_str()
                .unwrap()
                .contains("ended by the gateway")
        );
    }
}
