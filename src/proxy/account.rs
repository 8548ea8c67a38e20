//! One request's account: opened when it is accepted, closed exactly once, whatever the exit.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, request};
use uuid::Uuid;

use super::Shared;
use super::audit::{Settled, Watched};
use super::guard;
use super::keep_warm::Held;
use super::ledger::Hold;
use super::warm::Lead;
use crate::guard::loops::History;
use crate::guard::schema::Declared;
use crate::prompt_cache::chain::Hash;
use crate::prompt_cache::diagnosis;
use crate::provider::view::{Answer, AnsweredCall, Ttl};
use crate::run::{Answered, AskedCall, Seat, parents};
use crate::text;
use crate::trace::{CallStatus, Outcome, RequestKind, ToolCallRecord, TurnRecord};
use crate::usage::{ModelFacts, Priced, Usage};

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
    record: TurnRecord,
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
    /// What the head of the answer tells besides.
    headers: Vec<(&'static HeaderName, HeaderValue)>,
    /// What is known of its model, once it has been priced.
    facts: Option<Option<ModelFacts>>,
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
            record,
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
            headers: Vec::new(),
            facts: None,
        };
        Self {
            shared: shared.clone(),
            open: Some(Box::new(open)),
        }
    }

    /// The record while the account is open.
    pub fn record(&mut self) -> Option<&mut TurnRecord> {
        self.open.as_mut().map(|open| &mut open.record)
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
        if let Some(watched) = self.open.as_mut().and_then(|open| open.watched.as_mut()) {
            watched.sent_untouched(&self.shared, now_ms);
        }
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
            open.read(answer);
        }
        open.judge(&end, answer.as_ref());
        if matches!(end, End::ClientGone) && *shared.cut.borrow() {
            open.record.warnings.push("cut_by_shutdown".to_owned());
        }
        let now_ms = shared.clock.utc_ms();
        open.settle(shared, answer.as_ref(), now_ms);
        if let Some(hold) = open.hold.take() {
            // The next request must find what this one has used.
            open.give_back(shared, hold, answer.as_ref(), now_ms);
        }
        Some(Closing {
            shared: shared.clone(),
            open,
            answer,
            ended_ms: now_ms,
            written: None,
        })
    }
}

/// What a request came to.
#[derive(Debug, Clone, Copy)]
pub struct Booked {
    /// How it ended.
    pub outcome: Outcome,
    /// Its tokens.
    pub usage: Usage,
    /// What it cost in pico-USD, where that is known.
    pub cost_pico: Option<u64>,
}

/// A closed account on its way into the books: priced, counted, logged and recorded when dropped.
struct Closing {
    shared: Arc<Shared>,
    open: Box<Open>,
    answer: Option<Answer>,
    /// When it ended, UTC milliseconds.
    ended_ms: i64,
    /// What it came to, once it has been written.
    written: Option<Booked>,
}

impl Closing {
    /// Does it now. Dropping does nothing more then.
    fn book(mut self) -> Option<Booked> {
        self.write();
        self.written
    }

    fn write(&mut self) {
        let shared = &self.shared;
        let open = &mut *self.open;
        let facts = open.price(shared, self.answer.as_ref());
        let record = &mut open.record;
        if let (Some(seat), Outcome::Ok) = (&open.seat, record.outcome) {
            shared.registry.paid(seat, record.cost_pico);
        }
        if record.kind == RequestKind::KeepWarm {
            // What a ping costs is what it takes from the helper's saving.
            let cost = record.cost_pico.and_then(|cost| i64::try_from(cost).ok());
            record.cache.helper_pico = cost.map(|cost| -cost);
        }
        if let Some(watched) = &open.watched {
            let metered = self.answer.as_ref().map(|answer| &answer.metered);
            watched.judge(shared, &open.settled, record, metered, &open.price_provider);
        }
        shared
            .metrics
            .turn(record, facts.as_ref().and_then(|f| f.label.as_ref()));
        let calls = self.answer.as_ref().map_or(&[][..], |a| &a.calls);
        if open.seat.is_some() {
            for call in calls {
                let wrong = open.declared.as_ref().filter(|_| call.complete);
                let wrong = wrong.and_then(|declared| {
                    let whole = call.input.len() as u64 == call.input_bytes;
                    declared.check(&call.name, &call.input, whole)
                });
                shared
                    .metrics
                    .call(if call.complete { "asked" } else { "incomplete" });
                if let Some(wrong) = wrong {
                    shared.metrics.call(wrong);
                }
                let asked = call_record(shared, record, call, wrong, self.ended_ms);
                shared.recorder.call(asked);
            }
        }
        super::line::log(record);
        guard::digest(shared, record);
        self.written = Some(Booked {
            outcome: record.outcome,
            usage: record.usage,
            cost_pico: record.cost_pico,
        });
        let successor = TurnRecord::begin(Uuid::nil(), record.kind, "", 0);
        shared.recorder.turn(std::mem::replace(record, successor));
        shared.metrics.in_flight.dec();
        if shared.metrics.in_flight.get() <= 0 {
            shared.idle.notify_waiters();
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if self.written.is_none() {
            self.write();
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.finish(End::ClientGone, None);
    }
}

impl Open {
    /// Takes over what the answer said.
    fn read(&mut self, answer: &Answer) {
        let record = &mut self.record;
        record.model_served = answer
            .metered
            .model
            .as_deref()
            .map(|m| text::prefix(m, MAX_MODEL_BYTES).to_owned());
        // Words of the upstream are as long as it likes.
        let word = |text: &Option<String>| {
            let text = text.as_deref()?;
            Some(text::prefix(text, MAX_MODEL_BYTES).to_owned())
        };
        record.stop_reason = word(&answer.stop_reason);
        record.response_id = word(&answer.id);
        let asked = self.watched.as_ref().is_some_and(|w| w.asked_native);
        let said = word(&answer.native_diagnosis);
        let answered = answer.id.is_some();
        record.native_diagnosis =
            diagnosis::recorded(said.as_deref(), asked, answered).map(str::to_owned);
        record.usage = answer.metered.usage;
        record.usage_complete = answer.usage_complete;
        for warning in &answer.warnings {
            if !record.warnings.iter().any(|w| w == warning) {
                record.warnings.push((*warning).to_owned());
            }
        }
        if let Some(error) = &answer.error {
            record.error_type = Some(text::prefix(&error.kind, MAX_MODEL_BYTES).to_owned());
            // Providers quote what they did not like, and that is the client's content.
            let message = text::without_quotations(&error.message);
            record.error_message = Some(text::prefix(&message, MAX_ERROR_BYTES).to_owned());
        }
    }

    /// Decides the outcome.
    fn judge(&mut self, end: &End, answer: Option<&Answer>) {
        let record = &mut self.record;
        let refused = record.status.is_some_and(|s| s >= 400);
        record.outcome = match end {
            End::Complete if refused || answer.is_some_and(|a| a.error.is_some()) => {
                Outcome::UpstreamError
            }
            End::Complete => Outcome::Ok,
            End::Cut(_) | End::Silent => Outcome::UpstreamCut,
            End::ClientGone => Outcome::ClientAbort,
            End::Own(outcome, _) => *outcome,
        };
        if matches!(end, End::Cut(_) | End::Silent | End::Own(..)) && record.error_type.is_none() {
            record.error_type = Some(record.outcome.as_str().to_owned());
            record.error_message = Some(text::prefix(&end.to_string(), MAX_ERROR_BYTES).to_owned());
        }
        if record.outcome != Outcome::Ok {
            record.usage_complete &= answer.is_some_and(|a| a.finished);
        }
    }

    /// Puts what was used in the place of what was held.
    fn give_back(
        &mut self,
        shared: &Arc<Shared>,
        hold: Hold,
        answer: Option<&Answer>,
        now_ms: i64,
    ) {
        self.price(shared, answer);
        let finished = answer.is_some_and(|answer| answer.finished);
        let (used, booked) = guard::caps::used(&self.record, finished, &hold.ask.most);
        if booked.is_some() {
            self.record.guard.booked_pico = booked;
            self.record.warnings.push("cap_booked_at_most".to_owned());
        }
        let calls = answer.is_some_and(|answer| !answer.calls.is_empty());
        let agent_ended = match self.record.outcome {
            Outcome::Ok => !calls,
            Outcome::ClientAbort => true,
            _ => false,
        };
        let told = guard::caps::Teller::new(shared, &self.record);
        let ledger = &shared.guards.ledger;
        ledger.settle(hold, used, agent_ended, now_ms, move |crossings| {
            told.crossed(&crossings);
        });
    }

    /// Estimates what a broken answer hides, and prices the turn; only once.
    fn price(&mut self, shared: &Shared, answer: Option<&Answer>) -> Option<ModelFacts> {
        if let Some(facts) = &self.facts {
            return facts.clone();
        }
        let facts = self.priced(shared, answer);
        self.facts = Some(facts.clone());
        facts
    }

    fn priced(&mut self, shared: &Shared, answer: Option<&Answer>) -> Option<ModelFacts> {
        if !matches!(self.record.kind, RequestKind::Turn | RequestKind::KeepWarm) {
            return None;
        }
        let model = self
            .record
            .model_served
            .as_deref()
            .or(self.record.model_requested.as_deref());
        let at = self.record.started_ms;
        let facts = model.map(|m| shared.prices.model(&self.price_provider, m, at));
        // Without an answer there is nothing to price, but the model is known all the same.
        let Some(answer) = answer else { return facts };
        let mut metered = answer.metered.clone();
        let input_seen = metered.usage.uncached.is_some() || metered.usage.read.is_some();
        if !self.record.usage_complete && input_seen && answer.delivered_bytes > 0 {
            let ratio = facts
                .as_ref()
                .map_or(3500, |f| f.bytes_per_token_milli)
                .max(1);
            let estimate = answer
                .delivered_bytes
                .saturating_mul(1000)
                .div_ceil(u64::from(ratio));
            metered.usage.output = Some(metered.usage.output.unwrap_or(0).max(estimate));
            self.record.usage_estimated = true;
        }
        self.record.usage = metered.usage;
        if metered.usage == crate::usage::Usage::default() {
            return facts;
        }
        let requested = self.record.model_requested.as_deref();
        match shared
            .prices
            .price(&self.price_provider, &metered, requested, at)
        {
            Priced::Known {
                pico,
                no_cache_pico,
                version,
                notes,
            } => {
                self.record.cost_pico = Some(pico);
                self.record.cost_no_cache_pico = Some(no_cache_pico);
                self.record.price_version = Some(version.to_string());
                self.record
                    .warnings
                    .extend(notes.iter().map(|n| (*n).to_owned()));
            }
            Priced::Unpriced {
                reason,
                lower_bound_pico,
            } => {
                self.record.price_version = Some(reason.to_owned());
                if let (false, Some(bound)) = (self.record.usage_complete, lower_bound_pico) {
                    self.record.cost_pico = Some(bound);
                    self.record.warnings.push("cost_lower_bound".to_owned());
                } else {
                    let model = model.unwrap_or_default();
                    if reason == crate::usage::price::UNKNOWN_MODEL {
                        shared.warn_unpriced(model, reason);
                    }
                    self.record.warnings.push(format!("unpriced:{reason}"));
                }
            }
        }
        facts
    }

    /// Tells the registry, and records the tool calls.
    fn settle(&mut self, shared: &Shared, answer: Option<&Answer>, now_ms: i64) {
        if let Some(watched) = &self.watched {
            self.settled = watched.settle(shared, &self.record, answer, now_ms);
            let calls = answer.is_some_and(|a| !a.calls.is_empty());
            if let (Some(again), false) = (self.again.take(), calls) {
                watched.pause(shared, &self.record, &self.settled, |record| {
                    Held::new(again.uri, again.headers, &again.pieces, record)
                });
            }
        }
        let Some(seat) = &self.seat else { return };
        let record = &self.record;
        let ok = record.outcome == Outcome::Ok;
        let calls = answer.map_or(&[][..], |a| &a.calls);
        let asked = calls.iter().filter(|c| c.complete).map(|call| AskedCall {
            id: call.id.clone(),
            prompts: parents::prompts(&call.input)
                .iter()
                .map(|prompt| shared.hasher.keyed("prompt", prompt.trim().as_bytes()))
                .collect(),
        });
        let prompt = record
            .usage
            .prompt()
            .filter(|n| *n > 0 && record.usage_complete);
        if let (Some(mut history), Some(id), true) =
            (self.history.take(), record.response_id.clone(), ok)
        {
            history.answered(calls);
            shared.guards.remember(id, history);
        }
        shared.registry.answered(
            seat,
            Answered {
                ok,
                end: self.chain_end,
                response_id: record.response_id.clone(),
                turn_id: record.id,
                calls: asked.collect(),
                prompt: prompt.map(|tokens| (tokens, self.body_bytes)),
                output: record.usage.output,
                now_ms,
            },
        );
    }
}

fn call_record(
    shared: &Shared,
    record: &TurnRecord,
    call: &AnsweredCall,
    wrong: Option<&'static str>,
    now_ms: i64,
) -> ToolCallRecord {
    ToolCallRecord {
        turn_id: record.id,
        run_id: record.run_id.clone(),
        thread_id: record.thread_id.clone(),
        call_id: call_id(&call.id),
        name: text::prefix(&call.name, MAX_MODEL_BYTES).to_owned(),
        input_hash: hex(&shared.hasher.keyed("tool-input", &call.input)),
        input_bytes: call.input_bytes,
        asked_ms: now_ms,
        status: if call.complete {
            CallStatus::Pending
        } else {
            CallStatus::Incomplete
        },
        latency_ms: None,
        result_bytes: None,
        wrong,
        retries: 0,
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
    digits.map(|d| char::from(DIGITS[usize::from(d)])).collect()
}
