//! The OpenAI side over real sockets: both formats, the WebSocket mode, what is held, what is refused.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::sim::{Clock, End, ManualClock, Options, Sim};

mod chat;
mod held;
mod responses;
mod socket;

struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    whole: bool,
}

impl Got {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The data of all events, without `[DONE]`.
    fn events(&self) -> Vec<Value> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// A provider with a manual clock.
struct Bench {
    sim: Sim,
    clock: ManualClock,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let (clock, hand) = Clock::manual();
        let mut options = Options {
            clock,
            ..Options::default()
        };
        change(&mut options);
        Self {
            sim: Sim::start(options).unwrap(),
            clock: hand,
        }
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Got> {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.sim.base_url()));
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.header("authorization", "Bearer k");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(body));
        let response = client.request(request.body(body).unwrap()).await.ok()?;
        let (parts, mut body) = response.into_parts();
        let mut got = Got {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: Vec::new(),
            whole: true,
        };
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => got
                    .body
                    .extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => {
                    got.whole = false;
                    break;
                }
            }
        }
        Some(got)
    }

    async fn post(&self, path: &str, body: &Value) -> Got {
        self.call("POST", path, &[], body.to_string().as_bytes())
            .await
            .unwrap()
    }

    async fn get(&self, path: &str) -> Got {
        self.call("GET", path, &[], b"").await.unwrap()
    }

    /// The response object of an accepted request.
    async fn respond(&self, body: &Value) -> Value {
        let got = self.post("/v1/responses", body).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.json()
    }

    /// Status, `param` and `code` of a refusal.
    async fn refused(&self, path: &str, body: &Value) -> (u16, Value, Value) {
        let got = self.post(path, body).await;
        let error = got.json()["error"].clone();
        assert!(error["message"].is_string(), "{}", got.text());
        (got.status, error["param"].clone(), error["code"].clone())
    }
}

/// A text of that many tokens that begins with `name`.
fn long(name: &str, tokens: usize) -> String {
    // Two of its bytes are the quotes.
    let width = tokens * 4 - 2;
    format!("{name:<width$}")
}

/// The tool that the script's `shell_ok` calls, in the shape of Responses.
fn shell() -> Value {
    json!({"type": "function", "name": "shell", "strict": true, "parameters": {"type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"]}})
}

/// The same in the shape of Chat.
fn chat_shell() -> Value {
    let mut function = shell();
    function.as_object_mut().unwrap().remove("type");
    json!({"type": "function", "function": function})
}
