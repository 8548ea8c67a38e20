//! The body of a reply: our own bytes, or the upstream's frames as they come.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::tee::{BrokenAnswer, Tee};

/// A reply's body.
#[derive(Debug)]
pub enum ReplyBody {
    /// Bytes of our own; `None` when they are gone.
    Full(Option<Bytes>),
    /// The upstream's answer, passed on and read along the way.
    Tee(Box<Tee>),
}

impl ReplyBody {
    /// A body of these bytes.
    #[must_use]
    pub fn full(bytes: Bytes) -> Self {
        Self::Full((!bytes.is_empty()).then_some(bytes))
    }

    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::Full(None)
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BrokenAnswer;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Tee(tee) => tee.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Tee(tee) => tee.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Tee(tee) => tee.size_hint(),
        }
    }
}
