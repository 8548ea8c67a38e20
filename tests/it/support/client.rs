//! A client that sees the bytes: raw HTTP/1.1 over one connection.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// No step of a test may take longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// One connection.
pub struct Wire {
    pub stream: TcpStream,
    /// Bytes received and not consumed.
    pub buffer: Vec<u8>,
}

/// A response as it came.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// The head as received, without the blank line.
    pub head: String,
    /// The body, chunked framing undone.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: String,
    /// The body ended as its framing promised.
    pub complete: bool,
}

impl Reply {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The first value of a header in a raw head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

impl Wire {
    pub async fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// A POST with a content-length and the usual headers plus `headers` (each `name: value`).
    pub async fn post(&mut self, path: &str, headers: &[&str], body: &[u8]) {
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: gateway\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        let mut message = head.into_bytes();
        message.extend_from_slice(body);
        self.send(&message).await;
    }

    /// POST and its whole response, on a fresh connection.
    pub async fn exchange(to: SocketAddr, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        let mut wire = Self::connect(to).await;
        wire.post(path, headers, body).await;
        wire.response().await
    }

    /// More bytes; 0 at the end, also after a reset.
    pub async fn read_more(&mut self) -> usize {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.buffer));
        read.await.expect("no bytes for too long").unwrap_or(0)
    }

    /// Reads up to and including `end`; returns what came before it. `None` when the connection
    /// ended first.
    pub async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|w| w == end) {
                let found = self.buffer[..at].to_vec();
                self.buffer.drain(..at + end.len());
                return Some(found);
            }
            if self.read_more().await == 0 {
                return None;
            }
        }
    }

    /// The head of a response, interim ones skipped.
    pub async fn head(&mut self) -> String {
        loop {
            let head = self
                .until(b"\r\n\r\n")
                .await
                .expect("the connection ended before a head");
            let head = String::from_utf8(head).unwrap();
            if !head.starts_with("HTTP/1.1 1") || head.starts_with("HTTP/1.1 101") {
                return head;
            }
        }
    }

    /// One chunk of a chunked body: `Some(empty)` at the regular end, `None` when cut.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = self.until(b"\r\n").await?;
        let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
        if size == 0 {
            return Some(Vec::new());
        }
        while self.buffer.len() < size + 2 {
            if self.read_more().await == 0 {
                return None;
            }
        }
        let chunk = self.buffer[..size].to_vec();
        self.buffer.drain(..size + 2);
        Some(chunk)
    }

    /// A whole response to anything but HEAD.
    pub async fn response(&mut self) -> Reply {
        let head = self.head().await;
        self.body_of(head).await
    }

    /// The body that belongs to a head.
    pub async fn body_of(&mut self, head: String) -> Reply {
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply {
            status,
            head,
            body: Vec::new(),
            trailers: String::new(),
            complete: true,
        };
        if status == 204 || status == 304 {
            return reply;
        }
        let chunked = reply
            .header("transfer-encoding")
            .is_some_and(|v| v.contains("chunked"));
        let length = reply
            .header("content-length")
            .map(|v| v.parse::<usize>().unwrap());
        if chunked {
            loop {
                match self.chunk().await {
                    None => {
                        reply.complete = false;
                        // What is left is a piece of a chunk.
                        return reply;
                    }
                    Some(chunk) if chunk.is_empty() => break,
                    Some(chunk) => reply.body.extend(chunk),
                }
            }
            while let Some(line) = self.until(b"\r\n").await {
                if line.is_empty() {
                    break;
                }
                reply.trailers.push_str(std::str::from_utf8(&line).unwrap());
                reply.trailers.push('\n');
            }
        } else {
            let wanted = length.unwrap_or(usize::MAX);
            while self.buffer.len() < wanted {
                if self.read_more().await == 0 {
                    break;
                }
            }
            let end = wanted.min(self.buffer.len());
            reply.complete = length.is_none_or(|n| n == end);
            reply.body = self.buffer.drain(..end).collect();
        }
        reply
    }
}
