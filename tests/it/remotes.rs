//! The remote stores as a user has them: the real program, its spool, ClickHouse's engine, a receiver
//! of spans.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prefixgate::spool::{self, Status};
use prefixgate::store::{Filter, Questions as _, Sqlite};
use prost::Message as _;

use crate::support::upstream::{json, message};
use crate::support::{ClickHouse, Gateway, Step, Upstream, Wire, ask, eventually};

const USAGE: &str = r#"{"input_tokens":1000,"output_tokens":100,"cache_read_input_tokens":0,"cache_creation_input_tokens":0}"#;
const RUN: &str = "x-prefixgate-run: kept";

async fn provider() -> Upstream {
    Upstream::answering(json(200, &message("claude-sonnet-5", USAGE))).await
}

fn to(engine: &ClickHouse, more: &str) -> String {
    format!(
        "[clickhouse]\nurl = \"{}\"\ndatabase = \"kept\"\nbatch_wait = \"20ms\"\n{more}",
        engine.url()
    )
}

async fn turn(gateway: &Gateway) -> u16 {
    let body = ask("claude-sonnet-5", false);
    let headers = ["x-api-key: k", RUN];
    let reply = Wire::exchange(gateway.proxy, "/v1/messages", &headers, body.as_bytes());
    reply.await.status
}

fn standing(data: &Path) -> Status {
    spool::status(&data.join("spool/clickhouse")).unwrap()
}

/// The ids in the trace database, and the sum of their costs.
fn in_sqlite(data: &Path) -> (BTreeSet<String>, u128) {
    let store = Sqlite::open_read(data).unwrap();
    let turns = store.turns("kept", &Filter::all(usize::MAX), true).unwrap();
    let cost = turns.iter().map(|t| u128::from(t.cost_pico.unwrap())).sum();
    (turns.iter().map(|t| t.id.to_string()).collect(), cost)
}

fn in_clickhouse(engine: &ClickHouse) -> BTreeSet<String> {
    let ids = engine.query("SELECT toString(id) FROM kept.turns");
    ids.lines().map(str::to_owned).collect()
}

/// Waits until everything that was accepted has left the spool, and ends the gateway.
pub async fn delivered(mut gateway: Gateway) -> Gateway {
    let waiting = async || {
        gateway
            .metric("prefixgate_spool_records", &["clickhouse"])
            .await
    };
    let deadline = Instant::now() + Duration::from_secs(240);
    while waiting().await > 0.0 {
        assert!(Instant::now() < deadline, "{}", gateway.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.signal("TERM");
    gateway.ended().await;
    gateway
}

/// CASES E03: the gateway is killed twenty times in the middle of its work. Whatever it had accepted is
/// in ClickHouse once, the sums by hour included, or counted as dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_twenty_kills_lose_no_accepted_row_and_double_none() {
    let engine = ClickHouse::start();
    let upstream = provider().await;
    let config = to(&engine, "batch_rows = 7\n");
    let mut gateway = Gateway::with(&upstream.url(), &config, &[]);
    let mut answered = 0;
    for round in 0..20 {
        // After so many answers, while three more requests are under way: moments that no clock and no
        // batch can know of.
        let enough = 40 + (round * 131) % 600;
        let count = Arc::new(AtomicUsize::new(0));
        let sending: Vec<_> = (0..4)
            .map(|_| {
                let (count, proxy) = (count.clone(), gateway.proxy);
                tokio::spawn(async move {
                    let body = ask("claude-sonnet-5", false);
                    let head = format!(
                        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: k\r\n{RUN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    loop {
                        let Ok(stream) = tokio::net::TcpStream::connect(proxy).await else {
                            return;
                        };
                        if !once(stream, head.as_bytes()).await {
                            return;
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while count.load(Ordering::Relaxed) < enough {
            tokio::task::yield_now().await;
        }
        gateway = gateway.restart(&upstream.url(), &config, &[]);
        for sender in sending {
            sender.await.unwrap();
        }
        answered += count.load(Ordering::Relaxed);
    }
    let gateway = delivered(gateway).await;

    let status = standing(&gateway.data());
    let counted = status.counted;
    assert_eq!(status.waiting.records, 0);
    assert_eq!(
        counted.accepted(),
        counted.delivered + counted.dropped_total()
    );
    assert_eq!(counted.dropped_total(), 0, "{counted:?}");
    let (kept, _) = in_sqlite(&gateway.data());
    let there = in_clickhouse(&engine);
    let missing: Vec<_> = kept.difference(&there).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Each once, before any merge: by the ids, by the raw rows, and in the sums by hour.
    let rows = engine.query("SELECT count(), uniqExact(id) FROM kept.turns");
    let n = there.len();
    assert_eq!(rows, format!("{n}\t{n}"));
    assert_eq!(counted.delivered, n as u64);
    let sums = engine.query("SELECT sum(requests), sum(cost_pico) FROM kept.turns_by_hour");
    let each = engine.query("SELECT any(cost_pico) FROM kept.turns");
    let cost = each.parse::<u128>().unwrap() * n as u128;
    assert_eq!(sums, format!("{n}\t{cost}"));
    // What a kill takes is what no store had yet: some milliseconds of each round.
    assert!(n > answered / 2, "{n} of {answered}");
    println!(
        "{answered} answered, {n} in ClickHouse, {} in SQLite",
        kept.len()
    );
}

/// Sends a request and reads its answer; `false` when the gateway went away under it.
async fn once(mut stream: tokio::net::TcpStream, request: &[u8]) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    if stream.write_all(request).await.is_err() {
        return false;
    }
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        match stream.read_buf(&mut answer).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    true
}

/// CASES E03: with the store away or hanging, requests are answered as ever, and nothing is missing
/// when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e03_a_store_that_is_away_or_hangs_costs_no_request_and_no_row() {
    let mut engine = ClickHouse::start();
    let upstream = provider().await;
    let gateway = Gateway::with(&upstream.url(), &to(&engine, ""), &[]);
    let three = async || {
        for _ in 0..3 {
            assert_eq!(turn(&gateway).await, 200);
        }
    };
    three().await;
    eventually("the first rows", async || {
        let found = engine.try_query("SELECT count() FROM kept.turns");
        (found.as_deref() == Ok("3")).then_some(())
    })
    .await;
    engine.kill();
    three().await;
    let down = async || {
        gateway
            .metric("prefixgate_remote_up", &["clickhouse"])
            .await
            == 0.0
    };
    eventually("it is known to be away", async || {
        down().await.then_some(())
    })
    .await;
    let log = gateway.log();
    assert!(log.contains("a store takes nothing"), "{log}");
    engine.run();
    engine.freeze();
    three().await;
    assert!(gateway.metric("prefixgate_spool_records", &[]).await >= 3.0);
    engine.thaw();
    let gateway = delivered(gateway).await;
    let (kept, cost) = in_sqlite(&gateway.data());
    assert_eq!(in_clickhouse(&engine), kept);
    let sums = engine.query("SELECT sum(requests), sum(cost_pico) FROM kept.turns_by_hour");
    assert_eq!(sums, format!("9\t{cost}"));
}

/// With the store away from the start, what waits goes out by a later process; what is there before
/// ClickHouse is configured goes out by `prefixgate export`, and nothing of it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_process_left_and_what_is_moved_arrives_once() {
    let engine = ClickHouse::start();
    let upstream = provider().await;
    let gateway = Gateway::start(&upstream.url());
    for _ in 0..2 {
        assert_eq!(turn(&gateway).await, 200);
    }
    gateway.turns_of("kept", 2).await;
    // Port 9 takes nothing.
    let nowhere =
        "[clickhouse]\nurl = \"http://127.0.0.1:9\"\ndatabase = \"kept\"\nbatch_wait = \"20ms\"\n";
    let mut gateway = gateway.restart(&upstream.url(), nowhere, &[]);
    for _ in 0..3 {
        assert_eq!(turn(&gateway).await, 200);
    }
    gateway.turns_of("kept", 5).await;
    gateway.signal("TERM");
    gateway.ended().await;
    let data = gateway.data();
    assert_eq!(standing(&data).waiting.records, 3);
    let url = format!("{}/kept", engine.url());
    let command = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
        let output = command.args(args).arg("--data-dir").arg(&data).output();
        let output = output.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    };
    let (_, shown) = command(&["spool", "status"]);
    assert!(shown.contains("clickhouse"), "{shown}");
    // Moved now, they would be counted twice in the sums.
    let export = ["export", "--to", "clickhouse", "--clickhouse", &url];
    let (done, why) = command(&export);
    assert!(!done && why.contains("3 records wait"), "{why}");
    let gateway = gateway.restart(&upstream.url(), &to(&engine, ""), &[]);
    let _gateway = delivered(gateway).await;
    let (done, text) = command(&export);
    assert!(done, "{text}");
    assert!(text.contains("requests: 2 sent, 3 there already"), "{text}");
    let (done, text) = command(&export);
    assert!(
        done && text.contains("requests: 0 sent, 5 there already"),
        "{text}"
    );
    let (kept, cost) = in_sqlite(&data);
    assert_eq!(in_clickhouse(&engine), kept);
    let sums = engine.query("SELECT sum(requests), sum(cost_pico) FROM kept.turns_by_hour");
    assert_eq!(sums, format!("5\t{cost}"));
    let (done, why) = command(&["spool", "drop", "--yes"]);
    assert!(done && why.contains("0 records given up"), "{why}");
}

fn spans(receiver: &Upstream) -> Vec<Span> {
    let posts = receiver.seen();
    let requests = posts.iter().map(|seen| {
        assert_eq!(seen.line(), "POST /v1/traces");
        let mut body = Vec::new();
        let mut unpacked = flate2::read::GzDecoder::new(seen.body.as_slice());
        std::io::Read::read_to_end(&mut unpacked, &mut body).unwrap();
        ExportTraceServiceRequest::decode(body.as_slice()).unwrap()
    });
    let scopes = requests
        .flat_map(|r| r.resource_spans)
        .flat_map(|r| r.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// The client's trace goes through the gateway: our span hangs below the client's, and the upstream is
/// told ours where that is wished, and else the client's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_hang_below_the_clients_and_the_upstream_is_told_ours_if_wished() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let sent = format!("00-{trace}-00f067aa0ba902b7-01");
    for propagate in [false, true] {
        let receiver = Upstream::start(|_, _| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
            vec![Step::write(head)]
        })
        .await;
        let upstream = provider().await;
        let config = format!("[otlp]\npropagate = {propagate}\n");
        let gateway = Gateway::with(&upstream.url(), &config, &["--otlp", &receiver.url()]);
        let header = format!("traceparent: {sent}");
        let body = ask("claude-sonnet-5", false);
        let headers = ["x-api-key: k", RUN, header.as_str()];
        let reply = Wire::exchange(gateway.proxy, "/v1/messages", &headers, body.as_bytes()).await;
        assert_eq!(reply.status, 200);
        let span = eventually("a span", async || {
            let mut spans = spans(&receiver).into_iter();
            spans.find(|span| span.name == "chat claude-sonnet-5")
        })
        .await;
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&span.trace_id), trace);
        assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
        let sent_spans = gateway
            .metric("prefixgate_otlp_spans_total", &["sent"])
            .await;
        let posts = [r#"signal="traces""#, r#"result="taken""#];
        let posts = gateway.metric("prefixgate_otlp_posts_total", &posts).await;
        assert!(sent_spans >= 1.0 && posts >= 1.0, "{sent_spans} {posts}");
        let told = upstream.last();
        let told = told.header("traceparent").unwrap();
        if propagate {
            assert_eq!(told, format!("00-{trace}-{}-01", hex(&span.span_id)));
        } else {
            assert_eq!(told, sent);
        }
    }
}
