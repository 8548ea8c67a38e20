//! The agent and the gateway trace into one receiver: it is one trace, and the gateway's spans hang
//! below the agent's.

use std::collections::HashSet;
use std::io::Read as _;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prefixgate::config::Otlp;
use prost::Message as _;

use super::world::World;
use crate::it_support::Upstream;
use crate::it_support::upstream::Seen;

const TAKEN: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

fn body(seen: &Seen) -> Vec<u8> {
    if seen.header("content-encoding") != Some("gzip") {
        return seen.body.clone();
    }
    let mut body = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(seen.body.as_slice());
    unpacked.read_to_end(&mut body).unwrap();
    body
}

fn spans(receiver: &Upstream) -> Vec<Span> {
    let posts = receiver.seen();
    let requests = posts
        .iter()
        .map(|seen| ExportTraceServiceRequest::decode(body(seen).as_slice()).unwrap());
    let scopes = requests
        .flat_map(|request| request.resource_spans)
        .flat_map(|of| of.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    let found = span.attributes.iter().find(|pair| pair.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateways_spans_are_children_of_the_agents() {
    let receiver = Upstream::answering(TAKEN).await;
    let mut otlp = Otlp::at(format!("{}/v1/traces", receiver.url()).parse().unwrap());
    otlp.batch_wait = Duration::from_millis(50);
    let world = World::start(Some(otlp)).await;
    world.file("hello.txt", "the secret of the file\n");
    let task = "the words of the task [[plan:read,read_missing,end]] [[inject:529 @1]]";
    let url = receiver.url();
    let run = world
        .run(&["--json", "--app", "tests", "--otlp", &url, task])
        .await;
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
    let id = run.summary()["run"].as_str().unwrap().to_owned();
    world.gateway.shutdown().await;

    let all = spans(&receiver);
    let traces: HashSet<&[u8]> = all.iter().map(|span| &*span.trace_id).collect();
    assert_eq!(traces.len(), 1, "one trace");
    let (gateway, agent): (Vec<&Span>, Vec<&Span>) = all
        .iter()
        .partition(|span| text(span, "prefixgate.upstream").is_some());
    let ids: HashSet<&[u8]> = agent.iter().map(|span| &*span.span_id).collect();
    assert_eq!(ids.len(), agent.len(), "each has an id of its own");
    let named = |name: &str| -> Vec<&&Span> { agent.iter().filter(|s| s.name == name).collect() };

    let [outer] = named("invoke_agent main")[..] else {
        panic!("{agent:?}")
    };
    assert!(outer.parent_span_id.is_empty());
    assert_eq!(text(outer, "prefixgate.outcome"), Some("end_turn"));
    assert_eq!(text(outer, "gen_ai.conversation.id"), Some(&*id));
    let turns = named("chat claude-sonnet-5");
    assert_eq!(turns.len(), 3, "one span over all attempts of a turn");
    for turn in &turns {
        assert_eq!(turn.parent_span_id, outer.span_id);
        assert_eq!(text(turn, "gen_ai.operation.name"), Some("chat"));
        assert!(turn.start_time_unix_nano >= outer.start_time_unix_nano);
    }
    assert_eq!(
        turns.iter().map(|turn| turn.events.len()).sum::<usize>(),
        1,
        "one failed attempt"
    );
    // The gateway tells calls too, as it sees them in the requests, below its own spans.
    let own = |call: &&&Span| turns.iter().any(|turn| turn.span_id == call.parent_span_id);
    let mut calls = named("execute_tool read_file");
    calls.retain(own);
    assert_eq!(calls.len(), 2);
    assert_eq!(
        calls
            .iter()
            .filter(|call| text(call, "error.type").is_some())
            .count(),
        1
    );

    let turns: HashSet<&[u8]> = turns.iter().map(|turn| &*turn.span_id).collect();
    let theirs: Vec<&&Span> = gateway
        .iter()
        .filter(|s| s.name.starts_with("chat "))
        .collect();
    assert!(theirs.len() >= 3, "{gateway:?}");
    for span in &theirs {
        assert!(turns.contains(&*span.parent_span_id), "{span:?}");
        assert_eq!(text(span, "prefixgate.run"), Some(&*id));
        assert_eq!(text(span, "prefixgate.app"), Some("tests"));
        assert_eq!(text(span, "prefixgate.agent"), Some("main"));
    }
    let told = format!("{all:?}");
    for content in ["words of the task", "secret of the file", "DONE after"] {
        assert!(!told.contains(content), "{content}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_away_costs_one_warning() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let args = [
        "--quiet",
        "--otlp",
        "http://127.0.0.1:9",
        "[[plan:read,end]]",
    ];
    let run = world.run(&args).await;
    assert_eq!(
        (run.code, run.out.as_str()),
        (Some(0), "DONE after 1 tool turns.\n")
    );
    assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    assert!(run.err.contains("OTLP"), "{}", run.err);
}
