//! The way up: a request goes to its upstream, after others where that is worth waiting for, and a
//! second time without markers of ours where those are refused.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderValue};
use http::{Request, Response, StatusCode, request};

use super::account::Account;
use super::audit::Watched;
use super::prepare::Prepared;
use super::refusal::Refusal;
use super::upstream::{AnswerBody, Clients, SendBody, SendError};
use super::warm::Entry;
use super::{Shared, prepare, tee};
use crate::prompt_cache::engine::News;
use crate::trace::{Outcome, ids};

/// Why there is no answer, and whose doing that is.
pub(super) type Unanswered = (Refusal, Outcome);

/// Remembers what was new in a request, while the upstream works on it.
pub(super) async fn learn(shared: &Shared, learning: Option<(Bytes, News)>) {
    let Some((body, news)) = learning else {
        return;
    };
    // Whoever writes the request has its turn first.
    tokio::task::yield_now().await;
    shared.engine.learn(&body, &news);
}

/// Waits, within its bound, for the answer to a request that is just writing a prefix of this one;
/// or lets others wait for this one.
pub(super) async fn warm_first(shared: &Shared, account: &mut Account) {
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

/// Sends a turn. When the upstream refuses a request that carries markers of ours, the client's
/// own bytes are sent once more (a 400 has generated nothing). If those are answered, the markers
/// were to blame, and insertion ends for the thread.
pub(super) async fn send_turn(
    shared: &Shared,
    clients: &Clients,
    account: &mut Account,
    upstream: &str,
    mut parts: request::Parts,
    prepared: Prepared,
    original: Bytes,
) -> Result<Response<AnswerBody>, Unanswered> {
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
        return send(shared, upstream, clients.request(request)).await;
    }
    let mut untouched = parts.clone();
    prepare::fit_headers(&mut parts.headers, &prepared.pieces);
    if !prepared.marked {
        // Texts in the history stay, whatever becomes of the request.
        let request = Request::from_parts(parts, SendBody::pieces(prepared.pieces));
        return send(shared, upstream, clients.request(request)).await;
    }
    let original = match prepared.hinted {
        Some(hinted) => {
            prepare::fit_headers(&mut untouched.headers, std::slice::from_ref(&hinted));
            hinted
        }
        None => original,
    };
    let request = Request::from_parts(parts, SendBody::pieces(prepared.pieces));
    let answer = send(shared, upstream, clients.request(request)).await?;
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
    let answer = send(shared, upstream, clients.request(request)).await?;
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

/// Waits for an answer, within the time for which an upstream may be silent.
pub(super) async fn send<B, E: Into<SendError>>(
    shared: &Shared,
    upstream: &str,
    sending: impl Future<Output = Result<Response<B>, E>>,
) -> Result<Response<B>, Unanswered> {
    let limit = shared.config.idle_timeout;
    let sent = tokio::time::timeout(limit, sending).await;
    match sent.map(|sent| sent.map_err(Into::into)) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.client_broke() => {
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

/// `101` to a request that did not ask for it would leave the client with a connection that
/// nobody reads.
pub(super) fn not_switched<B>(
    upstream: &str,
    answer: Response<B>,
) -> Result<Response<B>, Unanswered> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer);
    }
    let refusal = Refusal::unreachable(upstream, "it switched protocols without being asked");
    Err((refusal, Outcome::UpstreamError))
}
