//! A request for a response before it goes upstream: described, placed, judged.

use bytes::Bytes;
use http::StatusCode;

use super::Line;
use super::frame;
use crate::prompt_cache::engine::News;
use crate::provider::openai::socket::{self, Asked};
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::wire::Wire;
use crate::proxy::account::Account;
use crate::proxy::ending::{close_refused, instead};
use crate::proxy::guard::loops::Stop;
use crate::proxy::guard::{self, caps};
use crate::proxy::prepare::{self, Asking, Prepared};
use crate::proxy::refusal::Refusal;
use crate::proxy::route::prices;
use crate::sse;
use crate::trace::{Outcome, RequestKind};

/// The method in the records of requests that came as messages.
const METHOD: &str = "WS";

/// What becomes of a message of the client.
pub(super) enum Verdict {
    /// It goes on; what is to be learnt of it then.
    Pass(Option<(Bytes, News)>),
    /// It does not, and the client has been told.
    Stop,
}

impl Line {
    /// Judges a whole message of the client.
    pub(super) async fn judge(&self, message: Bytes) -> Verdict {
        let asked = socket::asked(&message);
        if !asked.create {
            return Verdict::Pass(None);
        }
        self.create(message, asked).await
    }

    /// Refuses a message that is larger than it may be. `head` is its beginning.
    pub(super) async fn too_large(&self, head: &[u8], limit: usize) {
        let asked = socket::asked(head);
        let account = self.account(RequestKind::Turn);
        let refusal = Refusal::too_large(limit);
        self.refuse(account, asked.lane, refusal, Outcome::ClientError)
            .await;
    }

    async fn create(&self, message: Bytes, asked: Asked) -> Verdict {
        let shared = &self.shared;
        let Asked { lane, prepares, .. } = asked;
        // What only prepares costs, and has its place in a conversation, without being a turn of it.
        let kind = match prepares {
            true => RequestKind::Other,
            false => RequestKind::Turn,
        };
        let mut account = self.account(kind);
        if !self.lanes().has_room() {
            let refusal = Refusal {
                status: StatusCode::TOO_MANY_REQUESTS,
                kind: "rate_limit_error",
                message:
                    "prefixgate: too many responses are under way on this connection; nothing \
                          was forwarded"
                        .to_owned(),
                retry: Some(true),
                after_ms: None,
            };
            self.refuse(account, lane, refusal, Outcome::ClientError)
                .await;
            return Verdict::Stop;
        }
        if let Some(capture) = &shared.capture {
            let mode = shared.config.capture_for(self.labels.app.as_deref());
            account.capture(capture.hold(mode, &message, ""));
        }
        let mut prepared = self.prepare(&mut account, &message);
        match prepared.stop.take() {
            None => {}
            Some(Stop::Refuse(why)) => {
                let refusal = Refusal::stopped(guard::status(shared, &mut account), why);
                self.refuse(account, lane, refusal, Outcome::Refused).await;
                return Verdict::Stop;
            }
            Some(Stop::Answer(text)) => {
                self.answer(account, lane, "loop", &text).await;
                return Verdict::Stop;
            }
        }
        if let Some(asked) = prepared.asked.take() {
            match caps::enter(shared, &mut account, asked).await {
                Ok(()) => {}
                Err(caps::End::Refuse(refusal)) => {
                    self.refuse(account, lane, refusal, Outcome::Refused).await;
                    return Verdict::Stop;
                }
                Err(caps::End::Answer(text)) => {
                    self.answer(account, lane, "cap", &text).await;
                    return Verdict::Stop;
                }
            }
        }
        let spent = account.elapsed_us();
        if let Some(record) = account.record() {
            record.sent_bytes = message.len() as u64;
            record.overhead_us = Some(spent);
        }
        self.lanes().ask(lane, account, self.reader());
        Verdict::Pass(prepared.learning.take())
    }

    /// A response has begun that nobody asked for: the upstream goes on by itself with what was
    /// queued by steering. It cannot be stopped any more, but it counts.
    pub(super) async fn unasked(&self, lane: Option<String>, created: &[u8]) {
        let Some(request) = socket::unasked(created) else {
            return;
        };
        let mut account = self.account(RequestKind::Turn);
        let mut prepared = self.prepare(&mut account, &request.into());
        if let Some(record) = account.record() {
            record.request_bytes = 0;
        }
        account.warn("steered");
        if let Some(asked) = prepared.asked.take()
            && caps::enter(&self.shared, &mut account, asked)
                .await
                .is_err()
        {
            account.warn("cap_not_enforceable");
        }
        self.lanes().ask(lane, account, self.reader());
    }

    /// The account of a request on this connection.
    fn account(&self, kind: RequestKind) -> Account {
        let upstream = &self.upstream;
        let mut account = Account::open(
            &self.shared,
            kind,
            &upstream.name,
            prices(upstream, Wire::Responses),
        );
        if let Some(record) = account.record() {
            record.method = METHOD.to_owned();
            record.credential = self.about.credential.clone();
            record.path = self.about.path.clone();
            record.app = self.about.app.clone();
            record.client = self.about.client.clone();
            record.request_id = self.about.request_id.clone();
        }
        account
    }

    fn prepare(&self, account: &mut Account, message: &Bytes) -> Prepared {
        let asking = Asking {
            headers: &self.headers,
            labels: &self.labels,
            upstream: &self.upstream.name,
            price_provider: prices(&self.upstream, Wire::Responses),
            credential: self.credential,
            lowered: &self.labels.limits,
            wire: Wire::Responses,
            dialect: &self.upstream.dialect,
            socket: true,
            compacts: false,
        };
        let prepared = prepare::prepare(&self.shared, account, &asking, message);
        if let Some(record) = account.record() {
            record.request_bytes = message.len() as u64;
            // Answers are always told event by event.
            record.streamed = true;
        }
        prepared
    }

    fn reader(&self) -> Reader {
        let counting = self.upstream.dialect.counting;
        Reader::new(Wire::Responses, Shape::Stream, Limits::default()).counting(counting)
    }

    async fn refuse(
        &self,
        account: Account,
        lane: Option<String>,
        refusal: Refusal,
        outcome: Outcome,
    ) {
        close_refused(account, &refusal, outcome);
        let event = refusal.into_event(lane.as_deref());
        self.say(lane, frame::text(&event)).await;
    }

    /// Ends a turn in the model's place.
    async fn answer(&self, account: Account, lane: Option<String>, why: &str, text: &str) {
        let (_, stream) = instead(account, Wire::Responses, why, text);
        let mut frames = Vec::new();
        sse::Decoder::new(stream.len()).feed(&stream, |event| {
            let event = socket::on_lane(event.data, lane.as_deref());
            frames.extend_from_slice(&frame::text(&event));
        });
        self.say(lane, frames).await;
    }
}
