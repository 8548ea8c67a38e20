//! The WebSocket mode.

use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::*;

struct Line {
    socket: WebSocketStream<TcpStream>,
}

impl Line {
    async fn open(bench: &Bench) -> Self {
        let mut request = format!("ws://{}/v1/responses", bench.sim.addr())
            .into_client_request()
            .unwrap();
        let headers = request.headers_mut();
        headers.insert("authorization", "Bearer k".parse().unwrap());
        headers.insert(
            "openai-beta",
            "responses_websockets=2026-02-06".parse().unwrap(),
        );
        let stream = TcpStream::connect(bench.sim.addr()).await.unwrap();
        let (socket, response) = tokio_tungstenite::client_async(request, stream)
            .await
            .unwrap();
        assert_eq!(response.status(), 101);
        Self { socket }
    }

    async fn send(&mut self, event: Value) {
        self.socket
            .send(Message::text(event.to_string()))
            .await
            .unwrap();
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// All events of one answer.
    async fn answer(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let last = [
                "response.completed",
                "response.incomplete",
                "response.failed",
                "error",
            ]
            .iter()
            .any(|name| event["type"] == *name);
            events.push(event);
            if last {
                break;
            }
        }
        events
    }

    async fn ask(&mut self, event: Value) -> Vec<Value> {
        self.send(event).await;
        self.answer().await
    }
}

fn create(words: &str) -> Value {
    json!({"type": "response.create", "model": "gpt-6-sol", "store": false, "input": words})
}

fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

#[tokio::test]
async fn a_request_is_answered_by_the_events_of_a_stream() {
    let bench = Bench::new();
    let mut line = Line::open(&bench).await;
    let events = line.ask(create("hello")).await;
    assert_eq!(events[0]["type"], "response.created");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(n, event)| event["sequence_number"] == n)
    );
    let recorded = bench
        .sim
        .wait_for(|all| all.len() == 2 && all[1].end == End::Whole)
        .await;
    assert_eq!(
        (recorded[0].method.as_str(), recorded[0].status),
        ("GET", Some(101))
    );
    assert_eq!(
        recorded[0].header("openai-beta"),
        Some("responses_websockets=2026-02-06")
    );
    assert_eq!(recorded[1].method, "WEBSOCKET");
    assert_eq!(
        recorded[1].openai.unwrap().total,
        last["response"]["usage"]["input_tokens"].as_u64().unwrap()
    );
}

#[tokio::test]
async fn unstored_responses_are_continued_on_their_own_connection_only() {
    let bench = Bench::new();
    let mut line = Line::open(&bench).await;
    let first = line.ask(create(&long("a", 2_000))).await.pop().unwrap()["response"].clone();
    let next = with(create("b"), "previous_response_id", first["id"].clone());
    let mut other = Line::open(&bench).await;
    let refused = other.ask(next.clone()).await.pop().unwrap();
    assert_eq!(
        (&refused["type"], &refused["status"]),
        (&json!("error"), &json!(400))
    );
    assert_eq!(refused["error"]["code"], "previous_response_not_found");
    let second = line.ask(next.clone()).await.pop().unwrap()["response"].clone();
    assert_eq!(
        second["usage"]["input_tokens_details"]["cached_tokens"],
        first["usage"]["input_tokens"]
    );
    // Only the latest is remembered.
    let refused = line.ask(next).await.pop().unwrap();
    assert_eq!(refused["error"]["code"], "previous_response_not_found");
}

#[tokio::test]
async fn a_request_that_only_prepares_writes_the_cache_and_can_be_continued() {
    let bench = Bench::new();
    let mut line = Line::open(&bench).await;
    let events = line
        .ask(with(create(&long("a", 2_000)), "generate", json!(false)))
        .await;
    let names: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(names, ["response.created", "response.completed"]);
    let prepared = &events[1]["response"];
    assert_eq!(
        (&prepared["output"], &prepared["usage"]["output_tokens"]),
        (&json!([]), &json!(0))
    );
    let next = with(create("b"), "previous_response_id", prepared["id"].clone());
    let told = line.ask(next).await.pop().unwrap();
    let details = &told["response"]["usage"]["input_tokens_details"];
    assert_eq!(details["cached_tokens"], 2_000);
}

#[tokio::test]
async fn errors_come_as_events_and_the_connection_goes_on() {
    let bench = Bench::new();
    let mut line = Line::open(&bench).await;
    line.socket.send(Message::text("{")).await.unwrap();
    assert_eq!(line.next().await.unwrap()["status"], 400);
    let wrong = line
        .ask(json!({"type": "session.update"}))
        .await
        .pop()
        .unwrap();
    assert_eq!(wrong["error"]["param"], "type");
    let background = line
        .ask(with(create("x"), "background", json!(true)))
        .await
        .pop()
        .unwrap();
    assert_eq!(background["error"]["param"], "background");
    let limited = line
        .ask(create("[[inject:429ra]] [[inject-any]]"))
        .await
        .pop()
        .unwrap();
    assert_eq!(
        (
            &limited["status"],
            &limited["error"]["headers"]["retry-after"]
        ),
        (&json!(429), &json!("2"))
    );
}

#[tokio::test]
async fn steering_is_refused_with_its_input() {
    let bench = Bench::new();
    let mut line = Line::open(&bench).await;
    line.send(json!({"type": "response.steer", "previous_response_id": "r", "input": "x"}))
        .await;
    let failed = line.next().await.unwrap();
    assert_eq!(failed["type"], "response.steer.failed");
    assert_eq!(
        failed["steer"],
        json!({"previous_response_id": "r", "input": "x"})
    );
}

#[tokio::test]
async fn lanes_run_side_by_side_and_name_themselves() {
    let bench = Bench::new();
    let mut line = Line::open(&bench).await;
    line.send(with(
        create("[[inject:stall0]] [[inject-any]]"),
        "stream_id",
        json!("stuck"),
    ))
    .await;
    line.send(with(create("x"), "stream_id", json!("free")))
        .await;
    let events = line.answer().await;
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    assert!(events.iter().all(|event| event["stream_id"] == "free"));
}

#[tokio::test]
async fn a_broken_connection_breaks_and_an_hour_is_enough() {
    let bench = Bench::new();
    let mut line = Line::open(&bench).await;
    let events = line.ask(create("[[inject:drop]] [[inject-any]]")).await;
    assert_ne!(events.last().unwrap()["type"], "response.completed");
    let mut line = Line::open(&bench).await;
    line.ask(create("x")).await;
    bench.clock.advance(3_600_001);
    let full = line.ask(create("x")).await.pop().unwrap();
    assert_eq!(full["error"]["code"], "websocket_connection_limit_reached");
    assert!(line.next().await.is_none());
}

#[tokio::test]
async fn an_upgrade_without_a_key_is_refused_and_a_stop_ends_the_connection() {
    let bench = Bench::new();
    let request = format!("ws://{}/v1/responses", bench.sim.addr());
    let stream = TcpStream::connect(bench.sim.addr()).await.unwrap();
    let refused = tokio_tungstenite::client_async(request, stream).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("401")));
    let mut line = Line::open(&bench).await;
    bench.sim.shutdown().await;
    assert!(line.next().await.is_none());
}
