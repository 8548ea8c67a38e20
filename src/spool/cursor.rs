//! The cursor file: where the reader is, what it has claimed, what was counted.
//!
//! Two slots are overwritten in turn, each with a generation and a checksum: when a write is torn, the
//! other slot holds what was before. The file never grows, so that it can be written on a full disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::counters::{Counted, Reason};
use super::disk::Disk;
use super::format::{u32_at, u64_at};

/// Its name in the spool's directory.
pub(super) const FILE: &str = "cursor";

const MAGIC: [u8; 8] = *b"PGCURSOR";
const VERSION: u32 = 1;
/// Distance of the slots: a page, so that they do not share a sector.
const SLOT: usize = 4096;
const SLOTS: usize = 2;
/// Where the numbers begin.
const NUMBERS: usize = 32;
const COUNT: usize = 11 + Reason::ALL.len();
/// Bytes of a slot that are used.
const USED: usize = NUMBERS + 8 * COUNT + 8;

/// A batch that was handed out and is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// Its first sequence number.
    pub first: u64,
    /// The one behind its last.
    pub end: u64,
    /// Those before this are settled.
    pub done: u64,
}

/// What the file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub spool: Uuid,
    /// The first sequence number that `counted` knows of.
    pub base: u64,
    /// The next sequence number to be given, at least.
    pub next: u64,
    /// The next to be claimed. Everything before is settled, or part of the claim.
    pub head: u64,
    /// Records before this were removed to make room.
    pub floor: u64,
    pub claim: Option<Claim>,
    pub counted: Counted,
}

/// What is found of a cursor.
#[derive(Debug)]
pub(super) enum Found {
    Missing,
    /// Damaged, or of another version.
    Unreadable,
    Known(Position, u64),
}

/// Reads the newest sound slot.
pub(super) fn read(dir: &Path) -> io::Result<Found> {
    let mut bytes = Vec::with_capacity(SLOT * SLOTS);
    match File::open(dir.join(FILE)) {
        Ok(file) => file.take((SLOT * SLOTS) as u64).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(error),
    };
    let slots = bytes.chunks(SLOT).filter_map(decode);
    Ok(slots
        .max_by_key(|(generation, _)| *generation)
        .map_or(Found::Unreadable, |(generation, position)| {
            Found::Known(position, generation)
        }))
}

/// The file while a process has it.
#[derive(Debug)]
pub(super) struct CursorFile {
    generation: u64,
}

impl CursorFile {
    /// Opens or makes the file with all of its size, and writes `position`.
    pub(super) fn open(
        dir: &Path,
        generation: u64,
        position: &Position,
        disk: &dyn Disk,
    ) -> io::Result<(Self, File)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(dir.join(FILE))?;
        let mut this = Self { generation };
        if file.metadata()?.len() < (SLOT * SLOTS) as u64 {
            // Real blocks for both slots, now: later there may be no room for them.
            disk.write_at(&file, 0, &[0; SLOT * SLOTS])?;
            this.write(&file, position, disk)?;
        }
        this.write(&file, position, disk)?;
        disk.sync(&file)?;
        Ok((this, file))
    }

    /// Writes the slot that is not the newest.
    pub(super) fn write(
        &mut self,
        file: &File,
        position: &Position,
        disk: &dyn Disk,
    ) -> io::Result<()> {
        let generation = self.generation + 1;
        let slot = if generation.is_multiple_of(2) {
            0
        } else {
            SLOT
        };
        disk.write_at(file, slot as u64, &encode(generation, position))?;
        self.generation = generation;
        Ok(())
    }
}

fn encode(generation: u64, position: &Position) -> [u8; USED] {
    let mut bytes = [0; USED];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(position.spool.as_bytes());
    // No claim ends at 0: numbers begin with 1.
    let claim = position.claim.unwrap_or(Claim {
        first: 0,
        end: 0,
        done: 0,
    });
    let counted = &position.counted;
    let numbers = [
        generation,
        position.base,
        position.next,
        position.head,
        position.floor,
        claim.first,
        claim.end,
        claim.done,
        counted.appended,
        counted.turned_away,
        counted.delivered,
    ];
    let all = numbers.iter().chain(&counted.dropped);
    for (place, number) in bytes[NUMBERS..].chunks_exact_mut(8).zip(all) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let sum = xxh3_64(&bytes[..USED - 8]);
    bytes[USED - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(u64, Position)> {
    let bytes = bytes.first_chunk::<USED>()?;
    let sound = bytes[..8] == MAGIC && xxh3_64(&bytes[..USED - 8]) == u64_at(bytes, USED - 8);
    if !sound || u32_at(bytes, 8) != VERSION {
        return None;
    }
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[16..32]);
    let number = |n: usize| u64_at(bytes, NUMBERS + 8 * n);
    let claim = Claim {
        first: number(5),
        end: number(6),
        done: number(7),
    };
    let position = Position {
        spool: Uuid::from_bytes(id),
        base: number(1),
        next: number(2),
        head: number(3),
        floor: number(4),
        claim: (claim.end != 0).then_some(claim),
        counted: Counted {
            appended: number(8),
            turned_away: number(9),
            delivered: number(10),
            dropped: std::array::from_fn(|reason| number(11 + reason)),
        },
    };
    Some((number(0), position))
}
