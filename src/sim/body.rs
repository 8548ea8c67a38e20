//! Bodies that arrive slowly, in odd pieces, compressed, or not to the end.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::answer::Step;
use super::options::Fault;
use super::record::End;

/// Why a body breaks off; the connection is closed without an end.
#[derive(Debug, thiserror::Error)]
#[error("simulated fault: the connection breaks")]
pub struct Broken;

/// A response body: all at once, or what a pump sends.
#[derive(Debug)]
pub enum SimBody {
    /// All at once.
    Whole(Option<Bytes>),
    /// As it comes.
    Pumped(mpsc::Receiver<Result<Bytes, Broken>>),
}

impl From<String> for SimBody {
    fn from(text: String) -> Self {
        Self::Whole(Some(text.into()))
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(
                bytes
                    .take()
                    .filter(|b| !b.is_empty())
                    .map(|b| Ok(Frame::data(b))),
            ),
            Self::Pumped(frames) => frames
                .poll_recv(context)
                .map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Pumped(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Self::Pumped(_) => SizeHint::default(),
        }
    }
}

/// Compresses a whole body.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// How a body is written.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// Before each step.
    pub step_delay: Duration,
    /// What goes wrong.
    pub fault: Fault,
    /// Compress, flushing after each step.
    pub gzip: bool,
    /// The body has a length on the wire, so ending early is breaking.
    pub sized: bool,
}

struct Pump {
    sender: mpsc::Sender<Result<Bytes, Broken>>,
    manner: Manner,
    sent: u64,
}

impl Pump {
    /// Sends bytes, obeying the fault; `Err` is how the body ended.
    async fn send(&mut self, bytes: Bytes) -> Result<(), End> {
        let fault = self.manner.fault.clone();
        let size = fault.split.unwrap_or(usize::MAX).max(1);
        let mut rest = bytes;
        while !rest.is_empty() {
            let stop = [fault.cut_at, fault.end_at, fault.stall_at]
                .into_iter()
                .flatten()
                .min()
                .map(|at| usize::try_from(at.saturating_sub(self.sent)).unwrap_or(usize::MAX));
            let take = size.min(rest.len()).min(stop.unwrap_or(usize::MAX));
            if take > 0 {
                let piece = rest.split_to(take);
                self.sent += take as u64;
                if self.sender.send(Ok(piece)).await.is_err() {
                    return Err(End::ClientGone);
                }
                self.wait(fault.write_delay).await?;
            }
            if stop.is_some_and(|stop| stop <= take) {
                return Err(self.stop(&fault).await);
            }
        }
        Ok(())
    }

    async fn stop(&mut self, fault: &Fault) -> End {
        if fault.stall_at.is_some_and(|at| at <= self.sent) {
            return self.stall().await;
        }
        if fault.cut_at.is_some_and(|at| at <= self.sent) || self.manner.sized {
            return self.break_off().await;
        }
        End::Fault
    }

    async fn stall(&self) -> End {
        self.sender.closed().await;
        End::ClientGone
    }

    async fn break_off(&self) -> End {
        // Let the connection write what it has before it learns of the break.
        tokio::task::yield_now().await;
        match self.sender.send(Err(Broken)).await {
            Ok(()) => End::Fault,
            Err(_) => End::ClientGone,
        }
    }

    async fn wait(&self, time: Duration) -> Result<(), End> {
        if time.is_zero() {
            return Ok(());
        }
        tokio::select! {
            () = self.sender.closed() => Err(End::ClientGone),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    async fn run(&mut self, steps: Vec<Step>) -> End {
        let mut encoder = self
            .manner
            .gzip
            .then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        for step in steps {
            if let Err(end) = self.wait(self.manner.step_delay).await {
                return end;
            }
            let bytes = match step {
                Step::Bytes(text) => Bytes::from(text),
                Step::Raw(bytes) => bytes,
                Step::Stall => return self.stall().await,
                Step::End if !self.manner.sized => return End::Fault,
                Step::End | Step::Break => return self.break_off().await,
            };
            let bytes = match &mut encoder {
                None => bytes,
                Some(encoder) => {
                    let _ = encoder.write_all(&bytes);
                    let _ = encoder.flush();
                    Bytes::from(std::mem::take(encoder.get_mut()))
                }
            };
            if let Err(end) = self.send(bytes).await {
                return end;
            }
        }
        if let Some(encoder) = encoder {
            let tail = encoder.finish().unwrap_or_default();
            if let Err(end) = self.send(tail.into()).await {
                return end;
            }
        }
        if self.sender.is_closed() {
            return End::ClientGone;
        }
        End::Whole
    }
}

/// A body that a task writes step by step; `on_end` learns how it ended.
pub fn pumped(
    steps: Vec<Step>,
    manner: Manner,
    on_end: impl FnOnce(End) + Send + 'static,
) -> SimBody {
    /// Frames that may wait for the connection.
    const WAITING: usize = 4;
    let (sender, receiver) = mpsc::channel(WAITING);
    let mut pump = Pump {
        sender,
        manner,
        sent: 0,
    };
    tokio::spawn(async move {
        let end = pump.run(steps).await;
        on_end(end);
    });
    SimBody::Pumped(receiver)
}
