//! The way down: the head of an answer goes on at once, its body through the [`tee`](super::tee).

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode, Version};

use super::account::{Account, End};
use super::body::ReplyBody;
use super::tee::{Reading, Tee};
use super::upstream::AnswerBody;
use super::{Shared, headers};
use crate::provider::decode;
use crate::provider::dialect::Counting;
use crate::provider::openai::swallow::Swallow;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::wire::Wire;

/// An encoded answer is looked at up to this decoded size.
const MAX_DECODED_ANSWER_BYTES: u64 = 256 << 20;

/// Passes an answer on: head at once, body by the tee.
pub(super) fn pass_on(
    shared: &Shared,
    mut account: Account,
    answer: Response<AnswerBody>,
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
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
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
