//! An origin with canned answers on a real socket: pages, and a model that says what it is told to.

use std::sync::{Arc, Mutex};

use prefixgate::agent::budget::Budget;
use prefixgate::agent::driver::{Agent, Delegated, Options, Parts};
use prefixgate::agent::journal::InMemory;
use prefixgate::agent::machine::{Limits, Setup};
use prefixgate::agent::model::{Endpoint, format_of};
use prefixgate::agent::notice::{Listener, Notice};
use prefixgate::agent::tools::Toolbox;
use prefixgate::clock::Clock;
use prefixgate::config::Config;
use prefixgate::provider::wire::Wire;
use prefixgate::proxy::upstream;
use prefixgate::usage::PriceBook;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// An answer.
#[derive(Clone)]
pub struct Canned(Vec<u8>);

impl Canned {
    pub fn new(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let mut head = format!("HTTP/1.1 {status} Fine\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        Self(head.into_bytes())
    }

    /// An answer of a model with these blocks; it calls tools if there are calls among them.
    pub fn says(blocks: Value) -> Self {
        let calls = blocks
            .as_array()
            .unwrap()
            .iter()
            .any(|block| block["type"] == "tool_use");
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks,
            "stop_reason": if calls { "tool_use" } else { "end_turn" }, "stop_sequence": null,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        });
        Self::new(
            200,
            &[("content-type", "application/json")],
            &body.to_string(),
        )
    }
}

/// A request as it came.
#[derive(Clone)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
}

/// Gives its answers one after the other.
pub struct Origin {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Origin {
    pub async fn start(answers: Vec<Canned>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        tokio::spawn(async move {
            for Canned(answer) in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = request(&mut socket).await;
                sees.lock().unwrap().push(request);
                // Whoever asked may have had enough.
                let _ = socket.write_all(&answer).await;
            }
        });
        Self { port, seen }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn request(socket: &mut TcpStream) -> Seen {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse().ok())?
            });
            let body = &bytes[end + 4..];
            if body.len() >= length.unwrap_or(0) {
                return Seen {
                    body: body.to_owned(),
                    head,
                };
            }
        }
        assert!(
            socket.read_buf(&mut bytes).await.unwrap() > 0,
            "the request broke off"
        );
    }
}

struct Deaf;

impl Listener for Deaf {
    fn notice(&self, _: &str, _: Notice<'_>) {}
}

/// An agent with these tools that asks this origin.
pub fn agent(origin: &Origin, toolbox: Arc<Toolbox>, cancelled: CancellationToken) -> Agent {
    let endpoint = Endpoint {
        format: format_of(Wire::Messages),
        base: origin.url(""),
        key: "key".to_owned(),
        client: upstream::clients(&Config::embedded(std::path::PathBuf::new()))
            .unwrap()
            .pooled,
        prices: Arc::new(PriceBook::new(&[]).unwrap()),
        provider: "anthropic".to_owned(),
        silence: std::time::Duration::from_secs(20),
    };
    let setup = Setup {
        run: "run".to_owned(),
        agent: "main".to_owned(),
        parent: None,
        depth: 0,
        wire: Wire::Messages,
        model: "m".to_owned(),
        system: "You work.".to_owned(),
        tools: toolbox.specs(),
        max_tokens: 1000,
        effort: None,
        window: 200_000,
        compact_at: 160_000,
        limits: Limits::default(),
        loop_threshold: 3,
    };
    let parts = Parts {
        endpoint: Arc::new(endpoint),
        toolbox,
        journal: Box::new(InMemory::default()),
        listener: Arc::new(Deaf),
        budget: Budget::default(),
        delegated: Delegated::default(),
        cancelled,
        clock: Clock::Real,
        options: Options::default(),
    };
    Agent::begin(parts, setup, "go on").unwrap()
}
