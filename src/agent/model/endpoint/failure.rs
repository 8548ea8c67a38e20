//! What can be done about a failure: wait and ask again, make room, or give up.

use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};

/// Longest wait that a server may ask for; one that asks for more is not asked again.
const MAX_AFTER: Duration = Duration::from_secs(600);

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

/// Words of errors that stay whatever is tried: by the caller's fault, or until somebody pays.
const LASTING: &[&str] = &[
    "invalid_request",
    "invalid_prompt",
    "invalid_api_key",
    "invalid_encrypted_content",
    "authentication",
    "permission",
    "not_found",
    "unsupported_",
    "billing",
    "insufficient_quota",
    "spend_limit_reached",
    "content_policy",
];

/// Words for a conversation that does not fit; providers have words for it, no common code.
const TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "prompt is too long",
    "input is too long",
    "context window",
    "maximum context length",
    "maximum prompt length",
    "exceed context limit",
    "available context size",
    "exceeds the maximum number of tokens allowed",
    "request_too_large",
    "request_body_too_large",
];

impl Failure {
    /// Of an answer with this status. `body` is all that it says, `now_ms` is UTC.
    pub fn of_status(status: StatusCode, headers: &HeaderMap, body: &str, now_ms: i64) -> Self {
        let body = body.to_lowercase();
        // Limits of rate speak of tokens too.
        let limited = status == StatusCode::TOO_MANY_REQUESTS;
        if status == StatusCode::PAYLOAD_TOO_LARGE || !limited && says(&body, TOO_LONG) {
            return Self::TooLong;
        }
        let again = match headers.get("x-should-retry").map(HeaderValue::as_bytes) {
            // A server that says so itself is believed.
            Some(b"true") => true,
            Some(b"false") => false,
            // A spent budget comes as a limit of rate.
            _ if limited => !says(&body, &["spend_limit_reached", "insufficient_quota"]),
            _ => matches!(status.as_u16(), 408 | 409 | 500..),
        };
        match asked_wait(headers, now_ms) {
            _ if !again => Self::Final,
            Some(wait) if wait > MAX_AFTER => Self::Final,
            wait => Self::Again(wait),
        }
    }

    /// Of an error inside a stream.
    pub fn of_report(kind: &str, message: &str) -> Self {
        let (kind, message) = (kind.to_lowercase(), message.to_lowercase());
        let status = kind
            .rsplit('/')
            .next()
            .and_then(|code| code.parse::<u16>().ok());
        if says(&kind, TOO_LONG) || says(&message, TOO_LONG) || status == Some(413) {
            Self::TooLong
        } else if says(&kind, LASTING) || matches!(status, Some(400..=404 | 422)) {
            Self::Final
        } else {
            Self::Again(None)
        }
    }
}

fn says(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// How long the server asks to wait: in milliseconds, in seconds, or until a date.
pub fn asked_wait(headers: &HeaderMap, now_ms: i64) -> Option<Duration> {
    let value = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| value(name)?.parse::<f64>().ok();
    let after = RETRY_AFTER.as_str();
    let ms = number("retry-after-ms").or_else(|| Some(number(after)? * 1000.0));
    let seconds = match ms {
        Some(ms) => ms / 1000.0,
        None => {
            let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value(after)?);
            let left = date.ok()?.as_millisecond().saturating_sub(now_ms);
            return u64::try_from(left)
                .ok()
                .filter(|ms| *ms > 0)
                .map(Duration::from_millis);
        }
    };
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|wait| !wait.is_zero())
}

/// What a person could do about a status.
pub fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        300..=399 => " (it sends requests elsewhere: use that as the base URL)",
        401 | 403 => " (the key is missing, wrong, or not allowed to do this)",
        402 => " (the account cannot pay)",
        404 | 405 => " (check base URL, format and model)",
        407 => " (a proxy on the way wants a login)",
        _ => "",
    }
}
