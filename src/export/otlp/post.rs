//! One POST of OTLP over HTTP with protobuf, and what its answer means.

use std::error::Error;
use std::fmt;
use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;

use crate::config::Otlp;
use crate::proxy::upstream::{SendBody, UpstreamClient};
pub use crate::spool::Failure;
use crate::text;

/// Most bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// Longest quotation of an answer, in bytes.
const MAX_QUOTED: usize = 200;
/// Longest wait that a receiver may ask for.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Wait after an answer that only a change of the settings can change.
const SETTINGS_WAIT: Duration = Duration::from_secs(60);

/// A post that was taken, and what of it was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Spans or data points that the receiver has rejected.
    pub(super) rejected: u64,
    /// Why, or a warning.
    pub(super) message: String,
}

/// The way to the receivers.
#[derive(Debug)]
pub(super) struct Post {
    client: UpstreamClient,
    gzip: bool,
    timeout: Duration,
}

/// Where one signal goes.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) uri: Uri,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

impl fmt::Debug for Target {
    /// Without the headers, which hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

impl Post {
    pub(super) fn new(client: UpstreamClient, settings: &Otlp) -> Self {
        Self {
            client,
            gzip: settings.gzip,
            timeout: settings.timeout,
        }
    }

    /// Sends an encoded export request.
    pub(super) async fn send(&self, to: &Target, body: Vec<u8>) -> Result<Taken, Failure> {
        let (status, headers, answer) = self.once(to, body).await?;
        match meaning(status) {
            Meaning::Taken => Ok(taken(&answer)),
            Meaning::Later => Err(Failure::Later {
                why: why(status, &answer),
                after: retry_after(&headers),
            }),
            Meaning::Settings => Err(Failure::Later {
                why: format!(
                    "{}: check the endpoint and its headers",
                    why(status, &answer)
                ),
                after: Some(retry_after(&headers).unwrap_or(SETTINGS_WAIT)),
            }),
            Meaning::Refused => Err(Failure::Refused {
                why: why(status, &answer),
            }),
            Meaning::Unclear => {
                // Either the receiver is ill, or this post makes it so: an empty one tells.
                let ill = match self.once(to, Vec::new()).await {
                    Ok((status, ..)) => status.is_server_error(),
                    Err(_) => true,
                };
                let why = why(status, &answer);
                Err(if ill {
                    Failure::Later {
                        why,
                        after: retry_after(&headers),
                    }
                } else {
                    Failure::Refused { why }
                })
            }
        }
    }

    /// Sends an empty export: what its status means, and what is said with it.
    pub(super) async fn probe(&self, to: &Target) -> Result<(Meaning, String), Failure> {
        let (status, _, answer) = self.once(to, Vec::new()).await?;
        let meaning = meaning(status);
        let said = match meaning {
            Meaning::Taken => format!("answered {}", status.as_u16()),
            _ => why(status, &answer),
        };
        Ok((meaning, said))
    }

    async fn once(
        &self,
        to: &Target,
        body: Vec<u8>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Failure> {
        let later = |why: &str| Failure::Later {
            why: why.to_owned(),
            after: None,
        };
        let Some(request) = self.request(to, body) else {
            return Err(later("no request can be made of the endpoint's URL"));
        };
        let exchange = async {
            let answer = self
                .client
                .request(request)
                .await
                .map_err(|error| later(network(&error)))?;
            let (head, body) = answer.into_parts();
            // An answer that breaks off has still told its status.
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_or_else(|_| Bytes::new(), http_body_util::Collected::to_bytes);
            Ok((head.status, head.headers, body))
        };
        let answer = tokio::time::timeout(self.timeout, exchange).await;
        answer.unwrap_or_else(|_| Err(later("no answer in time")))
    }

    fn request(&self, to: &Target, body: Vec<u8>) -> Option<Request<SendBody>> {
        to.uri.scheme()?;
        let agent = concat!("prefixgate/", env!("CARGO_PKG_VERSION"));
        let zipped = if self.gzip && !body.is_empty() {
            gzip(&body)
        } else {
            None
        };
        let mut request = Request::builder().method(Method::POST).uri(to.uri.clone());
        let headers = request.headers_mut()?;
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        if zipped.is_some() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in &to.headers {
            headers.insert(name, value.clone());
        }
        let body = Bytes::from(zipped.unwrap_or(body));
        request.body(SendBody::pieces(vec![body])).ok()
    }
}

/// `None` cannot happen, since memory takes every write.
fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut to = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    to.write_all(body).ok()?;
    to.finish().ok()
}

/// What a status says about trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Taken,
    /// An outage, or too much at once.
    Later,
    /// It would be the same with any other post: a wrong path or key.
    Settings,
    /// It is about this post.
    Refused,
    /// A failure of the receiver, whose cause may be this post.
    Unclear,
}

/// The protocol names 429, 502, 503 and 504 as those to try again, and no others. A wrong key is
/// tried again all the same: what it would cost otherwise is every record until somebody sees it.
fn meaning(status: StatusCode) -> Meaning {
    match status.as_u16() {
        200..=299 => Meaning::Taken,
        408 | 429 | 502..=504 => Meaning::Later,
        300..=399 | 401..=405 | 407 => Meaning::Settings,
        500..=599 => Meaning::Unclear,
        _ => Meaning::Refused,
    }
}

/// That of metrics has the same fields.
fn taken(answer: &[u8]) -> Taken {
    // What cannot be read (some answer with `{}`) is as good as nothing: the status has spoken.
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    Taken {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
        message: quoted(&partial.error_message),
    }
}

fn why(status: StatusCode, answer: &[u8]) -> String {
    let message = match std::str::from_utf8(answer) {
        Ok(text) if !text.starts_with('\u{8}') && !text.starts_with('\u{12}') => quoted(text),
        // `google.rpc.Status` is a number and a message, as a partial success is.
        _ => ExportTracePartialSuccess::decode(answer)
            .map(|status| quoted(&status.error_message))
            .unwrap_or_default(),
    };
    let status = status.as_u16();
    if message.is_empty() {
        format!("answered {status}")
    } else {
        format!("answered {status}: {message}")
    }
}

/// One line, cut on a character border.
fn quoted(text: &str) -> String {
    let text: String = text
        .chars()
        .take(MAX_QUOTED)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    text::prefix(text.trim(), MAX_QUOTED).to_owned()
}

/// Only seconds: a date would need two clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = value.trim().parse().ok().map(Duration::from_secs)?;
    Some(seconds.min(MAX_WAIT))
}

/// In our own words: those of the libraries may quote the URL.
fn network(error: &(dyn Error + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return "TLS failed";
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            let inner = io.get_ref().map(|inner| inner as &(dyn Error + 'static));
            if inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
                return "TLS failed";
            }
            match io.kind() {
                ErrorKind::ConnectionRefused => return "connection refused",
                ErrorKind::TimedOut => return "no answer in time",
                _ => {}
            }
        }
        cause = error.source();
    }
    "cannot be reached"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_a_meaning() {
        let of = |status| meaning(StatusCode::from_u16(status).unwrap());
        for status in [200, 202] {
            assert_eq!(of(status), Meaning::Taken);
        }
        for status in [408, 429, 502, 503, 504] {
            assert_eq!(of(status), Meaning::Later);
        }
        for status in [301, 401, 403, 404, 405] {
            assert_eq!(of(status), Meaning::Settings);
        }
        for status in [400, 409, 413, 415, 422] {
            assert_eq!(of(status), Meaning::Refused);
        }
        for status in [500, 501, 507] {
            assert_eq!(of(status), Meaning::Unclear);
        }
    }

    #[test]
    fn messages_are_read_from_protobuf_and_text() {
        let status = ExportTracePartialSuccess {
            rejected_spans: 3,
            error_message: "bad span\nid".into(),
        };
        let bad = StatusCode::BAD_REQUEST;
        assert_eq!(
            why(bad, &status.encode_to_vec()),
            "answered 400: bad span id"
        );
        assert_eq!(
            why(bad, b"no such project"),
            "answered 400: no such project"
        );
        assert_eq!(why(bad, b""), "answered 400");
        assert_eq!(why(bad, &[0xff, 0xfe]), "answered 400");
        let long = why(bad, "\u{1F642}".repeat(400).as_bytes());
        assert!(long.len() <= MAX_QUOTED + 20, "{}", long.len());
        assert_eq!(taken(b"{}"), Taken::default());
    }

    #[test]
    fn a_wait_is_read_in_seconds_and_bounded() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            retry_after(&headers)
        };
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("86400"), Some(MAX_WAIT));
        assert_eq!(of("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
