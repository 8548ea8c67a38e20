//! The WebSocket mode of Responses through the real program: frames go on as they are, and each
//! `response.create` is judged, booked and recorded like a POST.

mod guarded;
mod raw;
mod turns;

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use prefixgate::sim::{Options, Sim};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::support::Gateway;

/// No step of a test may take longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway with an upstream that speaks OpenAI's formats.
fn gateway(upstream: &str, config: &str) -> Gateway {
    let config =
        format!("{config}\n[upstream.openai]\nurl = \"{upstream}\"\nformat = \"openai\"\n");
    Gateway::with(upstream, &config, &[])
}

/// A gateway in front of the simulated provider.
struct Bench {
    sim: Sim,
    gateway: Gateway,
}

impl Bench {
    fn new(config: &str) -> Self {
        Self::with(Options::default(), config)
    }

    fn with(options: Options, config: &str) -> Self {
        let sim = Sim::start(options).unwrap();
        let gateway = gateway(&sim.base_url(), config);
        Self { sim, gateway }
    }

    /// What of the client's messages has arrived.
    fn asked(&self) -> Vec<Vec<u8>> {
        let all = self.sim.requests();
        let messages = all.iter().filter(|request| request.method == "WEBSOCKET");
        messages.map(|request| request.body.to_vec()).collect()
    }
}

/// A client's connection, in the run `r`.
struct Line {
    socket: WebSocketStream<TcpStream>,
}

impl Line {
    async fn open(gateway: &Gateway) -> Self {
        let mut request = format!("ws://{}/v1/responses", gateway.proxy)
            .into_client_request()
            .unwrap();
        let headers = request.headers_mut();
        headers.insert("authorization", "Bearer k".parse().unwrap());
        headers.insert("x-prefixgate-run", "r".parse().unwrap());
        let stream = TcpStream::connect(gateway.proxy).await.unwrap();
        let (socket, response) = tokio_tungstenite::client_async(request, stream)
            .await
            .unwrap();
        assert_eq!(response.status(), 101);
        Self { socket }
    }

    async fn send(&mut self, event: &Value) {
        let message = Message::text(event.to_string());
        self.socket.send(message).await.unwrap();
    }

    /// The next message; `None` at the end of the connection, however that came.
    async fn message(&mut self) -> Option<Message> {
        let next = tokio::time::timeout(PATIENCE, self.socket.next());
        next.await.expect("nothing came for too long")?.ok()
    }

    /// The next event.
    async fn next(&mut self) -> Option<Value> {
        loop {
            match self.message().await? {
                Message::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    /// The events up to the one that ends an answer.
    async fn answer(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let kind = event["type"].as_str().unwrap().to_owned();
            events.push(event);
            let last = ["completed", "incomplete", "failed"];
            if kind == "error" || last.iter().any(|last| kind == format!("response.{last}")) {
                break;
            }
        }
        events
    }

    async fn ask(&mut self, event: &Value) -> Vec<Value> {
        self.send(event).await;
        self.answer().await
    }

    /// Asks, and gives the event that ends the answer.
    async fn end(&mut self, event: &Value) -> Value {
        self.ask(event).await.pop().unwrap()
    }
}

fn create(words: &str) -> Value {
    json!({"type": "response.create", "model": "gpt-6-sol", "store": false, "input": words})
}

fn with(mut event: Value, member: &str, value: impl Into<Value>) -> Value {
    event[member] = value.into();
    event
}

/// An error event of ours.
fn refused(event: &Value, status: u16, kind: &str) -> String {
    assert_eq!(event["type"], "error", "{event}");
    assert_eq!(event["status"], status, "{event}");
    assert_eq!(event["error"]["type"], kind, "{event}");
    event["error"]["message"].as_str().unwrap().to_owned()
}
