//! Plain HTTP/1.1 connections to upstreams, each driven by the task of the request that uses it.
//!
//! hyper's pooled client gives every connection a task of its own, and a request goes to it and comes
//! back through queues. Where neither TLS nor HTTP/2 can be meant (`http://`: a model server next to the
//! gateway, another gateway), all of that happens in the task that waits for the answer anyway: nothing
//! is woken, the request is written with the first poll, and all frames that have arrived are there
//! together. The wire itself is hyper's.
//!
//! One thing that the other task gave is worth keeping: requests that arrive together are written
//! together, and so wake their upstream once. See [`Plain::request`].

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};
use tower_service::Service as _;

use super::{MAX_IDLE_PER_HOST, MAX_READ_AHEAD, SendBody, SendError};

/// Connections that are kept, and the way to more.
#[derive(Debug)]
pub(super) struct Plain {
    connector: HttpConnector,
    http1: http1::Builder,
    pool: Arc<Pool>,
}

impl Plain {
    /// A connection that is not used is kept for `idle_limit`.
    pub(super) fn new(connector: HttpConnector, idle_limit: Duration) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .preserve_header_case(true)
            .max_buf_size(MAX_READ_AHEAD);
        Self {
            connector,
            http1,
            pool: Arc::new(Pool {
                idle_limit,
                state: Mutex::default(),
            }),
        }
    }

    /// Whether requests to this address go this way.
    pub(super) fn takes(uri: &Uri) -> bool {
        uri.scheme() == Some(&Scheme::HTTP)
    }

    /// Sends a request. It is sent again only when a kept connection gives it back unwritten.
    ///
    /// While others are under way, those that have just arrived are got ready first. Without that a
    /// request cost a tenth more CPU with 32 connections, since each write woke the upstream.
    pub(super) async fn request(
        &self,
        mut request: Request<SendBody>,
    ) -> Result<Response<Body>, SendError> {
        let uri = std::mem::take(request.uri_mut());
        let Some(to) = uri.authority() else {
            return Err(SendError::Connect("the address has no host".into()));
        };
        if !request.headers().contains_key(HOST) {
            let host = host(to).map_err(|e| SendError::Connect(e.into()))?;
            request.headers_mut().insert(HOST, host);
        }
        let target = uri.path_and_query().cloned();
        *request.uri_mut() = Uri::from(target.unwrap_or(PathAndQuery::from_static("/")));
        let pool = self.pool.clone();
        if pool.others_are_under_way() {
            let_others_run().await;
        }
        loop {
            let kept = pool.take(to);
            let reused = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                // In a box: it is rare, and its room would be taken with every request.
                None => Box::pin(self.connect(to)).await?,
            };
            match link.send(request).await {
                Ok(answer) => {
                    return Ok(answer.map(|frames| Body {
                        frames,
                        ended: false,
                        link: Some(link),
                        pool,
                        to: to.clone(),
                    }));
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unwritten) if reused => request = unwritten,
                    _ => return Err(SendError::Broken(failed.into_error())),
                },
            }
        }
    }

    async fn connect(&self, to: &Authority) -> Result<Box<Link>, SendError> {
        let address = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(to.clone())
            .path_and_query(PathAndQuery::from_static("/"))
            .build()
            .map_err(|e| SendError::Connect(e.into()))?;
        let mut connector = self.connector.clone();
        let stream = connector.call(address).await;
        let stream = stream.map_err(|e| SendError::Connect(e.into()))?;
        let (sender, wire) = self.http1.handshake(stream).await?;
        self.pool.clone().watched();
        Ok(Box::new(Link {
            sender,
            wire: Some(wire),
        }))
    }
}

/// The `host` of requests to an address.
fn host(to: &Authority) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    match to.port_u16() {
        Some(port) if port != 80 => HeaderValue::try_from(format!("{}:{port}", to.host())),
        _ => HeaderValue::from_str(to.host()),
    }
}

/// One connection.
#[derive(Debug)]
struct Link {
    sender: http1::SendRequest<SendBody>,
    /// Until it has ended.
    wire: Option<Wire>,
}

type Wire = http1::Connection<TokioIo<TcpStream>, SendBody>;

impl Link {
    /// Whether it can take a request.
    fn is_idle(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.wire, cx);
        self.wire.is_some() && self.sender.is_ready()
    }

    async fn send(
        &mut self,
        request: Request<SendBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<SendBody>>> {
        // Unconstrained: a channel that wants its task to rest would have it woken, and nobody is.
        let answer = unconstrained(self.sender.try_send_request(request));
        let mut answer = std::pin::pin!(answer);
        let wire = &mut self.wire;
        poll_fn(|cx| {
            drive(wire, cx);
            // It can only come by what has just been done.
            answer.as_mut().poll(&mut quiet())
        })
        .await
    }
}

/// Reads and writes what can be read and written.
fn drive(wire: &mut Option<Wire>, cx: &mut Context<'_>) {
    if let Some(driven) = wire
        && Pin::new(driven).poll(cx).is_ready()
    {
        // Whoever waits for something of it has got the error, or gets it by this.
        *wire = None;
    }
}

/// Lets the tasks run that are ready now. `yield_now` of the runtime would look for more of them first,
/// by a call of the system.
async fn let_others_run() {
    let mut ran = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut ran, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// For what is ready after its connection was driven, or not at all.
fn quiet() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// The body of an answer, and the connection it comes by.
#[derive(Debug)]
pub struct Body {
    frames: Incoming,
    /// All of them have been given away.
    ended: bool,
    link: Option<Box<Link>>,
    pool: Arc<Pool>,
    to: Authority,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Asked for first: a connection reads what somebody waits for.
        let mut frame = Pin::new(&mut self.frames).poll_frame(&mut quiet());
        if frame.is_pending() {
            if let Some(link) = &mut self.link {
                drive(&mut link.wire, cx);
            }
            frame = Pin::new(&mut self.frames).poll_frame(&mut quiet());
        }
        self.ended |= matches!(frame, Poll::Ready(None)) || self.frames.is_end_stream();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.frames.size_hint()
    }
}

impl Drop for Body {
    /// A connection whose answer was read to its end is kept. Any other is closed, which tells the
    /// upstream that nobody waits.
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        let Some(mut busy) = self.pool.give_back(&self.to, link) else {
            return;
        };
        // Answered before all of the request was sent: a client that is cut off while it sends may
        // never see the answer.
        let ended = self.ended || self.frames.is_end_stream();
        if ended
            && busy.wire.is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (pool, to) = (self.pool.clone(), self.to.clone());
            runtime.spawn(async move {
                let sent = poll_fn(|cx| match busy.is_idle(cx) || busy.wire.is_none() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                });
                if tokio::time::timeout(pool.idle_limit, sent).await.is_ok() {
                    pool.give_back(&to, busy);
                }
            });
        }
    }
}

/// Connections that nobody uses.
#[derive(Debug)]
struct Pool {
    idle_limit: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By host and port; the newest is the last.
    idle: HashMap<Authority, Vec<Idle>>,
    /// The task that sees to it that those are closed.
    watcher: Watcher,
}

#[derive(Debug)]
struct Idle {
    link: Box<Link>,
    since: Instant,
}

#[derive(Debug, Default)]
struct Watcher {
    started: bool,
    /// Wakes it, once it has run.
    waker: Option<Waker>,
    /// It will look again by itself.
    waits: bool,
}

impl Pool {
    /// Every request holds the pool, as does its owner, until its answer has ended.
    fn others_are_under_way(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 2
    }

    /// The connection that was used last, if there is any.
    fn take(&self, to: &Authority) -> Option<Box<Link>> {
        let mut state = self.lock();
        let kept = state.idle.get_mut(to)?;
        while let Some(mut idle) = kept.pop() {
            // The watcher would be woken by what happens to it from here on.
            if idle.since.elapsed() < self.idle_limit && idle.link.is_idle(&mut quiet()) {
                return Some(idle.link);
            }
        }
        None
    }

    /// Keeps a connection that can be used again; gives back any other.
    fn give_back(&self, to: &Authority, mut link: Box<Link>) -> Option<Box<Link>> {
        let mut state = self.lock();
        let State { idle, watcher } = &mut *state;
        let waker = watcher.waker.as_ref().unwrap_or(Waker::noop());
        // From here on the watcher is told when the upstream closes it.
        if !link.is_idle(&mut Context::from_waker(waker)) {
            return Some(link);
        }
        let since = Instant::now();
        match idle.get_mut(to) {
            Some(kept) if kept.len() >= MAX_IDLE_PER_HOST => return None,
            Some(kept) => kept.push(Idle { link, since }),
            None => {
                idle.insert(to.clone(), vec![Idle { link, since }]);
            }
        }
        if !watcher.waits {
            waker.wake_by_ref();
        }
        None
    }

    /// Sees to it that connections are closed when the upstream closes them, or after their time.
    fn watched(self: Arc<Self>) {
        if !std::mem::replace(&mut self.lock().watcher.started, true) {
            let pool = Arc::downgrade(&self);
            tokio::spawn(async move {
                let mut timer = None;
                poll_fn(|cx| watch(&pool, &mut timer, cx)).await;
            });
        }
    }

    /// Lets go of what has ended or was kept for long enough; says when to look again.
    fn sweep(&self, cx: &mut Context<'_>) -> Option<Instant> {
        let mut state = self.lock();
        let State { idle, watcher } = &mut *state;
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        idle.retain(|_, kept| {
            kept.retain_mut(|idle| {
                let until = idle.since + self.idle_limit;
                let stays = now < until && idle.link.is_idle(cx);
                if stays {
                    next = Some(next.map_or(until, |next| next.min(until)));
                }
                stays
            });
            !kept.is_empty()
        });
        watcher.waits = next.is_some();
        watcher.waker = Some(cx.waker().clone());
        next
    }

    /// A panic while it was held leaves connections that are asked again before they are used.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(waker) = self.lock().watcher.waker.take() {
            waker.wake();
        }
    }
}

/// One look of the watcher; it ends with the pool.
fn watch(pool: &Weak<Pool>, timer: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        let Some(pool) = pool.upgrade() else {
            return Poll::Ready(());
        };
        let Some(next) = pool.sweep(cx) else {
            return Poll::Pending;
        };
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
        timer.as_mut().reset(next);
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
    }
}
