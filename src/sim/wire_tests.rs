//! The provider over real sockets: protocols, streams, faults, records.

use std::io::Read as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::*;

struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    whole: bool,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

async fn call(
    sim: &Sim,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    h2: bool,
) -> Option<Got> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(h2)
        .build_http();
    let mut request = Request::builder()
        .method(method)
        .uri(format!("{}{path}", sim.base_url()))
        .header("x-api-key", "k")
        .header("anthropic-version", "2023-06-01");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap();
    let response = client.request(request).await.ok()?;
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    let mut whole = true;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => {
                whole = false;
                break;
            }
        }
    }
    Some(Got {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: bytes,
        whole,
    })
}

fn body(words: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"test-sonnet","max_tokens":5000,"stream":{stream},"messages":[{{"role":"user","content":"{words} [[inject-any]]"}}]}}"#
    )
}

async fn post(sim: &Sim, words: &str, stream: bool) -> Option<Got> {
    call(
        sim,
        "POST",
        "/v1/messages",
        &[],
        body(words, stream).as_bytes(),
        false,
    )
    .await
}

fn start(change: impl FnOnce(&mut Options)) -> Sim {
    let mut options = Options::default();
    change(&mut options);
    Sim::start(options).unwrap()
}

#[tokio::test]
async fn both_protocols_answer_and_everything_is_recorded() {
    let sim = start(|_| {});
    for h2 in [false, true] {
        let sent = body("hi", true);
        let got = call(
            &sim,
            "POST",
            "/v1/messages?beta=true",
            &[("x-odd", "1")],
            sent.as_bytes(),
            h2,
        )
        .await
        .unwrap();
        assert_eq!(got.status, 200);
        assert_eq!(
            got.header("content-type"),
            "text/event-stream; charset=utf-8"
        );
        assert!(got.header("request-id").starts_with("req_01"));
        assert!(!got.header("anthropic-organization-id").is_empty());
        assert_eq!(got.header("anthropic-ratelimit-requests-limit"), "1000");
        assert!(
            got.text()
                .starts_with("event: message_start\ndata: {\"type\":\"message_start\"")
        );
        assert!(
            got.text()
                .ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
        );
        let requests = sim
            .wait_for(|all| all.last().is_some_and(|r| r.end == End::Whole))
            .await;
        let last = requests.last().unwrap();
        assert_eq!(last.version, if h2 { "HTTP/2.0" } else { "HTTP/1.1" });
        assert_eq!(
            (last.method.as_str(), last.target.as_str()),
            ("POST", "/v1/messages?beta=true")
        );
        assert_eq!((last.header("x-odd"), last.status), (Some("1"), Some(200)));
        assert_eq!(last.body, sent);
        assert!(last.tokens.unwrap().uncached > 0);
    }
    assert_eq!(sim.requests()[1].seq, 1);
    sim.shutdown().await;
}

#[tokio::test]
async fn the_small_endpoints() {
    let sim = start(|_| {});
    let get = async |path: &str| call(&sim, "GET", path, &[], b"", false).await.unwrap();
    let models: serde_json::Value = serde_json::from_str(&get("/v1/models").await.text()).unwrap();
    assert_eq!(models["first_id"], models["data"][0]["id"]);
    assert_eq!(get("/v1/models/claude-haiku-4-5").await.status, 200);
    assert_eq!(get("/v1/models/none").await.status, 404);
    assert_eq!(
        call(&sim, "HEAD", "/api/hello", &[], b"", false)
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(
        call(&sim, "HEAD", "/", &[], b"", false)
            .await
            .unwrap()
            .status,
        200
    );
    let lost = get("/v1/complete").await;
    let error: serde_json::Value = serde_json::from_str(&lost.text()).unwrap();
    assert_eq!(
        (lost.status, error["error"]["type"].as_str()),
        (404, Some("not_found_error"))
    );
    assert_eq!(
        error["request_id"].as_str(),
        Some(lost.header("request-id"))
    );
    let count = body("hi", false).replace(r#""max_tokens":5000,"stream":false,"#, "");
    let counted = call(
        &sim,
        "POST",
        "/v1/messages/count_tokens",
        &[],
        count.as_bytes(),
        false,
    )
    .await
    .unwrap();
    let counted: serde_json::Value = serde_json::from_str(&counted.text()).unwrap();
    let answered: serde_json::Value =
        serde_json::from_str(&post(&sim, "hi", false).await.unwrap().text()).unwrap();
    assert_eq!(counted["input_tokens"], answered["usage"]["input_tokens"]);
}

#[tokio::test]
async fn refusals_have_status_shape_and_record() {
    let sim = start(|_| {});
    let bad = call(&sim, "POST", "/v1/messages", &[], b"{", false)
        .await
        .unwrap();
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("not valid JSON"));
    let recorded = sim.requests().pop().unwrap();
    assert_eq!(recorded.status, Some(400));
    assert!(recorded.error.unwrap().contains("not valid JSON"));
    let limited = post(&sim, "[[inject:429rans]]", false).await.unwrap();
    assert_eq!(
        (
            limited.status,
            limited.header("retry-after"),
            limited.header("x-should-retry")
        ),
        (429, "2", "false")
    );
    let html = post(&sim, "[[inject:html502]]", false).await.unwrap();
    assert_eq!(
        (html.status, html.header("content-type")),
        (502, "text/html")
    );
    assert!(post(&sim, "[[inject:drop0]]", false).await.is_none());
    assert_eq!(sim.requests().pop().unwrap().end, End::Fault);
}

#[tokio::test]
async fn streams_break_end_and_report_as_told() {
    let sim = start(|_| {});
    let check = async |kind: &str, whole: bool, error: bool| {
        let got = post(&sim, &format!("[[inject:{kind}]]"), true)
            .await
            .unwrap();
        assert_eq!((got.status, got.whole), (200, whole), "{kind}");
        assert_eq!(got.text().contains("event: error"), error, "{kind}");
        assert!(!got.text().contains("message_stop"), "{kind}");
        assert!(got.text().contains("text_delta"), "{kind}");
    };
    check("drop", false, false).await;
    check("cut", true, false).await;
    check("sse_overloaded", true, true).await;
    let half = post(&sim, "[[inject:drop]]!", false).await.unwrap();
    assert!(!half.whole && !half.body.is_empty());
}

#[tokio::test]
async fn faults_cut_split_and_stall_the_bytes() {
    let sim = start(|_| {});
    let whole = post(&sim, "[[text:3000]]", true).await.unwrap();
    sim.set_fault(Fault {
        cut_at: Some(700),
        ..Fault::default()
    });
    let cut = post(&sim, "[[text:3000]]", true).await.unwrap();
    assert!(!cut.whole && cut.body.len() <= 700);
    sim.set_fault(Fault {
        end_at: Some(700),
        ..Fault::default()
    });
    let ended = post(&sim, "[[text:3000]]", true).await.unwrap();
    assert!(ended.whole);
    assert_eq!(ended.body.len(), 700);
    sim.set_fault(Fault {
        split: Some(1),
        ..Fault::default()
    });
    let split = post(&sim, "[[text:3000]]", true).await.unwrap();
    assert!(split.whole);
    assert_eq!(split.body.len(), whole.body.len());
    sim.set_fault(Fault {
        cut_at: Some(10),
        ..Fault::default()
    });
    let document = post(&sim, "x", false).await.unwrap();
    assert!(!document.whole && document.body.len() <= 10);
    sim.set_fault(Fault {
        inject: Some("529".into()),
        ..Fault::default()
    });
    assert_eq!(post(&sim, "x", false).await.unwrap().status, 529);
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let sim = start(|_| {});
    for words in ["[[inject:stall]]", "[[inject:stall0]]"] {
        let before = sim.requests().len();
        let gone = tokio::time::timeout(Duration::from_millis(100), post(&sim, words, true)).await;
        assert!(gone.is_err(), "{words} does not end by itself");
        let requests = sim
            .wait_for(|all| all.len() > before && all[before].end != End::Open)
            .await;
        assert_eq!(requests[before].end, End::ClientGone, "{words}");
    }
}

#[tokio::test]
async fn bodies_are_compressed_both_ways() {
    let sim = start(|options| options.compress = true);
    let unpack = |bytes: &[u8]| {
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes)
            .read_to_string(&mut text)
            .unwrap();
        text
    };
    for stream in [false, true] {
        let packed = body::gzip(body("hi", stream).as_bytes());
        let headers = [("content-encoding", "gzip"), ("accept-encoding", "gzip")];
        let got = call(&sim, "POST", "/v1/messages", &headers, &packed, false)
            .await
            .unwrap();
        assert_eq!((got.status, got.header("content-encoding")), (200, "gzip"));
        assert!(unpack(&got.body).contains("DONE") || unpack(&got.body).contains("ok"));
        assert_eq!(sim.requests().pop().unwrap().body, packed);
    }
    let plain = post(&sim, "hi", false).await.unwrap();
    assert_eq!(
        plain.header("content-encoding"),
        "",
        "only if the client accepts it"
    );
    let forced = post(&sim, "[[inject:gzip]]", true).await.unwrap();
    assert!(unpack(&forced.body).contains("message_stop"));
    let broken = call(
        &sim,
        "POST",
        "/v1/messages",
        &[("content-encoding", "gzip")],
        b"nope",
        false,
    )
    .await
    .unwrap();
    assert!(broken.status == 400 && broken.text().contains("request_body_encoding_invalid"));
}

#[tokio::test]
async fn a_batch_is_created_polled_and_read() {
    let sim = start(|_| {});
    let item = |name: &str, params: &str| format!(r#"{{"custom_id":"{name}","params":{params}}}"#);
    let good = body("hi", false).replace(r#""stream":false,"#, "");
    let bad = good.replace("5000", "0");
    let list = format!(
        r#"{{"requests":[{},{}]}}"#,
        item("a", &good),
        item("b", &bad)
    );
    let parse = |got: Got| serde_json::from_str::<serde_json::Value>(&got.text()).unwrap();
    let made = parse(
        call(
            &sim,
            "POST",
            "/v1/messages/batches",
            &[],
            list.as_bytes(),
            false,
        )
        .await
        .unwrap(),
    );
    assert_eq!(made["processing_status"], "in_progress");
    assert_eq!(made["request_counts"]["processing"], 2);
    let path = format!("/v1/messages/batches/{}", made["id"].as_str().unwrap());
    let polled = parse(call(&sim, "GET", &path, &[], b"", false).await.unwrap());
    assert_eq!(polled["processing_status"], "ended");
    assert_eq!(
        (
            &polled["request_counts"]["succeeded"],
            &polled["request_counts"]["errored"]
        ),
        (&1.into(), &1.into())
    );
    let results = call(&sim, "GET", &format!("{path}/results"), &[], b"", false)
        .await
        .unwrap()
        .text();
    let lines: Vec<serde_json::Value> = results
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines[0]["result"]["message"]["usage"]["service_tier"],
        "batch"
    );
    assert_eq!(
        lines[1]["result"]["error"]["error"]["type"],
        "invalid_request_error"
    );
    assert_eq!(
        call(&sim, "GET", "/v1/messages/batches/none", &[], b"", false)
            .await
            .unwrap()
            .status,
        404
    );
}

#[tokio::test]
async fn a_thread_is_held_only_when_its_answer_was_complete() {
    let sim = start(|_| {});
    let beta = [("anthropic-beta", "message-threads-2026-08-12")];
    let send = async |words: &str, thread: &str| {
        let text =
            body(words, true).replace(r#""stream""#, &format!(r#""thread":{thread},"stream""#));
        call(&sim, "POST", "/v1/messages", &beta, text.as_bytes(), false)
            .await
            .unwrap()
    };
    let id = |got: &Got| {
        got.text()
            .split(r#""id":""#)
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    let go_on = |id: &str| format!(r#"{{"type":"continue","previous_message_id":"{id}"}}"#);
    let first = id(&send("a", r#"{"type":"create"}"#).await);
    sim.wait_for(|all| all.iter().all(|r| r.end == End::Whole))
        .await;
    let broken = send("b [[inject:cut]]", &go_on(&first)).await;
    let broken = id(&broken);
    sim.wait_for(|all| all.iter().all(|r| r.end != End::Open))
        .await;
    let lost = send("c", &go_on(&broken)).await;
    assert!(lost.status == 404 && lost.text().contains("thread_not_found"));
    assert_eq!(
        send("d", &go_on(&first)).await.status,
        200,
        "the first answer can still be continued"
    );
}

#[tokio::test]
async fn it_stops_when_dropped_or_told() {
    let sim = start(|_| {});
    let addr = sim.addr();
    sim.shutdown().await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    assert!(
        Sim::start(Options {
            listen: "203.0.113.1:1".parse().unwrap(),
            ..Options::default()
        })
        .is_err()
    );
}
