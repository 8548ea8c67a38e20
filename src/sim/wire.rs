//! The sockets of the simulated provider.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::answer::Step;
use super::batches;
use super::body::{Manner, SimBody, gzip, pumped};
use super::clock::rfc3339;
use super::error::ApiError;
use super::failure::Failure;
use super::head::Head;
use super::json::quote;
use super::models::{self, MODELS, Model};
use super::options::Fault;
use super::provider::{MAX_BODY, Provider, Ready, Window, decode, json};
use super::record::{End, Recorded, Recorder};
use super::validate::Purpose;

/// Largest batch body. Source: provider docs, Aug 2026.
const MAX_BATCH_BODY: usize = 256 << 20;

/// Limits that the rate-limit headers show (requests, input and output tokens per minute); the
/// first tier of the newest models. Nothing is refused for them.
const LIMITS: [u64; 3] = [1_000, 2_000_000, 400_000];

/// Everything a connection needs.
#[derive(Debug)]
pub struct Shared {
    /// The provider.
    pub provider: Arc<Provider>,
    /// The list of requests.
    pub recorder: Recorder,
    /// The fault of answers, changeable while running.
    pub fault: RwLock<Fault>,
    /// Where it listens.
    pub addr: SocketAddr,
}

/// The connection is to break without an answer.
#[derive(Debug, thiserror::Error)]
#[error("simulated fault: no answer")]
struct NoAnswer;

/// Accepts until told to stop, then ends all connections.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stop.changed() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let shared = Arc::clone(&shared);
                    connections.spawn(connection(stream, peer, shared));
                }
                // Out of descriptors or the like: give the system a moment instead of spinning.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            },
        }
    }
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { handle(&shared, peer, request).await }
    });
    // A connection that breaks is a client's business here.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Notes that the client left, unless the answer got an end of its own.
struct Open<'a> {
    recorder: &'a Recorder,
    seq: u64,
    armed: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.recorder
                .update(self.seq, |request| request.end = End::ClientGone);
        }
    }
}

async fn handle(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<SimBody>, NoAnswer> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let limit = if path.contains("/batches") {
        MAX_BATCH_BODY
    } else {
        MAX_BODY
    };
    let (bytes, arrived) = collect(body, limit).await;
    let at_ms = shared.provider.options.clock.now_ms();
    let seq = shared.recorder.begin(Recorded {
        peer: Some(peer),
        version: format!("{:?}", parts.version),
        method: parts.method.to_string(),
        target: parts
            .uri
            .path_and_query()
            .map_or_else(|| path.clone(), ToString::to_string),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
            .collect(),
        body: bytes.clone(),
        at_ms,
        ..Recorded::default()
    });
    let mut open = Open {
        recorder: &shared.recorder,
        seq,
        armed: true,
    };
    let request_id = shared.provider.id("req_");
    let exchange = Exchange {
        shared,
        headers: &parts.headers,
        seq,
        at_ms,
        request_id: &request_id,
    };
    let outcome = match arrived {
        Arrived::Broken => return Err(NoAnswer),
        Arrived::TooLarge => Err(ApiError::new(413, "Request exceeds the maximum size")),
        Arrived::Whole => exchange.route(&parts.method, &path, &bytes).await,
    };
    open.armed = false;
    match outcome {
        Ok(Some(response)) => Ok(response),
        Ok(None) => {
            shared
                .recorder
                .update(seq, |request| request.end = End::Fault);
            Err(NoAnswer)
        }
        Err(error) => Ok(exchange.refuse(&error)),
    }
}

enum Arrived {
    Whole,
    TooLarge,
    Broken,
}

async fn collect(mut body: Incoming, limit: usize) -> (Bytes, Arrived) {
    let mut out = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return (out.freeze(), Arrived::Broken);
        };
        if let Ok(data) = frame.into_data() {
            if out.len() + data.len() > limit {
                return (out.freeze(), Arrived::TooLarge);
            }
            out.extend_from_slice(&data);
        }
    }
    (out.freeze(), Arrived::Whole)
}

struct Exchange<'a> {
    shared: &'a Arc<Shared>,
    headers: &'a HeaderMap,
    seq: u64,
    at_ms: u64,
    request_id: &'a str,
}

/// `None` means that the connection breaks without an answer.
type Outcome = Result<Option<Response<SimBody>>, ApiError>;

impl Exchange<'_> {
    async fn route(&self, method: &Method, path: &str, body: &Bytes) -> Outcome {
        let provider = &self.shared.provider;
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let base = || format!("http://{}", self.shared.addr);
        match (method.as_str(), parts.as_slice()) {
            ("HEAD", [""] | ["api", "hello"]) => Ok(Some(self.plain("text/plain", String::new()))),
            ("POST", ["v1", "messages"]) => self.messages(body).await,
            ("POST", ["v1", "messages", "count_tokens"]) => {
                let (head, body) = self.read(body, MAX_BODY)?;
                let tokens = provider.count(&head, &body)?;
                Ok(Some(self.json(format!(r#"{{"input_tokens":{tokens}}}"#))))
            }
            ("POST", ["v1", "messages", "batches"]) => {
                let (head, body) = self.read(body, MAX_BATCH_BODY)?;
                Ok(Some(self.json(batches::create(provider, &head, &body)?)))
            }
            ("GET", ["v1", "messages", "batches", id]) => {
                let head = Head::read(self.headers)?;
                Ok(Some(self.json(batches::poll(
                    provider,
                    &head,
                    id,
                    &base(),
                )?)))
            }
            ("GET", ["v1", "messages", "batches", id, "results"]) => {
                let head = Head::read(self.headers)?;
                let lines = batches::results(provider, &head, id)?;
                Ok(Some(self.plain("application/x-jsonl", lines)))
            }
            ("GET", ["v1", "models"]) => {
                Head::read(self.headers)?;
                let list: Vec<String> = MODELS.iter().map(model_document).collect();
                let edge = |model: Option<&Model>| quote(model.map_or("", |model| model.id));
                Ok(Some(self.json(format!(
                    r#"{{"data":[{}],"has_more":false,"first_id":{},"last_id":{}}}"#,
                    list.join(","),
                    edge(MODELS.first()),
                    edge(MODELS.last())
                ))))
            }
            ("GET", ["v1", "models", id]) => {
                Head::read(self.headers)?;
                let model =
                    models::find(id).ok_or_else(|| ApiError::new(404, format!("model: {id}")))?;
                Ok(Some(self.json(model_document(model))))
            }
            _ => Err(ApiError::new(404, "Not Found")),
        }
    }

    fn read(&self, body: &Bytes, limit: usize) -> Result<(Head, super::json::Json), ApiError> {
        let head = Head::read(self.headers)?;
        let encoding = self
            .headers
            .get("content-encoding")
            .and_then(|value| value.to_str().ok());
        let body = match encoding {
            None => json(body)?,
            encoding => json(&decode(body, encoding, limit)?)?,
        };
        Ok((head, body))
    }

    async fn messages(&self, body: &Bytes) -> Outcome {
        let provider = &self.shared.provider;
        let (head, body) = self.read(body, MAX_BODY)?;
        let fault = self
            .shared
            .fault
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut ready = provider.answer(
            &head,
            &body,
            Purpose::Answer,
            fault.inject.as_deref(),
            self.at_ms,
        )?;
        drop(body);
        let delay = std::time::Duration::from_millis(ready.delay_ms) + provider.options.head_delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match ready.failure.as_ref().map(|(failure, _)| failure) {
            Some(Failure::Drop) => return Ok(None),
            Some(Failure::Stall) => std::future::pending().await,
            Some(Failure::Html) => {
                let mut response = self.plain("text/html", "<html>bad gateway</html>".to_owned());
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                self.note(502, None);
                return Ok(Some(response));
            }
            _ => {}
        }
        provider.begin(&mut ready);
        let window = provider.used(&head.scope, Some(ready.answer.tokens), ready.answer.output);
        self.shared.recorder.update(self.seq, |request| {
            request.status = Some(200);
            request.tokens = Some(ready.answer.tokens);
            request.message_id = Some(ready.answer.id.clone());
        });
        Ok(Some(self.write(ready, fault, window)))
    }

    /// Puts an answer on the wire.
    fn write(&self, ready: Ready, fault: Fault, window: Window) -> Response<SimBody> {
        let Ready {
            answer,
            stream,
            failure,
            claim,
            ..
        } = ready;
        let options = &self.shared.provider.options;
        let accepts = self
            .headers
            .get("accept-encoding")
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.contains("gzip"));
        let (forced, broken) = match &failure {
            Some((Failure::Gzip(broken), _)) => (true, *broken),
            _ => (false, false),
        };
        let compress = forced || (options.compress && accepts);
        let inside = match &failure {
            Some((Failure::Inside, kind)) => Some(kind.as_str()),
            _ => None,
        };
        let faulty = fault != Fault::default();
        let mut manner = Manner {
            step_delay: options.event_delay,
            fault,
            gzip: compress && stream && !broken,
            sized: !stream,
        };
        let document = if stream { String::new() } else { answer.json() };
        let steps = if stream {
            answer.stream(inside, self.request_id)
        } else {
            Vec::new()
        };
        let shared = Arc::clone(self.shared);
        let seq = self.seq;
        let on_end = move |end: End| {
            // The server may keep or lose a half-delivered turn; this one loses it.
            if end == End::Whole {
                claim.settle(&answer.id, &answer);
            }
            shared.recorder.update(seq, |request| request.end = end);
        };
        let (kind, length, body) = if stream {
            (
                "text/event-stream; charset=utf-8",
                None,
                pumped(steps, manner, on_end),
            )
        } else {
            let mut bytes = document.into_bytes();
            if compress && !broken {
                bytes = gzip(&bytes);
            }
            let length = bytes.len() as u64;
            if let Some(kind) = inside {
                manner.fault = half(kind, length);
            }
            if faulty || inside.is_some() {
                let step = Step::Raw(bytes.into());
                (
                    "application/json",
                    Some(length),
                    pumped(vec![step], manner, on_end),
                )
            } else {
                on_end(End::Whole);
                ("application/json", None, SimBody::Whole(Some(bytes.into())))
            }
        };
        let mut response = self.response(StatusCode::OK, kind, body);
        let headers = response.headers_mut();
        if stream {
            headers.insert("cache-control", HeaderValue::from_static("no-cache"));
        }
        if let Some(length) = length {
            headers.insert("content-length", HeaderValue::from(length));
        }
        if compress {
            headers.insert("content-encoding", HeaderValue::from_static("gzip"));
        }
        self.rate_limits(headers, window);
        response
    }

    fn rate_limits(&self, headers: &mut HeaderMap, window: Window) {
        let reset = rfc3339((self.at_ms / 60_000 + 1) * 60_000);
        let kinds = ["requests", "input-tokens", "output-tokens"];
        let used = [window.requests, window.input, window.output];
        for ((kind, used), limit) in kinds.into_iter().zip(used).zip(LIMITS) {
            let remaining = limit.saturating_sub(used);
            for (what, value) in [
                ("limit", limit.to_string()),
                ("remaining", remaining.to_string()),
                ("reset", reset.clone()),
            ] {
                let name = HeaderName::try_from(format!("anthropic-ratelimit-{kind}-{what}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
    }

    fn refuse(&self, error: &ApiError) -> Response<SimBody> {
        self.note(error.status, Some(&error.message));
        let status =
            StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = SimBody::from(error.body(self.request_id));
        let mut response = self.response(status, "application/json", body);
        for (name, value) in &error.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(*name, value);
            }
        }
        response
    }

    fn json(&self, document: String) -> Response<SimBody> {
        self.plain("application/json", document)
    }

    fn plain(&self, kind: &'static str, text: String) -> Response<SimBody> {
        self.note(200, None);
        self.response(StatusCode::OK, kind, SimBody::from(text))
    }

    fn note(&self, status: u16, error: Option<&str>) {
        self.shared.recorder.update(self.seq, |request| {
            request.status = Some(status);
            request.error = error.map(str::to_owned);
            request.end = End::Whole;
        });
    }

    fn response(&self, status: StatusCode, kind: &'static str, body: SimBody) -> Response<SimBody> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static(kind));
        if let Ok(id) = HeaderValue::try_from(self.request_id) {
            headers.insert("request-id", id);
        }
        headers.insert(
            "anthropic-organization-id",
            HeaderValue::from_static("00000000-0000-4000-8000-000000000001"),
        );
        response
    }
}

/// A failure inside a body that is no stream: it stops half way.
fn half(kind: &str, length: u64) -> Fault {
    let at = Some(length / 2);
    if kind == "stall" {
        Fault {
            stall_at: at,
            ..Fault::default()
        }
    } else {
        Fault {
            cut_at: at,
            ..Fault::default()
        }
    }
}

fn model_document(model: &Model) -> String {
    format!(
        concat!(
            r#"{{"type":"model","id":"{id}","display_name":"{id}","created_at":"2026-01-01T00:00:00Z","#,
            r#""lifecycle":"active","line":null,"max_input_tokens":{context},"max_tokens":{output},"#,
            r#""deprecated_at":null,"retires_at":null}}"#
        ),
        id = model.id,
        context = model.context,
        output = model.max_output,
    )
}
