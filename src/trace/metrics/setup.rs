//! What is known of a gateway before its first request: how it is set up, and series at zero.
//!
//! A counter that appears with its first event has no increase that Prometheus could see, so all
//! bounded combinations that an alert asks for exist from the start.

use prometheus::{IntGaugeVec, Opts};

use super::guard::{RESULTS, SCOPES};
use super::{ERROR_CLASSES, Metrics, NO_APP, OTHER};
use crate::config::{CachePolicy, CaptureMode, Config};
use crate::guard::caps::{Cap, Limits};
use crate::guard::loops::{Action, Detector};
use crate::prompt_cache::verdict::{Reason, Status};
use crate::trace::capture::Loss;
use crate::trace::{CallStatus, DropReason, Outcome, RequestKind};

/// Labels of `prefixgate_config_info`.
const SETTINGS: [&str; 7] = [
    "cache",
    "loops",
    "caps",
    "clickhouse",
    "otlp",
    "capture",
    "webhooks",
];

pub(super) fn info() -> Result<IntGaugeVec, prometheus::Error> {
    IntGaugeVec::new(
        Opts::new(
            "prefixgate_config_info",
            "Always 1; the labels say how the gateway is set up",
        ),
        &SETTINGS,
    )
}

impl Metrics {
    /// Says how the gateway is set up, and begins with zero what can be counted from then on.
    pub fn announce(&self, config: &Config) {
        let on = |yes: bool| if yes { "on" } else { "off" };
        self.config_info
            .with_label_values(&[
                cache_word(config.cache),
                loops_word(config),
                caps_word(config),
                on(config.clickhouse.is_some()),
                on(config.otlp.is_some()),
                match config.capture.mode {
                    CaptureMode::None => "none",
                    CaptureMode::Redacted => "redacted",
                    CaptureMode::Full => "full",
                },
                on(!config.webhooks.is_empty()),
            ])
            .set(1);
        for upstream in &config.upstreams {
            self.begin_upstream(&upstream.name);
        }
        self.begin_cache();
        self.begin_guards(&config.alerts.cap_levels);
        for reason in DropReason::ALL {
            self.records_dropped.with_label_values(&[reason.as_str()]);
        }
        for why in Loss::ALL {
            self.capture_lost.with_label_values(&[why.as_str()]);
        }
        for status in CallStatus::ALL
            .iter()
            .filter(|s| **s != CallStatus::Pending)
        {
            self.calls.with_label_values(&[status.as_str()]);
        }
        for word in ["asked", "undeclared", "invalid_input"] {
            self.calls.with_label_values(&[word]);
        }
        for agent in ["main", "sub"] {
            self.threads_started.with_label_values(&[agent]);
        }
    }

    fn begin_upstream(&self, upstream: &str) {
        let turn = RequestKind::Turn.as_str();
        for outcome in Outcome::ALL {
            self.requests
                .with_label_values(&[upstream, turn, outcome.as_str()]);
        }
        for class in ERROR_CLASSES {
            self.upstream_errors.with_label_values(&[upstream, class]);
        }
        self.unpriced.with_label_values(&[upstream, OTHER]);
        self.incomplete.with_label_values(&[upstream]);
        self.retries.with_label_values(&[upstream]);
    }

    fn begin_cache(&self) {
        let judged = Status::ALL
            .iter()
            .filter(|status| !matches!(status, Status::Partial | Status::Miss));
        for status in judged {
            self.cache
                .verdicts
                .with_label_values(&[status.as_str(), "none"]);
        }
        let apps = self.apps.iter().map(String::as_str);
        for app in apps.chain([NO_APP, OTHER]) {
            for reason in Reason::ALL {
                let labels = [app, reason.as_str()];
                self.cache.lost_usd.with_label_values(&labels);
                self.cache.lost_tokens.with_label_values(&labels);
            }
        }
        for by in ["client", "added", "planned", "refused"] {
            self.markers.with_label_values(&[by]);
        }
        for agrees in ["yes", "no", "none"] {
            self.cache.native.with_label_values(&[agrees]);
        }
        for helper in ["tool_order", "warm_first", "keep_warm"] {
            self.cache.helper_saved.with_label_values(&[helper]);
            self.cache.helper_overspent.with_label_values(&[helper]);
        }
    }

    fn begin_guards(&self, levels: &[u32]) {
        for detector in Detector::ALL {
            for action in Action::ALL.into_iter().filter(|a| *a != Action::Off) {
                let labels = [detector.as_str(), action.as_str()];
                self.guard.loops.with_label_values(&labels);
            }
        }
        for cap in Cap::ALL {
            for scope in SCOPES {
                self.guard
                    .refusals
                    .with_label_values(&[cap.as_str(), scope]);
            }
            for level in levels {
                let level = self.guard.level_label(*level);
                self.guard.levels.with_label_values(&[cap.as_str(), &level]);
            }
        }
        for result in RESULTS {
            self.guard.alerts.with_label_values(&[result]);
        }
    }
}

const fn cache_word(policy: CachePolicy) -> &'static str {
    match policy {
        CachePolicy::Off => "off",
        CachePolicy::DryRun => "dry-run",
        CachePolicy::Fill => "fill",
        CachePolicy::Replace => "replace",
    }
}

/// The strictest action that any loop can come to, of any application.
fn loops_word(config: &Config) -> &'static str {
    let apps = config.apps.values().filter_map(|app| app.loops.as_ref());
    let policies = apps.chain([&config.loops]);
    let actions = policies.flat_map(|policy| {
        let ladders = Detector::ALL.map(|detector| &policy.rule(detector).ladder);
        ladders.into_iter().flatten().copied()
    });
    let rank = |action: &Action| Action::ALL.iter().position(|one| one == action);
    actions.max_by_key(rank).unwrap_or(Action::Off).as_str()
}

/// Where the books of caps are kept, if there are any caps.
fn caps_word(config: &Config) -> &'static str {
    let caps = &config.caps;
    let apps = config.apps.values().map(|app| &app.run);
    let mut limits = apps.chain([&caps.run, &caps.unnamed, &caps.key]);
    if limits.all(|limits| *limits == Limits::default()) {
        "none"
    } else if caps.redis.is_some() {
        "redis"
    } else {
        "local"
    }
}
