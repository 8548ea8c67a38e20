//! Upstreams behind TLS, with a CA of the user's own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{RUN, events};
use crate::support::{Gateway, Wire, ask, secure};

type Seen = Arc<Mutex<Vec<(http::Version, http::HeaderMap, Bytes)>>>;

struct Secure {
    addr: SocketAddr,
    ca: tempfile::NamedTempFile,
    seen: Seen,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Secure {
    /// An upstream that offers these protocols. A WebSocket is answered by an echo.
    async fn start(alpn: &[&[u8]]) -> Self {
        let (acceptor, file) = secure::acceptor(alpn);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Seen::default();
        let log = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, log) = (acceptor.clone(), log.clone());
                tokio::spawn(async move {
                    // A client that does not trust us leaves here.
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| answer(request, log.clone()));
                    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                        .serve_connection_with_upgrades(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            addr,
            ca: file,
            seen,
            task,
        }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.addr.port())
    }

    fn config(&self) -> String {
        format!("[tls]\nextra_ca = \"{}\"\n", self.ca.path().display())
    }
}

async fn answer(
    mut request: Request<Incoming>,
    log: Seen,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    if request.headers().contains_key("upgrade") {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            let mut bytes = [0; 4];
            io.read_exact(&mut bytes).await.unwrap();
            io.write_all(&bytes).await.unwrap();
        });
        return Ok(Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .body(Full::default())
            .unwrap());
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    log.lock()
        .unwrap()
        .push((parts.version, parts.headers, body));
    Ok(Response::builder()
        .header("content-type", "text/event-stream")
        .body(Full::new(events("safe").into()))
        .unwrap())
}

#[tokio::test]
async fn the_users_ca_is_trusted_and_the_protocol_agreed() {
    let cases: [(&[&[u8]], http::Version); 4] = [
        (&[], http::Version::HTTP_11),
        (&[b"http/1.1"], http::Version::HTTP_11),
        (&[b"h2", b"http/1.1"], http::Version::HTTP_2),
        (&[b"h2"], http::Version::HTTP_2),
    ];
    for (alpn, version) in cases {
        let upstream = Secure::start(alpn).await;
        let gateway = Gateway::with(&upstream.url(), &upstream.config(), &["--cache", "off"]);
        let body = ask("m", true);
        let mut wire = Wire::connect(gateway.proxy).await;
        for path in ["/v1/messages", "/v1/files"] {
            wire.post(
                path,
                &[
                    RUN,
                    "te: trailers",
                    "connection: x-hop",
                    "x-hop: 1",
                    "X-Kept: 1",
                ],
                body.as_bytes(),
            )
            .await;
            let reply = wire.response().await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_eq!(reply.body, events("safe"));
            let (used, headers, sent) = upstream.seen.lock().unwrap().last().cloned().unwrap();
            assert_eq!(used, version);
            assert_eq!(sent, body.as_bytes());
            assert_eq!(headers["x-kept"], "1");
            assert!(!headers.contains_key("x-hop") && !headers.contains_key("connection"));
        }
        assert_eq!(gateway.turns_of("r", 1).await[0]["outcome"], "ok");
    }
}

#[tokio::test]
async fn a_stranger_is_not_trusted_and_it_is_said() {
    let upstream = Secure::start(&[]).await;
    let gateway = Gateway::start(&upstream.url());
    let reply = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &[RUN],
        ask("m", true).as_bytes(),
    )
    .await;
    assert_eq!(reply.status, 502);
    assert!(
        reply.text().contains("UnknownIssuer") || reply.text().contains("certificate"),
        "{}",
        reply.text()
    );
    assert!(upstream.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_websocket_reaches_an_upstream_that_prefers_http2() {
    let upstream = Secure::start(&[b"h2", b"http/1.1"]).await;
    let gateway = Gateway::with(&upstream.url(), &upstream.config(), &[]);
    // A pooled HTTP/2 connection must not tempt it.
    Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &[],
        ask("m", true).as_bytes(),
    )
    .await;
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(super::upgrades::ASK).await;
    let head = wire.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    wire.send(b"ping").await;
    while wire.buffer.len() < 4 {
        assert!(wire.read_more().await > 0);
    }
    assert_eq!(wire.buffer, b"ping");
}
