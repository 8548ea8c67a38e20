//! The thread that keeps captured content: it redacts, writes a file for each turn, and removes
//! the oldest.
//!
//! Nothing waits for it. What does not fit its queue or the disk is dropped and counted.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use uuid::Uuid;

use super::body::{Keeping, Passed};
use super::hold::{Holding, Room};
use super::read::{self, Content, DIRECTORY, Response, VERSION};
use super::retain::{self, TEMPORARY};
use crate::clock::Clock;
use crate::config::{self, CaptureMode};
use crate::redact::{Counts, Redactor};

/// Room for the content of all turns that are under way or wait to be kept.
pub(super) const HELD_BYTES: usize = 128 << 20;
/// Most turns that wait.
const QUEUE: usize = 4_096;
/// Of an answer this many times the size that is kept is held, since a stream is longer than the
/// message that it tells ...
const STREAM_FACTOR: usize = 8;
/// ... but not more than this.
const ANSWER_BYTES: usize = 64 << 20;
/// How often the thread looks at the clock when nothing comes.
const LOOK: Duration = Duration::from_secs(60);
/// How often old content is removed, by the records' clock.
const RETAIN_EVERY_MS: i64 = 60 * 60 * 1000;
/// How long the end may take; what is not kept by then is dropped.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// Troubles are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Why content was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Too much was held already.
    Room,
    /// No room on the disk.
    DiskFull,
    /// Any other failure of the disk.
    Failed,
    /// The gateway went.
    Closed,
}

impl Loss {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Room, Self::DiskFull, Self::Failed, Self::Closed];

    /// The stable word, for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Room => "queue_full",
            Self::DiskFull => "disk_full",
            Self::Failed => "store_failed",
            Self::Closed => "closed",
        }
    }
}

/// What is said of a turn beside its content.
#[derive(Debug, Clone)]
pub struct About {
    /// The turn.
    pub turn: Uuid,
    /// Its run.
    pub run: String,
    /// Its thread.
    pub thread: String,
    /// The application.
    pub app: Option<String>,
    /// Start of the request, UTC milliseconds.
    pub started_ms: i64,
    /// The answer was delivered to its end.
    pub complete: bool,
}

#[derive(Debug)]
struct Shared {
    room: Arc<Room>,
    answer_limit: usize,
    captured: AtomicU64,
    lost: [AtomicU64; Loss::ALL.len()],
    /// Set when the end has begun.
    closing: OnceLock<Instant>,
}

enum Message {
    Turn(Box<(Holding, About)>),
    Close,
}

/// Takes the content of turns without ever blocking or failing. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Capture {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

/// Ends the thread.
#[derive(Debug)]
pub struct CaptureHandle {
    capture: Capture,
    thread: JoinHandle<()>,
}

impl Capture {
    /// Starts the thread. Old content is removed by `clock`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        data_dir: &Path,
        settings: &config::Capture,
        redactor: Arc<Redactor>,
        clock: Clock,
    ) -> io::Result<(Self, CaptureHandle)> {
        let (queue, waiting) = sync_channel(QUEUE);
        let shared = Arc::new(Shared {
            room: Room::new(HELD_BYTES),
            answer_limit: settings
                .max_bytes
                .saturating_mul(STREAM_FACTOR)
                .min(ANSWER_BYTES),
            captured: AtomicU64::new(0),
            lost: Default::default(),
            closing: OnceLock::new(),
        });
        let mut keeper = Keeper {
            data_dir: data_dir.to_owned(),
            settings: settings.clone(),
            redactor,
            clock,
            shared: shared.clone(),
            size: 0,
            retained_ms: None,
            logged: None,
        };
        let thread = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || keeper.run(&waiting))?;
        let capture = Self { queue, shared };
        let handle = CaptureHandle {
            capture: capture.clone(),
            thread,
        };
        Ok((capture, handle))
    }

    /// Begins to hold the content of a turn. `encoding` is the `content-encoding` of the request.
    /// `None` where nothing is to be captured, or there is no room, which is counted.
    #[must_use]
    pub fn hold(&self, mode: CaptureMode, request: &Bytes, encoding: &str) -> Option<Holding> {
        if mode == CaptureMode::None {
            return None;
        }
        let (room, limit) = (&self.shared.room, self.shared.answer_limit);
        let held = Holding::new(self, room, mode, request, encoding, limit);
        if held.is_none() {
            self.shared.lose(Loss::Room);
        }
        held
    }

    pub(super) fn take(&self, held: Holding, about: About) {
        match self.queue.try_send(Message::Turn(Box::new((held, about)))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.shared.lose(Loss::Room),
            Err(TrySendError::Disconnected(_)) => self.shared.lose(Loss::Closed),
        }
    }

    /// Turns whose content has been written.
    #[must_use]
    pub fn captured(&self) -> u64 {
        self.shared.captured.load(Ordering::Relaxed)
    }

    /// Turns whose content was not kept, for one reason.
    #[must_use]
    pub fn lost(&self, why: Loss) -> u64 {
        self.shared.lost[why as usize].load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn room_left(&self) -> usize {
        self.shared.room.left()
    }
}

impl Shared {
    fn lose(&self, why: Loss) {
        self.lost[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl CaptureHandle {
    /// Keeps what waits, for a bounded time, and ends the thread. Blocks.
    pub fn close(self) {
        // It is closed once, since this consumes the only handle.
        let _ = self.capture.shared.closing.set(Instant::now());
        // An error means that the thread is gone already.
        let _ = self.capture.queue.send(Message::Close);
        if self.thread.join().is_err() {
            tracing::error!(
                "the thread that keeps captured content broke: a fault of this program"
            );
        }
    }
}

struct Keeper {
    data_dir: PathBuf,
    settings: config::Capture,
    redactor: Arc<Redactor>,
    clock: Clock,
    shared: Arc<Shared>,
    /// Bytes on disk, as far as is known.
    size: u64,
    retained_ms: Option<i64>,
    logged: Option<Instant>,
}

impl Keeper {
    fn run(&mut self, waiting: &Receiver<Message>) {
        self.retain();
        loop {
            match waiting.recv_timeout(LOOK) {
                Ok(Message::Turn(turn)) => {
                    let (held, about) = *turn;
                    self.keep(held, &about);
                }
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.retain();
        }
    }

    fn keep(&mut self, held: Holding, about: &About) {
        let closing = self.shared.closing.get();
        if closing.is_some_and(|since| since.elapsed() >= CLOSE_TIME) {
            self.shared.lose(Loss::Closed);
            return;
        }
        let content = self.content(&held, about);
        // Redacted copies are all that is needed from here on.
        drop(held);
        match write(&self.data_dir, &content) {
            Ok(bytes) => {
                self.size += bytes;
                self.shared.captured.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                let full = matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                );
                self.shared
                    .lose(if full { Loss::DiskFull } else { Loss::Failed });
                self.log(&error, "captured content was dropped, it cannot be written");
            }
        }
    }

    fn content(&self, held: &Holding, about: &About) -> Content {
        let keeping = Keeping {
            mode: held.mode,
            max_bytes: self.settings.max_bytes,
            redactor: &self.redactor,
        };
        let mut replaced = Counts::default();
        let request = Passed {
            bytes: &held.request,
            total: held.request.len() as u64,
            encoding: &held.request_encoding,
            stream: false,
        };
        let (request, _) = keeping.body(&request, &mut replaced);
        let response = held.head.as_ref().map(|head| {
            let passed = Passed {
                bytes: &held.answer,
                total: held.answer_bytes,
                encoding: &head.encoding,
                stream: head.stream,
            };
            let (body, ended) = keeping.body(&passed, &mut replaced);
            Response {
                status: head.status,
                complete: about.complete && ended.unwrap_or(true),
                body,
            }
        });
        Content {
            version: VERSION,
            turn: about.turn,
            run: about.run.clone(),
            thread: about.thread.clone(),
            app: about.app.clone(),
            started_ms: about.started_ms,
            mode: held.mode.word().to_owned(),
            request,
            response,
            replaced,
        }
    }

    /// Removes what is too old or too much, if it is time.
    fn retain(&mut self) {
        let now_ms = self.clock.utc_ms();
        let due = self
            .retained_ms
            .is_none_or(|at| now_ms.saturating_sub(at) >= RETAIN_EVERY_MS);
        if self.shared.closing.get().is_some()
            || !(due || self.size > self.settings.retention_bytes)
        {
            return;
        }
        self.retained_ms = Some(now_ms);
        let keep = retain::Keep {
            since: retain::oldest_day(now_ms, self.settings.retention_days),
            bytes: self.settings.retention_bytes,
        };
        match retain::sweep(&self.data_dir.join(DIRECTORY), &keep) {
            Ok(size) => self.size = size,
            Err(error) => {
                // Not again with each turn.
                self.size = 0;
                self.log(&error, "old captured content cannot be removed");
            }
        }
    }

    fn log(&mut self, error: &io::Error, what: &str) {
        let now = Instant::now();
        if self.logged.is_none_or(|at| now - at >= LOG_EVERY) {
            self.logged = Some(now);
            tracing::warn!(%error, "{what}");
        }
    }
}

/// Writes the content of a turn beside its place and then puts it there. Returns its size on disk.
fn write(data_dir: &Path, content: &Content) -> io::Result<u64> {
    let path = read::path(data_dir, content.started_ms, content.turn);
    let temporary = path.with_extension(TEMPORARY);
    if let Some(day) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(day)?;
    }
    let written = write_to(&temporary, content).and_then(|bytes| {
        fs::rename(&temporary, &path)?;
        Ok(bytes)
    });
    if written.is_err() {
        // What is left of it is removed at the next start at the latest.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_to(path: &Path, content: &Content) -> io::Result<u64> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    let mut packed = GzEncoder::new(BufWriter::new(file), Compression::fast());
    serde_json::to_writer(&mut packed, content)?;
    let mut file = packed.finish()?;
    file.flush()?;
    Ok(file.get_ref().metadata()?.len())
}
