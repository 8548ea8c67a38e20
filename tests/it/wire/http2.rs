//! Clients that speak HTTP/2 in the clear with prior knowledge.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Hand, RUN, events};
use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, chunk, json};
use crate::support::{Gateway, Step, Upstream, ask, eventually};

async fn connect(gateway: &Gateway) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(gateway.proxy).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn post(gateway: &Gateway, path: &str, run: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("{}{path}", gateway.url()))
        .header("x-prefixgate-run", run)
        .header("te", "trailers")
        .header("x-kept", "1")
        .body(Full::new(body.into()))
        .unwrap()
}

async fn read(response: Response<Incoming>) -> Result<Vec<u8>, hyper::Error> {
    Ok(response.into_body().collect().await?.to_bytes().to_vec())
}

#[tokio::test]
async fn many_streams_share_a_connection() {
    let upstream = Upstream::start(|seen, _| {
        let which = seen.line();
        vec![
            Step::Pause(Duration::from_millis(20)),
            Step::Write(super::sse(&events(&which))),
        ]
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let mut sender = connect(&gateway).await;
    let mut answers = Vec::new();
    for i in 0..40 {
        let path = format!("/v1/messages?{i}");
        answers.push((
            path.clone(),
            sender.send_request(post(&gateway, &path, "r", ask("m", true))),
        ));
    }
    for (path, answer) in answers {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().get("transfer-encoding").is_none());
        assert!(answer.headers().get("date").is_none());
        assert_eq!(read(answer).await.unwrap(), events(&format!("POST {path}")));
    }
    let seen = upstream.last();
    assert_eq!(
        (seen.header("x-kept"), seen.header("te")),
        (Some("1"), None)
    );
    assert_eq!(
        seen.header("host"),
        Some(upstream.addr.to_string().as_str())
    );
    assert_eq!(gateway.turns_of("r", 40).await.len(), 40);
}

#[tokio::test]
async fn a_large_body_passes() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(&upstream.url(), "", &["--cache", "off"]);
    let mut sender = connect(&gateway).await;
    let body = vec![b'x'; 20 << 20];
    for path in ["/v1/messages", "/v1/files"] {
        let answer = sender
            .send_request(post(&gateway, path, "r", body.clone()))
            .await
            .unwrap();
        assert_eq!(read(answer).await.unwrap(), b"{}");
        assert!(upstream.last().body == body);
    }
}

#[tokio::test]
async fn b10_too_large_is_said_here_too() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(&upstream.url(), "[server]\nmax_body = \"1MiB\"\n", &[]);
    let mut sender = connect(&gateway).await;
    let answer = sender
        .send_request(post(&gateway, "/v1/messages", "r", vec![b'x'; 8 << 20]))
        .await
        .unwrap();
    assert_eq!(answer.status(), 413);
    let body: serde_json::Value = serde_json::from_slice(&read(answer).await.unwrap()).unwrap();
    assert_eq!(body["error"]["type"], "request_too_large");
    // The connection lives on.
    let answer = sender
        .send_request(post(&gateway, "/v1/messages", "r", ask("m", false)))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn b16_a_cancelled_stream_cancels_the_upstream() {
    let upstream = Upstream::start(|seen, _| {
        let head = seen.line().ends_with("head");
        let mut steps = if head {
            vec![
                Step::write(SSE_HEAD),
                Step::Write(chunk(&events("x")[..300])),
            ]
        } else {
            vec![]
        };
        steps.push(Step::AwaitClose);
        steps
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let mut sender = connect(&gateway).await;
    // In the stream, and before its head.
    let answer = sender
        .send_request(post(&gateway, "/v1/messages?head", "r", ask("m", true)))
        .await
        .unwrap();
    let left = Instant::now();
    drop(answer);
    let closed = eventually("let go", async || upstream.closed().first().copied()).await;
    assert!(closed - left < Duration::from_secs(1));
    let waiting =
        tokio::spawn(sender.send_request(post(&gateway, "/v1/messages?none", "r", ask("m", true))));
    eventually("it is there", async || {
        (upstream.seen().len() == 2).then_some(())
    })
    .await;
    let left = Instant::now();
    waiting.abort();
    let closed = eventually("let go", async || upstream.closed().get(1).copied()).await;
    assert!(closed - left < Duration::from_secs(1));
    for turn in gateway.turns_of("r", 2).await {
        assert_eq!(turn["outcome"], "client_abort");
    }
}

#[tokio::test]
async fn b13_a_cut_stream_is_reset_and_its_neighbours_live() {
    let upstream = Hand::new().await;
    let gateway = Gateway::start(&upstream.url());
    let mut sender = connect(&gateway).await;
    let pending =
        tokio::spawn(sender.send_request(post(&gateway, "/v1/messages", "cut", ask("m", true))));
    let mut one = upstream.accept().await;
    let half = &events("half")[..400];
    one.send(&[SSE_HEAD, &chunk(half)].concat()).await;
    let cut = pending.await.unwrap().unwrap();
    let pending =
        tokio::spawn(sender.send_request(post(&gateway, "/v1/messages", "whole", ask("m", true))));
    let mut two = upstream.accept().await;
    two.send(SSE_HEAD).await;
    let whole = pending.await.unwrap().unwrap();
    // A clean end without the last event is a cut as well.
    one.send(LAST_CHUNK).await;
    let error = read(cut).await.unwrap_err();
    assert!(!error.is_incomplete_message(), "{error:?}");
    two.send(&[&chunk(&events("all"))[..], LAST_CHUNK].concat())
        .await;
    assert_eq!(read(whole).await.unwrap(), events("all"));
    assert_eq!(
        gateway.turns_of("cut", 1).await[0]["outcome"],
        "upstream_cut"
    );
    assert_eq!(gateway.turns_of("whole", 1).await[0]["outcome"], "ok");
}

#[tokio::test]
async fn a_stream_under_way_survives_the_drain() {
    let upstream = Hand::new().await;
    let mut gateway = Gateway::start(&upstream.url());
    let mut sender = connect(&gateway).await;
    let pending = tokio::spawn(sender.send_request(post(
        &gateway,
        "/v1/messages",
        &RUN[RUN.len() - 1..],
        ask("m", true),
    )));
    let mut held = upstream.accept().await;
    held.send(SSE_HEAD).await;
    let answer = pending.await.unwrap().unwrap();
    gateway.signal("TERM");
    eventually("refused", async || {
        tokio::net::TcpStream::connect(gateway.proxy)
            .await
            .is_err()
            .then_some(())
    })
    .await;
    held.send(&[&chunk(&events("all"))[..], LAST_CHUNK].concat())
        .await;
    assert_eq!(read(answer).await.unwrap(), events("all"));
    drop(sender);
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!(
        crate::support::gateway::turns_of(&gateway.data(), "r")[0]["outcome"],
        "ok"
    );
}
