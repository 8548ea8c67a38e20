//! OTLP against receivers: a scripted one for what an answer means, and one that nobody here wrote
//! for what the spans look like.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prefixgate::clock::{Clock, ManualClock};
use prefixgate::config::{Config, Otlp};
use prefixgate::export::otlp::{Exporter, Failure};
use prefixgate::proxy::upstream;
use prefixgate::trace::{
    CallStatus, Entry, EventKind, EventRecord, Outcome, RequestKind, ToolCallRecord, TurnRecord,
};
use prefixgate::usage::Usage;
use prost::Message as _;
use uuid::Uuid;

use crate::support::upstream::Seen;
use crate::support::{Step, Upstream};

mod answers;
mod backends;
mod rotel;

/// The start of a manual clock.
const T: i64 = 1_796_083_200_000;

fn at(url: &str) -> Otlp {
    Otlp::at(format!("{url}/v1/traces").parse().unwrap())
}

fn exporter(settings: &Otlp) -> (Exporter, ManualClock) {
    let config = Config::embedded("unused".into());
    let client = upstream::clients(&config).unwrap().pooled;
    let (clock, hand) = Clock::manual();
    let exporter = Exporter::new(settings, &config.upstreams, &[], client, clock);
    (exporter, hand)
}

/// A turn of 900 ms that starts `s` seconds after T.
fn turn(run: &str, thread: &str, n: u32, s: i64) -> TurnRecord {
    let mut turn = TurnRecord::begin(
        Uuid::now_v7(),
        RequestKind::Turn,
        "anthropic",
        T + s * 1_000,
    );
    turn.run_id = run.into();
    turn.run_source = "header";
    turn.thread_id = thread.into();
    turn.turn = n;
    turn.duration_us = 900_000;
    turn.status = Some(200);
    turn.outcome = Outcome::Ok;
    turn.model_requested = Some("claude-opus-5".into());
    turn.usage = Usage {
        uncached: Some(200),
        read: Some(900),
        write_5m: Some(100),
        write_1h: Some(0),
        output: Some(80),
        ..Usage::default()
    };
    turn.usage_complete = true;
    turn.cost_pico = Some(4_075_000_000);
    turn
}

fn call(turn: &TurnRecord, name: &str, id: &str, status: CallStatus, latency_ms: u64) -> Entry {
    Entry::Call(Box::new(ToolCallRecord {
        turn_id: turn.id,
        run_id: turn.run_id.clone(),
        thread_id: turn.thread_id.clone(),
        call_id: id.into(),
        name: name.into(),
        input_hash: "ab".into(),
        input_bytes: 40,
        asked_ms: turn.started_ms + 900,
        status,
        latency_ms: Some(latency_ms),
        result_bytes: Some(7),
        wrong: None,
        retries: 0,
    }))
}

fn of(turn: &TurnRecord) -> Entry {
    Entry::Turn(Box::new(turn.clone()))
}

/// A run whose first turn starts a sub-agent, which calls a tool that fails, and goes on with its
/// result after a loop was noticed.
fn run_with_a_sub_agent(run: &str) -> Vec<Entry> {
    let first = turn(run, "main", 1, 0);
    let mut sub = turn(run, "Explore", 1, 2);
    sub.agent = Some("Explore".into());
    sub.parent_thread = Some("main".into());
    let last = turn(run, "main", 2, 10);
    let event = EventRecord {
        id: Uuid::now_v7(),
        at_ms: last.started_ms + 5,
        kind: EventKind::Loop,
        name: "same_error".into(),
        run_id: run.into(),
        thread_id: "main".into(),
        turn_id: Some(last.id),
        app: None,
        scope: String::new(),
        action: "warn".into(),
        value: Some(3),
        limit: Some(3),
        level: None,
        pico: None,
        tools: vec!["Task".into()],
    };
    vec![
        of(&first),
        of(&sub),
        call(&sub, "Bash", "toolu_2", CallStatus::Failed, 250),
        call(&first, "Task", "toolu_1", CallStatus::Ok, 9_000),
        Entry::Event(Box::new(event)),
        of(&last),
    ]
}

/// The body of a post, unpacked.
fn body(seen: &Seen) -> Vec<u8> {
    match seen.header("content-encoding") {
        Some("gzip") => {
            let mut body = Vec::new();
            let mut unpacked = flate2::read::GzDecoder::new(seen.body.as_slice());
            unpacked.read_to_end(&mut body).unwrap();
            body
        }
        None => seen.body.clone(),
        Some(other) => panic!("{other}"),
    }
}

fn spans(seen: &Seen) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body(seen).as_slice()).unwrap();
    let scopes = request
        .resource_spans
        .into_iter()
        .flat_map(|of| of.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<Step> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    vec![Step::write([head.as_bytes(), body].concat())]
}
