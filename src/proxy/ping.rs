//! The way out for requests of our own that keep a prefix warm.

use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};

use super::account::{Account, End};
use super::keep_warm::{Ping, Sender, Sent};
use super::upstream::Clients;
use super::upward::send;
use super::{Shared, guard};
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::wire::Wire;
use crate::trace::Outcome;

/// Largest answer that is read: nothing was asked for, so it is small.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Pico-USD in a millionth of a USD.
const PICO_A_MICRO: u64 = 1_000_000;

/// Sends pings over connections of its own, and brings each into the books.
#[derive(Debug)]
pub struct Pinger {
    /// What all requests share.
    pub shared: Arc<Shared>,
    /// The ways to the upstreams.
    pub clients: Clients,
}

impl Sender for Pinger {
    async fn send(&self, ping: Ping) -> Option<Sent> {
        let Ping {
            mut request,
            record,
        } = ping;
        // So that the answer can be read without a decoder.
        request.headers_mut().remove(ACCEPT_ENCODING);
        let upstream = record.upstream.clone();
        // If this future is dropped, the account closes itself, as that of a client that has left.
        let mut account = Account::open_as(&self.shared, *record);
        let most = self.shared.config.keep_warm_max_micro_usd;
        let most = most.saturating_mul(PICO_A_MICRO);
        if !guard::caps::enter_own(&self.shared, &mut account, most).await {
            let why = "a cap leaves nothing for keeping the prefix warm";
            account.finish(End::Own(Outcome::Refused, why.to_owned()), None);
            return None;
        }
        let answer = match send(&self.shared, &upstream, self.clients.request(request)).await {
            Ok(answer) => answer,
            Err((refusal, outcome)) => {
                account.finish(End::Own(outcome, refusal.message), None);
                return None;
            }
        };
        let (parts, body) = answer.into_parts();
        let head_us = account.elapsed_us();
        if let Some(record) = account.record() {
            record.status = Some(parts.status.as_u16());
            record.head_us = Some(head_us);
        }
        let kind = parts
            .headers
            .get(CONTENT_TYPE)
            .and_then(|v| v.to_str().ok());
        let mut reader = Reader::new(
            Wire::Messages,
            Shape::of(parts.status.as_u16(), kind),
            Limits::default(),
        );
        match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => reader.feed(&body.to_bytes()),
            Err(error) => {
                account.finish(End::Cut(error.to_string()), None);
                return None;
            }
        }
        reader.end(account.inferred_ttl());
        let booked = account.finish_booked(End::Complete, Some(reader.into_answer()))?;
        let good = booked.outcome == Outcome::Ok && booked.usage.read.is_some();
        good.then_some(Sent {
            usage: booked.usage,
            cost_pico: booked.cost_pico,
        })
    }
}
