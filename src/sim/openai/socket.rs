//! The WebSocket mode of Responses: requests as events of the client, answers as events of the server.
//!
//! Requests of one lane (`stream_id`, or none) run one after another, lanes side by side. A connection
//! remembers the latest response of each lane, which can be continued on it although nothing was
//! stored; a turn that fails forgets the response it continued.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::HeaderValue;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

use super::error::OpenAiError;
use super::http::credential;
use super::responses::Own;
use super::validate;
use crate::sim::body::SimBody;
use crate::sim::json::{Json, quote};
use crate::sim::provider::MAX_BODY;
use crate::sim::record::End;
use crate::sim::wire::{Exchange, Shared};

mod lane;

/// Lanes of one connection.
const MAX_LANES: usize = 32;

/// Requests that wait in a lane.
const WAITING: usize = 16;

/// Events that wait for the connection.
const OUTGOING: usize = 16;

/// Whether a request asks for the WebSocket mode.
#[must_use]
pub fn wants_upgrade(request: &Request<Incoming>) -> bool {
    request.method() == Method::GET
        && request.uri().path() == "/v1/responses"
        && request
            .headers()
            .get("upgrade")
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

impl Exchange<'_> {
    /// Answers a request for the WebSocket mode, and serves the connection from then on.
    pub fn openai_socket(&self, upgrade: OnUpgrade) -> Response<SimBody> {
        match self.accept(upgrade) {
            Ok(response) => response,
            Err(error) => self.refuse_openai(&error),
        }
    }

    fn accept(&self, upgrade: OnUpgrade) -> Result<Response<SimBody>, OpenAiError> {
        let scope = credential(self.headers)?;
        let key = self
            .headers
            .get("sec-websocket-key")
            .filter(|_| {
                self.headers
                    .get("sec-websocket-version")
                    .is_some_and(|version| version == "13")
            })
            .ok_or_else(|| OpenAiError::invalid("The request is no WebSocket handshake."))?;
        let line = Arc::new(Line {
            shared: Arc::clone(self.shared),
            scope,
            seq: self.seq,
            opened_ms: self.at_ms,
            headers: self
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                .collect(),
            own: Mutex::default(),
        });
        self.shared
            .recorder
            .update(self.seq, |request| request.status = Some(101));
        tokio::spawn(async move {
            let end = match upgrade.await {
                Ok(upgraded) => line.serve(upgraded).await,
                Err(_) => End::ClientGone,
            };
            line.shared
                .recorder
                .update(line.seq, |request| request.end = end);
        });
        let mut response = Response::new(SimBody::Whole(None));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        headers.insert("upgrade", HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::try_from(derive_accept_key(key.as_bytes())) {
            headers.insert("sec-websocket-accept", accept);
        }
        if let Ok(id) = HeaderValue::try_from(self.request_id) {
            headers.insert("x-request-id", id);
        }
        Ok(response)
    }
}

/// What a lane wants written.
#[derive(Debug)]
enum Out {
    Text(String),
    /// The connection breaks.
    Break,
    /// The connection is closed as it should be.
    Close,
}

/// A request on its way through its lane.
#[derive(Debug)]
struct Ask {
    body: Json,
    bytes: Bytes,
}

/// One connection.
#[derive(Debug)]
struct Line {
    shared: Arc<Shared>,
    scope: String,
    /// The number of the upgrade.
    seq: u64,
    opened_ms: u64,
    /// Headers of the upgrade.
    headers: Vec<(String, Vec<u8>)>,
    own: Mutex<Vec<Own>>,
}

impl Line {
    fn own(&self) -> MutexGuard<'_, Vec<Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the connection until it ends.
    async fn serve(self: &Arc<Self>, upgraded: Upgraded) -> End {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_BODY))
            .max_frame_size(Some(MAX_BODY));
        let mut socket =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config))
                .await;
        let (out, mut outgoing) = mpsc::channel(OUTGOING);
        let mut lanes: HashMap<Option<String>, mpsc::Sender<Ask>> = HashMap::new();
        // Ends all lanes when the connection does.
        let mut tasks = JoinSet::new();
        let mut stopped = self.shared.stopped.clone();
        loop {
            let write = tokio::select! {
                _ = stopped.changed() => return End::Fault,
                Some(out) = outgoing.recv() => out,
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => {
                        let text = Bytes::copy_from_slice(text.as_str().as_bytes());
                        match self.heard(text, &mut lanes, &mut tasks, &out) {
                            Some(reply) => Out::Text(reply),
                            None => continue,
                        }
                    }
                    Some(Ok(Message::Binary(_))) => Out::Text(error_event(
                        &OpenAiError::invalid("Events must be sent as text."),
                        None,
                    )),
                    Some(Ok(Message::Close(_))) => {
                        // The reply to the close is written by the next read.
                        while let Some(Ok(_)) = socket.next().await {}
                        return End::Whole;
                    }
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => return End::ClientGone,
                },
            };
            match write {
                Out::Text(text) => {
                    if socket.send(Message::text(text)).await.is_err() {
                        return End::ClientGone;
                    }
                }
                Out::Break => return End::Fault,
                Out::Close => {
                    let _ = socket.close(None).await;
                    return End::Fault;
                }
            }
        }
    }

    /// Takes an event of the client; gives what is to be said at once.
    fn heard(
        self: &Arc<Self>,
        bytes: Bytes,
        lanes: &mut HashMap<Option<String>, mpsc::Sender<Ask>>,
        tasks: &mut JoinSet<()>,
        out: &mpsc::Sender<Out>,
    ) -> Option<String> {
        let body = match Json::parse(&bytes) {
            Ok(body) => body,
            Err(error) => {
                let error = OpenAiError::invalid(format!("The event is no JSON: {error}"));
                return Some(error_event(&error, None));
            }
        };
        let kind = body.text_of("type").unwrap_or_default();
        if kind == "response.steer" {
            return Some(unsteered(&body));
        }
        let lane = match validate::text(&body, "", "stream_id") {
            Ok(lane) => lane,
            Err(error) => return Some(error_event(&error, None)),
        };
        let refuse = |error: OpenAiError| Some(error_event(&error, lane.as_deref()));
        if kind != "response.create" {
            return refuse(OpenAiError::value(
                "type",
                &kind,
                &["response.create", "response.steer"],
            ));
        }
        if !lanes.contains_key(&lane) {
            if lanes.len() >= MAX_LANES {
                return refuse(OpenAiError::new(429, "Too many lanes on one connection."));
            }
            let (sender, asks) = mpsc::channel(WAITING);
            tasks.spawn(Arc::clone(self).lane(lane.clone(), asks, out.clone()));
            lanes.insert(lane.clone(), sender);
        }
        let sender = lanes.get(&lane)?;
        match sender.try_send(Ask { body, bytes }) {
            Ok(()) => None,
            Err(_) => refuse(OpenAiError::new(
                429,
                "Too many requests wait in this lane.",
            )),
        }
    }
}

/// An event with its lane.
fn on_lane(mut data: String, lane: Option<&str>) -> String {
    if let (Some(lane), true) = (lane, data.ends_with('}')) {
        data.pop();
        data.push_str(&format!(r#","stream_id":{}}}"#, quote(lane)));
    }
    data
}

fn error_event(error: &OpenAiError, lane: Option<&str>) -> String {
    let data = format!(
        r#"{{"type":"error","status":{},"error":{}}}"#,
        error.status,
        error.object_with_headers()
    );
    on_lane(data, lane)
}

/// Steering is refused, and what was to steer is given back.
fn unsteered(body: &Json) -> String {
    let member = |name: &str| {
        body.get(name)
            .map_or_else(|| "null".to_owned(), Json::compact)
    };
    format!(
        concat!(
            r#"{{"type":"response.steer.failed","sequence_number":0,"#,
            r#""error":{{"type":"invalid_request_error","code":"steering_not_supported","message":"Steering is not simulated."}},"#,
            r#""steer":{{"previous_response_id":{},"input":{}}}}}"#
        ),
        member("previous_response_id"),
        member("input")
    )
}
