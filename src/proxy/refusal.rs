//! Answers that prefixgate writes itself: always in the shape of the API that was asked, always
//! saying whose fault it is and what to do.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use super::body::ReplyBody;
use crate::provider::openai::socket;
use crate::provider::wire::Wire;

/// The error type upon which clients stop at once and show the text (measured on 17 of them, Nov
/// 2026, with status 400).
pub const BILLING: &str = "billing_error";
/// SDKs really sleep as long as they are told to.
const MAX_RETRY_AFTER_S: u64 = 60;

/// What `retry-after` says of a wait in milliseconds, in seconds.
#[must_use]
pub fn retry_after_s(after_ms: u64) -> u64 {
    after_ms.div_ceil(1_000).clamp(1, MAX_RETRY_AFTER_S)
}

/// An answer of our own.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Status.
    pub status: StatusCode,
    /// Error type in the words of the API.
    pub kind: &'static str,
    /// For the client's developer.
    pub message: String,
    /// Whether the same request can succeed later; told to SDKs by `x-should-retry`.
    pub retry: Option<bool>,
    /// Milliseconds after which it can; told by `retry-after`.
    pub after_ms: Option<u64>,
}

impl Refusal {
    /// The request is wrong.
    #[must_use]
    pub fn bad_request(message: String) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Self {
            status,
            kind: "invalid_request_error",
            message,
            retry: Some(false),
            after_ms: None,
        }
    }

    /// Its history shows a loop, and the settings stop it there.
    #[must_use]
    pub fn stopped(status: StatusCode, message: String) -> Self {
        Self {
            status,
            kind: BILLING,
            message,
            retry: Some(false),
            after_ms: None,
        }
    }

    /// The body is larger than the configured limit.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            kind: "request_too_large",
            message: format!(
                "prefixgate: the request body is larger than {limit} bytes, the limit of this gateway \
                 (setting server.max_body)"
            ),
            retry: Some(false),
            after_ms: None,
        }
    }

    /// The upstream could not be reached, or broke off before it answered.
    #[must_use]
    pub fn unreachable(upstream: &str, why: &str) -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            kind: "api_error",
            message: format!("prefixgate: upstream `{upstream}` gave no answer: {why}"),
            retry: None,
            after_ms: None,
        }
    }

    /// The upstream was silent for too long.
    #[must_use]
    pub fn silent(upstream: &str, limit: std::time::Duration) -> Self {
        Self {
            status: StatusCode::GATEWAY_TIMEOUT,
            kind: "timeout_error",
            message: format!(
                "prefixgate: upstream `{upstream}` was silent for {} s (setting server.idle_timeout)",
                limit.as_secs()
            ),
            retry: None,
            after_ms: None,
        }
    }

    /// The code by which programs know a cap, whatever the words.
    fn code(&self) -> Option<&'static str> {
        (self.kind == BILLING).then_some("cap_reached")
    }

    /// The event that says the same on a lane of a WebSocket.
    #[must_use]
    pub fn into_event(self, lane: Option<&str>) -> Vec<u8> {
        let mut headers = Vec::new();
        if let Some(retry) = self.retry {
            headers.push(("x-should-retry", retry.to_string()));
        }
        if let Some(after_ms) = self.after_ms {
            headers.push((RETRY_AFTER.as_str(), retry_after_s(after_ms).to_string()));
        }
        let (status, code) = (self.status.as_u16(), self.code());
        socket::refusal(status, self.kind, code, &self.message, &headers, lane)
    }

    /// The response.
    #[must_use]
    pub fn into_response(self, wire: Wire) -> Response<ReplyBody> {
        let body = wire.error_body(self.kind, self.code(), &self.message);
        let mut response = json(self.status, body);
        if let Some(retry) = self.retry {
            let value = HeaderValue::from_static(if retry { "true" } else { "false" });
            response.headers_mut().insert("x-should-retry", value);
        }
        if let Some(after_ms) = self.after_ms {
            let seconds = retry_after_s(after_ms);
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A JSON response of our own.
#[must_use]
pub fn json(status: StatusCode, body: Vec<u8>) -> Response<ReplyBody> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(ReplyBody::full(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}
