//! The answer on its way to the client: every frame goes on as it came, and is read beside.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::account::{Account, End};
use super::upstream::AnswerBody;
use crate::provider::decode;
use crate::provider::openai::swallow::Swallow;
use crate::provider::reader::Reader;
use crate::provider::wire::Wire;

/// Most frames of one burst.
const MAX_BURST_FRAMES: usize = 128;
/// Most bytes of one burst; a large answer is passed on in such pieces.
const MAX_BURST_BYTES: usize = 64 << 10;

/// hyper polls a body that is pending once more before it lets other tasks run: two polls without a
/// frame mean that the other task has had its turn and has nothing.
const PATIENCE_POLLS: u8 = 2;
/// Frames below this size are joined with their neighbours of the same burst.
const SMALL_FRAME_BYTES: usize = 4 << 10;

/// The answer broke off; the connection to the client must not end cleanly.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off: {0}")]
pub struct BrokenAnswer(String);

/// What reads along.
#[derive(Debug)]
pub struct Reading {
    /// Reads decoded bytes.
    pub reader: Reader,
    /// The format of the answer.
    pub wire: Wire,
    /// Decodes a copy, when the answer is encoded.
    pub decoder: Option<decode::Decoder>,
    /// The answer is a stream that has a terminal event.
    pub stream: bool,
    /// Takes out what the client did not ask for.
    pub swallow: Option<Swallow>,
}

/// Frames of one burst. hyper hands a chunked body over one chunk at a time, from another task, and
/// writes to the client whenever no further chunk is ready. So after a frame the other task gets one
/// turn: what arrived in one piece leaves in one piece, and a lone event waits for microseconds.
#[derive(Debug, Default)]
struct Held {
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    /// A frame has come with this poll.
    fresh: bool,
    /// Polls without a frame that are still waited for.
    patience: u8,
    /// The burst is complete and on its way.
    releasing: bool,
}

impl Held {
    fn push(&mut self, frame: Frame<Bytes>) {
        self.bytes += frame.data_ref().map_or(0, Bytes::len);
        self.frames.push_back(frame);
        self.fresh = true;
    }

    fn is_full(&self) -> bool {
        self.frames.len() >= MAX_BURST_FRAMES || self.bytes >= MAX_BURST_BYTES
    }

    /// Whether the other task should have its turn first; if not, the burst may leave. `all`: nothing
    /// more has arrived.
    fn wait_for_more(&mut self, all: bool) -> bool {
        if std::mem::take(&mut self.fresh) {
            self.patience = PATIENCE_POLLS;
        } else {
            self.patience = self.patience.saturating_sub(1);
        }
        let wait = self.patience > 0 && !self.frames.is_empty() && !self.is_full() && !all;
        self.releasing = !wait && !self.frames.is_empty();
        wait
    }

    /// The next frame to leave. Small ones are joined, since hyper writes no more than a handful of
    /// chunks at a time.
    fn release(&mut self) -> Option<Frame<Bytes>> {
        let small = |frame: &Frame<Bytes>| {
            frame
                .data_ref()
                .is_some_and(|d| d.len() < SMALL_FRAME_BYTES)
        };
        let burst = self.frames.iter().take_while(|frame| small(frame)).count();
        let frame = if burst > 1 {
            let mut joined = BytesMut::with_capacity(self.bytes.min(burst * SMALL_FRAME_BYTES));
            for frame in self.frames.drain(..burst) {
                joined.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            }
            Frame::data(joined.freeze())
        } else {
            self.frames.pop_front()?
        };
        self.bytes -= frame.data_ref().map_or(0, Bytes::len);
        self.releasing = !self.frames.is_empty();
        Some(frame)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Tee {
    inner: AnswerBody,
    account: Account,
    reading: Option<Reading>,
    idle_limit: Duration,
    touched: Instant,
    idle: Option<Pin<Box<Sleep>>>,
    /// Frames that arrived together.
    held: Held,
    /// The upstream's body has ended, or broken.
    ended: Option<Result<(), hyper::Error>>,
    /// An error that waits for the next poll, so that what was delivered before is flushed first.
    breaking: Option<BrokenAnswer>,
    /// The client cannot be told by its framing that the body was cut.
    unframed: bool,
    done: bool,
}

impl Tee {
    /// Wraps the body of an answer. `unframed` is set for clients whose body ends with the
    /// connection (HTTP/1.0): they are told of a break by an error event.
    #[must_use]
    pub fn new(
        inner: AnswerBody,
        account: Account,
        reading: Option<Reading>,
        idle_limit: Duration,
        unframed: bool,
    ) -> Self {
        Self {
            inner,
            account,
            reading,
            idle_limit,
            touched: Instant::now(),
            idle: None,
            held: Held::default(),
            ended: None,
            breaking: None,
            unframed,
            done: false,
        }
    }

    /// Nothing more will come.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Length as the upstream announced it.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        match self.reading.as_ref().and_then(|r| r.swallow.as_ref()) {
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }

    /// The next frame.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        if let Some(broken) = self.breaking.take() {
            self.done = true;
            return Poll::Ready(Some(Err(broken)));
        }
        if self.done {
            return Poll::Ready(None);
        }
        if !self.held.releasing {
            self.gather(cx);
            let all =
                self.inner.reads_itself() || self.ended.is_some() || self.inner.is_end_stream();
            if self.held.wait_for_more(all) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        if let Some(frame) = self.held.release() {
            self.account
                .delivered(frame.data_ref().map_or(0, Bytes::len));
            return Poll::Ready(Some(Ok(frame)));
        }
        match self.ended.take() {
            None => self.poll_idle(cx),
            Some(Ok(())) => self.end(cx),
            Some(Err(error)) => {
                let why = format!("the upstream's answer broke off: {}", chain(&error));
                self.break_off(cx, End::Cut(why))
            }
        }
    }

    /// Takes what has arrived, and reads it.
    fn gather(&mut self, cx: &mut Context<'_>) {
        while self.ended.is_none() && !self.held.is_full() {
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.touched = Instant::now();
                    if let Some(data) = frame.data_ref() {
                        self.account.captured_bytes(data);
                        self.read(data);
                    }
                    self.hold(frame);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.hold_rest();
                    self.ended = Some(Err(error));
                }
                Poll::Ready(None) => {
                    self.hold_rest();
                    self.ended = Some(Ok(()));
                }
                Poll::Pending => break,
            }
        }
    }

    /// Lets a frame, or what is to go on of it, join the burst.
    fn hold(&mut self, frame: Frame<Bytes>) {
        let swallow = self.reading.as_mut().and_then(|r| r.swallow.as_mut());
        match (swallow, frame.data_ref()) {
            (Some(swallow), Some(data)) => {
                let data = swallow.pass(data);
                if !data.is_empty() {
                    self.held.push(Frame::data(data));
                }
            }
            _ => self.held.push(frame),
        }
    }

    /// What was held back of an event that has no end.
    fn hold_rest(&mut self) {
        let swallow = self.reading.as_mut().and_then(|r| r.swallow.as_mut());
        if let Some(rest) = swallow.map(Swallow::rest).filter(|rest| !rest.is_empty()) {
            self.held.push(Frame::data(rest));
        }
    }

    fn read(&mut self, data: &Bytes) {
        let Some(reading) = &mut self.reading else {
            return;
        };
        match &mut reading.decoder {
            None => reading.reader.feed(data),
            Some(decoder) => {
                let reader = &mut reading.reader;
                if decoder
                    .feed(data, &mut |decoded| reader.feed(decoded))
                    .is_err()
                {
                    self.account.warn("answer_not_decoded");
                    self.reading = None;
                    return;
                }
            }
        }
        if reading.reader.answer().content_begun {
            self.account.content_began();
        }
    }

    /// The upstream ended cleanly. That is an end only if the answer is whole.
    fn end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        self.end_reading();
        if let Some(cut) = self.cut_short() {
            return self.break_off(cx, cut);
        }
        self.finish(End::Complete);
        self.done = true;
        Poll::Ready(None)
    }

    /// Whether an answer that has ended lacks its end. One that is no answer of this API at all (a
    /// page of an intermediary) may well be whole.
    fn cut_short(&self) -> Option<End> {
        let reading = self.reading.as_ref()?;
        let answer = reading.reader.answer();
        let foreign = answer.warnings.contains(&"answer_unreadable");
        if !self.account.answered_ok() || answer.finished || answer.error.is_some() || foreign {
            return None;
        }
        let what = if reading.stream {
            "its terminal event"
        } else {
            "the end of its JSON"
        };
        Some(End::Cut(format!("the upstream ended before {what}")))
    }

    fn break_off(
        &mut self,
        cx: &mut Context<'_>,
        end: End,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        let why = end.to_string();
        let on_border = self.reading.as_ref().is_none_or(|r| r.reader.on_border());
        let stream = self
            .reading
            .as_ref()
            .filter(|r| r.stream && r.decoder.is_none())
            .map(|r| r.wire);
        self.end_reading();
        self.finish(end);
        if let Some(wire) = stream.filter(|_| self.unframed) {
            self.done = true;
            let mut event = if on_border {
                Vec::new()
            } else {
                b"\n\n".to_vec()
            };
            event.extend(wire.error_event("api_error", &format!("prefixgate: {why}")));
            return Poll::Ready(Some(Ok(Frame::data(event.into()))));
        }
        // hyper flushes when a body is pending; an error at once could take delivered frames with it.
        self.breaking = Some(BrokenAnswer(why));
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_idle(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenAnswer>>> {
        let deadline = self.touched + self.idle_limit;
        let idle = self
            .idle
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        // The timer is moved when it fires, not with every frame.
        while idle.as_mut().poll_elapsed(cx).is_ready() {
            if deadline <= Instant::now() {
                return self.break_off(cx, End::Silent);
            }
            idle.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    /// The reader learns that nothing more comes, so that it settles what it knows.
    fn end_reading(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.reader.end(self.account.inferred_ttl());
        }
    }

    fn finish(&mut self, end: End) {
        let answer = self.reading.take().map(|r| r.reader.into_answer());
        self.account.finish_later(end, answer);
    }
}

impl Drop for Tee {
    /// hyper drops a body when the client has left, and also when the announced length is written.
    fn drop(&mut self) {
        if self.done || self.breaking.is_some() {
            return;
        }
        let whole = self.held.frames.is_empty() && self.inner.is_end_stream();
        self.end_reading();
        // Codex closes right after the terminal event: that client has its answer.
        let finished = self.account.answered_ok()
            && self
                .reading
                .as_ref()
                .is_some_and(|r| r.reader.answer().finished);
        let end = if whole {
            self.cut_short().unwrap_or(End::Complete)
        } else if finished {
            End::Complete
        } else {
            End::ClientGone
        };
        self.finish(end);
    }
}

trait PollElapsed {
    fn poll_elapsed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
}

impl PollElapsed for Sleep {
    fn poll_elapsed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        std::future::Future::poll(self, cx)
    }
}

/// An error with its causes, for people.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
