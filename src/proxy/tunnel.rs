//! Upgrades (WebSocket and whatever else): once both sides agree, bytes flow unread.

use std::sync::Arc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, request};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::account::{Account, End};
use super::body::ReplyBody;
use super::upstream::{Clients, SendBody};
use super::{Shared, not_switched, pass_on, refuse, send};
use crate::config::Upstream;

/// Forwards an upgrade request and, on `101`, joins the two connections.
pub async fn open(
    shared: Arc<Shared>,
    clients: &Clients,
    mut account: Account,
    mut parts: request::Parts,
    body: Incoming,
    protocol: HeaderValue,
    upstream: &Upstream,
) -> Response<ReplyBody> {
    let client_side = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
    parts
        .headers
        .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    parts.headers.insert(UPGRADE, protocol);
    let request = Request::from_parts(parts, SendBody::Stream(body));
    let sent = send(&shared, &clients.upgrades, &upstream.name, request).await;
    let (mut answer, client_side) = match (sent, client_side) {
        (Ok(answer), Some(client_side)) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            (answer, client_side)
        }
        (sent, _) => {
            return match sent.and_then(|answer| not_switched(&upstream.name, answer)) {
                Ok(answer) => pass_on(&shared, account, answer, None, false),
                Err((refusal, outcome)) => refuse(
                    account,
                    refusal,
                    outcome,
                    super::route::spoken(upstream.format),
                ),
            };
        }
    };
    let protocol = answer.headers().get(UPGRADE).cloned();
    let upstream_side = hyper::upgrade::on(&mut answer);
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
    }
    let mut cut = shared.cut.subscribe();
    // Ends with either side, or with the gateway: the drain waits for open accounts.
    tokio::spawn(async move {
        let joined = async {
            let (client, upstream) = tokio::try_join!(client_side, upstream_side)
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
    Response::from_parts(parts, ReplyBody::empty())
}
