//! The WebSocket mode of Responses: a tunnel that is read.
//!
//! Frames go on as the bytes they came in; both directions flow at once, each with its own bounded
//! buffer, so that a side that does not read stops the other. What differs from a tunnel:
//!
//! - `sec-websocket-extensions` is left out of the handshake, so that frames stay readable;
//! - a message of the client is held until it is whole, and a request for a response until loops and
//!   caps have been judged (`up`, `turn`); control frames do not wait for it;
//! - what is refused is not forwarded; an event of ours says so where a message of the upstream has
//!   ended, once the lane has answered what was asked before (`down`, `lanes`);
//! - each response has an account of its own, closed by its last event, beside that of the connection.
//!
//! Requests are never edited here: there is no fuse that could send them once more. So there are no
//! breakpoints, hints or keys of ours, no waiting for a sibling's prefix and no pings; and what the
//! head of an answer would tell (what is left of a cap) has no place.

mod down;
pub mod frame;
mod lanes;
mod turn;
mod up;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_EXTENSIONS};
use http::{Method, Response, StatusCode, request};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::down::Down;
use self::lanes::{Lanes, Party};
use self::up::Up;
use super::Shared;
use super::account::{Account, End};
use super::body::ReplyBody;
use super::ending::refuse;
use super::refusal::Refusal;
use super::route::Route;
use super::tunnel::{self, Shaken, Switched};
use super::upstream::Clients;
use crate::config::{Format, Upstream, WebSockets};
use crate::prompt_cache::chain::Hash;
use crate::provider::wire::Wire;
use crate::run::Labels;
use crate::trace::Outcome;

/// What is read at once of each side.
const BUFFER_BYTES: usize = 64 << 10;
/// How long a side may take to end the connection once the other has.
const CLOSING: Duration = Duration::from_secs(5);
/// Events of ours that wait for the client; then its requests wait.
const MAX_DUE: usize = 64;

/// The peer does not keep to the protocol. RFC 6455 section 7.4.1, as the two below.
const PROTOCOL_ERROR: u16 = 1002;
const GOING_AWAY: u16 = 1001;
const POLICY: u16 = 1008;

/// A request for the WebSocket mode, fit for the upstream.
pub(super) struct Asked {
    pub(super) parts: request::Parts,
    pub(super) body: Incoming,
    pub(super) protocol: HeaderValue,
    pub(super) upstream: Arc<Upstream>,
    pub(super) labels: Labels,
    pub(super) credential: Hash,
}

/// Whether an upgrade is for the WebSocket mode of Responses.
pub(super) fn is_meant(route: &Route, method: &Method, protocol: &HeaderValue) -> bool {
    let path = route.target.split('?').next().unwrap_or_default();
    route.upstream.format != Format::Opaque
        && *method == Method::GET
        && path.ends_with("/responses")
        && protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
}

/// Forwards a request for the WebSocket mode and, on `101`, passes messages on until the connection
/// ends.
pub(super) async fn open(
    shared: Arc<Shared>,
    clients: &Clients,
    account: Account,
    asked: Asked,
) -> Response<ReplyBody> {
    if shared.config.websockets == WebSockets::Refuse {
        let refusal = Refusal {
            status: StatusCode::UPGRADE_REQUIRED,
            kind: "invalid_request_error",
            message: "prefixgate: the WebSocket mode of Responses is switched off here (setting \
                      openai.websocket); send the same as POST requests"
                .to_owned(),
            retry: Some(false),
            after_ms: None,
        };
        return refuse(account, refusal, Outcome::Refused, Wire::Responses);
    }
    let Asked {
        mut parts,
        body,
        protocol,
        upstream,
        labels,
        credential,
    } = asked;
    parts.headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    let headers = parts.headers.clone();
    let shaken = tunnel::shake(&shared, clients, account, parts, body, protocol, &upstream).await;
    let Switched {
        response,
        client,
        upstream: upstream_side,
        mut account,
    } = match shaken {
        Shaken::Switched(switched) => *switched,
        Shaken::Answered(response) => return response,
    };
    if response.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS) {
        let why = "it agreed to a WebSocket extension that nobody asked for";
        let refusal = Refusal::unreachable(&upstream.name, why);
        return refuse(account, refusal, Outcome::UpstreamError, Wire::Responses);
    }
    let about = account.record().map(|record| About {
        credential: record.credential.clone(),
        path: record.path.clone(),
        app: record.app.clone(),
        client: record.client.clone(),
        request_id: record.request_id.clone(),
    });
    let line = Line {
        shared: shared.clone(),
        upstream,
        headers,
        labels,
        credential,
        about: about.unwrap_or_default(),
        lanes: Mutex::new(Lanes::new()),
        due: Notify::new(),
        taken: Notify::new(),
    };
    let mut cut = shared.cut.subscribe();
    // Ends with either side, or with the gateway: the drain waits for open accounts.
    tokio::spawn(async move {
        let joined = async {
            let (client, upstream) = tokio::try_join!(client, upstream_side)
                .map_err(|error| End::Cut(format!("the upgrade failed: {error}")))?;
            Ok(line.relay(client, upstream, &mut account).await)
        };
        let end = tokio::select! {
            ended = joined => ended.unwrap_or_else(|end| end),
            _ = cut.wait_for(|cut| *cut) => End::Cut("the gateway was stopped".to_owned()),
        };
        line.lanes().close(&End::ClientGone);
        account.finish(end, None);
    });
    response
}

/// What all records of a connection have in common.
#[derive(Debug, Default)]
struct About {
    credential: Option<String>,
    path: String,
    app: Option<String>,
    client: Option<String>,
    request_id: Option<String>,
}

/// Why no more is passed on.
#[derive(Debug)]
enum Exit {
    /// The client has ended the connection.
    Client,
    /// The upstream has, or cannot be written to; how.
    Upstream(String),
    /// The upstream was silent for too long while it owed an answer, or took nothing.
    Silent,
    /// What the client sends cannot be passed on; the code and the reason that it is told.
    Refused(u16, String),
}

/// One connection.
struct Line {
    shared: Arc<Shared>,
    upstream: Arc<Upstream>,
    /// Headers of the upgrade as they went upstream.
    headers: HeaderMap,
    labels: Labels,
    credential: Hash,
    about: About,
    lanes: Mutex<Lanes>,
    /// Told when there is something of ours for the client.
    due: Notify,
    /// Told when that has been taken.
    taken: Notify,
}

impl Line {
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on until the connection ends; gives how it ended.
    async fn relay(&self, client: Upgraded, upstream: Upgraded, account: &mut Account) -> End {
        let (client_read, client_write) = tokio::io::split(TokioIo::new(client));
        let (upstream_read, upstream_write) = tokio::io::split(TokioIo::new(upstream));
        let mut up = Up::new(self, client_read, upstream_write);
        let mut down = Down::new(self, upstream_read, client_write);
        let exit = {
            let upwards = up.run();
            let downwards = down.run();
            tokio::pin!(upwards, downwards);
            tokio::select! {
                exit = &mut upwards => {
                    let parting = matches!(exit, Exit::Upstream(_)) || self.lanes().parted.is_some();
                    if parting {
                        // The upstream may have a last word.
                        let last = timeout(CLOSING, downwards).await;
                        match (exit, last) {
                            (Exit::Upstream(_), Ok(last)) => last,
                            (exit, _) => exit,
                        }
                    } else {
                        exit
                    }
                }
                exit = &mut downwards => exit,
            }
        };
        account.delivered(down.delivered);
        let (answers, connection) = self.ends(&exit);
        self.lanes().close(&answers);
        if let Exit::Refused(code, reason) = &exit {
            down.close(*code, reason).await;
        }
        if !matches!(exit, Exit::Client) {
            // A client that is still sending would not get the last bytes if it were cut off.
            let lingering = async {
                let _ = down.client.shutdown().await;
                let _ = tokio::io::copy(&mut up.client, &mut tokio::io::sink()).await;
            };
            drop(up.upstream);
            drop(down.upstream);
            // It has had its time.
            let _ = timeout(CLOSING, lingering).await;
        }
        connection
    }

    /// How the answers under way have ended, and the connection.
    fn ends(&self, exit: &Exit) -> (End, End) {
        let parted = self.lanes().parted;
        let connection = match (exit, parted) {
            (Exit::Refused(_, why), _) => End::Own(Outcome::ClientError, why.clone()),
            (Exit::Silent, _) => End::Silent,
            (Exit::Client, _) | (_, Some(_)) => End::Complete,
            (Exit::Upstream(why), None) => End::Cut(why.clone()),
        };
        let answers = match (parted, exit) {
            (Some(Party::Upstream(code)), _) => {
                let code = code.map_or("no code".to_owned(), |code| format!("code {code}"));
                End::Cut(format!(
                    "the upstream closed the connection ({code}) before the end of the answer"
                ))
            }
            (Some(Party::Client), _) | (None, Exit::Client | Exit::Refused(..)) => End::ClientGone,
            (None, Exit::Upstream(why)) => End::Cut(why.clone()),
            (None, Exit::Silent) => End::Silent,
        };
        (answers, connection)
    }

    /// Has an event of ours written to the client when its lane gets to it. Waits while too many
    /// others do.
    async fn say(&self, lane: Option<String>, frames: Vec<u8>) {
        self.lanes().say(lane, frames);
        self.due.notify_one();
        loop {
            let taken = self.taken.notified();
            if self.lanes().due() < MAX_DUE {
                return;
            }
            taken.await;
        }
    }
}
