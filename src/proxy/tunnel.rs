//! Upgrades (WebSocket and whatever else): once both sides agree, bytes flow unread.

use std::sync::Arc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, request};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Shared;
use super::account::{Account, End};
use super::body::ReplyBody;
use super::downward::{pass_on, request_id};
use super::ending::refuse;
use super::upstream::{AnswerBody, Clients, SendBody};
use super::upward::{not_switched, send};
use crate::config::Upstream;

/// Both sides have agreed to leave HTTP.
pub(super) struct Switched {
    /// The answer that tells the client.
    pub(super) response: Response<ReplyBody>,
    /// The connection to the client, once that answer has left.
    pub(super) client: OnUpgrade,
    /// The connection to the upstream.
    pub(super) upstream: OnUpgrade,
    /// The account of the upgrade.
    pub(super) account: Account,
}

/// What came of a request for an upgrade.
pub(super) enum Shaken {
    /// It was agreed to.
    Switched(Box<Switched>),
    /// It was not; this is the answer.
    Answered(Response<ReplyBody>),
}

/// Forwards an upgrade request and, on `101`, joins the two connections.
pub async fn open(
    shared: Arc<Shared>,
    clients: &Clients,
    account: Account,
    parts: request::Parts,
    body: Incoming,
    protocol: HeaderValue,
    upstream: &Upstream,
) -> Response<ReplyBody> {
    let shaken = shake(&shared, clients, account, parts, body, protocol, upstream).await;
    let switched = match shaken {
        Shaken::Switched(switched) => *switched,
        Shaken::Answered(response) => return response,
    };
    let Switched {
        response,
        client,
        upstream,
        mut account,
    } = switched;
    let mut cut = shared.cut.subscribe();
    // Ends with either side, or with the gateway: the drain waits for open accounts.
    tokio::spawn(async move {
        let joined = async {
            let (client, upstream) = tokio::try_join!(client, upstream)
                .map_err(|error| format!("the upgrade failed: {error}"))?;
            let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            tokio::io::copy_bidirectional(&mut client, &mut upstream)
                .await
                .map_err(|error| format!("the tunnel broke: {error}"))
        };
        let end = tokio::select! {
            ended = joined => match ended {
                Ok((_, down)) => {
                    account.delivered(usize::try_from(down).unwrap_or(usize::MAX));
                    End::Complete
                }
                Err(why) => End::Cut(why),
            },
            _ = cut.wait_for(|cut| *cut) => End::Cut("the gateway was stopped".to_owned()),
        };
        account.finish(end, None);
    });
    response
}

/// Forwards an upgrade request.
pub(super) async fn shake(
    shared: &Arc<Shared>,
    clients: &Clients,
    mut account: Account,
    mut parts: request::Parts,
    body: Incoming,
    protocol: HeaderValue,
    upstream: &Upstream,
) -> Shaken {
    let client = parts.extensions.remove::<OnUpgrade>();
    parts
        .headers
        .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    parts.headers.insert(UPGRADE, protocol);
    let request = Request::from_parts(parts, SendBody::Stream(body));
    let sent = send(shared, &upstream.name, clients.upgrades.request(request)).await;
    let (mut answer, client) = match (sent, client) {
        (Ok(answer), Some(client)) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            (answer, client)
        }
        (sent, _) => {
            let answered = match sent.and_then(|answer| not_switched(&upstream.name, answer)) {
                Ok(answer) => pass_on(shared, account, answer.map(AnswerBody::Pooled), None, false),
                Err((refusal, outcome)) => refuse(
                    account,
                    refusal,
                    outcome,
                    super::route::spoken(upstream.format),
                ),
            };
            return Shaken::Answered(answered);
        }
    };
    let protocol = answer.headers().get(UPGRADE).cloned();
    let upstream = hyper::upgrade::on(&mut answer);
    let (mut parts, _) = answer.into_parts();
    super::headers::strip_hop(&mut parts.headers);
    parts
        .headers
        .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
    }
    if let Some(record) = account.record() {
        record.status = Some(StatusCode::SWITCHING_PROTOCOLS.as_u16());
        record.request_id = request_id(&parts.headers);
    }
    Shaken::Switched(Box::new(Switched {
        response: Response::from_parts(parts, ReplyBody::empty()),
        client,
        upstream,
        account,
    }))
}
