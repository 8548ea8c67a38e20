//! A bounded incremental reader of server-sent events that never fails.
//!
//! It looks at bytes that are passed on elsewhere, so it has no way to say no: what it cannot hold
//! it skips and counts. The events depend on the bytes alone, never on how they were cut.
//!
//! Source of the format: WHATWG HTML, "Server-sent events".

use std::mem;

use memchr::memchr2;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event, borrowed from the chunk it arrived in wherever it lies there whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The value of its last `event` field; `None` when there was none or it was empty.
    pub name: Option<&'a [u8]>,
    /// Its `data` lines, joined by line feeds.
    pub data: &'a [u8],
    /// Events that were too large to be held stood between this one and the one before.
    pub after_gap: bool,
}

/// The decoder. Memory: at most about four times `max_event_bytes`.
#[derive(Debug)]
pub struct Decoder {
    max_event_bytes: usize,
    /// How many bytes of the byte order mark have been seen; its length once it is decided.
    bom: usize,
    /// The last byte was a carriage return: a line feed right after it belongs to it.
    after_cr: bool,
    /// The unfinished line that earlier chunks ended with.
    line: Vec<u8>,
    /// Whether there is an unfinished line (its bytes may have been thrown away).
    line_open: bool,
    /// What earlier chunks left of the unfinished event.
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Bytes of the event's lines so far, comments and line ends not counted.
    size: usize,
    /// The event has lines.
    open: bool,
    gap: bool,
    oversized: u64,
}

/// The part of an event that lies in the chunk at hand.
#[derive(Default)]
struct InChunk<'a> {
    name: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
}

impl Decoder {
    /// A decoder that skips events whose lines are together longer than `max_event_bytes`.
    #[must_use]
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            bom: 0,
            after_cr: false,
            line: Vec::new(),
            line_open: false,
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            size: 0,
            open: false,
            gap: false,
            oversized: 0,
        }
    }

    /// Takes the next bytes and hands every event that they complete to `sink`, in order.
    pub fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(Event<'_>)) {
        let mut rest = self.skip_bom(bytes);
        let mut held = InChunk::default();
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(at);
            rest = &tail[1..];
            if tail[0] == b'\r' {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            if self.line_open {
                self.push_line(line);
                self.line_open = false;
                let whole = mem::take(&mut self.line);
                self.kept_line(&whole);
                self.line = whole;
                self.line.clear();
            } else if line.is_empty() {
                self.dispatch(mem::take(&mut held), &mut sink);
            } else if line[0] != b':' {
                self.count(line.len());
                self.chunk_line(line, &mut held);
            }
        }
        if !rest.is_empty() {
            self.push_line(rest);
            self.line_open = true;
        }
        self.keep(held);
    }

    /// Whether nothing is pending: bytes written here by somebody else stand between two events.
    #[must_use]
    pub fn on_border(&self) -> bool {
        !self.line_open && !self.open && (self.bom == 0 || self.bom == BOM.len())
    }

    /// How many events were skipped because they were too large.
    #[must_use]
    pub fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Whether whole events that were too large came after the last one that was handed out.
    #[must_use]
    pub fn ended_in_gap(&self) -> bool {
        self.gap
    }

    /// The stream may begin with a byte order mark, which may itself be cut.
    fn skip_bom<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while self.bom < BOM.len() {
            match rest.first() {
                Some(byte) if *byte == BOM[self.bom] => {
                    self.bom += 1;
                    rest = &rest[1..];
                }
                Some(_) => {
                    let seen = mem::replace(&mut self.bom, BOM.len());
                    if seen > 0 {
                        self.push_line(&BOM[..seen]);
                        self.line_open = true;
                    }
                }
                None => break,
            }
        }
        rest
    }

    /// Adds to the unfinished line, unless it is a comment or the event is lost anyway.
    fn push_line(&mut self, part: &[u8]) {
        let comment = match self.line.first() {
            Some(first) => *first == b':',
            // An open line without bytes was thrown away with its event.
            None => !self.line_open && part.first() == Some(&b':'),
        };
        if comment {
            if self.line.is_empty() {
                self.line.push(b':');
            }
            return;
        }
        self.count(part.len());
        if !self.lost() {
            self.line.extend_from_slice(part);
        }
    }

    fn count(&mut self, bytes: usize) {
        self.open |= bytes > 0;
        let was_lost = self.lost();
        self.size = self.size.saturating_add(bytes);
        if self.lost() && !was_lost {
            self.oversized += 1;
            self.line = Vec::new();
            self.data = Vec::new();
            self.name = Vec::new();
        }
    }

    fn lost(&self) -> bool {
        self.size > self.max_event_bytes
    }

    fn chunk_line<'a>(&mut self, line: &'a [u8], held: &mut InChunk<'a>) {
        if self.lost() {
            return;
        }
        match field(line) {
            Some((Field::Name, value)) => held.name = Some(value),
            Some((Field::Data, value)) if !self.has_data && held.data.is_none() => {
                held.data = Some(value);
            }
            Some((Field::Data, value)) => {
                if let Some(first) = held.data.take() {
                    self.add_data(first);
                }
                self.add_data(value);
            }
            None => {}
        }
    }

    /// A line that was put together from several chunks.
    fn kept_line(&mut self, line: &[u8]) {
        if self.lost() {
            return;
        }
        match field(line) {
            Some((Field::Name, value)) => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            Some((Field::Data, value)) => self.add_data(value),
            None => {}
        }
    }

    fn add_data(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.has_data = true;
    }

    /// What of the unfinished event would go away with the chunk.
    fn keep(&mut self, held: InChunk<'_>) {
        if self.lost() {
            return;
        }
        if let Some(name) = held.name {
            self.name.clear();
            self.name.extend_from_slice(name);
        }
        if let Some(data) = held.data {
            self.add_data(data);
        }
    }

    fn dispatch(&mut self, held: InChunk<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if self.lost() {
            self.gap = true;
        } else if self.has_data || held.data.is_some() {
            let name = held.name.unwrap_or(&self.name);
            sink(Event {
                name: (!name.is_empty()).then_some(name),
                data: held.data.unwrap_or(&self.data),
                after_gap: mem::take(&mut self.gap),
            });
        }
        self.name.clear();
        self.data.clear();
        self.has_data = false;
        self.size = 0;
        self.open = false;
    }
}

enum Field {
    Name,
    Data,
}

/// The fields that matter here; `id`, `retry`, comments and unknown fields do not.
fn field(line: &[u8]) -> Option<(Field, &[u8])> {
    let (kind, rest) = match line {
        [b'd', b'a', b't', b'a', rest @ ..] => (Field::Data, rest),
        [b'e', b'v', b'e', b'n', b't', rest @ ..] => (Field::Name, rest),
        _ => return None,
    };
    match rest {
        [] => Some((kind, rest)),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some((kind, value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
