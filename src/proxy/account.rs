//! One request's account: opened when it is accepted, closed exactly once, whatever the exit.

mod closing;
mod ended;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, request};
use uuid::Uuid;

pub use self::closing::Booked;
use self::closing::Closing;
use super::Shared;
use super::audit::{Settled, Watched};
use super::ledger::Hold;
use super::warm::Lead;
use crate::guard::loops::History;
use crate::guard::schema::Declared;
use crate::prompt_cache::chain::Hash;
use crate::provider::view::{Answer, Ttl};
use crate::run::Seat;
use crate::text;
use crate::trace::capture::Holding;
use crate::trace::{Outcome, RequestKind, TurnRecord};
use crate::usage::ModelFacts;

/// Longest error message that is kept, in bytes.
const MAX_ERROR_BYTES: usize = 512;
/// Longest model name, and other word or id of the upstream, that is kept, in bytes.
const MAX_MODEL_BYTES: usize = 128;

/// How a request ended, as its parts saw it.
#[derive(Debug, Clone)]
pub enum End {
    /// The upstream's answer was delivered to its end.
    Complete,
    /// The answer broke off; why.
    Cut(String),
    /// The upstream was silent for too long inside the answer.
    Silent,
    /// The client left.
    ClientGone,
    /// An answer of our own.
    Own(Outcome, String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Cut(why) | Self::Own(_, why) => f.write_str(why),
            Self::Silent => f.write_str("the upstream was silent for too long"),
            Self::ClientGone => f.write_str("the client left"),
        }
    }
}

/// See the module. Dropping an open account closes it as "the client left".
#[derive(Debug)]
pub struct Account {
    shared: Arc<Shared>,
    open: Option<Box<Open>>,
}

#[derive(Debug)]
struct Open {
    started: Instant,
    /// In the box in which it goes to the store.
    record: Box<TurnRecord>,
    seat: Option<Seat>,
    chain_end: Option<Hash>,
    body_bytes: u64,
    ttl: Option<Ttl>,
    price_provider: String,
    /// What the prompt-cache engine follows, and what it made of the answer.
    watched: Option<Watched>,
    settled: Settled,
    /// The prefixes for which others wait until this answer has begun.
    leads: Vec<Lead>,
    /// The request as it went upstream, where it may be sent again to keep its prefix warm.
    again: Option<Again>,
    /// What it holds of its caps.
    hold: Option<Hold>,
    /// What a history that the provider holds has shown so far.
    history: Option<History>,
    /// The tools that it declares.
    declared: Option<Arc<Declared>>,
    /// The conversation that the provider holds and the answer becomes a part of.
    conversation: Option<String>,
    /// What the head of the answer tells besides.
    headers: Vec<(&'static HeaderName, HeaderValue)>,
    /// What is known of its model, once it has been priced.
    facts: Option<Option<ModelFacts>>,
    /// The upstream was asked for the tokens, and the client did not ask.
    asked_usage: bool,
    /// Its content, where that is captured.
    captured: Option<Box<Holding>>,
}

/// A request that can be sent again.
struct Again {
    uri: Uri,
    headers: HeaderMap,
    pieces: Vec<Bytes>,
}

impl fmt::Debug for Again {
    /// Keeps the credential and the conversation out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again").finish_non_exhaustive()
    }
}

impl Account {
    /// Opens an account.
    pub fn open(
        shared: &Arc<Shared>,
        kind: RequestKind,
        upstream: &str,
        price_provider: &str,
    ) -> Self {
        let now_ms = shared.clock.utc_ms();
        let record = TurnRecord::begin(new_id(now_ms), kind, upstream, now_ms);
        Self::new(shared, record, price_provider)
    }

    /// Opens an account for a request of our own, whose record has been begun.
    pub fn open_as(shared: &Arc<Shared>, record: TurnRecord) -> Self {
        let mut upstreams = shared.config.upstreams.iter();
        let upstream = upstreams.find(|u| u.name == record.upstream);
        let prices = upstream.map_or("", |upstream| &upstream.price_provider);
        Self::new(shared, record, prices)
    }

    fn new(shared: &Arc<Shared>, record: TurnRecord, price_provider: &str) -> Self {
        shared.metrics.in_flight.inc();
        let open = Open {
            started: Instant::now(),
            record: Box::new(record),
            seat: None,
            chain_end: None,
            body_bytes: 0,
            ttl: None,
            price_provider: price_provider.to_owned(),
            watched: None,
            settled: Settled::default(),
            leads: Vec::new(),
            again: None,
            hold: None,
            history: None,
            declared: None,
            conversation: None,
            headers: Vec::new(),
            facts: None,
            asked_usage: false,
            captured: None,
        };
        Self {
            shared: shared.clone(),
            open: Some(Box::new(open)),
        }
    }

    /// The record while the account is open.
    pub fn record(&mut self) -> Option<&mut TurnRecord> {
        self.open.as_mut().map(|open| &mut *open.record)
    }

    /// The seat, once taken.
    #[must_use]
    pub fn seat(&self) -> Option<&Seat> {
        self.open.as_ref()?.seat.as_ref()
    }

    /// Takes note of who is asking.
    pub fn seated(&mut self, seat: Seat, chain_end: Option<Hash>, body_bytes: usize) {
        let Some(open) = &mut self.open else { return };
        let record = &mut open.record;
        record.run_id = seat.run_id.to_string();
        record.run_source = seat.run_source;
        record.thread_id = seat.thread_id.to_string();
        record.parent_thread = seat.parent_thread.as_deref().map(Into::into);
        record.turn = seat.turn;
        record.attempt = seat.attempt;
        open.chain_end = chain_end;
        open.body_bytes = body_bytes as u64;
        open.seat = Some(seat);
    }

    /// The blocks of what is sent are not those of what came: what the seat says of them moves.
    pub(super) fn moved(&mut self, to: impl Fn(usize) -> usize) {
        if let Some(seat) = self.open.as_mut().and_then(|open| open.seat.as_mut()) {
            seat.previous_end = seat.previous_end.map(to);
        }
    }

    /// The prompt-cache engine follows this request.
    pub fn watch(&mut self, watched: Watched) {
        if let Some(open) = &mut self.open {
            open.watched = Some(watched);
        }
    }

    /// What the prompt-cache engine follows.
    #[must_use]
    pub fn watched(&self) -> Option<&Watched> {
        self.open.as_ref()?.watched.as_ref()
    }

    /// Our breakpoints were refused, and the client's own bytes go out.
    pub fn sent_untouched(&mut self) {
        let now_ms = self.shared.clock.utc_ms();
        let Some(open) = &mut self.open else { return };
        open.asked_usage = false;
        if let Some(watched) = &mut open.watched {
            watched.sent_untouched(&self.shared, now_ms);
        }
    }

    /// The upstream is asked for the tokens, though the client did not ask.
    pub fn asks_usage(&mut self) {
        if let Some(open) = &mut self.open {
            open.asked_usage = true;
        }
    }

    /// See [`Self::asks_usage`].
    #[must_use]
    pub fn asked_usage(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.asked_usage)
    }

    /// The head of a good answer has arrived.
    pub fn began(&mut self) {
        if let Some(open) = &mut self.open {
            if let Some(watched) = &mut open.watched {
                watched.began(&self.shared);
            }
            for lead in open.leads.drain(..) {
                lead.began();
            }
        }
    }

    /// Others wait until this answer has begun, or this request has failed.
    pub fn leads(&mut self, lead: Lead) {
        if let Some(open) = &mut self.open {
            open.leads.push(lead);
        }
    }

    /// The wait for a sibling's answer is over; whether it had begun.
    pub fn waited(&mut self, began: bool) {
        let now_ms = self.shared.clock.utc_ms();
        if let Some(watched) = self.open.as_mut().and_then(|open| open.watched.as_mut()) {
            watched.waited(&self.shared, began, now_ms);
        }
    }

    /// Keeps what goes upstream, to be sent again in a pause.
    pub fn keep_for_pause(&mut self, parts: &request::Parts, pieces: &[Bytes]) {
        if let Some(open) = &mut self.open {
            open.again = Some(Again {
                uri: parts.uri.clone(),
                headers: parts.headers.clone(),
                pieces: pieces.to_vec(),
            });
        }
    }

    /// The request holds this of its caps, until the account is closed.
    pub(super) fn hold(&mut self, hold: Hold) {
        if let Some(open) = &mut self.open {
            open.hold = Some(hold);
        }
    }

    /// Carries along what a history that the provider holds has shown so far.
    pub(super) fn carry(&mut self, history: History) {
        if let Some(open) = &mut self.open {
            open.history = Some(history);
        }
    }

    /// The conversation that the provider holds and the answer becomes a part of.
    pub(super) fn converses(&mut self, id: &str) {
        if let Some(open) = &mut self.open {
            open.conversation = Some(id.to_owned());
        }
    }

    /// The tools that the request declares, by which the calls of its answer are judged.
    pub(super) fn declares(&mut self, declared: Option<Arc<Declared>>) {
        if let Some(open) = &mut self.open {
            open.declared = declared;
        }
    }

    /// Tells the client something in a header of the answer.
    pub(super) fn tell(&mut self, name: &'static HeaderName, value: Option<HeaderValue>) {
        if let (Some(open), Some(value)) = (&mut self.open, value) {
            open.headers.push((name, value));
        }
    }

    /// Puts what is to be told into the head of the answer.
    pub(super) fn told(&mut self, headers: &mut HeaderMap) {
        if let Some(open) = &mut self.open {
            for (name, value) in open.headers.drain(..) {
                headers.insert(name, value);
            }
        }
    }

    /// Holds the content of the request, to be kept when the account is closed.
    pub(super) fn capture(&mut self, held: Option<Holding>) {
        if let Some(open) = &mut self.open {
            open.captured = held.map(Box::new);
        }
    }

    /// The head of the answer that goes to the client.
    pub(super) fn captured_head(&mut self, status: StatusCode, headers: &HeaderMap) {
        if let Some(held) = self.open.as_mut().and_then(|open| open.captured.as_mut()) {
            let kind = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
            let encoding = super::headers::encodings(headers);
            held.answered(status.as_u16(), kind.unwrap_or_default(), &encoding);
        }
    }

    /// Bytes of the answer, as the upstream sent them.
    pub(super) fn captured_bytes(&mut self, bytes: &[u8]) {
        if let Some(held) = self.open.as_mut().and_then(|open| open.captured.as_mut()) {
            held.passed(bytes);
        }
    }

    /// Why there is no answer, for the record.
    pub(super) fn failed_with(&mut self, message: &str) {
        if let Some(open) = &mut self.open {
            open.record.error_message = Some(self.shared.clean(message));
        }
    }

    /// The lifetime that every marker of the request asks for; decides what a write cost when the
    /// provider does not split it.
    pub fn set_ttl(&mut self, ttl: Option<Ttl>) {
        if let Some(open) = &mut self.open {
            open.ttl = ttl;
        }
    }

    /// See [`Self::set_ttl`].
    #[must_use]
    pub fn inferred_ttl(&self) -> Option<Ttl> {
        self.open.as_ref()?.ttl
    }

    /// Adds a warning, once.
    pub fn warn(&mut self, warning: &str) {
        if let Some(record) = self.record()
            && !record.warnings.iter().any(|w| w == warning)
        {
            record.warnings.push(warning.to_owned());
        }
    }

    /// Microseconds since the account was opened.
    #[must_use]
    pub fn elapsed_us(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| micros(open.started))
    }

    /// Bytes of the answer went on to the client.
    pub fn delivered(&mut self, bytes: usize) {
        if let Some(record) = self.record() {
            record.response_bytes += bytes as u64;
        }
    }

    /// Content has begun to arrive.
    pub fn content_began(&mut self) {
        if let Some(open) = &mut self.open
            && open.record.first_token_us.is_none()
        {
            open.record.first_token_us = Some(micros(open.started));
        }
    }

    /// The upstream's status says success.
    #[must_use]
    pub fn answered_ok(&self) -> bool {
        let status = self.open.as_ref().and_then(|open| open.record.status);
        status.is_some_and(|s| (200..300).contains(&s))
    }

    /// Closes the account. Later calls do nothing.
    pub fn finish(&mut self, end: End, answer: Option<Answer>) {
        drop(self.close(end, answer));
    }

    /// Like [`Self::finish`], and says what came of it.
    pub fn finish_booked(&mut self, end: End, answer: Option<Answer>) -> Option<Booked> {
        self.close(end, answer)?.book()
    }

    /// Like [`Self::finish`], but the bookkeeping waits until the answer's last bytes are on their way.
    pub fn finish_later(&mut self, end: End, answer: Option<Answer>) {
        let Some(closing) = self.close(end, answer) else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // A runtime that ends drops the task, and that does the work as well.
            runtime.spawn(async move { drop(closing) });
        }
    }

    /// Settles what the next request of the thread must find; the rest is done by the returned value.
    fn close(&mut self, end: End, answer: Option<Answer>) -> Option<Closing> {
        let mut open = self.open.take()?;
        let shared = &self.shared;
        open.record.duration_us = micros(open.started);
        if let Some(answer) = &answer {
            open.read(shared, answer);
        }
        open.judge(shared, &end, answer.as_ref());
        if matches!(end, End::ClientGone) && *shared.cut.borrow() {
            open.record.warnings.push("cut_by_shutdown".to_owned());
        }
        let now_ms = shared.clock.utc_ms();
        open.settle(shared, answer.as_ref(), now_ms);
        open.pay(shared, answer.as_ref());
        if let Some(hold) = open.hold.take() {
            // The next request must find what this one has used.
            open.give_back(shared, hold, answer.as_ref(), now_ms);
        }
        Some(Closing {
            shared: shared.clone(),
            open: Some(open),
            answer,
            ended_ms: now_ms,
            complete: matches!(end, End::Complete),
        })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.finish(End::ClientGone, None);
    }
}

/// An id of a tool call as it is kept: cut the same way where it is asked for and where it is
/// answered.
#[must_use]
pub fn call_id(id: &str) -> String {
    text::prefix(id, MAX_MODEL_BYTES).to_owned()
}

/// A UUIDv7. Unique in this process by a counter, and among processes by 62 random bits drawn once:
/// asking the system for randomness with each request costs two calls.
pub(super) fn new_id(now_ms: i64) -> Uuid {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    /// Odd, so that the product runs through all values.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

    let process = *PROCESS.get_or_init(|| Uuid::new_v4().as_u64_pair().1.rotate_left(7));
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 10];
    // Ids of the same millisecond sort by their counter.
    bytes[..2].copy_from_slice(&((count & 0x0FFF) as u16).to_be_bytes());
    bytes[2..].copy_from_slice(
        &process
            .wrapping_add(count.wrapping_mul(SPREAD))
            .to_be_bytes(),
    );
    let millis = u64::try_from(now_ms).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
    let mut text = String::with_capacity(2 * bytes.len());
    text.extend(digits.map(|d| char::from(DIGITS[usize::from(d)])));
    text
}
