//! The API's own explanation of a cache miss. Source: SDK types, Nov 2026.

use std::collections::{HashMap, VecDeque};

use super::cache::Tokens;
use super::prompt::{Hash, Key, Piece, of_piece};

/// Fingerprints kept.
const MAX_FINGERPRINTS: usize = 10_000;

/// What is remembered of a response.
#[derive(Debug, Clone)]
pub struct Fingerprint {
    key: Key,
    pieces: Vec<(Hash, u64)>,
    compactions: usize,
    /// Tokens of its prompt.
    total: u64,
    /// Tokens of its prompt that were in the cache once it began.
    reusable: u64,
}

impl Fingerprint {
    /// The fingerprint of a request.
    #[must_use]
    pub fn of(key: &Key, pieces: &[Piece], tokens: Tokens) -> Self {
        let compactions = pieces
            .iter()
            .filter(|piece| piece.tag.contains("compaction"))
            .count();
        Self {
            key: key.clone(),
            pieces: pieces.iter().map(of_piece).collect(),
            compactions,
            total: tokens.total,
            reusable: tokens.read + tokens.written(),
        }
    }

    /// Why `now` could not reuse all of this one, and the tokens they share.
    fn change(&self, now: &Self) -> Option<(&'static str, u64)> {
        let (a, b) = (&self.key, &now.key);
        let before_input = [
            ("model_changed", a.model != b.model),
            ("service_tier_changed", a.tier != b.tier),
            ("prompt_cache_key_changed", a.cache_key != b.cache_key),
            ("tools_changed", a.tools != b.tools),
            ("text_format_changed", a.format != b.format),
            ("reasoning_effort_changed", a.effort != b.effort),
            ("verbosity_changed", a.verbosity != b.verbosity),
        ];
        if let Some((reason, _)) = before_input.iter().find(|(_, changed)| *changed) {
            return Some((reason, 0));
        }
        let shared = self
            .pieces
            .iter()
            .zip(&now.pieces)
            .take_while(|(a, b)| a == b)
            .count();
        if shared == self.pieces.len() {
            return None;
        }
        let input: u64 = self.pieces.iter().map(|(_, tokens)| tokens).sum();
        let same: u64 = self.pieces[..shared].iter().map(|(_, tokens)| tokens).sum();
        let reason = if now.compactions > self.compactions {
            "context_compacted"
        } else {
            "input_changed"
        };
        Some((reason, self.total.saturating_sub(input) + same))
    }
}

/// All fingerprints, by response id.
#[derive(Debug, Default)]
pub struct Fingerprints {
    known: HashMap<String, (String, Fingerprint)>,
    order: VecDeque<String>,
}

impl Fingerprints {
    /// Remembers a response. `scope` is the credential.
    pub fn store(&mut self, id: String, scope: String, fingerprint: Fingerprint) {
        self.order.push_back(id.clone());
        self.known.insert(id, (scope, fingerprint));
        if self.order.len() > MAX_FINGERPRINTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// The `prompt_cache_diagnostics` member, as JSON.
    #[must_use]
    pub fn explain(&self, id: &str, scope: &str, now: &Fingerprint, tokens: Tokens) -> String {
        let known = self.known.get(id).filter(|(owner, _)| owner == scope);
        let Some((_, before)) = known else {
            return r#"{"type":"comparison_response_not_found"}"#.to_owned();
        };
        match before.change(now) {
            Some((reason, shared)) => format!(
                r#"{{"type":"cache_miss","reason":"{reason}","cache_missed_tokens":{},"comparison_reusable_tokens":{}}}"#,
                before.reusable.saturating_sub(shared),
                before.reusable
            ),
            // Nothing changed and nothing was there: the entry has expired, for which there is no word.
            None if tokens.read == 0 => r#"{"type":"unavailable"}"#.to_owned(),
            None => r#"{"type":"cache_hit"}"#.to_owned(),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
