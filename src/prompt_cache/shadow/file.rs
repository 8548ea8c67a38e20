//! The entries as bytes, for the next start. Keys are keyed hashes, so nothing in it is secret.
//!
//! Magic (8), version (4), number of entries (8), then the entries, then xxh3 of all before (8);
//! numbers are little endian. Turns under way are not saved: nobody would settle them.

use thiserror::Error;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::Shadow;
use super::table::{Entry, Key};
use crate::provider::view::Ttl;

const MAGIC: &[u8; 8] = b"pgshadow";
const VERSION: u32 = 1;
const HEAD: usize = 8 + 4 + 8;
const CHECK: usize = 8;
/// Key (16), turn (16), end of the lifetime (8), tokens (4), lifetime (1).
const ENTRY: usize = 16 + 16 + 8 + 4 + 1;

/// Why saved entries cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Corrupt {
    /// These are not saved entries at all.
    #[error("this is not a saved prompt cache")]
    Foreign,
    /// Another version of prefixgate wrote them.
    #[error("it has format {0}, and this version of prefixgate reads format {VERSION}")]
    Version(u32),
    /// Bytes are missing, or there are too many.
    #[error("it should be {expected} bytes long and has {found}")]
    Length {
        /// Bytes by its own account.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// Bytes have changed.
    #[error("its checksum does not match")]
    Checksum,
    /// The bytes are as written, but what is written cannot be.
    #[error("entry {0} is impossible")]
    Entry(u64),
}

impl Shadow {
    /// All entries as bytes; turns under way are left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = self.table.len();
        let mut out = Vec::with_capacity(HEAD + count * ENTRY + CHECK);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(count as u64).to_le_bytes());
        for (key, entry) in self.table.iter() {
            out.extend_from_slice(&key.0);
            out.extend_from_slice(entry.turn.as_bytes());
            out.extend_from_slice(&entry.expires_ms.to_le_bytes());
            out.extend_from_slice(&entry.exact.to_le_bytes());
            out.push(match entry.ttl {
                Ttl::M5 => 0,
                Ttl::H1 => 1,
                Ttl::M30 => 2,
                Ttl::H12 => 3,
            });
        }
        let check = xxh3_64(&out);
        out.extend_from_slice(&check.to_le_bytes());
        out
    }

    /// What [`Shadow::encode`] gave, as far as it fits into `limit_bytes` and is still worth
    /// knowing at `now_ms`.
    ///
    /// # Errors
    /// When these are not exactly the bytes that this version writes.
    pub fn decode(bytes: &[u8], limit_bytes: usize, now_ms: i64) -> Result<Self, Corrupt> {
        let mut rest = bytes;
        if rest.split_off(..MAGIC.len()) != Some(MAGIC.as_slice()) {
            return Err(Corrupt::Foreign);
        }
        let found = bytes.len() as u64;
        let cut = |expected: u64| Corrupt::Length { expected, found };
        let shortest = (HEAD + CHECK) as u64;
        let version = u32::from_le_bytes(take(&mut rest).ok_or(cut(shortest))?);
        if version != VERSION {
            return Err(Corrupt::Version(version));
        }
        let count = u64::from_le_bytes(take(&mut rest).ok_or(cut(shortest))?);
        let expected = count.saturating_mul(ENTRY as u64).saturating_add(shortest);
        if expected != found {
            return Err(cut(expected));
        }
        let (said, check) = bytes
            .split_last_chunk::<CHECK>()
            .ok_or_else(|| cut(shortest))?;
        if xxh3_64(said) != u64::from_le_bytes(*check) {
            return Err(Corrupt::Checksum);
        }
        let mut shadow = Self::new(limit_bytes);
        for number in 0..count {
            let (key, entry) = entry(&mut rest).ok_or(Corrupt::Entry(number))?;
            // A clock that was set back must not make anything live for ever.
            let latest = now_ms.saturating_add(entry.ttl.ms());
            let entry = Entry {
                expires_ms: entry.expires_ms.min(latest),
                ..entry
            };
            if entry.remembered(now_ms) {
                shadow.table.insert(key, entry);
            }
        }
        Ok(shadow)
    }
}

fn entry(rest: &mut &[u8]) -> Option<(Key, Entry)> {
    let key = Key(take(rest)?);
    let turn = Uuid::from_bytes(take(rest)?);
    let expires_ms = i64::from_le_bytes(take(rest)?);
    let exact = u32::from_le_bytes(take(rest)?);
    let ttl = match take::<1>(rest)? {
        [0] => Ttl::M5,
        [1] => Ttl::H1,
        [2] => Ttl::M30,
        [3] => Ttl::H12,
        _ => return None,
    };
    Some((
        key,
        Entry {
            turn,
            expires_ms,
            ttl,
            exact,
        },
    ))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}
