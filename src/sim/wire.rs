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
use super::openai::{self, OpenAiError};
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
    /// Turns true when it stops.
    pub stopped: watch::Receiver<bool>,
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
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
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
    mut request: Request<Incoming>,
) -> Result<Response<SimBody>, NoAnswer> {
    let upgrade = openai::wants_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let openai = openai::speaks(&path, &parts.headers);
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
        openai,
    };
    let response = match (arrived, upgrade) {
        (Arrived::Broken, _) => return Err(NoAnswer),
        (Arrived::Whole, Some(upgrade)) => Some(exchange.openai_socket(upgrade)),
        (Arrived::Whole, None) if openai => {
            let query = parts.uri.query().unwrap_or_default();
            exchange.openai(&parts.method, &path, query, &bytes).await
        }
        (arrived, _) => {
            let outcome = match arrived {
                Arrived::Whole => exchange.route(&parts.method, &path, &bytes).await,
                _ => Err(ApiError::new(413, "Request exceeds the maximum size")),
            };
            outcome.unwrap_or_else(|error| Some(exchange.refuse(&error)))
        }
    };
    open.armed = false;
    response.ok_or_else(|| {
        shared
            .recorder
            .update(seq, |request| request.end = End::Fault);
        NoAnswer
    })
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

/// One request that is being answered.
pub struct Exchange<'a> {
    /// What the connection has.
    pub shared: &'a Arc<Shared>,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// Its number.
    pub seq: u64,
    /// When it was complete, in Unix milliseconds.
    pub at_ms: u64,
    /// The id of its answer.
    pub request_id: &'a str,
    /// It belongs to the OpenAI side.
    pub openai: bool,
}

/// An answer of the model that goes out.
pub struct Outgoing {
    /// How it is written.
    pub shape: Shape,
    /// The failure at or after its head, with its name.
    pub failure: Option<(Failure, String)>,
    /// What goes wrong with its body.
    pub fault: Fault,
}

/// How an answer is written.
pub enum Shape {
    /// As a stream.
    Stream(Vec<Step>),
    /// As one document.
    Document(String),
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
        let fault = self.fault();
        let mut ready = provider.answer(
            &head,
            &body,
            Purpose::Answer,
            fault.inject.as_deref(),
            self.at_ms,
        )?;
        drop(body);
        if let Some(end) = self.hold_back(ready.delay_ms, &ready.failure).await {
            return Ok(end);
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

    /// The fault that holds now.
    pub fn fault(&self) -> Fault {
        self.shared
            .fault
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits as the script says. `Some` when that is already the end: an answer, or a break.
    pub async fn hold_back(
        &self,
        delay_ms: u64,
        failure: &Option<(Failure, String)>,
    ) -> Option<Option<Response<SimBody>>> {
        let delay =
            std::time::Duration::from_millis(delay_ms) + self.shared.provider.options.head_delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match failure.as_ref().map(|(failure, _)| failure) {
            Some(Failure::Drop) => Some(None),
            Some(Failure::Stall) => std::future::pending().await,
            Some(Failure::Html) => {
                let mut response = self.plain("text/html", "<html>bad gateway</html>".to_owned());
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                self.note(502, None);
                Some(Some(response))
            }
            _ => None,
        }
    }

    /// Puts an answer of the Messages side on the wire.
    fn write(&self, ready: Ready, fault: Fault, window: Window) -> Response<SimBody> {
        let Ready {
            answer,
            stream,
            failure,
            claim,
            ..
        } = ready;
        let shape = if stream {
            let inside = match &failure {
                Some((Failure::Inside, kind)) => Some(kind.as_str()),
                _ => None,
            };
            Shape::Stream(answer.stream(inside, self.request_id))
        } else {
            Shape::Document(answer.json())
        };
        let outgoing = Outgoing {
            shape,
            failure,
            fault,
        };
        let mut response = self.send(outgoing, move |end| {
            // The server may keep or lose a half-delivered turn; this one loses it.
            if end == End::Whole {
                claim.settle(&answer.id, &answer);
            }
        });
        self.rate_limits(response.headers_mut(), window);
        response
    }

    /// Puts an answer on the wire; `on_end` learns how it ended.
    pub fn send(
        &self,
        outgoing: Outgoing,
        on_end: impl FnOnce(End) + Send + 'static,
    ) -> Response<SimBody> {
        let Outgoing {
            shape,
            failure,
            fault,
        } = outgoing;
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
        let stream = matches!(shape, Shape::Stream(_));
        let faulty = fault != Fault::default();
        let mut manner = Manner {
            step_delay: options.event_delay,
            fault,
            gzip: compress && stream && !broken,
            sized: !stream,
        };
        let shared = Arc::clone(self.shared);
        let seq = self.seq;
        let on_end = move |end: End| {
            on_end(end);
            shared.recorder.update(seq, |request| request.end = end);
        };
        let (kind, length, body) = match shape {
            Shape::Stream(steps) => (
                "text/event-stream; charset=utf-8",
                None,
                pumped(steps, manner, on_end),
            ),
            Shape::Document(document) => {
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
        let body = if self.openai {
            OpenAiError::of_body(error.clone()).body()
        } else {
            error.body(self.request_id)
        };
        self.refused(error.status, &error.message, body, &error.headers)
    }

    /// A refusal with this body.
    pub fn refused(
        &self,
        status: u16,
        message: &str,
        body: String,
        headers: &[(&'static str, String)],
    ) -> Response<SimBody> {
        self.note(status, Some(message));
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = self.response(status, "application/json", SimBody::from(body));
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(*name, value);
            }
        }
        response
    }

    /// A document that is no answer of the model.
    pub fn json(&self, document: String) -> Response<SimBody> {
        self.plain("application/json", document)
    }

    fn plain(&self, kind: &'static str, text: String) -> Response<SimBody> {
        self.note(200, None);
        self.response(StatusCode::OK, kind, SimBody::from(text))
    }

    /// Notes how a request was answered at once.
    pub fn note(&self, status: u16, error: Option<&str>) {
        self.shared.recorder.update(self.seq, |request| {
            request.status = Some(status);
            request.error = error.map(str::to_owned);
            request.end = End::Whole;
        });
    }

    /// A response with the headers that all have.
    fn response(&self, status: StatusCode, kind: &'static str, body: SimBody) -> Response<SimBody> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static(kind));
        let id = HeaderValue::try_from(self.request_id).ok();
        if self.openai {
            headers.extend(id.map(|id| (HeaderName::from_static("x-request-id"), id)));
            headers.insert("openai-version", HeaderValue::from_static("2020-10-01"));
            headers.insert("openai-processing-ms", HeaderValue::from_static("1"));
            return response;
        }
        if let Some(id) = id {
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
