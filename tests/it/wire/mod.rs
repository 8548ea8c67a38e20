//! The wire path through the real program: what a client sends is what the upstream gets, what the
//! upstream sends is what the client gets, and whatever breaks is told to the other side.

mod aborts;
mod bodies;
mod connections;
mod drain;
mod encodings;
mod framing;
mod http2;
mod properties;
mod routes;
mod socket;
mod streams;
mod tls;
mod upgrades;

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, chunk, request, stream_events};

pub const RUN: &str = "x-prefixgate-run: r";

/// A whole stream with the usage that all streams here have.
pub fn events(text: &str) -> Vec<u8> {
    let usage = r#"{"input_tokens":100,"cache_read_input_tokens":20,"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":0},"output_tokens":1}"#;
    stream_events("test-sonnet", usage, text, r#"{"output_tokens":42}"#).into_bytes()
}

/// A whole chunked stream response in one piece.
pub fn sse(events: &[u8]) -> Vec<u8> {
    [SSE_HEAD, &chunk(events), LAST_CHUNK].concat()
}

/// A raw response with this head (lines without status) and body; a content-length is added.
pub fn response(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {status}\r\n");
    for header in headers {
        out.push_str(header);
        out.push_str("\r\n");
    }
    out.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    [out.as_bytes(), body].concat()
}

/// A record without what differs between two runs of the same thing.
pub fn comparable(turn: &Value) -> Value {
    let mut turn = turn.clone();
    let map = turn.as_object_mut().unwrap();
    for key in [
        "id",
        "turn",
        "attempt",
        "thread",
        "started",
        "overhead_us",
        "first_token_us",
        "duration_us",
        // What became of the cache depends on what came before.
        "verdict",
        "cache",
    ] {
        map.remove(key).unwrap_or_else(|| panic!("no {key}"));
    }
    turn
}

/// An upstream that the test plays by hand, one connection at a time.
pub struct Hand {
    listener: TcpListener,
    pub addr: SocketAddr,
}

/// A connection of a [`Hand`].
pub struct Held {
    pub stream: TcpStream,
}

impl Hand {
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self { listener, addr }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The next connection and its first request.
    pub async fn accept(&self) -> Held {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        request(&mut stream, &mut Vec::new(), 0).await.unwrap();
        Held { stream }
    }
}

impl Held {
    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

/// An address where nobody listens.
pub async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
