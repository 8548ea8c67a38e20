//! The metrics of the prompt cache.

use prometheus::{CounterVec, IntCounter, IntCounterVec};

use super::usd;
use crate::prompt_cache::verdict::Reason;
use crate::trace::TurnRecord;

/// The label of a reason or an agreement that there is none of.
const NONE: &str = "none";

/// What became of the prompt cache. Labels are words of this program.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) verdicts: IntCounterVec,
    pub(super) lost_tokens: IntCounterVec,
    pub(super) lost_usd: CounterVec,
    pub(super) duplicates: IntCounter,
    pub(super) native: IntCounterVec,
    pub(super) helper_saved: CounterVec,
    pub(super) helper_overspent: CounterVec,
}

impl Cache {
    /// What the audit says of a turn of an application, by its label.
    pub(super) fn turn(&self, r: &TurnRecord, app: &str) {
        if let Some(verdict) = &r.cache.verdict {
            let reason = verdict.reason.map_or(NONE, Reason::as_str);
            self.verdicts
                .with_label_values(&[verdict.status.as_str(), reason])
                .inc();
            if let Some(lost) = verdict.lost_tokens.filter(|n| *n > 0) {
                self.lost_tokens
                    .with_label_values(&[app, reason])
                    .inc_by(lost);
            }
            if let Some(lost) = verdict.lost_pico.filter(|n| *n > 0) {
                self.lost_usd
                    .with_label_values(&[app, reason])
                    .inc_by(usd(lost));
            }
        }
        if r.cache.duplicate_of.is_some() {
            self.duplicates.inc();
        }
        if r.native_diagnosis.is_some() || r.cache.native_agrees.is_some() {
            let agrees = match r.cache.native_agrees {
                Some(true) => "yes",
                Some(false) => "no",
                None => NONE,
            };
            self.native.with_label_values(&[agrees]).inc();
        }
    }

    /// What a helper saved, on a turn or by a request of its own.
    pub(super) fn helper(&self, r: &TurnRecord) {
        let Some((helper, pico)) = r.cache.helper.zip(r.cache.helper_pico) else {
            return;
        };
        let metric = if pico < 0 {
            &self.helper_overspent
        } else {
            &self.helper_saved
        };
        metric
            .with_label_values(&[helper])
            .inc_by(usd(pico.unsigned_abs()));
    }
}
