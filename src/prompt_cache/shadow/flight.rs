//! Turns under way: what they will write, and what lay on their path when they started.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Key;
use super::table::ByKey;
use crate::bounded::Map;
use crate::provider::view::Ttl;

/// Turns under way at most; beyond it the oldest are forgotten.
const MAX_FLIGHTS: usize = 8192;

/// An entry on the path of a turn, as it was at the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    pub key: Key,
    /// Who had written it; another writer means that it is not the same entry any more.
    pub turn: Uuid,
    /// Index of its last block.
    pub at: u32,
    /// Bytes of the prefix.
    pub bytes: u64,
    /// The end of its lifetime before this turn.
    pub expires_ms: i64,
    /// A breakpoint of this turn looks back over it.
    pub seen: bool,
}

/// A breakpoint of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marked {
    pub key: Key,
    /// Index of its block.
    pub at: u32,
    /// Bytes of the prefix.
    pub bytes: u64,
    /// The lifetime asked for; `None` for one this version does not know.
    pub ttl: Option<Ttl>,
    /// By what is known at the start, the turn writes here.
    pub writes: bool,
}

/// One turn under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub turn: Uuid,
    /// Its start, UTC milliseconds.
    pub start_ms: i64,
    /// Its breakpoints, in provider order.
    pub marks: Vec<Marked>,
    /// Entries on its path, shortest first.
    pub path: Vec<Passed>,
    /// The block at which the entry ends that it should read.
    pub read: Option<u32>,
    /// Bytes of the whole prompt.
    pub bytes: u64,
    pub min_tokens: Option<u32>,
    pub bytes_per_token_milli: u32,
    /// What is read is told in multiples of so many tokens.
    pub step: u64,
    /// What it reads lives on from its start.
    pub renews: bool,
    /// There are calls in it that the provider runs, where it sets breakpoints of its own.
    pub server_tools: bool,
    /// One of them stands behind the turn's last breakpoint.
    pub provider_marks: bool,
    /// Its answer has begun.
    pub began: bool,
}

impl Flight {
    fn memory(&self) -> usize {
        MAP_BYTES
            + size_of::<Self>()
            + self.path.capacity() * size_of::<Passed>()
            + self.marks.capacity() * (size_of::<Marked>() + WRITER_BYTES)
    }
}

/// A turn that is writing a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writer {
    pub turn: Uuid,
    /// When the lifetime of what it writes will end.
    pub expires_ms: i64,
}

/// Its places in the maps by order and by turn, generously.
const MAP_BYTES: usize = 128;

/// An own list and its place in the map of writers, generously.
const WRITER_BYTES: usize = 256;

/// All turns under way.
#[derive(Debug)]
pub(super) struct Flights {
    /// By the order of their starts.
    by_order: BTreeMap<u64, Flight>,
    order_of: Map<Uuid, u64>,
    /// Who is writing a prefix; the first one first.
    writers: ByKey<Vec<Writer>>,
    next: u64,
    bytes: usize,
    limit_bytes: usize,
}

impl Flights {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self {
            by_order: BTreeMap::new(),
            order_of: Map::default(),
            writers: ByKey::default(),
            next: 0,
            bytes: 0,
            limit_bytes,
        }
    }

    /// The first of the turns whose answers have not begun that writes this prefix.
    pub(super) fn writer(&self, key: &Key) -> Option<Writer> {
        if self.writers.is_empty() {
            return None;
        }
        self.writers.get(key)?.first().copied()
    }

    /// Adds a turn. The oldest ones are forgotten where there is no room.
    pub(super) fn start(&mut self, flight: Flight) {
        self.bytes += flight.memory();
        for mark in flight.marks.iter().filter(|mark| mark.writes) {
            let ttl = mark.ttl.unwrap_or(Ttl::M5);
            self.writers.entry(mark.key).or_default().push(Writer {
                turn: flight.turn,
                expires_ms: flight.start_ms.saturating_add(ttl.ms()),
            });
        }
        self.order_of.insert(flight.turn, self.next);
        self.by_order.insert(self.next, flight);
        self.next += 1;
        while self.len() > 1 && (self.len() > MAX_FLIGHTS || self.bytes > self.limit_bytes) {
            let oldest = self.by_order.first_key_value().map(|(_, old)| old.turn);
            if oldest.and_then(|turn| self.end(turn)).is_none() {
                break;
            }
        }
    }

    /// The answer of a turn begins: it is not a writer any more, but goes on. `None` when it is not
    /// known or had begun before.
    pub(super) fn begin(&mut self, turn: Uuid) -> Option<&Flight> {
        let order = self.order_of.get(&turn)?;
        let flight = self.by_order.get_mut(order).filter(|f| !f.began)?;
        flight.began = true;
        forget(&mut self.writers, flight);
        Some(flight)
    }

    /// Takes a turn out.
    pub(super) fn end(&mut self, turn: Uuid) -> Option<Flight> {
        let flight = self.by_order.remove(&self.order_of.remove(&turn)?)?;
        self.bytes -= flight.memory();
        forget(&mut self.writers, &flight);
        Some(flight)
    }

    pub(super) fn len(&self) -> usize {
        self.by_order.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn forget(writers: &mut ByKey<Vec<Writer>>, flight: &Flight) {
    for mark in flight.marks.iter().filter(|mark| mark.writes) {
        let Some(list) = writers.get_mut(&mark.key) else {
            continue;
        };
        list.retain(|writer| writer.turn != flight.turn);
        if list.is_empty() {
            writers.remove(&mark.key);
        }
    }
}
