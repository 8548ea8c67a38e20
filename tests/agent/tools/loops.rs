//! What of calls arrives in the conversation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prefixgate::agent::machine::Outcome;
use prefixgate::agent::talk::Entry;
use prefixgate::agent::tools::{Manners, Tool, ToolError, raw};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::model::{Canned, Origin, agent};
use super::toolbox;

const ANY: &str = r#"{"type": "object"}"#;

fn uses(id: &str, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

fn done() -> Canned {
    Canned::says(json!([{"type": "text", "text": "done"}]))
}

/// The content of the last message of a request.
fn last(origin: &Origin, request: usize) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&origin.requests()[request].body).unwrap();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["role"], "user");
    last["content"].as_array().unwrap().clone()
}

/// The text of a result, whichever way the format writes it.
fn text(result: &Value) -> String {
    match &result["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{result}"))
            .to_owned(),
    }
}

fn three_tools(limit: Duration) -> Vec<Arc<dyn Tool>> {
    vec![
        raw("a", "", ANY, Manners::READS, |_, _| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok("intact".to_owned())
        }),
        raw("b", "", ANY, Manners::READS.within(limit), |_, _| {
            std::future::pending()
        }),
        raw("c", "", ANY, Manners::READS, |_, _| async {
            Err(ToolError::failed("not_found", "there is none"))
        }),
    ]
}

fn three_calls() -> Canned {
    Canned::says(json!([
        uses("1", "a", json!({})),
        uses("2", "b", json!({})),
        uses("3", "c", json!({}))
    ]))
}

#[tokio::test]
async fn f08_the_next_request_has_all_three_results_in_the_order_of_the_calls() {
    let origin = Origin::start(vec![three_calls(), done()]).await;
    let tools = toolbox(three_tools(Duration::from_secs(1)));
    let begun = Instant::now();
    let outcome = agent(&origin, tools, CancellationToken::new())
        .go()
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::EndTurn);
    assert!(begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(4));
    let results = last(&origin, 1);
    let ids: Vec<&str> = results
        .iter()
        .map(|r| r["tool_use_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["1", "2", "3"]);
    assert_eq!(text(&results[0]), "intact");
    assert_ne!(results[0]["is_error"], true);
    assert_eq!(results[1]["is_error"], true);
    assert!(text(&results[1]).contains("timed out after 1 s, outcome unknown"));
    assert_eq!(results[2]["is_error"], true);
}

#[tokio::test]
async fn f08_cancelled_in_the_middle_of_a_batch_the_loop_ends_within_200_ms_with_a_legal_history() {
    let origin = Origin::start(vec![three_calls()]).await;
    let tools = toolbox(three_tools(Duration::from_secs(60)));
    let cancelled = CancellationToken::new();
    let mut agent = agent(&origin, tools, cancelled.clone());
    let when = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&when);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        *noted.lock().unwrap() = Some(Instant::now());
        cancelled.cancel();
    });
    assert_eq!(agent.go().await.unwrap(), Outcome::Cancelled);
    let when = when.lock().unwrap().unwrap();
    assert!(
        when.elapsed() < Duration::from_millis(200),
        "{:?}",
        when.elapsed()
    );
    let entries = agent.run().entries();
    let Some(Entry::User { results, .. }) = entries.last() else {
        panic!("every call is answered: {entries:?}");
    };
    let answers: Vec<(&str, bool)> = results
        .iter()
        .map(|result| (result.call.as_str(), result.is_error))
        .collect();
    assert_eq!(answers, [("1", false), ("2", true), ("3", true)]);
    assert!(results[1].text.contains("cancelled"));
}

#[tokio::test]
async fn f15_bad_calls_are_answered_in_the_conversation_and_the_loop_lives() {
    let schema =
        r#"{"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}"#;
    let search = raw("search", "", schema, Manners::READS, |_, _| async {
        Ok("found".to_owned())
    });
    let boom = raw("boom", "", ANY, Manners::READS, |_, context| async move {
        assert!(context.key.is_empty(), "always broken");
        Ok(String::new())
    });
    let calls = json!([
        uses("1", "serch", json!({"q": "x"})),
        uses("2", "search", json!({"q": 5})),
        uses("3", "boom", json!({})),
        uses("4", "search", json!({"q": "x"})),
    ]);
    let origin = Origin::start(vec![Canned::says(calls), done()]).await;
    let outcome = agent(&origin, toolbox([search, boom]), CancellationToken::new())
        .go()
        .await;
    assert_eq!(outcome.unwrap(), Outcome::EndTurn);
    let results = last(&origin, 1);
    let told = |at: usize| -> Value {
        assert_eq!(results[at]["is_error"], true);
        serde_json::from_str(&text(&results[at])).unwrap()
    };
    assert_eq!(
        told(0)["hint"],
        "the tools are, nearest first: search, boom"
    );
    assert_eq!(
        told(1)["violations"],
        json!([{"path": "/q", "expected": "string", "got": "number 5"}])
    );
    assert_eq!(told(2)["kind"], "panic");
    assert_eq!(text(&results[3]), "found");
}

/// Their results could not be told apart, so none of the two is made: the answer is given up, paid
/// for, and asked for again.
#[tokio::test]
async fn f15_an_answer_with_one_id_for_two_calls_is_refused_cleanly() {
    let made = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&made);
    let echo = raw("echo", "", ANY, Manners::READS, move |_, _| {
        counts.fetch_add(1, Ordering::SeqCst);
        async { Ok(String::new()) }
    });
    let calls = json!([
        uses("1", "echo", json!({"say": "first"})),
        uses("1", "echo", json!({"say": "second"})),
    ]);
    let origin = Origin::start(vec![Canned::says(calls), done()]).await;
    let mut agent = agent(&origin, toolbox([echo]), CancellationToken::new());
    assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);
    assert_eq!(made.load(Ordering::SeqCst), 0);
    let [first, again] = origin.requests().try_into().ok().unwrap();
    assert_eq!(first.body, again.body);
    assert_eq!(
        agent.run().spent().tokens(),
        2 * 15,
        "both answers are paid for"
    );
}

#[tokio::test]
async fn an_exception_ends_the_run_and_its_call_is_answered_all_the_same() {
    let pay = raw("pay", "", ANY, Manners::READS, |_, _| async {
        Err(ToolError::Exception(
            "the credential has expired".to_owned(),
        ))
    });
    let origin = Origin::start(vec![Canned::says(json!([uses("1", "pay", json!({}))]))]).await;
    let mut agent = agent(&origin, toolbox([pay]), CancellationToken::new());
    let outcome = agent.go().await.unwrap();
    assert_eq!(
        outcome,
        Outcome::ToolException("the credential has expired".to_owned())
    );
    let entries = agent.run().entries();
    assert!(matches!(entries.last(), Some(Entry::User { results, .. }) if results.len() == 1));
}
