//! The streamable HTTP transport of MCP over the HTTP client that is here already: no second HTTP
//! stack, no second TLS.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, unfold};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Builder;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use crate::agent::causes::with_causes;
use crate::proxy::upstream::{SendBody, UpstreamClient};

/// Largest event of a stream and largest body, in bytes.
const MAX_BODY: usize = 16 << 20;
/// How much of an error's body is shown, in bytes.
const MAX_WORDS: usize = 400;

const SESSION: &str = "mcp-session-id";
const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// The client.
#[derive(Clone)]
pub(super) struct HttpClient(pub UpstreamClient);

/// A request that cannot be made or that got no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("{}", with_causes(.0))]
    Unreachable(#[from] hyper_util::client::legacy::Error),
    #[error("a request cannot be written: {0}")]
    Request(#[from] http::Error),
    #[error("the answer broke off or is too large: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

type Failed = StreamableHttpError<HttpError>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl StreamableHttpClient for HttpClient {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let body = serde_json::to_vec(&message)?;
        let in_session = session.is_some();
        let request = request(Method::POST, &uri, session, token, headers)
            .header(CONTENT_TYPE, JSON)
            .header(ACCEPT, "application/json, text/event-stream");
        let answer = self.send(request, body).await?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session = answer.headers().get(SESSION);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let kind = kind(&answer);
        if status.is_success() && kind == STREAM {
            return Ok(StreamableHttpPostResponse::Sse(events(answer), session));
        }
        let wants_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        let body = whole(answer).await?;
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(message) if status.is_success() || matches!(message, JsonRpcMessage::Error(_)) => {
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            _ if status.is_success() && !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
            _ => Err(unexpected(status, &body)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        let request = request(Method::DELETE, &uri, Some(session), token, headers);
        let answer = self.send(request, Vec::new()).await?;
        match answer.status() {
            // Servers may leave the end of sessions to themselves.
            StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            status if status.is_success() => Ok(()),
            status => Err(unexpected(status, b"")),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        let mut request =
            request(Method::GET, &uri, session, token, headers).header(ACCEPT, STREAM);
        if let Some(id) = last_event {
            request = request.header("last-event-id", id);
        }
        let answer = self.send(request, Vec::new()).await?;
        match answer.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if status.is_success() && kind(&answer) == STREAM => Ok(events(answer)),
            status if status.is_success() => Err(StreamableHttpError::UnexpectedContentType(Some(
                kind(&answer),
            ))),
            status => Err(unexpected(status, b"")),
        }
    }
}

impl HttpClient {
    async fn send(&self, request: Builder, body: Vec<u8>) -> Result<Response<Incoming>, Failed> {
        let body = SendBody::pieces(match body.is_empty() {
            true => Vec::new(),
            false => vec![Bytes::from(body)],
        });
        let request = request
            .body(body)
            .map_err(|error| Failed::Client(error.into()))?;
        let answer = self.0.request(request).await;
        let answer = answer.map_err(|error| Failed::Client(error.into()))?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let asked = answer.headers().get(WWW_AUTHENTICATE);
            let asked = asked
                .and_then(|asked| asked.to_str().ok())
                .unwrap_or("credentials");
            let error = AuthRequiredError::new(asked.to_owned());
            return Err(StreamableHttpError::AuthRequired(error));
        }
        Ok(answer)
    }
}

fn request(
    method: Method,
    uri: &str,
    session: Option<Arc<str>>,
    token: Option<String>,
    headers: Headers,
) -> Builder {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some(session) = session {
        request = request.header(SESSION, session.as_ref());
    }
    request
}

/// The media type of a body, without its parameters.
fn kind(answer: &Response<Incoming>) -> String {
    let kind = answer.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

async fn whole(answer: Response<Incoming>) -> Result<Bytes, Failed> {
    let body = Limited::new(answer.into_body(), MAX_BODY).collect().await;
    Ok(body
        .map_err(|error| Failed::Client(HttpError::Body(error)))?
        .to_bytes())
}

fn unexpected(status: StatusCode, body: &[u8]) -> Failed {
    let words = String::from_utf8_lossy(body);
    let words = crate::text::prefix(&words, MAX_WORDS);
    StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status}: {words}").into())
}

/// The events of a body. The parser keeps an event until it is whole, so one that never is ends the
/// stream.
fn events(answer: Response<Incoming>) -> Events {
    let open = (answer.into_body().into_data_stream(), EventSize::default());
    let pieces = unfold(Some(open), |open| async {
        let (mut body, mut size) = open?;
        match body.next().await? {
            Ok(piece) if size.fits(&piece) => Some((Ok(piece), Some((body, size)))),
            Ok(_) => Some((Err(std::io::Error::other("an event is too large")), None)),
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    });
    SseStream::from_bytes_stream(pieces).boxed()
}

/// How much has come since the last empty line.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    in_line: bool,
}

impl EventSize {
    fn fits(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            self.bytes += 1;
            match byte {
                b'\n' if !self.in_line => self.bytes = 0,
                b'\n' => self.in_line = false,
                b'\r' => {}
                _ => self.in_line = true,
            }
        }
        self.bytes <= MAX_BODY
    }
}
