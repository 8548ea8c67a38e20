//! Requests that end here: refusals, and answers in the model's place. Each closes its account.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};

use super::account::{Account, End};
use super::body::ReplyBody;
use super::intake::IntakeError;
use super::refusal::Refusal;
use super::{Shared, refusal, route};
use crate::provider::anthropic;
use crate::provider::wire::Wire;
use crate::trace::{Outcome, RequestKind};

pub(super) fn refuse(
    account: Account,
    refusal: Refusal,
    outcome: Outcome,
    wire: Wire,
) -> Response<ReplyBody> {
    close_refused(account, &refusal, outcome);
    refusal.into_response(wire)
}

/// Closes the account of a request that is refused.
pub(super) fn close_refused(mut account: Account, refusal: &Refusal, outcome: Outcome) {
    if let Some(record) = account.record() {
        record.status = Some(refusal.status.as_u16());
        record.error_type = Some(refusal.kind.to_owned());
    }
    account.failed_with(&refusal.message);
    account.finish(End::Own(outcome, refusal.message.clone()), None);
}

pub(super) fn refuse_intake(
    account: Account,
    error: IntakeError,
    wire: Wire,
) -> Response<ReplyBody> {
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

/// A client that takes the gateway for a forward proxy.
pub(super) fn refuse_tunnel(shared: &Arc<Shared>) -> Response<ReplyBody> {
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

/// The configured answer to a continuation: the SDK then sends the whole history.
pub(super) fn refuse_thread(mut account: Account) -> Response<ReplyBody> {
    let status = StatusCode::NOT_FOUND;
    if let Some(record) = account.record() {
        record.status = Some(status.as_u16());
        record.error_type = Some("thread_not_found".to_owned());
    }
    let why = "threads = \"replay\": the client is asked to send the whole history";
    account.finish(End::Own(Outcome::Refused, why.to_owned()), None);
    refusal::json(status, anthropic::error::thread_not_found_body(None))
}

/// Ends the turn in the model's place, in the way it was asked for.
pub(super) fn answer_instead(
    account: Account,
    wire: Wire,
    why: &str,
    text: &str,
) -> Response<ReplyBody> {
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
pub(super) fn instead(mut account: Account, wire: Wire, why: &str, text: &str) -> (bool, Vec<u8>) {
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
