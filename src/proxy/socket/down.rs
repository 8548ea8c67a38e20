//! From the upstream to the client: bytes go on as they come, and messages are read beside. Where
//! one has ended, events of our own may stand.

use std::io;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

use super::frame::{self, Frames, Message, Seen};
use super::lanes::Party;
use super::{BUFFER_BYTES, Exit, Line};
use crate::provider::openai::socket::{self, Step};
use crate::provider::reader::Limits;
use crate::proxy::tee;

/// See the module.
pub(super) struct Down<'a> {
    line: &'a Line,
    pub(super) upstream: ReadHalf<TokioIo<Upgraded>>,
    pub(super) client: WriteHalf<TokioIo<Upgraded>>,
    frames: Frames,
    /// Bytes that went to the client.
    pub(super) delivered: usize,
}

impl<'a> Down<'a> {
    pub(super) fn new(
        line: &'a Line,
        upstream: ReadHalf<TokioIo<Upgraded>>,
        client: WriteHalf<TokioIo<Upgraded>>,
    ) -> Self {
        Self {
            line,
            upstream,
            client,
            // The event that ends an answer carries the whole of it once more.
            frames: Frames::new(Limits::default().body_bytes),
            delivered: 0,
        }
    }

    /// Passes on until one side has ended.
    pub(super) async fn run(&mut self) -> Exit {
        let limit = self.line.shared.config.idle_timeout;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut heard = Instant::now();
        let idle = sleep_until(heard + limit);
        tokio::pin!(idle);
        loop {
            if self.frames.on_border() && self.say_due().await.is_err() {
                return Exit::Client;
            }
            let read = tokio::select! {
                read = self.upstream.read(&mut buffer) => read,
                () = self.line.due.notified() => continue,
                () = &mut idle => {
                    // The timer is moved when it fires, not with every read.
                    let now = Instant::now();
                    let (waiting, asked) = {
                        let lanes = self.line.lanes();
                        (lanes.waiting(), lanes.touched)
                    };
                    let deadline = heard.max(asked) + limit;
                    if waiting && deadline <= now {
                        return Exit::Silent;
                    }
                    idle.as_mut().reset(if waiting { deadline } else { now + limit });
                    continue;
                }
            };
            heard = Instant::now();
            let passed = match read {
                Ok(0) => return Exit::Upstream("the upstream ended the connection".to_owned()),
                Ok(read) => self.pass(&buffer[..read]).await,
                Err(error) => {
                    let why = tee::chain(&error);
                    return Exit::Upstream(format!("the connection to the upstream broke: {why}"));
                }
            };
            if let Err(exit) = passed {
                return exit;
            }
        }
    }

    async fn pass(&mut self, bytes: &[u8]) -> Result<(), Exit> {
        let gone = |_: io::Error| Exit::Client;
        let (mut at, mut written) = (0, 0);
        loop {
            let part = match self.frames.next(&bytes[at..]) {
                Ok(part) => part,
                Err(broken) => {
                    // The client will see for itself.
                    self.write(&bytes[written..]).await.map_err(gone)?;
                    let why = format!("the upstream sent what is no WebSocket frame ({broken})");
                    return Err(Exit::Upstream(why));
                }
            };
            at += part.used;
            match part.seen {
                None if part.used == 0 => break,
                None | Some(Seen::Control | Seen::Begun { .. }) => {}
                Some(Seen::Message(message)) => {
                    self.heard(&message).await;
                    if self.frames.on_border() && self.line.lanes().due() > 0 {
                        self.write(&bytes[written..at]).await.map_err(gone)?;
                        written = at;
                        self.say_due().await.map_err(gone)?;
                    }
                }
                Some(Seen::Close(code)) => self.line.lanes().part(Party::Upstream(code)),
            }
        }
        self.write(&bytes[written..]).await.map_err(gone)?;
        self.client.flush().await.map_err(gone)
    }

    /// Reads an event. An answer that it ends is settled before the client sees it, and can go on.
    async fn heard(&mut self, message: &Message) {
        let said = socket::said(&message.payload);
        if said.step == Step::Begun && !self.line.lanes().expects(&said.lane) {
            self.line.unasked(said.lane.clone(), &message.payload).await;
        }
        let ended = self.line.lanes().heard(&said, message);
        if let Some(ended) = ended {
            ended.finish();
        }
    }

    /// Writes what of ours is due.
    async fn say_due(&mut self) -> io::Result<()> {
        let due = self.line.lanes().take_due();
        if due.is_empty() {
            return Ok(());
        }
        self.line.taken.notify_one();
        self.write(&due).await?;
        self.client.flush().await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.client.write_all(bytes).await?;
        self.delivered = self.delivered.saturating_add(bytes.len());
        Ok(())
    }

    /// Tells the client why the connection ends, where a frame may stand.
    pub(super) async fn close(&mut self, code: u16, reason: &str) {
        if self.frames.on_frame_border() {
            // It may have left.
            let _ = self.write(&frame::close(code, reason)).await;
            let _ = self.client.flush().await;
        }
    }
}
