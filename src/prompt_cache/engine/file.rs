//! The engine's memory as bytes: what is worth keeping over a restart.
//!
//! The shadow cache, and of each thread its newest request. Texts are never written; what apps
//! have shown is learnt anew.

use std::sync::Arc;

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::{Engine, lock};
use crate::prompt_cache::shadow::Shadow;
use crate::prompt_cache::trail::{Past, code};
use crate::usage::Usage;

/// First bytes of the file; the last digit is the version.
const MAGIC: &[u8; 8] = b"pgcache1";

/// Bytes that are no memory of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// The first bytes are others.
    #[error("it is not a state file of this version")]
    Foreign,
    /// The checksum does not fit.
    #[error("it is damaged")]
    Checksum,
    /// The checksum fits, and the content does not.
    #[error("its content is not understood: {0}")]
    Content(&'static str),
}

impl Engine {
    /// All that is kept over a restart.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let shadow = lock(&self.shadow).encode();
        let mut pasts: Vec<(u64, Arc<Past>)> = {
            let pasts = lock(&self.pasts);
            pasts
                .iter()
                .map(|(thread, past)| (thread, Arc::clone(past)))
                .collect()
        };
        // Oldest first, so that the newest are the last to be forgotten when they are read.
        pasts.sort_by_key(|(thread, past)| (past.ended_ms, *thread));
        let mut out = MAGIC.to_vec();
        put_bytes(&mut out, &shadow);
        put_u64(&mut out, pasts.len() as u64);
        for (thread, past) in &pasts {
            put_u64(&mut out, *thread);
            put_past(&mut out, past);
        }
        let sum = xxh3_64(&out);
        put_u64(&mut out, sum);
        out
    }

    /// The memory that [`Engine::encode`] wrote, within new bounds.
    ///
    /// # Errors
    /// The bytes are not such a memory, or are damaged.
    pub fn decode(
        bytes: &[u8],
        limit_bytes: usize,
        excerpts: bool,
        now_ms: i64,
    ) -> Result<Self, Damaged> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(Damaged::Foreign)?;
        let (_, sum) = rest.split_last_chunk::<8>().ok_or(Damaged::Checksum)?;
        let content = &bytes[..bytes.len() - sum.len()];
        if xxh3_64(content) != u64::from_le_bytes(*sum) {
            return Err(Damaged::Checksum);
        }
        let mut from = Reader(&content[MAGIC.len()..]);
        let engine = Self::new(limit_bytes, excerpts);
        let shadow = from.bytes().ok_or(Damaged::Content("shadow cache"))?;
        let limit = super::shadow_bytes(limit_bytes);
        *lock(&engine.shadow) =
            Shadow::decode(shadow, limit, now_ms).map_err(|_| Damaged::Content("shadow cache"))?;
        let count = from.u64().ok_or(Damaged::Content("threads"))?;
        for _ in 0..count {
            let (thread, past) = from.thread().ok_or(Damaged::Content("threads"))?;
            drop(lock(&engine.pasts).put(thread, Arc::new(past)));
        }
        if !from.0.is_empty() {
            return Err(Damaged::Content("threads"));
        }
        Ok(engine)
    }
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_past(out: &mut Vec<u8>, past: &Past) {
    put_bytes(out, &code::encode(&past.trail, None));
    out.extend_from_slice(past.turn_id.as_bytes());
    put_u64(out, past.started_ms.cast_unsigned());
    put_u64(out, past.ended_ms.cast_unsigned());
    let usage = &past.usage;
    // Of a past request only the sum of its writes matters, whatever the pair of lifetimes.
    let short = usage.write_5m.or(usage.write_30m);
    let long = usage.write_1h.or(usage.write_12h);
    for tokens in [usage.uncached, usage.read, short, long] {
        // No prompt has 2^64 - 1 tokens.
        put_u64(out, tokens.unwrap_or(u64::MAX));
    }
    for text in [&past.response_id, &past.model_served, &past.stop_reason] {
        put_bytes(out, text.as_deref().unwrap_or_default().as_bytes());
    }
    put_u64(out, past.client_order.unwrap_or(0));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.u64()?).ok()?;
        self.take(count)
    }

    fn text(&mut self) -> Option<Option<Box<str>>> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        Some((!text.is_empty()).then(|| text.into()))
    }

    fn tokens(&mut self) -> Option<Option<u64>> {
        let tokens = self.u64()?;
        Some((tokens != u64::MAX).then_some(tokens))
    }

    fn thread(&mut self) -> Option<(u64, Past)> {
        let thread = self.u64()?;
        let trail = code::decode(self.bytes()?, None).ok()?;
        let past = Past {
            trail: Arc::new(trail),
            turn_id: Uuid::from_slice(self.take(16)?).ok()?,
            started_ms: self.u64()?.cast_signed(),
            ended_ms: self.u64()?.cast_signed(),
            usage: Usage {
                uncached: self.tokens()?,
                read: self.tokens()?,
                write_5m: self.tokens()?,
                write_1h: self.tokens()?,
                ..Usage::default()
            },
            response_id: self.text()?,
            model_served: self.text()?,
            stop_reason: self.text()?,
            client_order: match self.u64()? {
                0 => None,
                order => Some(order),
            },
        };
        Some((thread, past))
    }
}
