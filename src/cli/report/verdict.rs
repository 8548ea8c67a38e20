//! Verdicts for people and for scripts.

use serde::Serialize;

use crate::prompt_cache::advice::advice;
use crate::prompt_cache::verdict::{Reason, Verdict, What, Whose};
use crate::trace::{CacheRecord, RequestKind, TurnRecord};
use crate::usage::usd;

/// A request as a report shows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) turn: &'a TurnRecord,
    /// How often the culprit had struck in the run, this turn included; `None` when nothing broke.
    pub(super) strikes: Option<u64>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(turn: &'a TurnRecord, strikes: Option<u64>) -> Self {
        Self { turn, strikes }
    }

    /// The verdict: of turns only.
    pub(super) fn verdict(&self) -> Option<&'a Verdict> {
        let judged = self.turn.kind == RequestKind::Turn;
        self.turn.cache.verdict.as_ref().filter(|_| judged)
    }

    /// `extended`, `partial: system`, `partial: system x3`; `(not_json)` for what was not judged.
    pub(super) fn cache_cell(&self) -> String {
        let Some(verdict) = self.verdict() else {
            let why = self.turn.cache.unjudged;
            return why.map_or_else(String::new, |why| format!("({why})"));
        };
        let mut cell = verdict.status.as_str().to_owned();
        if let Some(reason) = verdict.reason {
            cell = cell + ": " + reason.as_str();
        }
        if let Some(strikes) = self.strikes.filter(|n| *n > 1) {
            cell += &format!(" x{strikes}");
        }
        cell
    }
}

/// A verdict as scripts have it.
#[derive(Serialize)]
pub(super) struct VerdictJson<'a> {
    status: &'static str,
    reason: Option<&'static str>,
    first_changed: Option<&'a str>,
    /// Offset of the first different byte inside the value at `first_changed`.
    offset: Option<u32>,
    what: Option<&'static str>,
    detail: &'a str,
    whose: Option<&'static str>,
    lost_tokens: Option<u64>,
    lost_usd: Option<String>,
    /// How often the same culprit (reason, what, generalised path) had struck in the run, this turn
    /// included; `null` when nothing broke.
    strikes: Option<u64>,
    advice: Option<String>,
    /// Only where capture is on.
    excerpt: Option<ExcerptJson<'a>>,
}

#[derive(Serialize)]
struct ExcerptJson<'a> {
    before: &'a str,
    after: &'a str,
}

impl<'a> VerdictJson<'a> {
    pub(super) fn new(verdict: &'a Verdict, strikes: Option<u64>) -> Self {
        let excerpt = verdict.excerpt.as_ref();
        Self {
            status: verdict.status.as_str(),
            reason: verdict.reason.map(Reason::as_str),
            first_changed: verdict.first_changed.as_deref(),
            offset: verdict.offset,
            what: verdict.what.map(What::as_str),
            detail: &verdict.detail,
            whose: verdict.whose.map(Whose::as_str),
            lost_tokens: verdict.lost_tokens,
            lost_usd: verdict.lost_pico.map(usd),
            strikes,
            advice: advice_of(verdict),
            excerpt: excerpt.map(|e| ExcerptJson {
                before: &e.before,
                after: &e.after,
            }),
        }
    }
}

/// The rest of what the engine says of a request.
#[derive(Serialize)]
pub(super) struct CacheJson {
    policy: Option<&'static str>,
    expected_read: Option<u64>,
    /// Id of the turn that wrote what was read.
    read_of: Option<String>,
    /// Id of the turn that wrote the same at the same time.
    duplicate_of: Option<String>,
    duplicate_tokens: Option<u64>,
    duplicate_usd: Option<String>,
    native_agrees: Option<bool>,
    helper: Option<&'static str>,
    helper_tokens: Option<u64>,
    /// Negative where it cost more.
    helper_usd: Option<String>,
    /// What the writes cost more than plain input.
    premium_usd: Option<String>,
}

impl From<&CacheRecord> for CacheJson {
    fn from(cache: &CacheRecord) -> Self {
        Self {
            policy: cache.policy,
            expected_read: cache.expected_read,
            read_of: cache.read_of.map(|id| id.to_string()),
            duplicate_of: cache.duplicate_of.map(|id| id.to_string()),
            duplicate_tokens: cache.duplicate_tokens,
            duplicate_usd: cache.duplicate_pico.map(usd),
            native_agrees: cache.native_agrees,
            helper: cache.helper,
            helper_tokens: cache.helper_tokens,
            helper_usd: cache.helper_pico.map(usd),
            premium_usd: cache.premium_pico.map(usd),
        }
    }
}

/// What a developer can do about it, in a sentence.
pub(in crate::cli) fn advice_of(verdict: &Verdict) -> Option<String> {
    let path = verdict.first_changed.as_deref();
    let reason = verdict.reason?;
    Some(advice(
        reason,
        verdict.what,
        path,
        verdict.offset,
        &verdict.detail,
    ))
}
