//! What the prompt-cache engine says of a turn, both directions.

use uuid::Uuid;

use super::{Binder, Reader};
use crate::prompt_cache::verdict::{Excerpt, Reason, Status, Verdict, What, Whose};
use crate::trace::CacheRecord;

/// Binds a record's part about the cache.
pub(super) fn bind(to: &mut Binder<'_, '_>, cache: &CacheRecord) -> rusqlite::Result<()> {
    let verdict = cache.verdict.as_ref();
    let excerpt = verdict.and_then(|v| v.excerpt.as_ref());
    let id = |id: &Option<Uuid>| id.map(Uuid::into_bytes);
    to.put(verdict.map(|v| v.status.as_str()))?
        .put(verdict.and_then(|v| v.reason).map(Reason::as_str))?
        .known(verdict.and_then(|v| v.lost_tokens))?
        .known(verdict.and_then(|v| v.lost_pico))?
        .put(verdict.and_then(|v| v.what).map(What::as_str))?
        .put(verdict.and_then(|v| v.whose).map(Whose::as_str))?
        .put(verdict.and_then(|v| v.first_changed.as_deref()))?
        .put(verdict.and_then(|v| v.offset))?
        .put(cache.unjudged)?
        .put(cache.policy)?
        .known(cache.expected_read)?
        .put(id(&cache.read_of))?
        .known(cache.premium_pico)?
        .put(id(&cache.duplicate_of))?
        .known(cache.duplicate_tokens)?
        .known(cache.duplicate_pico)?
        .put(cache.native_agrees)?
        .put(cache.helper)?
        .known(cache.helper_tokens)?
        .put(cache.helper_pico)?
        .put(verdict.map(|v| v.detail.as_str()))?
        .put(excerpt.map(|e| e.before.as_str()))?
        .put(excerpt.map(|e| e.after.as_str()))?
        .put((!cache.trail.is_empty()).then_some(&cache.trail))?;
    Ok(())
}

impl Reader<'_, '_> {
    /// What [`bind`] has put.
    pub(super) fn cache(&mut self) -> rusqlite::Result<CacheRecord> {
        let status = self.word_or_null("verdict", Status::from_word)?;
        let reason = self.word_or_null("verdict_reason", Reason::from_word)?;
        let (lost_tokens, lost_pico) = (self.known()?, self.known()?);
        let what = self.word_or_null("what", What::from_word)?;
        let whose = self.word_or_null("whose", Whose::from_word)?;
        let (first_changed, offset) = (self.take()?, self.take()?);
        let mut cache = CacheRecord {
            verdict: None,
            unjudged: self.interned()?,
            policy: self.interned()?,
            expected_read: self.known()?,
            read_of: self.id()?,
            premium_pico: self.known()?,
            duplicate_of: self.id()?,
            duplicate_tokens: self.known()?,
            duplicate_pico: self.known()?,
            native_agrees: self.take()?,
            helper: self.interned()?,
            helper_tokens: self.known()?,
            helper_pico: self.take()?,
            trail: Vec::new(),
        };
        let detail: Option<String> = self.take()?;
        let (before, after): (Option<String>, Option<String>) = (self.take()?, self.take()?);
        let trail: Option<Vec<u8>> = self.take()?;
        cache.trail = trail.unwrap_or_default();
        cache.verdict = status.map(|status| Verdict {
            status,
            reason,
            first_changed,
            offset,
            what,
            detail: detail.unwrap_or_default(),
            whose,
            lost_tokens,
            lost_pico,
            excerpt: before
                .zip(after)
                .map(|(before, after)| Excerpt { before, after }),
        });
        Ok(cache)
    }
}
