//! Where the model is: the connection, the key, the price of what comes back.

mod address;
mod failure;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

pub use address::address;
pub use failure::Failure;

use super::{Assemble, Broken, Format, Piece, Whole, format_of};
use crate::agent::causes::with_causes;
use crate::agent::machine::Bill;
use crate::clock::Clock;
use crate::config::Config;
use crate::provider::decode::Decoder as Undo;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::view::Ttl;
use crate::provider::wire::Wire;
use crate::proxy::upstream::{self, SendBody, UpstreamClient};
use crate::sse;
use crate::usage::PriceBook;

/// Largest event of a stream; the last one of a Responses stream carries the whole answer.
const MAX_EVENT: usize = 64 << 20;
/// Largest body that is no stream, and most of a stream.
const MAX_BODY: usize = 256 << 20;
/// Largest body of an error.
const MAX_ERROR: usize = 1 << 20;
/// How much of an error's text is shown.
const MAX_WORDS: usize = 600;
/// How long the end of a body is waited for behind a whole answer. A body that is read to its end
/// leaves its connection to the next request.
const LINGER: Duration = Duration::from_millis(100);

/// What is said of an attempt that the caller has ended.
const CANCELLED: &str = "cancelled";

/// Where requests go.
pub struct Endpoint {
    /// The wire format.
    pub format: Box<dyn Format>,
    /// The base URL, with its version or without (see [`address`]).
    pub base: String,
    /// The credential; empty for servers that want none.
    pub key: String,
    /// The connection.
    pub client: UpstreamClient,
    /// What tokens cost.
    pub prices: Arc<PriceBook>,
    /// The provider's id in the price data.
    pub provider: String,
    /// How long it may be silent, before the head and between two pieces.
    pub silence: Duration,
}

/// Headers of a request beside those of the format.
pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// A whole answer with its price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub whole: Whole,
    /// What it cost.
    pub bill: Bill,
}

/// An attempt without a whole answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Attempt {
    /// Whose fault it is and what happened, for people.
    pub reason: String,
    /// What can be done.
    pub failure: Failure,
    /// What it is known to have cost: what the provider told before it broke off, so at least this.
    pub bill: Box<Bill>,
}

impl Attempt {
    fn new(reason: String, failure: Failure) -> Self {
        Self {
            reason,
            failure,
            bill: Box::default(),
        }
    }
}

/// Why the reading of a body ended without an answer.
enum Cut {
    /// The answer itself is broken.
    Broken(Broken),
    /// The connection.
    Connection(String),
    /// Nothing came for too long.
    Silent,
    /// The answer is not wanted any more.
    Cancelled,
}

impl From<Broken> for Cut {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl Endpoint {
    /// An endpoint by its base URL, with a connection of its own and the bundled prices.
    ///
    /// # Errors
    /// The price data or the compiled-in certificates are not usable.
    pub fn new(wire: Wire, base: &str, key: &str) -> anyhow::Result<Self> {
        let config = Config::embedded(PathBuf::new());
        let provider = match wire {
            Wire::Messages => "anthropic",
            Wire::Chat | Wire::Responses => "openai",
        };
        Ok(Self {
            format: format_of(wire),
            base: base.to_owned(),
            key: key.to_owned(),
            client: upstream::clients(&config)?.pooled,
            prices: Arc::new(PriceBook::new(&[])?),
            provider: provider.to_owned(),
            silence: config.idle_timeout,
        })
    }

    /// Sends a request and reads its answer; `on_piece` sees what comes, while it comes.
    ///
    /// # Errors
    /// There is no whole answer.
    pub async fn ask(
        &self,
        model: &str,
        body: Vec<u8>,
        headers: &Headers,
        on_piece: &mut (dyn FnMut(Piece) + Send),
    ) -> Result<Reply, Attempt> {
        let never = CancellationToken::new();
        self.ask_until(model, body, headers, &never, on_piece).await
    }

    /// The same until it is `cancelled`. What has come by then is paid for all the same, so an
    /// answer is never just dropped.
    ///
    /// # Errors
    /// There is no whole answer.
    pub async fn ask_until(
        &self,
        model: &str,
        body: Vec<u8>,
        headers: &Headers,
        cancelled: &CancellationToken,
        on_piece: &mut (dyn FnMut(Piece) + Send),
    ) -> Result<Reply, Attempt> {
        let request = self.request(body, headers)?;
        let again = |reason| Attempt::new(reason, Failure::Again(None));
        let answer = tokio::time::timeout(self.silence, self.client.request(request));
        let answer = tokio::select! {
            answer = answer => answer,
            () = cancelled.cancelled() => {
                return Err(Attempt::new(CANCELLED.to_owned(), Failure::Final));
            }
        };
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let why = with_causes(&error);
                return Err(again(format!("{} cannot be reached: {why}", self.base)));
            }
            Err(_) => return Err(again(self.silent())),
        };
        let (head, body) = answer.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let shape = Shape::of(head.status.as_u16(), content_type);
        let mut reader = Reader::new(self.format.wire(), shape, Limits::default());
        let Some(undo) = undo(&head.headers) else {
            let reason = format!(
                "{} answers in an encoding that was not asked for",
                self.base
            );
            return Err(Attempt::new(reason, Failure::Final));
        };
        if !head.status.is_success() {
            let body = self.rest(body, undo).await;
            return Err(self.refused(&head, &body, reader));
        }
        let mut arriving = Arriving {
            making: self.format.assembler(model),
            decoder: sse::Decoder::new(MAX_EVENT),
            cancelled: cancelled.clone(),
            shape,
            plain: Vec::new(),
            pieces: Vec::new(),
        };
        let read = self
            .read(body, undo, &mut arriving, &mut reader, on_piece)
            .await;
        let whole = match read {
            Ok(()) => arriving.finish(on_piece).map_err(Cut::from),
            Err(cut) => Err(cut),
        };
        reader.end(Some(self.ttl()));
        let bill = self.bill(model, reader);
        match whole {
            Ok(whole) => Ok(Reply { whole, bill }),
            Err(cut) => Err(self.broken(cut, bill)),
        }
    }

    fn request(&self, body: Vec<u8>, headers: &Headers) -> Result<Request<SendBody>, Attempt> {
        let address = address(&self.base, self.format.path());
        let address = address.map_err(|reason| Attempt::new(reason, Failure::Final))?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(address)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json")
            // Events are read as they come.
            .header(ACCEPT_ENCODING, "identity")
            .header(
                USER_AGENT,
                concat!("prefixgate-agent/", env!("CARGO_PKG_VERSION")),
            );
        for (name, value) in self.format.headers(&self.key) {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = SendBody::pieces(vec![Bytes::from(body)]);
        request.body(body).map_err(|error| {
            let reason = format!("the base URL or the key cannot be sent: {error}");
            Attempt::new(reason, Failure::Final)
        })
    }

    /// Reads until the answer is whole, or the body at its end.
    async fn read(
        &self,
        mut body: Incoming,
        mut undo: Undo,
        arriving: &mut Arriving,
        reader: &mut Reader,
        on_piece: &mut (dyn FnMut(Piece) + Send),
    ) -> Result<(), Cut> {
        while !arriving.making.is_whole() {
            let frame = tokio::select! {
                frame = tokio::time::timeout(self.silence, body.frame()) => frame,
                () = arriving.cancelled.cancelled() => return Err(Cut::Cancelled),
            };
            let frame = match frame {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => return Err(Cut::Connection(with_causes(&error))),
                Err(_) => return Err(Cut::Silent),
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            let undone = undo.feed(&bytes, &mut |bytes| {
                reader.feed(bytes);
                arriving.feed(bytes);
            });
            arriving.pieces.drain(..).for_each(&mut *on_piece);
            if undone.is_err() {
                return Err(Broken::Unusable("too large, or not in the encoding it names").into());
            }
        }
        // What still comes is of no interest, but for the usage of some servers.
        let rest = async {
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(bytes) = frame.into_data() {
                    let _ = undo.feed(&bytes, &mut |bytes| reader.feed(bytes));
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, rest).await;
        Ok(())
    }

    /// The body of an error; what cannot be read of it is left out.
    async fn rest(&self, mut body: Incoming, mut undo: Undo) -> Vec<u8> {
        let mut all = Vec::new();
        let read = async {
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(bytes) = frame.into_data() else {
                    continue;
                };
                let undone = undo.feed(&bytes, &mut |bytes| all.extend_from_slice(bytes));
                if undone.is_err() || all.len() > MAX_ERROR {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(self.silence, read).await;
        all
    }

    /// The lifetime of cache writes of which the provider tells only the sum.
    fn ttl(&self) -> Ttl {
        use crate::provider::wire::Wire;
        match self.format.wire() {
            Wire::Messages => Ttl::M5,
            Wire::Chat | Wire::Responses => Ttl::M30,
        }
    }

    fn bill(&self, model: &str, reader: Reader) -> Bill {
        let answer = reader.into_answer();
        let priced = self.prices.price(
            &self.provider,
            &answer.metered,
            Some(model),
            Clock::Real.utc_ms(),
        );
        Bill {
            usage: answer.metered.usage,
            pico: answer.cost_pico.or_else(|| priced.pico()),
        }
    }

    fn broken(&self, cut: Cut, bill: Bill) -> Attempt {
        let base = &self.base;
        let (failure, reason) = match cut {
            Cut::Broken(Broken::Reported { kind, message }) => {
                let words = crate::text::prefix(&message, MAX_WORDS);
                let failure = Failure::of_report(&kind, &message);
                (
                    failure,
                    format!("{base} gave the answer up: {kind}: {words}"),
                )
            }
            Cut::Broken(broken) => (Failure::Again(None), format!("{base}: {broken}")),
            Cut::Connection(why) => {
                let reason = format!("the connection to {base} broke off: {why}");
                (Failure::Again(None), reason)
            }
            Cut::Silent => (Failure::Again(None), self.silent()),
            Cut::Cancelled => (Failure::Final, CANCELLED.to_owned()),
        };
        Attempt {
            reason,
            failure,
            bill: Box::new(bill),
        }
    }

    fn refused(&self, head: &http::response::Parts, body: &[u8], mut reader: Reader) -> Attempt {
        reader.feed(body);
        reader.end(None);
        let error = reader.into_answer().error.unwrap_or_default();
        let words = crate::text::prefix(&error.message, MAX_WORDS);
        let said = String::from_utf8_lossy(body);
        let failure = Failure::of_status(head.status, &head.headers, &said, Clock::Real.utc_ms());
        let advice = failure::advice(head.status);
        let mut reason = format!(
            "{} answered {} {}: {words}{advice}",
            self.base, head.status, error.kind
        );
        if let Some(to) = head.headers.get(LOCATION).and_then(|to| to.to_str().ok()) {
            reason.push_str(&format!(": {to}"));
        }
        if let (Failure::Final, Some(wait)) = (
            failure,
            failure::asked_wait(&head.headers, Clock::Real.utc_ms()),
        ) {
            reason.push_str(&format!(" (it asks to wait {} s)", wait.as_secs()));
        }
        Attempt::new(reason, failure)
    }

    fn silent(&self) -> String {
        format!("{} was silent for {} s", self.base, self.silence.as_secs())
    }
}

/// An answer while it comes in.
struct Arriving {
    making: Box<dyn Assemble>,
    decoder: sse::Decoder,
    cancelled: CancellationToken,
    shape: Shape,
    plain: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Arriving {
    fn feed(&mut self, bytes: &[u8]) {
        if let Shape::Unlabelled { status } = self.shape
            && let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace())
        {
            // The first byte tells.
            self.shape = if *first == b'{' {
                Shape::Json { status }
            } else {
                Shape::Stream
            };
        }
        match self.shape {
            Shape::Stream => {
                let (making, pieces) = (&mut self.making, &mut self.pieces);
                self.decoder
                    .feed(bytes, |event| making.event(event, pieces));
            }
            Shape::Json { .. } => self.plain.extend_from_slice(bytes),
            Shape::Unlabelled { .. } => {}
        }
    }

    fn finish(mut self, on_piece: &mut (dyn FnMut(Piece) + Send)) -> Result<Whole, Broken> {
        if self.shape != Shape::Stream {
            self.making.body(&self.plain, &mut self.pieces);
            self.pieces.drain(..).for_each(on_piece);
        }
        self.making.finish()
    }
}

/// What undoes the encoding of an answer; `None` for one that is not known.
fn undo(headers: &HeaderMap) -> Option<Undo> {
    let encodings = headers.get_all(CONTENT_ENCODING).iter();
    let encodings: Vec<&str> = encodings.filter_map(|value| value.to_str().ok()).collect();
    Undo::new(&encodings.join(","), MAX_BODY as u64)
}
