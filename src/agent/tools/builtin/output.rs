//! What a program writes: its head and its tail.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The head and the tail of a stream that may be longer than anybody wants to hold.
pub(super) struct Output {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Of each.
    half: usize,
    seen: usize,
}

impl Output {
    /// Holds at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            half: max / 2,
            seen: 0,
        }
    }

    /// Reads to the end. What was read is kept when this is dropped before.
    pub async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut buffer = [0; 8 << 10];
        loop {
            match from.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => self.push(&buffer[..count]),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.seen += bytes.len();
        let (first, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// The text, with a notice in the middle where something is missing.
    pub fn text(mut self) -> String {
        let missing = self.seen - self.head.len() - self.tail.len();
        let tail = self.tail.make_contiguous();
        if missing == 0 {
            self.head.extend_from_slice(tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        // A character that the cut has parted is left out on both sides.
        let start = tail
            .iter()
            .position(|byte| byte & 0xC0 != 0x80)
            .unwrap_or(0);
        let end = whole_characters(&self.head);
        format!(
            "{}\n[... {missing} bytes left out ...]\n{}",
            String::from_utf8_lossy(&self.head[..end]),
            String::from_utf8_lossy(&tail[start..])
        )
    }
}

/// How much of a text that was cut somewhere is whole characters.
fn whole_characters(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let lead = bytes[from..].iter().rposition(|byte| byte & 0xC0 == 0xC0);
    match lead.map(|at| from + at) {
        Some(lead) if std::str::from_utf8(&bytes[lead..]).is_err() => lead,
        _ => bytes.len(),
    }
}
