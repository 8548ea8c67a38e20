//! The bytes of a segment.
//!
//! ```text
//!  segment = header frame*
//!  header  = magic 8 | version 4 | 0 4 | spool id 16 | first sequence 8 | checksum 8
//!  frame   = magic 4 | length 4 | sequence 8 | Unix ms 8 | checksum 8 | record
//! ```
//!
//! Numbers are little-endian. The checksum of a frame covers its length, sequence, time and record,
//! and is seeded with the spool's id, so that no content of a record can pass for a frame. A reader
//! that has lost its place looks for the next frame that holds; its sequence says how many were lost.

use uuid::Uuid;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The version that is written and read.
pub const VERSION: u32 = 1;
/// Bytes of a header.
pub const HEADER: usize = 48;
/// Bytes of a frame without its record.
pub const FRAME: usize = 32;
/// Longest record, in bytes. It bounds what a reader holds for a length that is wrong.
pub const MAX_RECORD: usize = 64 << 20;
/// Begins a frame. No text in UTF-8 has such a byte sequence.
pub const FRAME_MAGIC: [u8; 4] = [0xf5, 0x9a, 0xc3, 0xe1];

const HEADER_MAGIC: [u8; 8] = *b"PGSPOOL\n";

/// Seed of the checksums of a spool.
#[must_use]
pub fn seed(spool: Uuid) -> u64 {
    xxh3_64(spool.as_bytes())
}

/// The header of a segment.
#[must_use]
pub fn header(spool: Uuid, first: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&HEADER_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(spool.as_bytes());
    bytes[32..40].copy_from_slice(&first.to_le_bytes());
    let sum = xxh3_64(&bytes[..40]);
    bytes[40..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What the first bytes of a file say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A segment that can be read.
    Known {
        /// The spool it was written by.
        spool: Uuid,
        /// Its first sequence number.
        first: u64,
    },
    /// A sound header of another version.
    Foreign(u32),
    /// Too short, or the checksum does not hold.
    Damaged,
}

/// Reads a header.
#[must_use]
pub fn head(bytes: &[u8]) -> Head {
    let Some(bytes) = bytes.first_chunk::<HEADER>() else {
        return Head::Damaged;
    };
    if bytes[..8] != HEADER_MAGIC || xxh3_64(&bytes[..40]) != u64_at(bytes, 40) {
        return Head::Damaged;
    }
    match u32_at(bytes, 8) {
        VERSION => {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[16..32]);
            Head::Known {
                spool: Uuid::from_bytes(id),
                first: u64_at(bytes, 32),
            }
        }
        version => Head::Foreign(version),
    }
}

/// Adds a frame to `out`. The record must not be longer than [`MAX_RECORD`].
pub fn push_frame(out: &mut Vec<u8>, seed: u64, sequence: u64, ms: i64, record: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&FRAME_MAGIC);
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&ms.to_le_bytes());
    let sum = checksum(seed, &out[start + 4..], record);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(record);
}

/// What begins at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A record.
    Sound {
        /// Its sequence number.
        sequence: u64,
        /// When it was appended, Unix milliseconds.
        ms: i64,
        /// Length of the whole frame; the record begins at [`FRAME`].
        size: usize,
    },
    /// It looks like a frame of which so many bytes are needed.
    Short {
        /// The sequence number that it claims, where that much is there.
        sequence: Option<u64>,
        /// Bytes from its begin.
        need: usize,
    },
    /// No frame, or a damaged one.
    Bad,
}

/// Reads the frame at the begin of `bytes`.
#[must_use]
pub fn frame(bytes: &[u8], seed: u64) -> Frame {
    let known = bytes.len().min(4);
    if bytes[..known] != FRAME_MAGIC[..known] {
        return Frame::Bad;
    }
    let Some(fixed) = bytes.first_chunk::<FRAME>() else {
        return Frame::Short {
            sequence: None,
            need: FRAME,
        };
    };
    let length = u32_at(fixed, 4) as usize;
    let sequence = u64_at(fixed, 8);
    if length > MAX_RECORD {
        return Frame::Bad;
    }
    let size = FRAME + length;
    let Some(record) = bytes.get(FRAME..size) else {
        return Frame::Short {
            sequence: Some(sequence),
            need: size,
        };
    };
    if checksum(seed, &fixed[4..24], record) != u64_at(fixed, 24) {
        return Frame::Bad;
    }
    Frame::Sound {
        sequence,
        ms: i64::from_le_bytes(u64_at(fixed, 16).to_le_bytes()),
        size,
    }
}

/// The sequence number that a frame claims, without looking at the rest.
pub(super) fn claimed_sequence(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<FRAME>().map(|fixed| u64_at(fixed, 8))
}

/// The time that a frame claims, without looking at the rest.
pub(super) fn claimed_ms(bytes: &[u8]) -> Option<i64> {
    let fixed = bytes.first_chunk::<FRAME>()?;
    (fixed[..4] == FRAME_MAGIC).then(|| i64::from_le_bytes(u64_at(fixed, 16).to_le_bytes()))
}

fn checksum(seed: u64, fixed: &[u8], record: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(seed);
    hash.update(fixed);
    hash.update(record);
    hash.digest()
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}
