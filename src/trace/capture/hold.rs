//! What a turn holds of its content until it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::keep::{About, Capture};
use crate::config::CaptureMode;

/// What a turn costs beside its bytes.
const TURN_BYTES: usize = 1 << 10;
/// The room for an answer grows in steps of this size.
const STEP_BYTES: usize = 64 << 10;

/// Room that is shared by all that is held.
#[derive(Debug)]
pub(super) struct Room {
    left: AtomicUsize,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(bytes),
        })
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            });
        taken.is_ok()
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

/// A share of the room, given back when it is dropped.
#[derive(Debug)]
struct Share {
    room: Arc<Room>,
    bytes: usize,
}

impl Share {
    fn of(room: &Arc<Room>, bytes: usize) -> Option<Self> {
        room.take(bytes).then(|| Self {
            room: room.clone(),
            bytes,
        })
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let grown = self.room.take(bytes);
        self.bytes += if grown { bytes } else { 0 };
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// The head of an answer, as far as it says how to read the body.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) encoding: String,
    pub(super) stream: bool,
}

/// The content of one turn: the client's request, and the answer as it passes.
pub struct Holding {
    capture: Capture,
    pub(super) mode: CaptureMode,
    pub(super) request: Bytes,
    pub(super) request_encoding: String,
    pub(super) head: Option<Head>,
    pub(super) answer: Vec<u8>,
    /// Bytes of the answer, those that are not held included.
    pub(super) answer_bytes: u64,
    /// Most bytes of the answer that are held.
    limit: usize,
    share: Share,
    /// Room for this many bytes of the answer has been taken.
    taken: usize,
}

impl std::fmt::Debug for Holding {
    /// Keeps the content out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holding")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Holding {
    /// Holds a request; `None` when there is no room.
    pub(super) fn new(
        capture: &Capture,
        room: &Arc<Room>,
        mode: CaptureMode,
        request: &Bytes,
        encoding: &str,
        limit: usize,
    ) -> Option<Self> {
        let share = Share::of(room, request.len().saturating_add(TURN_BYTES))?;
        Some(Self {
            capture: capture.clone(),
            mode,
            request: request.clone(),
            request_encoding: encoding.to_owned(),
            head: None,
            answer: Vec::new(),
            answer_bytes: 0,
            limit,
            share,
            taken: 0,
        })
    }

    /// The head of the answer that goes to the client has come: its status, and its
    /// `content-type` and `content-encoding`.
    pub fn answered(&mut self, status: u16, kind: &str, encoding: &str) {
        let essence = kind.split(';').next().unwrap_or_default().trim();
        self.head = Some(Head {
            status,
            encoding: encoding.to_owned(),
            stream: essence.eq_ignore_ascii_case("text/event-stream"),
        });
    }

    /// The next bytes of the answer, as they pass. Beyond the limit, and where there is no room for
    /// them, they are only counted.
    pub fn passed(&mut self, bytes: &[u8]) {
        let whole = self.answer_bytes == self.answer.len() as u64;
        self.answer_bytes += bytes.len() as u64;
        if !whole {
            return;
        }
        let fit = bytes
            .len()
            .min(self.limit.saturating_sub(self.answer.len()));
        let wanted = self.answer.len() + fit;
        if wanted > self.taken {
            let more = (wanted - self.taken).max(STEP_BYTES);
            if !self.share.grow(more) {
                return;
            }
            self.taken += more;
        }
        self.answer.extend_from_slice(&bytes[..fit]);
    }

    /// The turn is over: hands everything to the thread that keeps it.
    pub fn hand_over(self, about: About) {
        let capture = self.capture.clone();
        capture.take(self, about);
    }
}
