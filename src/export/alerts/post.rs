//! One POST to a webhook, what became of it, and whether to try again.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};

use super::Alert;
use crate::config::{Form, Webhook};
use crate::proxy::upstream::{SendBody, UpstreamClient};

/// How long a try may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Wait before the second try; it doubles from try to try.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between tries, whatever the receiver asks for.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Tries for one alert.
const MAX_TRIES: u32 = 6;

/// What became of a try. No text of it contains any part of the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// An answer came.
    Answered {
        /// Its status.
        status: StatusCode,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// No answer in time.
    TimedOut,
    /// Nobody listens there.
    Refused,
    /// TLS could not be agreed on.
    Tls,
    /// Any other failure of the network, or a name that is not found.
    Unreachable,
    /// No request can be made of the URL.
    BadUrl,
}

impl Reply {
    /// Whether the alert has arrived.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent_status().is_some()
    }

    /// The status of the answer, where the alert has arrived.
    #[must_use]
    pub fn sent_status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } if status.is_success() => Some(status.as_u16()),
            _ => None,
        }
    }

    /// Whether the same can work later without anybody doing anything.
    #[must_use]
    pub fn passes_later(&self) -> bool {
        match self {
            Self::Answered { status, .. } => {
                *status == StatusCode::REQUEST_TIMEOUT
                    || *status == StatusCode::TOO_MANY_REQUESTS
                    || status.is_server_error()
            }
            Self::TimedOut | Self::Refused | Self::Tls | Self::Unreachable => true,
            Self::BadUrl => false,
        }
    }

    /// What to do when it is not sent; nothing when it is.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Answered { status, .. } => match status.as_u16() {
                200..=299 => "",
                300..=399 => "redirects are not followed: set the address it redirects to",
                401 | 403 => {
                    "it does not accept this url: create a new webhook there and set its url"
                }
                404 | 405 | 410 => {
                    "nothing takes alerts at this path: check the url, whether the webhook still exists"
                }
                400 | 413 | 415 | 422 => "it does not take this form: check `form` (json or slack)",
                408 | 429 | 500..=599 => "try again later; a gateway tries again by itself",
                _ => "check the url",
            },
            Self::TimedOut => "check the host and port of the url, and firewalls on the way",
            Self::Refused => "check the host and port of the url, and whether it is running",
            Self::Tls => {
                "check the scheme and port of the url; a company's own CA is named in [tls] extra_ca"
            }
            Self::Unreachable => "check the host name of the url, and this machine's network",
            Self::BadUrl => "check the url: it must be http:// or https:// with a host",
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { status, .. } => write!(f, "answered {}", status.as_u16()),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Refused => f.write_str("connection refused"),
            Self::Tls => f.write_str("TLS failed"),
            Self::Unreachable => f.write_str("cannot be reached"),
            Self::BadUrl => f.write_str("not a usable url"),
        }
    }
}

/// When to try again, and when to give up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub timeout: Duration,
    pub first_wait: Duration,
    pub max_wait: Duration,
    pub tries: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT,
            first_wait: FIRST_WAIT,
            max_wait: MAX_WAIT,
            tries: MAX_TRIES,
        }
    }
}

impl Pace {
    /// How long to wait after this many tries; `None` to leave it at that.
    pub(super) fn wait(&self, reply: &Reply, tries: u32) -> Option<Duration> {
        if !reply.passes_later() || tries >= self.tries {
            return None;
        }
        let doubled = 2_u32.saturating_pow(tries.saturating_sub(1));
        let wait = self.first_wait.saturating_mul(doubled);
        let asked = match reply {
            Reply::Answered { retry_after, .. } => *retry_after,
            _ => None,
        };
        Some(wait.max(asked.unwrap_or_default()).min(self.max_wait))
    }
}

/// A way by which alerts can be sent.
pub(super) trait Way: Send + Sync + 'static {
    /// Tries once.
    fn send(&self, alert: &Alert) -> impl Future<Output = Reply> + Send;
}

/// The way to one webhook.
#[derive(Clone)]
pub struct Post {
    client: UpstreamClient,
    url: Uri,
    form: Form,
    timeout: Duration,
}

impl fmt::Debug for Post {
    /// Without the URL, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post")
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

impl Post {
    /// The way to this webhook over connections of `client`.
    #[must_use]
    pub fn new(client: UpstreamClient, webhook: &Webhook) -> Self {
        Self {
            client,
            url: webhook.url.clone(),
            form: webhook.form,
            timeout: TIMEOUT,
        }
    }

    pub(super) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends an alert, once.
    pub async fn once(&self, alert: &Alert) -> Reply {
        let Some(request) = self.request(alert.body(self.form)) else {
            return Reply::BadUrl;
        };
        match tokio::time::timeout(self.timeout, self.client.request(request)).await {
            // What stands in the answer does not matter; its connection ends with it.
            Ok(Ok(answer)) => Reply::Answered {
                status: answer.status(),
                retry_after: retry_after(answer.headers()),
            },
            Ok(Err(error)) => failure(&error),
            Err(_) => Reply::TimedOut,
        }
    }

    fn request(&self, body: Bytes) -> Option<Request<SendBody>> {
        self.url.scheme()?;
        let agent = concat!("prefixgate/", env!("CARGO_PKG_VERSION"));
        Request::builder()
            .method(Method::POST)
            .uri(self.url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, HeaderValue::from_static(agent))
            .body(SendBody::pieces(vec![body]))
            .ok()
    }
}

impl Way for Post {
    fn send(&self, alert: &Alert) -> impl Future<Output = Reply> + Send {
        self.once(alert)
    }
}

/// Only seconds: a date would need two clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// In our own words: those of the libraries may quote the host.
fn failure(error: &(dyn Error + 'static)) -> Reply {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(reply) = meaning(error) {
            return reply;
        }
        cause = error.source();
    }
    Reply::Unreachable
}

fn meaning(error: &(dyn Error + 'static)) -> Option<Reply> {
    if error.is::<rustls::Error>() {
        return Some(Reply::Tls);
    }
    let io = error.downcast_ref::<std::io::Error>()?;
    match io.kind() {
        ErrorKind::ConnectionRefused => Some(Reply::Refused),
        ErrorKind::TimedOut => Some(Reply::TimedOut),
        // `io::Error` does not show its inner error as a source.
        _ => {
            let inner: &(dyn Error + 'static) = io.get_ref()?;
            meaning(inner)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, retry_after: Option<u64>) -> Reply {
        Reply::Answered {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    #[test]
    fn waits_double_up_to_a_minute_and_end() {
        let pace = Pace {
            tries: 9,
            ..Pace::default()
        };
        let waits = |reply| -> Vec<Option<u64>> {
            (1..=9)
                .map(|tries| pace.wait(&reply, tries).map(|wait| wait.as_secs()))
                .collect()
        };
        let doubled = [1, 2, 4, 8, 16, 32, 60, 60].map(Some);
        let doubled: Vec<_> = doubled.into_iter().chain([None]).collect();
        for reply in [
            answered(503, None),
            answered(408, None),
            Reply::Refused,
            Reply::TimedOut,
        ] {
            assert_eq!(waits(reply), doubled, "{reply}");
        }
        let asked = waits(answered(429, Some(10)));
        assert_eq!(asked[..6], [10, 10, 10, 10, 16, 32].map(Some));
        assert_eq!(waits(answered(429, Some(86_400)))[0], Some(60));
        assert_eq!(
            Pace::default()
                .wait(&answered(500, None), 5)
                .unwrap()
                .as_secs(),
            16
        );
        assert_eq!(Pace::default().wait(&answered(500, None), 6), None);
    }

    #[test]
    fn what_stays_wrong_is_not_tried_again() {
        for status in [301, 400, 401, 403, 404, 410, 413, 422] {
            let reply = answered(status, Some(1));
            assert!(!reply.passes_later() && !reply.is_sent(), "{status}");
            assert!(!reply.advice().is_empty());
        }
        assert!(answered(204, None).is_sent());
        assert!(!Reply::BadUrl.passes_later());
    }

    #[test]
    fn a_retry_after_in_seconds_is_read() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            retry_after(&headers)
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(read("-1"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
