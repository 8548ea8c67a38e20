//! From the client to the upstream: a message is held until it is whole and has been judged.

use std::mem;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::frame::{Frames, Message, Seen};
use super::lanes::Party;
use super::turn::Verdict;
use super::{BUFFER_BYTES, Exit, GOING_AWAY, Line, POLICY, PROTOCOL_ERROR};
use crate::proxy::intake::{self, IntakeError};
use crate::proxy::tee;
use crate::proxy::upward::learn;

/// See the module.
pub(super) struct Up<'a> {
    line: &'a Line,
    pub(super) client: ReadHalf<TokioIo<Upgraded>>,
    pub(super) upstream: WriteHalf<TokioIo<Upgraded>>,
    frames: Frames,
    /// The frames of the message under way, as they came.
    held: Vec<u8>,
    /// Its share of the memory for bodies.
    share: Option<OwnedSemaphorePermit>,
    /// It is larger than it may be: nothing of it is held or goes on.
    too_large: bool,
}

impl<'a> Up<'a> {
    pub(super) fn new(
        line: &'a Line,
        client: ReadHalf<TokioIo<Upgraded>>,
        upstream: WriteHalf<TokioIo<Upgraded>>,
    ) -> Self {
        Self {
            line,
            client,
            upstream,
            frames: Frames::new(line.shared.budget.max_body()),
            held: Vec::new(),
            share: None,
            too_large: false,
        }
    }

    /// Passes on until the client has left, or nothing can be passed on any more.
    pub(super) async fn run(&mut self) -> Exit {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = match self.read(&mut buffer).await {
                Ok(0) => {
                    if self.line.lanes().parted.is_some() {
                        // The end of the connection on this side; the other one may still have to answer.
                        let _ = self.upstream.shutdown().await;
                    }
                    return Exit::Client;
                }
                Ok(read) => read,
                Err(exit) => return exit,
            };
            if let Err(exit) = self.pass(&buffer[..read]).await {
                return exit;
            }
        }
    }

    /// The next bytes of the client. It may be silent between messages, but not inside one: a share
    /// that waits for it is missing to others.
    async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Exit> {
        let read = self.client.read(buffer);
        let read = if self.share.is_some() {
            let patience = self.line.shared.budget.patience();
            timeout(patience, read).await.map_err(|_elapsed| {
                let seconds = patience.as_secs();
                let why =
                    format!("prefixgate: nothing of a message that had begun came for {seconds} s");
                Exit::Refused(POLICY, why)
            })?
        } else {
            read.await
        };
        // A reset is an end like any other.
        Ok(read.unwrap_or(0))
    }

    async fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Exit> {
        loop {
            let part = self.frames.next(bytes).map_err(|broken| {
                let why = format!("prefixgate: these are no WebSocket frames ({broken})");
                Exit::Refused(PROTOCOL_ERROR, why)
            })?;
            let (raw, rest) = bytes.split_at(part.used);
            bytes = rest;
            if part.control {
                // It does not wait for the message between whose fragments it stands.
                self.write(raw).await?;
            } else {
                self.hold(raw);
            }
            match part.seen {
                None if part.used == 0 => break,
                None | Some(Seen::Control) => {}
                Some(Seen::Begun { bytes, whole }) => self.begin(bytes, whole).await?,
                Some(Seen::Message(message)) => self.message(message).await?,
                Some(Seen::Close(_)) => self.line.lanes().part(Party::Client),
            }
        }
        self.flush().await
    }

    /// Takes the share of a message. Of one in several frames nobody knows how large it will be.
    async fn begin(&mut self, bytes: u64, whole: bool) -> Result<(), Exit> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let known = whole.then(|| bytes.saturating_add(self.held.len()));
        match self.line.shared.budget.share(known).await {
            Ok(share) => self.share = Some(share),
            Err(IntakeError::TooLarge(_)) => self.give_up(),
            Err(error) => return Err(Exit::Refused(GOING_AWAY, format!("prefixgate: {error}"))),
        }
        Ok(())
    }

    fn hold(&mut self, raw: &[u8]) {
        if self.held.len() + raw.len() > self.line.shared.budget.max_body() {
            self.give_up();
        }
        if !self.too_large {
            self.held.extend_from_slice(raw);
        }
    }

    fn give_up(&mut self) {
        self.too_large = true;
        self.held = Vec::new();
        self.share = None;
        self.frames.forget();
    }

    async fn message(&mut self, message: Message) -> Result<(), Exit> {
        let held = mem::take(&mut self.held);
        let mut share = self.share.take();
        if mem::take(&mut self.too_large) {
            let limit = self.line.shared.budget.max_body();
            self.line.too_large(&message.payload, limit).await;
            return Ok(());
        }
        if let Some(share) = &mut share {
            intake::shrink(share, held.len());
        }
        match self.line.judge(message.payload).await {
            Verdict::Stop => {}
            Verdict::Pass(learning) => {
                self.write(&held).await?;
                if learning.is_some() {
                    self.flush().await?;
                    learn(&self.line.shared, learning).await;
                }
            }
        }
        Ok(())
    }

    async fn write(&mut self, raw: &[u8]) -> Result<(), Exit> {
        let limit = self.line.shared.config.idle_timeout;
        for piece in raw.chunks(BUFFER_BYTES) {
            match timeout(limit, self.upstream.write_all(piece)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(lost(&error)),
                Err(_elapsed) => return Err(Exit::Silent),
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Exit> {
        self.upstream.flush().await.map_err(|error| lost(&error))
    }
}

fn lost(error: &std::io::Error) -> Exit {
    let why = tee::chain(error);
    Exit::Upstream(format!("the connection to the upstream broke: {why}"))
}
