//! A request that can be sent once more.

use std::fmt;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, Method, Request, Uri, Version};
use uuid::Uuid;

use crate::prompt_cache::helpers::keep_warm::ping_body;
use crate::provider::anthropic;
use crate::proxy::prepare;
use crate::proxy::upstream::SendBody;
use crate::trace::{Inspection, RequestKind, TurnRecord};

/// Headers that speak of one request and not of all that are like it.
const OF_ONE_REQUEST: [HeaderName; 1] = [HeaderName::from_static("idempotency-key")];
/// What a held request takes besides its bytes: the map of its headers, its record.
const OVERHEAD_BYTES: usize = 2048;
/// What one header takes besides its name and value.
const HEADER_BYTES: usize = 64;

/// A request of which the body generates nothing, with the credential of the client that sent it.
pub struct Held {
    uri: Uri,
    headers: HeaderMap,
    pieces: Vec<Bytes>,
    record: TurnRecord,
    bytes: usize,
}

impl Held {
    /// From a turn as it went upstream: where to, its headers, its body (decoded), and its record.
    /// `None` where the body cannot be sent as one that generates nothing.
    #[must_use]
    pub fn new(
        uri: Uri,
        mut headers: HeaderMap,
        sent: &[Bytes],
        turn: &TurnRecord,
    ) -> Option<Self> {
        let body = match sent {
            [whole] => whole.clone(),
            pieces => Bytes::from(pieces.concat()),
        };
        let view = anthropic::request::view(&body).ok()?;
        let pieces = ping_body(&body, &view)?;
        for name in OF_ONE_REQUEST {
            headers.remove(name);
        }
        prepare::fit_headers(&mut headers, &pieces);
        let of_headers = |(name, value): (&HeaderName, &http::HeaderValue)| {
            name.as_str().len() + value.len() + HEADER_BYTES
        };
        let bytes = body.len() + headers.iter().map(of_headers).sum::<usize>() + OVERHEAD_BYTES;
        Some(Self {
            uri,
            headers,
            pieces,
            record: like(turn),
            bytes,
        })
    }

    /// Memory it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ping that begins now.
    pub(super) fn ping(&self, now_ms: i64) -> Ping {
        let mut request = Request::new(SendBody::pieces(self.pieces.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.headers.clone();
        let mut record = self.record.clone();
        record.id = Uuid::now_v7();
        record.started_ms = now_ms;
        Ping {
            request,
            record: Box::new(record),
        }
    }
}

/// The headers hold the credential, the body the conversation.
impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = &mut f.debug_struct("Held");
        held.field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A request of our own, and its record as far as it is known before it is sent.
pub struct Ping {
    /// What is to be sent.
    pub request: Request<SendBody>,
    /// Outcome, status, usage, cost and times are still to be filled in.
    pub record: Box<TurnRecord>,
}

impl fmt::Debug for Ping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ping = &mut f.debug_struct("Ping");
        ping.field("id", &self.record.id).finish_non_exhaustive()
    }
}

/// The record of a ping: in the turn's run and thread, without being a turn.
fn like(turn: &TurnRecord) -> TurnRecord {
    let mut record = TurnRecord::begin(Uuid::nil(), RequestKind::KeepWarm, &turn.upstream, 0);
    record.run_id.clone_from(&turn.run_id);
    record.run_source = turn.run_source;
    record.thread_id.clone_from(&turn.thread_id);
    record.parent_thread.clone_from(&turn.parent_thread);
    record.agent.clone_from(&turn.agent);
    record.parent_agent.clone_from(&turn.parent_agent);
    record.app.clone_from(&turn.app);
    record.client.clone_from(&turn.client);
    record.credential.clone_from(&turn.credential);
    record.method = Method::POST.as_str().to_owned();
    record.path.clone_from(&turn.path);
    record.model_requested.clone_from(&turn.model_requested);
    record.inspection = Inspection::Inspected;
    record.root.clone_from(&turn.root);
    record.chain.clone_from(&turn.chain);
    record.cache.helper = Some("keep_warm");
    record.cache.policy = turn.cache.policy;
    // Its read prolongs the life of what the turn wrote.
    record.cache.read_of = Some(turn.id);
    record
}
