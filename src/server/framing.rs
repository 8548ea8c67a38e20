//! A second look at how a request frames its body.
//!
//! hyper decides for `transfer-encoding` when a head carries `content-length` as well, and hides
//! the latter. That is safe here (bodies are framed anew), but such a request is either broken or
//! an attempt at smuggling, and must be refused. So the raw head is kept until it has been parsed.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::HeaderMap;
use http::header::TRANSFER_ENCODING;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The blank line.
const END: &[u8] = b"\r\n\r\n";
/// Larger heads are refused by the HTTP library anyway.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The head that is being received on a connection.
#[derive(Debug)]
pub(super) struct HeadTap {
    head: Mutex<Head>,
}

#[derive(Debug)]
struct Head {
    bytes: Vec<u8>,
    receiving: bool,
}

impl Default for HeadTap {
    fn default() -> Self {
        Self {
            head: Mutex::new(Head {
                bytes: Vec::new(),
                receiving: true,
            }),
        }
    }
}

impl HeadTap {
    fn lock(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn received(&self, bytes: &[u8]) {
        let mut head = self.lock();
        if !head.receiving {
            return;
        }
        let room = MAX_HEAD_BYTES.saturating_sub(head.bytes.len());
        // Only the head is kept, which is small beside the body that comes with it. Its end may
        // lie across two reads.
        let whole = memchr::memmem::find(bytes, END).map(|at| at + END.len());
        let across = head.bytes.len().saturating_sub(END.len() - 1);
        head.bytes
            .extend_from_slice(&bytes[..whole.unwrap_or(bytes.len()).min(room)]);
        let end = memchr::memmem::find(&head.bytes[across..], END);
        if let Some(end) = end {
            head.bytes.truncate(across + end);
        }
        head.receiving = end.is_none() && head.bytes.len() < MAX_HEAD_BYTES;
    }

    /// The next bytes begin a head: an answer is on its way.
    pub(super) fn expect_head(&self) {
        let mut head = self.lock();
        head.bytes.clear();
        head.receiving = true;
    }

    /// Whether the head just parsed carried both framings. Ends the reception of the head.
    pub(super) fn framed_twice(&self, headers: &HeaderMap) -> bool {
        let bytes = {
            let mut head = self.lock();
            head.receiving = false;
            // Freed: a stream may be open for long.
            std::mem::take(&mut head.bytes)
        };
        if !headers.contains_key(TRANSFER_ENCODING) {
            return false;
        }
        bytes.split(|b| *b == b'\n').any(|line| {
            let name = line.split(|b| *b == b':').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(b"content-length")
        })
    }
}

/// A connection whose heads are tapped.
#[derive(Debug)]
pub(super) struct Tapped<S> {
    inner: S,
    tap: std::sync::Arc<HeadTap>,
}

impl<S> Tapped<S> {
    pub(super) fn new(inner: S, tap: std::sync::Arc<HeadTap>) -> Self {
        Self { inner, tap }
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
            this.tap.received(&buf.filled()[before..]);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tapped<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(pieces: &[&[u8]], chunked: bool) -> bool {
        let tap = HeadTap::default();
        for piece in pieces {
            tap.received(piece);
        }
        let mut headers = HeaderMap::new();
        if chunked {
            headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        }
        tap.framed_twice(&headers)
    }

    #[test]
    fn b08_two_framings_are_seen_in_any_order_and_however_the_head_is_cut() {
        let heads: [&[u8]; 3] = [
            b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n",
            b"POST / HTTP/1.1\r\na: b\r\nCONTENT-LENGTH : 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        ];
        for head in heads {
            for cut in 0..head.len() {
                let (a, b) = head.split_at(cut);
                assert!(twice(&[a, b], true), "cut at {cut}");
            }
        }
    }

    #[test]
    fn one_framing_is_fine_and_bodies_are_not_looked_at() {
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!twice(&[head], true));
        assert!(!twice(&[head, b"10\r\ncontent-length: 3\r\n"], true));
        assert!(!twice(
            &[b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"],
            false
        ));
    }

    #[test]
    fn each_head_is_looked_at_for_itself() {
        let tap = HeadTap::default();
        tap.received(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
        assert!(!tap.framed_twice(&HeaderMap::new()));
        tap.received(b"body body");
        tap.expect_head();
        tap.received(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut headers = HeaderMap::new();
        headers.insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
        assert!(!tap.framed_twice(&headers));
    }
}
