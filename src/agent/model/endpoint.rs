//! Where the model is: the connection, the key, the price of what comes back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{Broken, Format, Piece, Whole};
use crate::agent::machine::Bill;
use crate::clock::Clock;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::view::{ApiError, Ttl};
use crate::proxy::upstream::{SendBody, UpstreamClient};
use crate::sse;
use crate::usage::PriceBook;

/// Largest event of a stream; the last one of a Responses stream carries the whole answer.
const MAX_EVENT: usize = 64 << 20;
/// Largest body that is no stream.
const MAX_BODY: usize = 64 << 20;
/// How much of an error's text is shown.
const MAX_WORDS: usize = 600;
/// Longest wait that a server may ask for.
const MAX_AFTER: Duration = Duration::from_secs(600);

/// Where requests go.
pub struct Endpoint {
    /// The wire format.
    pub format: Box<dyn Format>,
    /// The base URL, without a slash at its end.
    pub base: String,
    /// The credential; empty for servers that want none.
    pub key: String,
    /// The connection.
    pub client: UpstreamClient,
    /// What tokens cost.
    pub prices: Arc<PriceBook>,
    /// The provider's id in the price data.
    pub provider: String,
    /// How long it may be silent, before the head and between two pieces.
    pub silence: Duration,
}

/// Headers of a request beside those of the format.
pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// A whole answer with its price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub whole: Whole,
    /// What it cost.
    pub bill: Bill,
}

/// What can be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Another attempt may succeed, not before this time has passed, if the server named one.
    Again(Option<Duration>),
    /// The conversation does not fit into the context window.
    TooLong,
    /// Asking again would not help.
    Final,
}

/// An attempt without a whole answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Attempt {
    /// Whose fault it is and what happened, for people.
    pub reason: String,
    /// What can be done.
    pub failure: Failure,
    /// What it is known to have cost.
    pub bill: Bill,
}

impl Attempt {
    fn again(reason: String) -> Self {
        Self {
            reason,
            failure: Failure::Again(None),
            bill: Bill::default(),
        }
    }
}

impl Endpoint {
    /// Sends a request and reads its answer; `on_piece` sees what comes, while it comes.
    ///
    /// # Errors
    /// There is no whole answer.
    pub async fn ask(
        &self,
        model: &str,
        body: Vec<u8>,
        headers: &Headers,
        on_piece: &mut (dyn FnMut(Piece) + Send),
    ) -> Result<Reply, Attempt> {
        let request = self.request(body, headers)?;
        let answer = tokio::time::timeout(self.silence, self.client.request(request)).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Attempt::again(self.unreachable(&error))),
            Err(_) => return Err(Attempt::again(self.silent())),
        };
        let (head, body) = answer.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let shape = Shape::of(head.status.as_u16(), content_type);
        let mut reader = Reader::new(self.format.wire(), shape, Limits::default());
        if !head.status.is_success() {
            let body = self.rest(body).await;
            reader.feed(&body);
            reader.end(None);
            let error = reader.into_answer().error.unwrap_or_default();
            return Err(self.refused(&head, &error));
        }
        let streamed = shape == Shape::Stream;
        let whole = self
            .read(model, body, streamed, &mut reader, on_piece)
            .await;
        reader.end(Some(Ttl::M5));
        let bill = self.bill(model, reader);
        match whole {
            Ok(whole) => Ok(Reply { whole, bill }),
            Err(broken) => Err(self.broken(broken, bill)),
        }
    }

    fn request(&self, body: Vec<u8>, headers: &Headers) -> Result<Request<SendBody>, Attempt> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{}", self.base, self.format.path()))
            .header(CONTENT_TYPE, "application/json")
            .header("accept", "text/event-stream")
            .header(
                "user-agent",
                concat!("prefixgate-agent/", env!("CARGO_PKG_VERSION")),
            );
        for (name, value) in self.format.headers(&self.key) {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = SendBody::pieces(vec![Bytes::from(body)]);
        request.body(body).map_err(|error| Attempt {
            reason: format!("the base URL or the key cannot be sent: {error}"),
            failure: Failure::Final,
            bill: Bill::default(),
        })
    }

    async fn read(
        &self,
        model: &str,
        mut body: Incoming,
        streamed: bool,
        reader: &mut Reader,
        on_piece: &mut (dyn FnMut(Piece) + Send),
    ) -> Result<Whole, Broken> {
        let mut making = self.format.assembler(model);
        let mut decoder = sse::Decoder::new(MAX_EVENT);
        let mut plain = Vec::new();
        let mut pieces = Vec::new();
        while !making.is_whole() {
            let frame = match tokio::time::timeout(self.silence, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return Err(Broken::CutOff),
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            reader.feed(&bytes);
            if streamed {
                decoder.feed(&bytes, |event| making.event(event, &mut pieces));
                pieces.drain(..).for_each(&mut *on_piece);
            } else if plain.len() + bytes.len() > MAX_BODY {
                return Err(Broken::Unusable("too large"));
            } else {
                plain.extend_from_slice(&bytes);
            }
        }
        if !streamed {
            making.body(&plain, &mut pieces);
            pieces.drain(..).for_each(on_piece);
        }
        making.finish()
    }

    /// The body of an error; what cannot be read of it is left out.
    async fn rest(&self, body: Incoming) -> Bytes {
        let body = http_body_util::Limited::new(body, MAX_BODY).collect();
        match tokio::time::timeout(self.silence, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => Bytes::new(),
        }
    }

    fn bill(&self, model: &str, reader: Reader) -> Bill {
        let answer = reader.into_answer();
        let priced = self.prices.price(
            &self.provider,
            &answer.metered,
            Some(model),
            Clock::Real.utc_ms(),
        );
        Bill {
            usage: answer.metered.usage,
            pico: answer.cost_pico.or_else(|| priced.pico()),
        }
    }

    fn broken(&self, broken: Broken, bill: Bill) -> Attempt {
        let failure = match &broken {
            Broken::Reported { kind, message } if too_long(kind, message) => Failure::TooLong,
            Broken::Reported { kind, .. } if kind.starts_with("invalid_request") => Failure::Final,
            Broken::CutOff | Broken::Reported { .. } | Broken::Unusable(_) => Failure::Again(None),
        };
        Attempt {
            reason: format!("{}: {broken}", self.base),
            failure,
            bill,
        }
    }

    fn refused(&self, head: &http::response::Parts, error: &ApiError) -> Attempt {
        let words = crate::text::prefix(&error.message, MAX_WORDS);
        let failure = if too_long(&error.kind, &error.message) {
            Failure::TooLong
        } else if worth_another(head.status, &head.headers) {
            Failure::Again(asked_wait(&head.headers))
        } else {
            Failure::Final
        };
        Attempt {
            reason: format!(
                "{} answered {} {}: {words}",
                self.base, head.status, error.kind
            ),
            failure,
            bill: Bill::default(),
        }
    }

    fn unreachable(&self, error: &hyper_util::client::legacy::Error) -> String {
        let mut reason = format!("{} cannot be reached: {error}", self.base);
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            reason.push_str(&format!(": {error}"));
            cause = error.source();
        }
        reason
    }

    fn silent(&self) -> String {
        format!(
            "{} did not answer for {} s",
            self.base,
            self.silence.as_secs()
        )
    }
}

/// Whether a status is worth another attempt; a server that says so itself is believed.
fn worth_another(status: StatusCode, headers: &HeaderMap) -> bool {
    match headers.get("x-should-retry").map(HeaderValue::as_bytes) {
        Some(b"true") => true,
        Some(b"false") => false,
        _ => matches!(status.as_u16(), 408 | 409 | 429 | 500..),
    }
}

/// How long the server asks to wait.
fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let ms = number("retry-after-ms").or_else(|| Some(number(RETRY_AFTER.as_str())? * 1000.0))?;
    (ms > 0.0).then(|| Duration::from_secs_f64(ms / 1000.0).min(MAX_AFTER))
}

/// Whether an error says that the conversation does not fit; providers have words for it, no code.
fn too_long(kind: &str, message: &str) -> bool {
    const WORDS: &[&str] = &[
        "context_length_exceeded",
        "prompt is too long",
        "maximum context length",
        "context window",
        "request_too_large",
    ];
    WORDS
        .iter()
        .any(|words| kind.contains(words) || message.contains(words))
}
