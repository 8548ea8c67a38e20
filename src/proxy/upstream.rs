//! The client side of the wire: connections to providers.

mod plain;

use std::error::Error as StdError;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject};

use self::plain::Plain;
use crate::config::Config;

/// Idle connections kept for each upstream.
const MAX_IDLE_PER_HOST: usize = 512;
/// What an upstream's connection may have read ahead, heads included. hyper would let it grow to 400 kB
/// after large answers, for as long as the connection is kept.
const MAX_READ_AHEAD: usize = 64 << 10;
/// A silent HTTP/2 connection is probed this often, so that a dead one does not swallow a turn.
const H2_PING: Duration = Duration::from_secs(20);
/// Flow-control windows for HTTP/2: a whole agent body in one round trip.
const H2_STREAM_WINDOW: u32 = 4 << 20;
const H2_CONNECTION_WINDOW: u32 = 16 << 20;

/// hyper's way to upstreams and other servers.
pub type UpstreamClient = Client<HttpsConnector<HttpConnector>, SendBody>;

/// The ways to the upstreams.
#[derive(Debug)]
pub struct Clients {
    /// For what is neither TLS nor HTTP/2.
    plain: Plain,
    /// Connections are kept and shared; HTTP/2 where the upstream offers it.
    pub pooled: UpstreamClient,
    /// For requests that leave HTTP: HTTP/1.1, since HTTP/2 cannot switch protocols, and each on a
    /// connection of its own.
    pub upgrades: UpstreamClient,
}

impl Clients {
    /// Sends a request, by whichever way its address takes.
    ///
    /// # Errors
    /// When no answer has begun.
    pub async fn request(
        &self,
        request: Request<SendBody>,
    ) -> Result<Response<AnswerBody>, SendError> {
        if Plain::takes(request.uri()) {
            let answer = self.plain.request(request).await?;
            return Ok(answer.map(AnswerBody::Plain));
        }
        let answer = self.pooled.request(request).await?;
        Ok(answer.map(AnswerBody::Pooled))
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no connection; nothing was sent.
    #[error(transparent)]
    Connect(Box<dyn StdError + Send + Sync>),
    /// The connection broke, or the request's own body did.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// hyper's client says which of both.
    #[error(transparent)]
    Pooled(#[from] hyper_util::client::legacy::Error),
}

impl SendError {
    /// Nothing was sent, since there was no connection.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        match self {
            Self::Connect(_) => true,
            Self::Broken(_) => false,
            Self::Pooled(error) => error.is_connect(),
        }
    }

    /// The client's body broke off while it was passed on: then it is not the upstream's fault.
    #[must_use]
    pub fn client_broke(&self) -> bool {
        let mut cause: Option<&(dyn StdError + 'static)> = match self {
            Self::Connect(_) => None,
            Self::Broken(error) => Some(error),
            Self::Pooled(error) => Some(error),
        };
        while let Some(error) = cause {
            // An error of the body that was sent, and that body was a client's.
            let of_body = error
                .downcast_ref::<hyper::Error>()
                .is_some_and(|e| e.is_user() && e.source().is_some_and(|s| s.is::<hyper::Error>()));
            if of_body {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// The body of an answer.
#[derive(Debug)]
pub enum AnswerBody {
    /// From a connection with a task of its own.
    Pooled(Incoming),
    /// From a connection that is driven by reading this.
    Plain(plain::Body),
}

impl AnswerBody {
    /// Whatever has arrived of it is there: no other task must run before.
    #[must_use]
    pub fn reads_itself(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Pooled(body) => Pin::new(body).poll_frame(cx),
            Self::Plain(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pooled(body) => body.is_end_stream(),
            Self::Plain(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pooled(body) => body.size_hint(),
            Self::Plain(body) => body.size_hint(),
        }
    }
}

/// A request body on its way out.
#[derive(Debug)]
pub enum SendBody {
    /// Pieces in order: slices of the client's bytes with our splices between them. Nothing is
    /// copied; `at` is the next piece, so that an unsent request can be sent again.
    Pieces {
        /// All pieces.
        pieces: Arc<[Bytes]>,
        /// Next piece.
        at: usize,
        /// Bytes left.
        left: u64,
    },
    /// The client's body, passed on as it arrives.
    Stream(Incoming),
}

impl SendBody {
    /// A body of the given pieces.
    #[must_use]
    pub fn pieces(pieces: Vec<Bytes>) -> Self {
        let left = pieces.iter().map(|p| p.len() as u64).sum();
        Self::Pieces {
            pieces: pieces.into(),
            at: 0,
            left,
        }
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Pieces { pieces, at, left } => Poll::Ready(pieces.get(*at).map(|piece| {
                *at += 1;
                *left -= piece.len() as u64;
                Ok(Frame::data(piece.clone()))
            })),
            Self::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pieces { left, .. } => *left == 0,
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces { left, .. } => SizeHint::with_exact(*left),
            Self::Stream(body) => body.size_hint(),
        }
    }
}

/// Builds the clients.
///
/// The pool forgets a connection before providers close it (15 s were measured at two large
/// ones), and a request is sent again only when the pool hands it back unwritten.
///
/// # Errors
/// When the extra CA bundle cannot be read.
pub fn clients(config: &Config) -> anyhow::Result<Clients> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(config.connect_timeout));
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    let tls = tls(config.extra_ca.as_deref())?;
    let connector = || hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls.clone());
    let only_http1 = connector()
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp.clone());
    let upgrades = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .http1_preserve_header_case(true)
        .http1_max_buf_size(MAX_READ_AHEAD)
        .build(only_http1);
    let plain = Plain::new(tcp.clone(), config.pool_idle);
    let connector = connector()
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    let pooled = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(config.pool_idle)
        .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http1_preserve_header_case(true)
        .http1_max_buf_size(MAX_READ_AHEAD)
        .http2_keep_alive_interval(H2_PING)
        .http2_initial_stream_window_size(H2_STREAM_WINDOW)
        .http2_initial_connection_window_size(H2_CONNECTION_WINDOW)
        .retry_canceled_requests(true)
        .build(connector);
    Ok(Clients {
        plain,
        pooled,
        upgrades,
    })
}

/// How connections are secured: the public roots, and those of the file.
///
/// # Errors
/// When the file cannot be read.
pub fn tls(extra_ca: Option<&Path>) -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = extra_ca {
        let file = || {
            format!(
                "cannot read the CA bundle {} (tls.extra_ca)",
                path.display()
            )
        };
        for certificate in CertificateDer::pem_file_iter(path).with_context(file)? {
            roots
                .add(certificate.with_context(file)?)
                .with_context(file)?;
        }
    }
    // The provider is named: a process-wide default would panic if two were linked in.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("the TLS library has no usable protocol version")?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
