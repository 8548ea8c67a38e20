//! The life of a turn.
//!
//! [`serve`] owns the control flow of a request from its head to the head of its answer; from
//! there the [`tee`] passes the answer on. The [`account`] travels along and is closed exactly
//! once, on every exit. Errors before the upstream's answer are [`refusal`]s.

pub mod account;
pub mod audit;
pub mod body;
pub mod guard;
pub mod headers;
pub mod intake;
pub mod keep_warm;
pub mod ledger;
mod line;
pub mod lower;
pub mod ping;
pub mod prepare;
pub mod refusal;
pub mod route;
pub mod socket;
pub mod tee;
mod tunnel;
pub mod upstream;
pub mod warm;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue,
    TRAILER,
};
use http::{Method, Request, Response, StatusCode, Version, request};
use hyper::body::Incoming;
use tokio::sync::{Notify, watch};

use self::account::{Account, End, hex};
use self::audit::Watched;
use self::body::ReplyBody;
use self::guard::loops::Stop;
use self::intake::{Budget, IntakeError};
pub use self::line::TURN_TARGET;
use self::prepare::{Asking, Prepared};
use self::refusal::Refusal;
use self::route::{Route, RouteError, Router};
use self::tee::{Reading, Tee};
use self::upstream::{Clients, SendBody, UpstreamClient};
use self::warm::Entry;
use crate::clock::Clock;
use crate::config::{Config, Threads};
use crate::prompt_cache::chain::Hasher;
use crate::prompt_cache::engine::{Engine, News};
use crate::provider::dialect::Counting;
use crate::provider::openai::swallow::Swallow;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::wire::Wire;
use crate::provider::{anthropic, decode};
use crate::redact::Redactor;
use crate::run::{Labels, Registry, identify};
use crate::trace::capture::Capture;
use crate::trace::ids;
use crate::trace::metrics::Metrics;
use crate::trace::{Outcome, Recorder, RequestKind};
use crate::usage::PriceBook;

/// Models whose missing price has been logged; later ones are only counted.
const MAX_UNPRICED_LOGGED: usize = 256;
/// An encoded answer is looked at up to this decoded size.
const MAX_DECODED_ANSWER_BYTES: u64 = 256 << 20;
/// Longest path that is recorded, in bytes.
const MAX_PATH_BYTES: usize = 256;

/// What all requests share.
#[derive(Debug)]
pub struct Shared {
    /// Settings.
    pub config: Config,
    /// The way to the upstreams.
    pub router: Router,
    /// Memory for bodies.
    pub budget: Budget,
    /// The time of records and lifetimes.
    pub clock: Clock,
    /// Keyed hashes.
    pub hasher: Hasher,
    /// Lineages.
    pub registry: Registry,
    /// The prompt-cache engine's memory.
    pub engine: Engine,
    /// Where requests with a common prefix wait for each other.
    pub gate: warm::Gate,
    /// Threads whose prefix is kept warm in a pause.
    pub keeper: Arc<keep_warm::Keeper>,
    /// Prices.
    pub prices: PriceBook,
    /// The way to the store.
    pub recorder: Recorder,
    /// Counters.
    pub metrics: Metrics,
    /// Loops and caps.
    pub guards: guard::Guards,
    /// What is taken out of every text that is kept.
    pub redactor: Arc<Redactor>,
    /// Where the content of turns is kept; `None` where no application's is.
    pub capture: Option<Capture>,
    /// Models already complained about.
    pub unpriced: Mutex<HashSet<String>>,
    /// Told when no request is under way any more.
    pub idle: Notify,
    /// Turns `true` when what still runs is cut by the shutdown.
    pub cut: watch::Sender<bool>,
}

impl Shared {
    /// Waits until no request is under way: all accounts are closed, their records handed over.
    pub async fn quiet(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // From here on no change is missed.
            idle.as_mut().enable();
            if self.metrics.in_flight.get() <= 0 {
                return;
            }
            idle.await;
        }
    }

    /// Logs a model without a price, once.
    fn warn_unpriced(&self, model: &str, reason: &str) {
        let mut logged = self.unpriced.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_UNPRICED_LOGGED && logged.insert(model.to_owned()) {
            let model = crate::text::prefix(model, 128);
            tracing::warn!(
                model,
                reason,
                "no price: the cost of this model is unknown; add a [[price]]"
            );
        }
    }
}

/// Serves one request over the given upstream connections. `ambiguous` is set when its head framed
/// the body in two ways.
pub async fn serve(
    shared: Arc<Shared>,
    clients: Arc<Clients>,
    request: Request<Incoming>,
    ambiguous: bool,
) -> Response<ReplyBody> {
    if *request.method() == Method::CONNECT {
        return refuse_tunnel(&shared);
    }
    let target = request.uri().path_and_query().map_or("/", |t| t.as_str());
    let route = match shared.router.route(request.method(), target) {
        Ok(route) => route,
        Err(error) => {
            let wire = if target.contains("/v1/messages") {
                Wire::Messages
            } else {
                Wire::Chat
            };
            let message = format!("prefixgate: {error}");
            let refusal = match error {
                RouteError::WrongLabel { .. } => Refusal::bad_request(message),
                _ => Refusal {
                    status: StatusCode::NOT_FOUND,
                    kind: "not_found_error",
                    message,
                    retry: Some(false),
                    after_ms: None,
                },
            };
            let account = Account::open(&shared, RequestKind::Other, "none", "none");
            return refuse(account, refusal, Outcome::ClientError, wire);
        }
    };
    let upstream = route.upstream.clone();
    let wire = route.wire;
    let mut account = Account::open(
        &shared,
        route.kind,
        &upstream.name,
        route::prices(&upstream, wire),
    );
    let turn = route.kind == RequestKind::Turn;
    // A turn is answered as one, whatever else the client would like: an upgrade may be ignored.
    let upgrade = headers::wants_upgrade(request.headers()).filter(|_| !turn);
    let ambiguous = ambiguous || request.headers().get_all(HOST).iter().nth(1).is_some();
    let (mut parts, body) = request.into_parts();
    let mut labels = route.labels.clone();
    let limits = headers::to_upstream(&mut parts.headers, &mut labels);
    let credential = describe(&shared, &mut account, &parts, &route, &labels);
    let unframed = parts.version == Version::HTTP_10;

    if ambiguous {
        let message = "prefixgate: the request can be read in two ways (content-length beside \
                       transfer-encoding, a transfer coding other than chunked, or two host \
                       headers); nothing was forwarded";
        let refusal = Refusal::bad_request(message.into());
        let mut response = refuse(account, refusal, Outcome::ClientError, wire);
        // Nobody knows where the next request would begin.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
        return response;
    }
    if let Err(error) = limits {
        let refusal = Refusal::bad_request(format!("prefixgate: {error}"));
        return refuse(account, refusal, Outcome::ClientError, wire);
    }
    let uri = match route::join(&upstream, &route.target) {
        Ok(uri) => uri,
        Err(error) => {
            let refusal =
                Refusal::bad_request(format!("prefixgate: unusable request target: {error}"));
            return refuse(account, refusal, Outcome::ClientError, wire);
        }
    };
    parts.uri = uri;
    parts.version = Version::HTTP_11;

    if let Some(protocol) = upgrade {
        if socket::is_meant(&route, &parts.method, &protocol) {
            let asked = socket::Asked {
                parts,
                body,
                protocol,
                upstream,
                labels,
                credential,
            };
            return socket::open(shared, &clients, account, asked).await;
        }
        return tunnel::open(shared, &clients, account, parts, body, protocol, &upstream).await;
    }
    let sent = if turn {
        // A body that is read whole goes out with its length, which leaves no place for trailers.
        parts.headers.remove(TRAILER);
        let taken = match shared.budget.read(body).await {
            Ok(taken) => taken,
            Err(error) => return refuse_intake(account, error, wire),
        };
        if let Some(capture) = &shared.capture {
            let mode = shared.config.capture_for(labels.app.as_deref());
            let encoding = encodings(&parts.headers);
            account.capture(capture.hold(mode, &taken.bytes, &encoding));
        }
        let ready = account.elapsed_us();
        let asking = Asking {
            headers: &parts.headers,
            labels: &labels,
            upstream: &upstream.name,
            price_provider: route::prices(&upstream, wire),
            credential,
            lowered: &labels.limits,
            wire,
            dialect: &upstream.dialect,
            socket: false,
            compacts: route.compacts,
        };
        let mut prepared = prepare::prepare(&shared, &mut account, &asking, &taken.bytes);
        if let Some(record) = account.record() {
            record.request_bytes = taken.bytes.len() as u64;
        }
        let replay = wire == Wire::Messages && shared.config.threads == Threads::Replay;
        if prepared.continues && replay {
            return refuse_thread(account);
        }
        match prepared.stop.take() {
            None => {}
            // Of an answer in the model's place a client that compacts could make nothing.
            Some(Stop::Answer(why)) if route.compacts => {
                let refusal = Refusal::stopped(guard::status(&shared, &mut account), why);
                return refuse(account, refusal, Outcome::Refused, wire);
            }
            Some(Stop::Refuse(why)) => {
                let refusal = Refusal::stopped(guard::status(&shared, &mut account), why);
                return refuse(account, refusal, Outcome::Refused, wire);
            }
            Some(Stop::Answer(text)) => return answer_instead(account, wire, "loop", &text),
        }
        if let Some(asked) = prepared.asked.take() {
            use self::guard::caps::End;
            match guard::caps::enter(&shared, &mut account, asked).await {
                Ok(()) => {}
                Err(End::Refuse(refusal)) => {
                    return refuse(account, refusal, Outcome::Refused, wire);
                }
                Err(End::Answer(why)) if route.compacts => {
                    let refusal = Refusal::stopped(guard::status(&shared, &mut account), why);
                    return refuse(account, refusal, Outcome::Refused, wire);
                }
                Err(End::Answer(text)) => return answer_instead(account, wire, "cap", &text),
            }
        }
        if let Some(record) = account.record() {
            record.sent_bytes = prepared.pieces.iter().map(|p| p.len() as u64).sum();
        }
        let spent = account.elapsed_us().saturating_sub(ready);
        if let Some(record) = account.record() {
            record.overhead_us = Some(spent);
        }
        if !shared.config.warm_first.is_zero() {
            warm_first(&shared, &mut account).await;
        }
        let learning = prepared.learning.take();
        let sending = send_turn(
            &shared,
            &clients.pooled,
            &mut account,
            &upstream.name,
            parts,
            prepared,
            taken.bytes,
        );
        let (answer, ()) = tokio::join!(sending, learn(&shared, learning));
        // The body is not needed any more: its memory goes back while the answer is on its way.
        drop(taken.share);
        answer
    } else {
        let request = Request::from_parts(parts, SendBody::Stream(body));
        send(&shared, &clients.pooled, &upstream.name, request).await
    };
    let method_is_head = account
        .record()
        .is_some_and(|r| r.method == Method::HEAD.as_str());
    match sent.and_then(|answer| not_switched(&upstream.name, answer)) {
        Ok(answer) => {
            let read = (turn && !method_is_head).then_some((wire, upstream.dialect.counting));
            pass_on(&shared, account, answer, read, unframed)
        }
        Err((refusal, outcome)) => refuse(account, refusal, outcome, wire),
    }
}

/// The content encodings of a body, in one line.
fn encodings(headers: &HeaderMap) -> String {
    let lines = headers.get_all(CONTENT_ENCODING).iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}

/// Remembers what was new in a request, while the upstream works on it.
async fn learn(shared: &Shared, learning: Option<(Bytes, News)>) {
    let Some((body, news)) = learning else {
        return;
    };
    // The connection's own task has its turn first, and writes.
    tokio::task::yield_now().await;
    shared.engine.learn(&body, &news);
}

/// Waits, within its bound, for the answer to a request that is just writing a prefix of this one;
/// or lets others wait for this one.
async fn warm_first(shared: &Shared, account: &mut Account) {
    let Some(prefixes) = account.watched().map(Watched::prefixes) else {
        return;
    };
    let Some(awaited) = prefixes.awaited else {
        for key in prefixes.written {
            if let Entry::Lead(lead) = shared.gate.enter(key) {
                account.leads(lead);
            }
        }
        return;
    };
    match shared.gate.enter(awaited) {
        Entry::Lead(lead) => account.leads(lead),
        Entry::Full => {}
        Entry::Follow(follow) => {
            let waited = follow.wait(shared.config.warm_first).await;
            account.waited(waited.began);
            if let Some(lead) = waited.lead {
                account.leads(lead);
            }
        }
    }
}

/// Why there is no answer, and whose doing that is.
type Unanswered = (Refusal, Outcome);

/// A client that takes the gateway for a forward proxy.
fn refuse_tunnel(shared: &Arc<Shared>) -> Response<ReplyBody> {
    let mut account = Account::open(shared, RequestKind::Other, "none", "none");
    if let Some(record) = account.record() {
        record.method = Method::CONNECT.to_string();
    }
    let refusal = Refusal {
        status: StatusCode::METHOD_NOT_ALLOWED,
        kind: "invalid_request_error",
        message: "prefixgate: this is no forward proxy; set the client's base URL (such as \
                  ANTHROPIC_BASE_URL) to this address instead of HTTPS_PROXY"
            .to_owned(),
        retry: Some(false),
        after_ms: None,
    };
    let first = shared.config.upstreams.first();
    let wire = first.map_or(Wire::Chat, |upstream| route::spoken(upstream.format));
    refuse(account, refusal, Outcome::ClientError, wire)
}

/// `101` to a request that did not ask for it would leave the client with a connection that
/// nobody reads.
fn not_switched(
    upstream: &str,
    answer: Response<Incoming>,
) -> Result<Response<Incoming>, Unanswered> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer);
    }
    let refusal = Refusal::unreachable(upstream, "it switched protocols without being asked");
    Err((refusal, Outcome::UpstreamError))
}

/// Writes what is known from the head into the record; returns the hash of the credential.
fn describe(
    shared: &Shared,
    account: &mut Account,
    parts: &request::Parts,
    route: &Route,
    labels: &Labels,
) -> crate::prompt_cache::chain::Hash {
    let raw = headers::credential(&parts.headers);
    let hash = shared
        .hasher
        .keyed("credential", raw.map_or(&b""[..], |v| v.as_bytes()));
    let Some(record) = account.record() else {
        return hash;
    };
    record.credential = raw.map(|_| hex(&hash[..8]));
    record.method = parts.method.as_str().to_owned();
    let path = route.target.split('?').next().unwrap_or_default();
    record.path = crate::text::prefix(path, MAX_PATH_BYTES).to_owned();
    record.app = labels
        .app
        .as_deref()
        .map(|app| crate::text::prefix(app, 64).to_owned());
    record.client = identify::client_name(&parts.headers);
    hash
}

/// Sends a turn. When the upstream refuses a request that carries markers of ours, the client's
/// own bytes are sent once more (a 400 has generated nothing). If those are answered, the markers
/// were to blame, and insertion ends for the thread.
async fn send_turn(
    shared: &Shared,
    client: &UpstreamClient,
    account: &mut Account,
    upstream: &str,
    mut parts: request::Parts,
    prepared: Prepared,
    original: Bytes,
) -> Result<Response<Incoming>, Unanswered> {
    if let (Some(otlp), Some(record)) = (&shared.config.otlp, account.record())
        && otlp.propagate
    {
        let client = record.traceparent.as_deref();
        let ours = ids::traceparent(record.id, &record.run_id, client, otlp.sample_ppm);
        // Digits and dashes: it is always a value.
        if let Ok(value) = HeaderValue::try_from(ours) {
            parts.headers.insert("traceparent", value);
        }
    }
    // Only a decoded body can be edited into one that generates nothing.
    let plain = prepared.edited || !parts.headers.contains_key(CONTENT_ENCODING);
    if shared.config.keep_warm_max_micro_usd > 0 && plain {
        account.keep_for_pause(&parts, &prepared.pieces);
    }
    if !prepared.edited {
        let request = Request::from_parts(parts, SendBody::pieces(prepared.pieces));
        return send(shared, client, upstream, request).await;
    }
    let mut untouched = parts.clone();
    prepare::fit_headers(&mut parts.headers, &prepared.pieces);
    if !prepared.marked {
        // Texts in the history stay, whatever becomes of the request.
        let request = Request::from_parts(parts, SendBody::pieces(prepared.pieces));
        return send(shared, client, upstream, request).await;
    }
    let original = match prepared.hinted {
        Some(hinted) => {
            prepare::fit_headers(&mut untouched.headers, std::slice::from_ref(&hinted));
            hinted
        }
        None => original,
    };
    let request = Request::from_parts(parts, SendBody::pieces(prepared.pieces));
    let answer = send(shared, client, upstream, request).await?;
    if answer.status() != StatusCode::BAD_REQUEST {
        return Ok(answer);
    }
    let markers = account.record().map_or(0, |r| {
        r.sent_bytes = original.len() as u64;
        std::mem::take(&mut r.markers_added).len()
    });
    drop(answer);
    account.sent_untouched();
    if shared.config.keep_warm_max_micro_usd > 0
        && !untouched.headers.contains_key(CONTENT_ENCODING)
    {
        account.keep_for_pause(&untouched, std::slice::from_ref(&original));
    }
    let request = Request::from_parts(untouched, SendBody::pieces(vec![original]));
    let answer = send(shared, client, upstream, request).await?;
    if !answer.status().is_success() {
        // The client's own bytes are refused as well (too long, say): nothing tells against the
        // markers, but while the thread is refused they are of no use.
        account.warn("markers_suspended");
        if let Some(seat) = account.seat() {
            shared.registry.suspend_insertion(seat);
        }
        return Ok(answer);
    }
    shared.metrics.fuse(markers);
    account.warn("markers_refused");
    if let Some(seat) = account.seat() {
        shared.registry.insertion_off(seat);
        tracing::warn!(
            run = &*seat.run_id,
            thread = &*seat.thread_id,
            "the upstream refused a request with edits of ours (breakpoints, a question for the tokens); it was sent \
             again as the client wrote it, and no more are made in this thread"
        );
    }
    Ok(answer)
}

async fn send(
    shared: &Shared,
    client: &UpstreamClient,
    upstream: &str,
    request: Request<SendBody>,
) -> Result<Response<Incoming>, Unanswered> {
    let limit = shared.config.idle_timeout;
    match tokio::time::timeout(limit, client.request(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if upstream::client_broke(&error) => {
            let why = format!(
                "prefixgate: the client's body ended early: {}",
                tee::chain(&error)
            );
            Err((Refusal::bad_request(why), Outcome::ClientAbort))
        }
        Ok(Err(error)) => {
            let what = if error.is_connect() {
                "it could not be connected to"
            } else {
                "the connection broke before the answer (the request was not sent again)"
            };
            let refusal =
                Refusal::unreachable(upstream, &format!("{what}: {}", tee::chain(&error)));
            Err((refusal, Outcome::UpstreamUnreachable))
        }
        Err(_elapsed) => {
            let refusal = Refusal::silent(upstream, limit);
            Err((refusal, Outcome::UpstreamUnreachable))
        }
    }
}

/// Passes an answer on: head at once, body by the tee.
fn pass_on(
    shared: &Shared,
    mut account: Account,
    answer: Response<Incoming>,
    read: Option<(Wire, Counting)>,
    unframed: bool,
) -> Response<ReplyBody> {
    let (mut parts, body) = answer.into_parts();
    headers::strip_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    let head_us = account.elapsed_us();
    if let Some(record) = account.record() {
        record.head_us = Some(head_us);
        record.status = Some(parts.status.as_u16());
        record.request_id = request_id(&parts.headers);
    }
    if parts.status.is_success() {
        account.began();
    }
    account.told(&mut parts.headers);
    account.captured_head(parts.status, &parts.headers);
    let empty = http_body::Body::is_end_stream(&body);
    if empty && !(read.is_some() && parts.status == StatusCode::OK) {
        account.finish(End::Complete, None);
        return Response::from_parts(parts, ReplyBody::empty());
    }
    let reading =
        read.and_then(|read| reading(&mut parts.headers, parts.status, read, &mut account));
    let tee = Tee::new(body, account, reading, shared.config.idle_timeout, unframed);
    Response::from_parts(parts, ReplyBody::Tee(Box::new(tee)))
}

/// The provider's id of a request, from the head of its answer.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let ids = ["request-id", "x-request-id"];
    let id = ids
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok());
    id.map(|id| crate::text::prefix(id, 128).to_owned())
}

fn reading(
    headers: &mut HeaderMap,
    status: StatusCode,
    (wire, counting): (Wire, Counting),
    account: &mut Account,
) -> Option<Reading> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    };
    let shape = Shape::of(
        status.as_u16(),
        headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()),
    );
    let stream = matches!(shape, Shape::Stream);
    let encoding = text(CONTENT_ENCODING);
    let decoder = if encoding.is_empty() || encoding.eq_ignore_ascii_case("identity") {
        None
    } else {
        let decoder = decode::Decoder::new(encoding, MAX_DECODED_ANSWER_BYTES);
        if decoder.is_none() {
            account.warn("answer_not_decoded");
            return None;
        }
        decoder
    };
    let swallow = (stream && decoder.is_none() && account.asked_usage()).then(Swallow::default);
    if swallow.is_some() {
        // Less goes on than is announced.
        headers.remove(CONTENT_LENGTH);
    }
    Some(Reading {
        reader: Reader::new(wire, shape, Limits::default()).counting(counting),
        swallow,
        wire,
        decoder,
        stream,
    })
}

fn refuse(account: Account, refusal: Refusal, outcome: Outcome, wire: Wire) -> Response<ReplyBody> {
    close_refused(account, &refusal, outcome);
    refusal.into_response(wire)
}

/// Closes the account of a request that is refused.
fn close_refused(mut account: Account, refusal: &Refusal, outcome: Outcome) {
    if let Some(record) = account.record() {
        record.status = Some(refusal.status.as_u16());
        record.error_type = Some(refusal.kind.to_owned());
    }
    account.failed_with(&refusal.message);
    account.finish(End::Own(outcome, refusal.message.clone()), None);
}

fn refuse_intake(account: Account, error: IntakeError, wire: Wire) -> Response<ReplyBody> {
    let refusal = match &error {
        IntakeError::TooLarge(limit) => Refusal::too_large(*limit),
        IntakeError::Stalled(_) => Refusal {
            status: StatusCode::REQUEST_TIMEOUT,
            kind: "timeout_error",
            message: format!("prefixgate: {error}; nothing was forwarded"),
            retry: None,
            after_ms: None,
        },
        IntakeError::Client(_) | IntakeError::Closed => {
            Refusal::bad_request(format!("prefixgate: {error}"))
        }
    };
    let outcome = match error {
        IntakeError::Client(_) => Outcome::ClientAbort,
        _ => Outcome::ClientError,
    };
    refuse(account, refusal, outcome, wire)
}

/// Ends the turn in the model's place, in the way it was asked for.
fn answer_instead(account: Account, wire: Wire, why: &str, text: &str) -> Response<ReplyBody> {
    let (streamed, answer) = instead(account, wire, why, text);
    let mut response = refusal::json(StatusCode::OK, answer);
    if streamed {
        let kind = HeaderValue::from_static(anthropic::answer::STREAM_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// Closes the account of a turn that is ended in the model's place. Gives the answer, and whether it
/// is a stream.
fn instead(mut account: Account, wire: Wire, why: &str, text: &str) -> (bool, Vec<u8>) {
    let (mut streamed, mut model, mut id) = (false, String::new(), uuid::Uuid::nil());
    let mut at_ms = 0;
    if let Some(record) = account.record() {
        record.status = Some(StatusCode::OK.as_u16());
        record.error_type = Some(why.to_owned());
        streamed = record.streamed;
        model = record.model_requested.clone().unwrap_or_default();
        id = record.id;
        at_ms = record.started_ms;
    }
    let id = format!("prefixgate_{}", id.simple());
    let at_s = at_ms / 1_000;
    account.finish(End::Own(Outcome::Refused, text.to_owned()), None);
    let answer = match streamed {
        true => wire.answer_stream(&id, &model, text, at_s),
        false => wire.answer_body(&id, &model, text, at_s),
    };
    (streamed, answer)
}

/// The configured answer to a continuation: the SDK then sends the whole history.
fn refuse_thread(mut account: Account) -> Response<ReplyBody> {
    let status = StatusCode::NOT_FOUND;
    if let Some(record) = account.record() {
        record.status = Some(status.as_u16());
        record.error_type = Some("thread_not_found".to_owned());
    }
    let why = "threads = \"replay\": the client is asked to send the whole history";
    account.finish(End::Own(Outcome::Refused, why.to_owned()), None);
    refusal::json(status, anthropic::error::thread_not_found_body(None))
}
