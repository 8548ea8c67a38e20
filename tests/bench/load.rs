//! The two ends of the benchmark: a load client and a provider with static answers. Plain sockets
//! and hardly any work a byte, so that what is measured is what stands between them.
//!
//! - `load`: posts one body again and again, each time with another newest message, so that a
//!   gateway finds a long known history and a new tail, as in a real conversation. (wrk cannot: to
//!   send another megabyte each time it has to copy it in Lua, which costs more than the proxy.) With
//!   `--rate N` it sends so many a second over all connections, and counts a latency from the moment
//!   at which the request was due: one that waits for the one before it has waited as well.
//! - `provider`: reads each request to its end, then answers. (nginx with a static answer does not:
//!   it answers before the body has come, which makes proxies abandon their connections.)

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The place in the body that differs in each request.
const MARK: &[u8] = b"@@NEWEST-MESSAGE@@";
/// The formats that the provider answers in, by the last word of the path.
const FORMATS: [&str; 3] = ["messages", "completions", "responses"];
/// Pieces in which sockets are read.
const PIECE: usize = 256 * 1024;
/// A request that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let what = words.next().ok_or("say load or provider")?;
    let mut options = HashMap::new();
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} has no value"))?;
        options.insert(name, value);
    }
    let get = |name: &str| {
        let value = options.get(name).cloned();
        value.ok_or_else(|| format!("{name} is missing"))
    };
    let threads = options.get("--threads").map_or(Ok(2), |n| n.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    match what.as_str() {
        "load" => {
            let request = Request::new(
                &std::fs::read(get("--body")?)?,
                &std::fs::read_to_string(get("--headers")?)?,
                &get("--seed")?,
                options.get("--path").map_or("/v1/messages", String::as_str),
            )?;
            let connections = get("--connections")?.parse()?;
            let seconds = Duration::from_secs_f64(get("--seconds")?.parse()?);
            let rate = options.get("--rate").map_or(Ok(0.0), |n| n.parse())?;
            let to = get("--to")?;
            runtime.block_on(load(&to, request, connections, seconds, rate))
        }
        "provider" => {
            let mut answers = Vec::new();
            for format in FORMATS {
                // The benches that need one format give its answers only.
                if !options.contains_key(&format!("--{format}-whole")) {
                    continue;
                }
                let whole = std::fs::read(get(&format!("--{format}-whole"))?)?;
                let stream = std::fs::read_to_string(get(&format!("--{format}-stream"))?)?;
                answers.push(Answers::new(format, &whole, &stream));
            }
            runtime.block_on(provider(answers))
        }
        other => Err(format!("unknown part {other}: load or provider").into()),
    }
}

/// A request around its changing place.
struct Request {
    head: Vec<u8>,
    tail: Vec<u8>,
    seed: String,
}

impl Request {
    fn new(body: &[u8], headers: &str, seed: &str, path: &str) -> Result<Self, Failure> {
        let at = find(body, MARK).ok_or("the body has no mark")?;
        let mut head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n").into_bytes();
        for line in headers.lines() {
            head.extend_from_slice(line.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        head.extend_from_slice(&body[..at]);
        let tail = body[at + MARK.len()..].to_vec();
        let seed = seed.to_owned();
        Ok(Self { head, tail, seed })
    }

    /// As long as the mark, and never the same twice.
    fn newest(&self, connection: usize, number: u64) -> String {
        format!("{:.6}{connection:04}{number:08}", self.seed)
    }
}

#[derive(Default)]
struct Tally {
    latencies_ns: Vec<u64>,
    bad: u64,
}

async fn load(
    to: &str,
    request: Request,
    connections: usize,
    time: Duration,
    rate: f64,
) -> Result<(), Failure> {
    let request = Arc::new(request);
    let start = Instant::now();
    let end = start + time;
    let mut tasks = Vec::new();
    for connection in 0..connections {
        let (to, request) = (to.to_owned(), Arc::clone(&request));
        // Each connection has its share of the rate, and they take turns.
        let pace = (rate > 0.0).then(|| {
            let every = Duration::from_secs_f64(connections as f64 / rate);
            (
                start + every.mul_f64(connection as f64 / connections as f64),
                every,
            )
        });
        tasks.push(tokio::spawn(async move {
            client(&to, &request, connection, end, pace).await
        }));
    }
    let mut all = Tally::default();
    for task in tasks {
        let one = task.await?;
        all.latencies_ns.extend(one.latencies_ns);
        all.bad += one.bad;
    }
    let took = start.elapsed();
    all.latencies_ns.sort_unstable();
    let at = |share: f64| {
        let last = all.latencies_ns.len().saturating_sub(1);
        let index = (last as f64 * share) as usize;
        all.latencies_ns
            .get(index)
            .map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    println!(
        r#"{{"requests": {}, "duration_us": {}, "p50": {}, "p99": {}, "bad": {}}}"#,
        all.latencies_ns.len(),
        took.as_micros(),
        at(0.5),
        at(0.99),
        all.bad
    );
    Ok(())
}

/// One connection: a request at a time until the end, at its pace (the first one and the time between
/// two) if there is one; after a failure it connects anew.
async fn client(
    to: &str,
    request: &Request,
    connection: usize,
    end: Instant,
    pace: Option<(Instant, Duration)>,
) -> Tally {
    let mut tally = Tally::default();
    let mut number = 0;
    let mut open: Option<Wire> = None;
    let mut due = pace.map(|(first, _)| first);
    while Instant::now() < end {
        number += 1;
        let newest = request.newest(connection, number);
        let mut asked = Instant::now();
        if let (Some(at), Some((_, every))) = (&mut due, pace) {
            tokio::time::sleep_until((*at).into()).await;
            asked = *at;
            *at += every;
            if asked >= end {
                break;
            }
        }
        let answered = tokio::time::timeout(PATIENCE, async {
            let mut wire = match open.take() {
                Some(wire) => wire,
                None => Wire::new(TcpStream::connect(to).await?)?,
            };
            wire.send(&[&request.head, newest.as_bytes(), &request.tail])
                .await?;
            let status = wire.answer().await?;
            Ok::<_, io::Error>((wire, status))
        });
        match answered.await {
            Ok(Ok((wire, 200))) => {
                tally.latencies_ns.push(asked.elapsed().as_nanos() as u64);
                open = Some(wire);
            }
            _ => {
                tally.bad += 1;
                // A target that is down must not be hammered.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    tally
}

/// The answers of one format as they stand on the wire.
struct Answers {
    /// The end of the target to which they belong.
    target: Vec<u8>,
    whole: Vec<u8>,
    stream: Vec<u8>,
}

impl Answers {
    fn new(format: &str, body: &[u8], events: &str) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: req_01\r\n";
        let mut whole = format!("{head}content-length: {}\r\n\r\n", body.len()).into_bytes();
        whole.extend_from_slice(body);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_01\r\n";
        let mut stream = format!("{head}transfer-encoding: chunked\r\n\r\n");
        // A frame an event, as providers send them.
        for event in events.split_inclusive("\n\n") {
            stream.push_str(&format!("{:x}\r\n{event}\r\n", event.len()));
        }
        stream.push_str("0\r\n\r\n");
        Self {
            target: format!("/{format} http/").into_bytes(),
            whole,
            stream: stream.into_bytes(),
        }
    }
}

async fn provider(answers: Vec<Answers>) -> Result<(), Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.1:0".parse()?)?;
    let listener: TcpListener = socket.listen(4096)?;
    println!("listening provider=http://{}", listener.local_addr()?);
    let answers = Arc::new(answers);
    loop {
        let (caller, _) = listener.accept().await?;
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            let Ok(mut wire) = Wire::new(caller) else {
                return;
            };
            while let Ok(head) = wire.head().await {
                let head_bytes = head.as_bytes();
                let line = &head_bytes[..find(head_bytes, b"\r\n").unwrap_or_default()];
                let mut all = answers.iter();
                let Some(fitting) = all.find(|a| find(line, &a.target).is_some()) else {
                    return;
                };
                let streamed = find(head_bytes, b"bench-stream").is_some();
                if wire.body(&head).await.is_err() {
                    return;
                }
                let answer = if streamed {
                    &fitting.stream
                } else {
                    &fitting.whole
                };
                if wire.send(&[answer]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A connection with what was read ahead.
struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Wire {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let buffer = vec![0; PIECE];
        let (from, to) = (0, 0);
        Ok(Self {
            stream,
            buffer,
            from,
            to,
        })
    }

    async fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            let n = self.stream.write_vectored(left).await?;
            IoSlice::advance_slices(&mut left, n);
        }
        Ok(())
    }

    /// Reads more; what is unread moves to the front when there is no room behind it.
    async fn more(&mut self) -> io::Result<()> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.to == self.buffer.len() {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        let n = self.stream.read(&mut self.buffer[self.to..]).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.to += n;
        Ok(())
    }

    /// Everything up to and with `end`.
    async fn until(&mut self, end: &[u8]) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.buffer[self.from..self.to], end) {
                let stop = self.from + at + end.len();
                let text = String::from_utf8_lossy(&self.buffer[self.from..stop]).into_owned();
                self.from = stop;
                return Ok(text);
            }
            if self.to - self.from == self.buffer.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.more().await?;
        }
    }

    async fn skip(&mut self, mut length: usize) -> io::Result<()> {
        loop {
            let here = length.min(self.to - self.from);
            self.from += here;
            length -= here;
            if length == 0 {
                return Ok(());
            }
            self.more().await?;
        }
    }

    async fn head(&mut self) -> io::Result<String> {
        Ok(self.until(b"\r\n\r\n").await?.to_ascii_lowercase())
    }

    /// Reads the body that a head announces to its end.
    async fn body(&mut self, head: &str) -> io::Result<()> {
        if let Some(length) = head.split("content-length:").nth(1) {
            let length = length.split("\r\n").next().unwrap_or_default().trim();
            let length = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            return self.skip(length).await;
        }
        if !head.contains("transfer-encoding:") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        loop {
            let line = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(line.trim(), 16);
            let size = size.map_err(|_| io::ErrorKind::InvalidData)?;
            self.skip(size + 2).await?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    /// Reads an answer to its end and returns its status.
    async fn answer(&mut self) -> io::Result<u16> {
        let head = self.head().await?;
        self.body(&head).await?;
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
        status.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}
