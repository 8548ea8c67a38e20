//! A scripted upstream on a real socket that keeps the exact bytes it was sent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::client::header;

/// What the upstream does with a request.
#[derive(Debug, Clone)]
pub enum Step {
    /// Writes bytes as they are.
    Write(Vec<u8>),
    /// Does nothing for a while: an upstream that thinks.
    Pause(Duration),
    /// Waits until the other side closes; notes when.
    AwaitClose,
    /// Ends the connection in order (FIN).
    Close,
    /// Resets the connection (RST).
    Reset,
    /// Sends everything it receives back, until the end (after an upgrade).
    Echo,
    /// Ends the connection unless the next request begins in this time.
    CloseIdle(Duration),
    /// Waits for the next request to arrive and resets the connection without reading of it.
    ResetUnread,
}

impl Step {
    pub fn write(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Write(bytes.into())
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Head without the blank line, bytes as received.
    pub head: String,
    /// Body, chunked framing undone.
    pub body: Vec<u8>,
    /// Number of the connection, from 0.
    pub connection: usize,
    /// When its last byte was read.
    pub at: Instant,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Names of all headers, lower-case, sorted.
    pub fn header_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .head
            .lines()
            .skip(1)
            .filter_map(|l| l.split_once(':'))
            .map(|(n, _)| n.to_ascii_lowercase())
            .collect();
        names.sort();
        names
    }

    /// `POST /v1/messages?x=1`.
    pub fn line(&self) -> String {
        self.head
            .lines()
            .next()
            .unwrap()
            .rsplit_once(' ')
            .unwrap()
            .0
            .to_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Script = dyn Fn(&Seen, usize) -> Vec<Step> + Send + Sync;

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    closed: Mutex<Vec<Instant>>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

/// See the module. Stops when dropped.
pub struct Upstream {
    pub addr: SocketAddr,
    log: Arc<Log>,
    task: tokio::task::JoinHandle<()>,
}

impl Upstream {
    /// Starts one; `script` is asked with each request and its number from 0.
    pub async fn start(script: impl Fn(&Seen, usize) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let script: Arc<Script> = Arc::new(script);
        let task = {
            let log = log.clone();
            tokio::spawn(async move {
                let mut connections = tokio::task::JoinSet::new();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    let number = log.connections.fetch_add(1, Ordering::SeqCst);
                    let (log, script) = (log.clone(), script.clone());
                    connections.spawn(async move {
                        log.open.fetch_add(1, Ordering::SeqCst);
                        converse(stream, number, &log, &*script).await;
                        log.open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            })
        };
        Self { addr, log, task }
    }

    /// One that always answers with the same bytes.
    pub async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |_, _| vec![Step::Write(bytes.clone())]).await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.log.seen.lock().unwrap().clone()
    }

    /// The newest request.
    pub fn last(&self) -> Seen {
        self.seen()
            .last()
            .cloned()
            .expect("no request reached the upstream")
    }

    /// Moments at which the other side closed during [`Step::AwaitClose`].
    pub fn closed(&self) -> Vec<Instant> {
        self.log.closed.lock().unwrap().clone()
    }

    /// Connections ever made.
    pub fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.log.open.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(mut stream: TcpStream, connection: usize, log: &Log, script: &Script) {
    let mut buffer = Vec::new();
    while let Some(seen) = request(&mut stream, &mut buffer, connection).await {
        let number = {
            let mut all = log.seen.lock().unwrap();
            all.push(seen.clone());
            all.len() - 1
        };
        for step in script(&seen, number) {
            match step {
                Step::Write(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Step::Pause(time) => tokio::time::sleep(time).await,
                Step::AwaitClose => {
                    while !matches!(stream.read_buf(&mut buffer).await, Ok(0) | Err(_)) {}
                    log.closed.lock().unwrap().push(Instant::now());
                    return;
                }
                Step::Close => {
                    // The other side may be gone already.
                    let _ = stream.shutdown().await;
                    return;
                }
                Step::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Step::CloseIdle(limit) => {
                    match tokio::time::timeout(limit, stream.read_buf(&mut buffer)).await {
                        Ok(Ok(n)) if n > 0 => {}
                        _ => return,
                    }
                }
                Step::ResetUnread => {
                    // The other side may close instead, which is as good.
                    let _ = stream.peek(&mut [0]).await;
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Step::Echo => {
                    let (mut read, mut write) = stream.split();
                    write.write_all(&buffer).await.unwrap();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    return;
                }
            }
        }
    }
}

/// Reads one request; `None` at the end of the connection.
pub async fn request(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    buffer: &mut Vec<u8>,
    connection: usize,
) -> Option<Seen> {
    let head = until(stream, buffer, b"\r\n\r\n").await?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut body = Vec::new();
    if header(&head, "transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        loop {
            let size = until(stream, buffer, b"\r\n").await?;
            let size = usize::from_str_radix(std::str::from_utf8(&size).ok()?.trim(), 16).ok()?;
            if size == 0 {
                while !until(stream, buffer, b"\r\n").await?.is_empty() {}
                break;
            }
            fill(stream, buffer, size + 2).await?;
            body.extend_from_slice(&buffer[..size]);
            buffer.drain(..size + 2);
        }
    } else if let Some(length) = header(&head, "content-length") {
        let length = length.parse().ok()?;
        fill(stream, buffer, length).await?;
        body = buffer.drain(..length).collect();
    }
    Some(Seen {
        head,
        body,
        connection,
        at: Instant::now(),
    })
}

async fn until(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    end: &[u8],
) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = buffer.windows(end.len()).position(|w| w == end) {
            let found = buffer[..at].to_vec();
            buffer.drain(..at + end.len());
            return Some(found);
        }
        fill(stream, buffer, buffer.len() + 1).await?;
    }
}

async fn fill(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    wanted: usize,
) -> Option<()> {
    while buffer.len() < wanted {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    Some(())
}

/// A JSON response with a content-length.
pub fn json(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nrequest-id: req_test\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head of a chunked event stream.
pub const SSE_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// One chunk.
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    out
}

/// The end of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// An event in Anthropic's form: the data's `type` is the event's name.
pub fn event(data: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(data).unwrap();
    format!(
        "event: {}\ndata: {data}\n\n",
        value["type"].as_str().unwrap()
    )
}

/// A whole answer as events: `usage` goes into `message_start`, `last` into `message_delta`.
pub fn stream_events(model: &str, usage: &str, text: &str, last: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    [
        format!(r#"{{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":"{model}","content":[],"stop_reason":null,"usage":{usage}}}}}"#),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.into(),
        r#"{"type":"ping"}"#.into(),
        format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{quoted}}}}}"#),
        r#"{"type":"content_block_stop","index":0}"#.into(),
        format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn","stop_sequence":null}},"usage":{last}}}"#),
        r#"{"type":"message_stop"}"#.into(),
    ]
    .iter()
    .map(|data| event(data))
    .collect()
}

/// A whole JSON answer.
pub fn message(model: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"{model}","content":[{{"type":"text","text":"hi"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{usage}}}"#
    )
}
