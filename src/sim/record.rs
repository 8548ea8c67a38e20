//! What arrived and how it was answered, kept for tests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::cache::Tokens;

/// How an answer ended on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    /// Not yet.
    #[default]
    Open,
    /// All of it was handed to the connection.
    Whole,
    /// The simulated provider broke it off, or ended it early, as a fault.
    Fault,
    /// The client left before the end.
    ClientGone,
}

/// One request with its answer.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Order of arrival, from 0.
    pub seq: u64,
    /// The connection it came on.
    pub peer: Option<SocketAddr>,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// Method; `WEBSOCKET` for a message on an upgraded connection.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Body, as sent (still encoded).
    pub body: Bytes,
    /// When the body was complete, by the provider's clock, in Unix milliseconds.
    pub at_ms: u64,
    /// Status answered; `None` while there is none.
    pub status: Option<u16>,
    /// The refusal's text.
    pub error: Option<String>,
    /// The id of the answer.
    pub message_id: Option<String>,
    /// Input tokens by kind, for answers of the model.
    pub tokens: Option<Tokens>,
    /// Input tokens by kind, for answers of the model on the OpenAI side.
    pub openai: Option<super::openai::Tokens>,
    /// How the answer ended.
    pub end: End,
}

impl Recorded {
    /// The first header of this (lower-case) name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.iter().find(|(key, _)| key == name)?;
        std::str::from_utf8(&value.1).ok()
    }
}

/// The list of requests, shared with the connections.
#[derive(Debug, Clone)]
pub struct Recorder {
    kept: Arc<Mutex<Kept>>,
    changed: Arc<tokio::sync::watch::Sender<u64>>,
    max_requests: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<Recorded>,
    bytes: usize,
    next: u64,
}

impl Recorder {
    /// An empty list with these bounds.
    #[must_use]
    pub fn new(max_requests: usize, max_bytes: usize) -> Self {
        Self {
            kept: Arc::default(),
            changed: Arc::new(tokio::sync::watch::Sender::new(0)),
            max_requests,
            max_bytes,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request and gives its number.
    pub fn begin(&self, mut request: Recorded) -> u64 {
        let mut kept = self.kept();
        let seq = kept.next;
        kept.next += 1;
        request.seq = seq;
        if self.max_requests > 0 {
            kept.bytes += request.body.len();
            kept.requests.push_back(request);
        }
        while kept.requests.len() > self.max_requests || kept.bytes > self.max_bytes {
            let Some(oldest) = kept.requests.pop_front() else {
                break;
            };
            kept.bytes -= oldest.body.len();
        }
        drop(kept);
        self.changed.send_modify(|count| *count += 1);
        seq
    }

    /// Adds to what is known of a request.
    pub fn update(&self, seq: u64, change: impl FnOnce(&mut Recorded)) {
        let mut kept = self.kept();
        let first = kept.requests.front().map_or(0, |request| request.seq);
        let at = seq
            .checked_sub(first)
            .and_then(|at| usize::try_from(at).ok());
        if let Some(request) = at.and_then(|at| kept.requests.get_mut(at)) {
            change(request);
        }
        drop(kept);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Everything remembered, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Recorded> {
        self.kept().requests.iter().cloned().collect()
    }

    /// How many requests ever arrived.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.kept().next
    }

    /// Forgets the requests; numbers go on.
    pub fn clear(&self) {
        let mut kept = self.kept();
        kept.requests.clear();
        kept.bytes = 0;
    }

    /// Waits until `condition` holds for what is remembered. The caller sets the time limit.
    pub async fn wait_for(&self, mut condition: impl FnMut(&[Recorded]) -> bool) -> Vec<Recorded> {
        let mut changed = self.changed.subscribe();
        loop {
            let all = self.all();
            if condition(&all) {
                return all;
            }
            if changed.changed().await.is_err() {
                return all;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_newest_within_its_bounds() {
        let recorder = Recorder::new(3, 100);
        for size in [10, 10, 10, 10, 90] {
            recorder.begin(Recorded {
                body: Bytes::from(vec![0; size]),
                ..Recorded::default()
            });
        }
        let kept: Vec<_> = recorder
            .all()
            .iter()
            .map(|r| (r.seq, r.body.len()))
            .collect();
        assert_eq!(kept, [(3, 10), (4, 90)]);
        recorder.update(4, |request| request.status = Some(200));
        recorder.update(0, |request| request.status = Some(500));
        assert_eq!(recorder.all()[1].status, Some(200));
        assert_eq!(recorder.seen(), 5);
    }
}
