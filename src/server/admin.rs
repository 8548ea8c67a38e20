//! The admin listener: metrics and health. Loopback by default, and only for callers that name it
//! by an address or as `localhost`, so that a web page cannot reach it through a name of its own.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{ACCEPT_PAUSE, HEAD_TIMEOUT, remotes as stores};
use crate::config::RedisDown;
use crate::export::prometheus;
use crate::proxy::Shared;

pub(super) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    remotes: stores::View,
    proxy: SocketAddr,
    stopped: watch::Receiver<bool>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (shared, stopped, remotes) = (shared.clone(), stopped.clone(), remotes.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let draining = *stopped.borrow();
            let response = answer(&request, &shared, &remotes, proxy, draining);
            async move { Ok::<_, Infallible>(response) }
        });
        // Ends with its client; the task that accepts is aborted at shutdown.
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "admin connection ended");
            }
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    shared: &Shared,
    remotes: &stores::View,
    proxy: SocketAddr,
    draining: bool,
) -> Response<Full<Bytes>> {
    let host = request.headers().get(HOST).and_then(|v| v.to_str().ok());
    if !host.is_none_or(is_address) {
        let text = "the admin listener answers only to an address or `localhost` as host\n";
        return text_response(StatusCode::MISDIRECTED_REQUEST, "text/plain", text.into());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text_response(
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "GET only\n".into(),
        );
    }
    match request.uri().path() {
        "/metrics" => {
            let m = &shared.metrics;
            let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            let recorder = &shared.recorder;
            m.records(recorder.written(), |reason| recorder.dropped_for(reason));
            for progress in &*remotes.progress {
                let limit = shared.config.spool.max_bytes;
                m.remote(progress.store(), &stores::stats(progress, limit));
            }
            if let Some(counts) = &remotes.otlp {
                m.otlp(&counts.stats());
            }
            if let Some(capture) = &shared.capture {
                m.capture(capture);
            }
            if let Some(stats) = shared.guards.ledger.stats() {
                m.ledger(&stats);
            }
            m.threads.set(gauge(shared.registry.threads() as u64));
            match prometheus::render(m) {
                Ok(text) => text_response(StatusCode::OK, prometheus::CONTENT_TYPE, text),
                Err(error) => {
                    tracing::error!(%error, "metrics cannot be rendered");
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    text_response(status, "text/plain", "metrics cannot be rendered\n".into())
                }
            }
        }
        "/healthz" => {
            let version = env!("CARGO_PKG_VERSION");
            let data_dir = serde_json::Value::from(shared.config.data_dir.to_string_lossy());
            let body = format!(
                "{{\"service\":\"prefixgate\",\"version\":\"{version}\",\"proxy\":\"http://{proxy}\",\"data_dir\":{data_dir}}}\n"
            );
            text_response(StatusCode::OK, "application/json", body)
        }
        "/readyz" if draining => text_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain",
            "draining\n".into(),
        ),
        "/readyz" => {
            let text = format!("ready\n{}", beside(shared, remotes));
            text_response(StatusCode::OK, "text/plain", text)
        }
        _ => {
            let text = "there is /metrics, /healthz and /readyz\n";
            text_response(StatusCode::NOT_FOUND, "text/plain", text.into())
        }
    }
}

/// How what the gateway works with stands, a line each. None of it makes a gateway unready: another
/// one of the same settings would have the same trouble.
fn beside(shared: &Shared, remotes: &stores::View) -> String {
    let mut text = String::new();
    if let Some(ledger) = shared.guards.ledger.stats() {
        text += match (ledger.up, shared.config.caps.redis_down) {
            (true, _) => "caps.redis: answers\n",
            (false, RedisDown::Local) => {
                "caps.redis: does not answer; requests go by the books of this gateway\n"
            }
            (false, RedisDown::Refuse) => {
                "caps.redis: does not answer; requests with caps are refused\n"
            }
        };
    }
    for progress in &*remotes.progress {
        let view = progress.view();
        let store = progress.store();
        text += &match view.down_since_ms {
            None => format!("{store}: takes records\n"),
            Some(_) => format!(
                "{store}: takes no records; {} wait on disk\n",
                view.waiting.records
            ),
        };
    }
    text
}

fn is_address(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn text_response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn a_page_of_another_name_cannot_ask() {
        for host in [
            "127.0.0.1:8788",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8788",
            "10.0.0.7",
        ] {
            assert!(is_address(host), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:8788",
            "localhost.evil:1",
            "",
        ] {
            assert!(!is_address(host), "{host}");
        }
    }
}
