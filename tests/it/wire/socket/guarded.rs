//! What is refused or answered in the model's place, and goes nowhere.

use super::*;

#[tokio::test]
async fn a_cap_refuses_the_third_request_and_the_connection_goes_on() {
    let bench = Bench::new("[caps.run]\nturns = 2\n");
    let mut line = Line::open(&bench.gateway).await;
    for words in ["one", "two"] {
        assert_eq!(line.end(&create(words)).await["type"], "response.completed");
    }
    let event = line.end(&with(create("three"), "stream_id", "l")).await;
    let text = refused(&event, 400, "billing_error");
    assert!(
        text.contains("cap reached: turns of run r") && text.contains("caps.run.turns"),
        "{text}"
    );
    assert_eq!(
        (&event["error"]["code"], &event["stream_id"]),
        (&json!("cap_reached"), &json!("l"))
    );
    assert_eq!(event["error"]["headers"]["x-should-retry"], "false");
    // What is no request still passes.
    let steer = json!({"type": "response.steer", "previous_response_id": "x", "input": "y"});
    line.send(&steer).await;
    assert_eq!(line.next().await.unwrap()["type"], "response.steer.failed");
    assert_eq!(bench.asked().len(), 2);
    let turns = bench.gateway.turns_of("r", 3).await;
    assert_eq!(
        (&turns[2]["outcome"], &turns[2]["status"]),
        (&json!("refused"), &json!(400))
    );
    assert_eq!(
        (&turns[2]["guard"]["cap"], &turns[2]["cost_usd"]),
        (&json!("turns"), &Value::Null)
    );
}

#[tokio::test]
async fn a_refusal_has_its_turn_in_its_lane() {
    let options = Options {
        head_delay: Duration::from_millis(200),
        ..Options::default()
    };
    let bench = Bench::with(options, "[caps.run]\nturns = 1\n");
    let mut line = Line::open(&bench.gateway).await;
    line.send(&create("one")).await;
    line.send(&create("two")).await;
    line.send(&with(create("three"), "stream_id", "other"))
        .await;
    // Nothing is owed on the other lane.
    let other = line.next().await.unwrap();
    refused(&other, 400, "billing_error");
    assert_eq!(other["stream_id"], "other");
    assert_eq!(
        line.answer().await.last().unwrap()["type"],
        "response.completed"
    );
    refused(&line.next().await.unwrap(), 400, "billing_error");
}

/// A history in which the same call failed three times.
fn looping() -> Value {
    let mut input = vec![json!({"role": "user", "content": "read it"})];
    for n in 0..3 {
        input.push(json!({"type": "function_call", "call_id": format!("c{n}"), "name": "read_file", "arguments": "{\"path\":\"/nope\"}"}));
        input.push(json!({"type": "function_call_output", "call_id": format!("c{n}"), "output": "Error: ENOENT: /nope"}));
    }
    with(create(""), "input", input)
}

#[tokio::test]
async fn a_loop_is_blocked() {
    let bench = Bench::new("[loops]\naction = \"block\"\n");
    let mut line = Line::open(&bench.gateway).await;
    let text = refused(&line.end(&looping()).await, 400, "billing_error");
    assert!(
        text.contains("loop stopped") && text.contains("`read_file`"),
        "{text}"
    );
    assert!(bench.asked().is_empty());
    let turns = bench.gateway.turns_of("r", 1).await;
    assert_eq!(
        (&turns[0]["outcome"], &turns[0]["guard"]["action"]),
        (&json!("refused"), &json!("block"))
    );
    assert_eq!(line.end(&create("x")).await["type"], "response.completed");
}

#[tokio::test]
async fn a_loop_in_what_the_connection_remembers_is_seen() {
    let bench = Bench::new("[loops]\naction = \"block\"\n");
    let mut line = Line::open(&bench.gateway).await;
    let mut input = looping()["input"].as_array().unwrap().clone();
    let last = input.split_off(5);
    let first = line.end(&with(create(""), "input", input)).await;
    assert_eq!(first["type"], "response.completed", "{first}");
    // Nothing was stored, and the history is held by the connection.
    let next = with(
        with(create(""), "input", last),
        "previous_response_id",
        first["response"]["id"].clone(),
    );
    refused(&line.end(&next).await, 400, "billing_error");
}

#[tokio::test]
async fn an_answer_of_our_own_is_whole() {
    let bench = Bench::new("[loops]\naction = \"answer\"\n");
    let mut line = Line::open(&bench.gateway).await;
    let events = line.ask(&with(looping(), "stream_id", "l")).await;
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(n, event)| event["sequence_number"] == n && event["stream_id"] == "l")
    );
    let whole = &events.last().unwrap()["response"];
    assert_eq!(
        (&whole["status"], &whole["model"]),
        (&json!("completed"), &json!("gpt-6-sol"))
    );
    let text = whole["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("3 times"), "{text}");
    assert!(bench.asked().is_empty());
}

#[tokio::test]
async fn hints_are_not_written_over_a_socket() {
    let bench = Bench::new("[loops]\naction = \"hint\"\n");
    let mut line = Line::open(&bench.gateway).await;
    let asked = looping();
    line.end(&asked).await;
    assert_eq!(bench.asked(), [asked.to_string().into_bytes()]);
    let turns = bench.gateway.turns_of("r", 1).await;
    assert_eq!(turns[0]["guard"]["action"], "warn");
}

#[tokio::test]
async fn a_message_that_is_too_large_goes_nowhere() {
    let bench = Bench::new("[server]\nmax_body = \"64KiB\"\n");
    let mut line = Line::open(&bench.gateway).await;
    let text = refused(
        &line.end(&create(&"x".repeat(100_000))).await,
        413,
        "request_too_large",
    );
    assert!(text.contains("65536"), "{text}");
    assert_eq!(line.end(&create("x")).await["type"], "response.completed");
    assert_eq!(bench.asked().len(), 1);
    bench.gateway.ended_as("turn", "client_error", 1).await;
}

#[tokio::test]
async fn the_mode_can_be_switched_off() {
    let bench = Bench::new("[openai]\nwebsocket = \"refuse\"\n");
    let mut wire = crate::support::Wire::connect(bench.gateway.proxy).await;
    for _ in 0..2 {
        // The connection goes on with plain requests.
        wire.send(super::raw::ask().as_bytes()).await;
        let reply = wire.response().await;
        assert_eq!(reply.status, 426);
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
        assert!(
            reply.text().contains("openai.websocket"),
            "{}",
            reply.text()
        );
    }
    assert!(bench.sim.requests().is_empty());
    bench.gateway.ended_as("other", "refused", 2).await;
}
