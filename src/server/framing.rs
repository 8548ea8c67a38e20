//! A second look at how the requests of a connection frame their bodies.
//!
//! hyper decides for `transfer-encoding` when a head carries `content-length` as well, and hides
//! the latter. That is safe here (bodies are framed anew), but such a request is either broken or
//! an attempt at smuggling, and must be refused. So the raw bytes are followed from head to head,
//! also where a client sends several requests at once.
//!
//! The same knowledge ends connections in order: a client that is still sending when its answer is
//! complete would lose that answer to a reset, if the connection were closed over unread bytes.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderMap;
use http::header::TRANSFER_ENCODING;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};
use tokio::time::Sleep;

/// Most bytes of one read, just below a power of two: a read that fills what hyper expects doubles what
/// it expects of the next, up to 400 kB, and it keeps a buffer of that size with each connection, also
/// while an answer streams. With bodies of a megabyte that was 400 kB for each open stream. Smaller still
/// costs more in calls than it saves: 13 % of the CPU of such a body with 16 kB.
const MAX_READ: u64 = (64 << 10) - 1;
/// Most bytes of the first read of a connection: for one that carries a single request of usual size
/// hyper's smallest buffer will do.
const FIRST_READ: u64 = (8 << 10) - 1;
/// Of each line this much is looked at; a length or a name beyond it is not understood.
const MAX_LINE_BYTES: usize = 256;
/// Requests a client may have sent ahead. With more of them the trail is given up.
const MAX_AHEAD: usize = 1024;
/// After the last answer a client may go on sending for this long ...
const LINGER_TIME: Duration = Duration::from_secs(10);
/// ... and this much, so that it can read why nobody wants it.
const LINGER_BYTES: u64 = 256 << 20;
/// What is read at a time then.
const LINGER_BUFFER: usize = 8 << 10;

/// What the bytes of a connection say about its requests. Shared by the connection's reader and
/// the service that answers.
#[derive(Debug, Default)]
pub(super) struct HeadTap(Mutex<Trail>);

impl HeadTap {
    fn lock(&self) -> MutexGuard<'_, Trail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn received(&self, bytes: &[u8]) {
        self.lock().follow(bytes);
    }

    /// Whether the body of the next request in order could be framed in more than one way. `headers`
    /// are what the HTTP library made of its head.
    pub(super) fn ambiguous(&self, headers: &HeaderMap) -> bool {
        let framed_twice = self.lock().heads.pop_front();
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let Some(first) = codings.next() else {
            return false;
        };
        // A coding besides `chunked` would be lost on the way. Without a trail nothing is certain.
        let plain = first
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked");
        !plain || codings.next().is_some() || framed_twice != Some(false)
    }

    /// HTTP ends on this connection; what follows is none of our business.
    pub(super) fn give_up(&self) {
        self.lock().give_up();
    }

    fn inside_request(&self) -> bool {
        !matches!(self.lock().place, Place::Between | Place::Lost)
    }
}

/// Where in the stream of requests the last byte was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Between,
    Head,
    /// Bytes left of a body with a length.
    Body(u64),
    ChunkSize,
    /// Bytes left of a chunk.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// Not HTTP/1, or not understood.
    Lost,
}

#[derive(Debug, Default)]
struct Trail {
    place: Place,
    /// The beginning of the current line.
    line: Vec<u8>,
    chunked: bool,
    /// The value of `content-length`, `None` inside when it is no number.
    length: Option<Option<u64>>,
    /// For each head that was received and not asked for: whether it frames its body twice.
    heads: VecDeque<bool>,
}

impl Trail {
    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.place != Place::Lost {
            if let Place::Body(left) | Place::Chunk(left) = self.place {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                bytes = &bytes[taken..];
                let left = left - taken as u64;
                self.place = match self.place {
                    Place::Body(_) if left == 0 => Place::Between,
                    Place::Body(_) => Place::Body(left),
                    _ if left == 0 => Place::ChunkEnd,
                    _ => Place::Chunk(left),
                };
                continue;
            }
            let newline = memchr::memchr(b'\n', bytes);
            let part = &bytes[..newline.unwrap_or(bytes.len())];
            let room = MAX_LINE_BYTES - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let Some(newline) = newline else { return };
            bytes = &bytes[newline + 1..];
            let line = std::mem::take(&mut self.line);
            self.line_ended(line.trim_ascii_end());
            // Keeps the allocation for the next line.
            self.line = line;
            self.line.clear();
        }
    }

    fn line_ended(&mut self, line: &[u8]) {
        match self.place {
            // Empty lines before a request are allowed.
            Place::Between if line.is_empty() => {}
            Place::Between if line.ends_with(b" HTTP/2.0") => self.give_up(),
            Place::Between => {
                self.place = Place::Head;
                self.chunked = false;
                self.length = None;
            }
            Place::Head if line.is_empty() => self.head_ended(),
            Place::Head => self.header(line),
            Place::ChunkSize => {
                let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                self.place = match number(&line[..digits], 16) {
                    Some(0) => Place::Trailers,
                    Some(size) => Place::Chunk(size),
                    None => Place::Lost,
                };
            }
            Place::ChunkEnd => self.place = Place::ChunkSize,
            Place::Trailers if line.is_empty() => self.place = Place::Between,
            Place::Trailers | Place::Body(_) | Place::Chunk(_) | Place::Lost => {}
        }
    }

    fn header(&mut self, line: &[u8]) {
        let Some(colon) = memchr::memchr(b':', line) else {
            return;
        };
        let name = line[..colon].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.length = Some(number(line[colon + 1..].trim_ascii(), 10));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.chunked = true;
        }
    }

    fn head_ended(&mut self) {
        if self.heads.len() >= MAX_AHEAD {
            self.give_up();
            return;
        }
        self.heads.push_back(self.chunked && self.length.is_some());
        self.place = match self.length {
            _ if self.chunked => Place::ChunkSize,
            None | Some(Some(0)) => Place::Between,
            Some(Some(length)) => Place::Body(length),
            Some(None) => Place::Lost,
        };
    }

    fn give_up(&mut self) {
        *self = Self {
            place: Place::Lost,
            ..Self::default()
        };
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// A connection whose requests are followed.
#[derive(Debug)]
pub(super) struct Tapped<S> {
    inner: Take<S>,
    tap: Arc<HeadTap>,
    lingering: Option<Lingering>,
}

#[derive(Debug)]
struct Lingering {
    until: Pin<Box<Sleep>>,
    left: u64,
}

impl<S: AsyncRead> Tapped<S> {
    pub(super) fn new(inner: S, tap: Arc<HeadTap>) -> Self {
        Self {
            inner: inner.take(FIRST_READ),
            tap,
            lingering: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tapped<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        if polled.is_ready() {
            this.inner.set_limit(MAX_READ);
            this.tap.received(&buf.filled()[before..]);
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tapped<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().inner.get_mut()).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().inner.get_mut()).poll_flush(cx)
    }

    /// Ends our side. If the client is inside a request, what it still sends is read and thrown
    /// away for a while.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(lingering) = &mut this.lingering else {
            ready!(Pin::new(this.inner.get_mut()).poll_shutdown(cx))?;
            if !this.tap.inside_request() {
                return Poll::Ready(Ok(()));
            }
            this.lingering = Some(Lingering {
                until: Box::pin(tokio::time::sleep(LINGER_TIME)),
                left: LINGER_BYTES,
            });
            return Pin::new(this).poll_shutdown(cx);
        };
        let mut scratch = [0; LINGER_BUFFER];
        while lingering.left > 0 && lingering.until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut scratch);
            // A client that is gone needs no more patience.
            if ready!(Pin::new(this.inner.get_mut()).poll_read(cx, &mut buf)).is_err()
                || buf.filled().is_empty()
            {
                break;
            }
            lingering.left = lingering.left.saturating_sub(buf.filled().len() as u64);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().inner.get_mut()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.get_ref().is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heads<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<bool>, Place) {
        let mut trail = Trail::default();
        for piece in pieces {
            trail.follow(piece);
        }
        (trail.heads.into(), trail.place)
    }

    const SINGLE: [&str; 6] = [
        "GET / HTTP/1.1\r\na: b\r\n\r\n",
        "\r\nPOST / HTTP/1.1\r\nContent-Length: 24\r\n\r\ntransfer-encoding: x\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n13;x=y\r\ncontent-length: 3\r\n\r\n00\r\nsum: 1\r\n\r\n",
        "POST / HTTP/1.1\nContent-Length:2\n\nab",
        "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
    ];
    const DOUBLE: [&str; 4] = [
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\na: b\r\nCONTENT-LENGTH : 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\ncontent-length: x\ntransfer-encoding: chunked\n\n0\r\n\r\n",
    ];

    proptest! {
        #[test]
        fn b08_every_head_is_found_however_the_bytes_are_cut(
            which in prop::collection::vec(0..10_usize, 1..8),
            size in 1..60_usize,
        ) {
            let all: String = which
                .iter()
                .map(|i| SINGLE.get(*i).unwrap_or_else(|| &DOUBLE[i - SINGLE.len()]))
                .copied()
                .collect();
            let expected: Vec<bool> = which.iter().map(|i| *i >= SINGLE.len()).collect();
            prop_assert_eq!(heads(all.as_bytes().chunks(size)), (expected, Place::Between));
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..2000), size in 1..50_usize) {
            let cut = heads(bytes.chunks(size));
            prop_assert_eq!(cut, heads([&bytes[..]]));
        }
    }

    #[test]
    fn where_the_trail_is_lost_chunks_are_not_trusted() {
        let tap = HeadTap::default();
        let mut headers = HeaderMap::new();
        tap.received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        assert!(!tap.ambiguous(&headers) && !tap.inside_request());
        headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        assert!(tap.ambiguous(&headers));
        let ahead = "GET / HTTP/1.1\r\n\r\n".repeat(MAX_AHEAD + 1);
        assert_eq!(heads([ahead.as_bytes()]), (vec![], Place::Lost));
    }

    #[test]
    fn only_plain_chunks_are_taken() {
        for (coding, ambiguous) in [
            ("chunked", false),
            (" Chunked", false),
            ("gzip, chunked", true),
        ] {
            let tap = HeadTap::default();
            tap.received(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
            assert!(tap.inside_request());
            let mut headers = HeaderMap::new();
            headers.insert(TRANSFER_ENCODING, coding.trim().parse().unwrap());
            assert_eq!(tap.ambiguous(&headers), ambiguous, "{coding}");
        }
    }

    /// hyper takes a read that fills its buffer for a reason to take a larger one, for good.
    #[tokio::test]
    async fn no_read_is_as_large_as_would_make_buffers_grow() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let body = vec![b'x'; 300_000];
        let (mut client, server) = tokio::io::duplex(body.len());
        let mut tapped = Tapped::new(server, Arc::new(HeadTap::default()));
        client.write_all(&body).await.unwrap();
        drop(client);
        let (mut sizes, mut read) = (Vec::new(), vec![0; 1 << 20]);
        loop {
            match tapped.read(&mut read).await.unwrap() {
                0 => break,
                size => sizes.push(size),
            }
        }
        assert_eq!(sizes.iter().sum::<usize>(), body.len());
        assert_eq!(sizes[0], (8 << 10) - 1);
        assert!(sizes[1..].iter().all(|size| *size < 64 << 10), "{sizes:?}");
        assert!(sizes.len() <= 6, "{sizes:?}");
    }

    #[tokio::test]
    async fn a_client_inside_a_request_is_listened_to_until_it_ends() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for (request, waits) in [
            ("POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc", true),
            (SINGLE[0], false),
        ] {
            let (mut client, server) = tokio::io::duplex(4096);
            let mut tapped = Tapped::new(server, Arc::new(HeadTap::default()));
            client.write_all(request.as_bytes()).await.unwrap();
            let mut read = vec![0; request.len()];
            tapped.read_exact(&mut read).await.unwrap();
            let mut closing = once_polled(Box::pin(async move { tapped.shutdown().await }));
            assert_eq!(closing.is_none(), waits);
            if let Some(Err(closing)) = closing.take() {
                panic!("{closing}");
            }
        }
    }

    /// Polls once.
    fn once_polled<T>(mut future: Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
        match future
            .as_mut()
            .poll(&mut Context::from_waker(std::task::Waker::noop()))
        {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }
}
