//! What the loop client takes for itself: memory, and time between the end of an answer and the
//! first byte of the next request, over a run of 200 turns.
//!
//! `tests/bench/agent` runs it. The provider is another process, so that the memory is the client's
//! alone; it is as plain as can be, and takes the times on its side of the wire, so that they
//! hold two passes through the loopback besides. The tool does nothing, so all of it is the
//! client's own: book-keeping, journal, the body of the request.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot go on says so and ends"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use prefixgate::agent::budget::Budget;
use prefixgate::agent::driver::{Agent, Delegated, Options, Parts};
use prefixgate::agent::journal::{Directory, Fsync, Journals, MAIN};
use prefixgate::agent::machine::{Limits, Outcome, Setup, ToolSpec};
use prefixgate::agent::model::{Endpoint, format_of};
use prefixgate::agent::notice::Silent;
use prefixgate::agent::tools::{CallContext, Manners, Tool, ToolResult, Toolbox};
use prefixgate::clock::Clock;
use prefixgate::config::Config;
use prefixgate::provider::wire::Wire;
use prefixgate::proxy::upstream;
use prefixgate::usage::PriceBook;
use serde_json::Value;

/// As the binary allocates.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TURNS: usize = 200;
/// Bytes of a result and of the text before a call: 200 turns are a megabyte.
const RESULT: usize = 4_000;
const TEXT: usize = 800;
/// Budgets: milliseconds of the client's own at 200 turns, megabytes.
const MS: f64 = 2.0;
const MB: u64 = 50;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("provider") {
        return provider();
    }
    let fsyncs = [
        ("never", Fsync::Never),
        ("turn", Fsync::Turn),
        ("always", Fsync::Always),
    ];
    println!("| journal synced | median | p95 | median of the last 20 turns | peak memory |");
    println!("|---|---|---|---|---|");
    let mut missed = false;
    for (name, fsync) in fsyncs {
        let times = run(fsync);
        let last = median(&times[times.len() - 20..]);
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        println!(
            "| {name} | {:.2} ms | {:.2} ms | {last:.2} ms | {} MB |",
            median(&times),
            sorted[sorted.len() * 95 / 100],
            peak_mb(),
        );
        missed |= last >= MS;
    }
    if missed || peak_mb() >= MB {
        eprintln!("budget missed: {MS} ms at {TURNS} turns, {MB} MB");
        std::process::exit(1);
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kb.unwrap_or(0) / 1024
}

/// One run; the times between answers and requests, in milliseconds.
fn run(fsync: Fsync) -> Vec<f64> {
    let mut provider = Command::new(std::env::current_exe().unwrap())
        .arg("provider")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(provider.stdout.take().unwrap()).lines();
    let port = lines.next().unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let outcome = runtime.block_on(agent(&format!("http://127.0.0.1:{port}"), fsync));
    assert_eq!(outcome, Outcome::EndTurn);
    let times = lines.map(|line| line.unwrap().parse().unwrap()).collect();
    provider.wait().unwrap();
    times
}

async fn agent(base: &str, fsync: Fsync) -> Outcome {
    let config = Config::embedded("unused".into());
    let endpoint = Endpoint {
        format: format_of(Wire::Messages),
        base: base.to_owned(),
        key: String::new(),
        client: upstream::clients(&config).unwrap().pooled,
        prices: Arc::new(PriceBook::new(&[]).unwrap()),
        provider: "anthropic".to_owned(),
        silence: Duration::from_secs(60),
    };
    let mut toolbox = Toolbox::new();
    toolbox.add(Arc::new(Nothing));
    let setup = Setup {
        run: "bench".to_owned(),
        agent: MAIN.to_owned(),
        parent: None,
        depth: 0,
        wire: Wire::Messages,
        model: "claude-sonnet-5".to_owned(),
        system: "Be careful. ".repeat(500),
        tools: toolbox.specs(),
        max_tokens: 8_192,
        effort: None,
        window: 1_000_000,
        compact_at: 1_000_000,
        limits: Limits {
            turns: 1_000,
            ..Limits::default()
        },
        loop_threshold: 3,
    };
    let home = tempfile::TempDir::new().unwrap();
    let journals = Directory::new(home.path(), fsync);
    let parts = Parts {
        endpoint: Arc::new(endpoint),
        toolbox: Arc::new(toolbox),
        journal: journals.create("bench", MAIN).unwrap(),
        listener: Arc::new(Silent),
        budget: Budget::default(),
        delegated: Delegated::default(),
        cancelled: tokio_util::sync::CancellationToken::new(),
        clock: Clock::Real,
        options: Options::default(),
    };
    let mut agent = Agent::begin(parts, setup, "Go on until the end.").unwrap();
    agent.go().await.unwrap()
}

/// A tool that does nothing, at length.
struct Nothing;

impl Tool for Nothing {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "nothing".to_owned(),
            description: "Does nothing.".to_owned(),
            schema: r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#
                .to_owned(),
        }
    }

    fn manners(&self) -> Manners {
        Manners::READS
    }

    fn call(&self, input: Value, _context: CallContext) -> BoxFuture<'static, ToolResult> {
        let line = format!("result \"{}\" of nothing\n", input["n"]);
        Box::pin(async move { Ok(line.repeat(RESULT / line.len())) })
    }
}

/// Answers each request with a call, the last with an end; prints the times at last.
fn provider() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let mut times = Vec::with_capacity(TURNS);
    let mut answered: Option<Instant> = None;
    for turn in 0..=TURNS {
        let began = request(&mut stream);
        if let Some(answered) = answered {
            times.push(began.saturating_duration_since(answered));
        }
        stream.write_all(&answer(turn)).unwrap();
        answered = Some(Instant::now());
    }
    for time in times {
        println!("{}", time.as_secs_f64() * 1_000.0);
    }
}

/// Reads a whole request; when its first byte was there.
fn request(stream: &mut TcpStream) -> Instant {
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = Vec::new();
    let mut began = None;
    loop {
        let read = stream.read(&mut buffer).unwrap();
        began.get_or_insert_with(Instant::now);
        assert_ne!(read, 0, "the client left");
        bytes.extend_from_slice(&buffer[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
        let mut left = (end + 4 + length).saturating_sub(bytes.len());
        while left > 0 {
            let read = stream.read(&mut buffer).unwrap();
            left = left.saturating_sub(read);
        }
        return began.unwrap();
    }
}

fn answer(turn: usize) -> Vec<u8> {
    let mut body = String::new();
    let mut event = |name: &str, data: String| {
        body.push_str(&format!(
            "event: {name}\ndata: {{\"type\":\"{name}\",{data}}}\n\n"
        ));
    };
    event(
        "message_start",
        format!(
            r#""message":{{"id":"msg_{turn}","type":"message","role":"assistant","model":"claude-sonnet-5","content":[],"stop_reason":null,"usage":{{"input_tokens":3,"cache_read_input_tokens":{},"cache_creation_input_tokens":1200,"output_tokens":1}}}}"#,
            turn * 1_200
        ),
    );
    event(
        "content_block_start",
        r#""index":0,"content_block":{"type":"text","text":""}"#.to_owned(),
    );
    for _ in 0..TEXT / 40 {
        event(
            "content_block_delta",
            r#""index":0,"delta":{"type":"text_delta","text":"I look at the next one, as I have said. "}"#
                .to_owned(),
        );
    }
    event("content_block_stop", r#""index":0"#.to_owned());
    let stop = if turn < TURNS { "tool_use" } else { "end_turn" };
    if turn < TURNS {
        event(
            "content_block_start",
            format!(
                r#""index":1,"content_block":{{"type":"tool_use","id":"toolu_{turn}","name":"nothing","input":{{}}}}"#
            ),
        );
        event(
            "content_block_delta",
            format!(
                r#""index":1,"delta":{{"type":"input_json_delta","partial_json":"{{\"n\":{turn}}}"}}"#
            ),
        );
        event("content_block_stop", r#""index":1"#.to_owned());
    }
    event(
        "message_delta",
        format!(
            r#""delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":220}}"#
        ),
    );
    body.push_str("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}
