//! The control flow of a request, from its head to the head of its answer.
//!
//! What is neither refused nor answered here goes [`upward`](super::upward), and what comes of that
//! [`downward`](super::downward).

use std::sync::Arc;

use http::header::{CONNECTION, HOST, HeaderValue, TRAILER};
use http::{Method, Request, Response, StatusCode, Version, request};
use hyper::body::Incoming;

use super::account::{Account, hex};
use super::body::ReplyBody;
use super::downward::pass_on;
use super::ending::{answer_instead, refuse, refuse_intake, refuse_thread, refuse_tunnel};
use super::guard::loops::Stop;
use super::prepare::Asking;
use super::refusal::Refusal;
use super::route::{Route, RouteError};
use super::upstream::{Clients, SendBody};
use super::upward::{learn, not_switched, send, send_turn, warm_first};
use super::{Shared, guard, headers, prepare, route, socket, tunnel};
use crate::config::Threads;
use crate::prompt_cache::chain::Hash;
use crate::provider::dialect::Counting;
use crate::provider::wire::Wire;
use crate::run::{Labels, identify};
use crate::trace::{Outcome, RequestKind};

/// Longest path that is recorded, in bytes.
const MAX_PATH_BYTES: usize = 256;

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
            // In boxes: room for them would be taken with each turn, too.
            return Box::pin(socket::open(shared, &clients, account, asked)).await;
        }
        let tunnel = tunnel::open(shared, &clients, account, parts, body, protocol, &upstream);
        return Box::pin(tunnel).await;
    }
    let mut writes = None;
    let sent = if turn {
        // A body that is read whole goes out with its length, which leaves no place for trailers.
        parts.headers.remove(TRAILER);
        let taken = match shared.budget.read(body).await {
            Ok(taken) => taken,
            Err(error) => return refuse_intake(account, error, wire),
        };
        if let Some(capture) = &shared.capture {
            let mode = shared.config.capture_for(labels.app.as_deref());
            let encoding = headers::encodings(&parts.headers);
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
            use super::guard::caps::End;
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
        writes = prepared.writes;
        let learning = prepared.learning.take();
        let sending = send_turn(
            &shared,
            &clients,
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
        send(&shared, &upstream.name, clients.request(request)).await
    };
    let method_is_head = account
        .record()
        .is_some_and(|r| r.method == Method::HEAD.as_str());
    match sent.and_then(|answer| not_switched(&upstream.name, answer)) {
        Ok(answer) => {
            let counting = Counting {
                writes: writes.unwrap_or(upstream.dialect.counting.writes),
                ..upstream.dialect.counting
            };
            let read = (turn && !method_is_head).then_some((wire, counting));
            pass_on(&shared, account, answer, read, unframed)
        }
        Err((refusal, outcome)) => refuse(account, refusal, outcome, wire),
    }
}

/// Writes what is known from the head into the record; returns the hash of the credential.
fn describe(
    shared: &Shared,
    account: &mut Account,
    parts: &request::Parts,
    route: &Route,
    labels: &Labels,
) -> Hash {
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
