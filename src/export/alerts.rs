//! Alerts by webhook: what is worth telling, in which form, and how it gets there.
//!
//! Notices of the request path (`trace::AlertSender`) → [`Watch`] (what is told, each thing once)
//! → [`Alert`] → a bounded queue for each webhook → one POST, tried again for a while. None of it
//! can make a request wait: what finds a queue full is dropped and counted.
//!
//! # The JSON form
//!
//! One flat object. A key without a value is left out; new keys may come, `version` changes when
//! the meaning of one does.
//!
//! | key | meaning |
//! |---|---|
//! | `version` | 1 |
//! | `id` | UUIDv7; that of the record in the trace database, where there is one |
//! | `kind` | `cap_level`, `cap_refused`, `cap_unenforced`, `loop`, `cost_rate`, `hit_ratio`, `culprit`, `unpriced`, `store`, `test` |
//! | `severity` | `info`, `warning`, `critical` |
//! | `at`, `at_ms` | when it happened: RFC 3339, and UTC milliseconds |
//! | `title` | one sentence for people; its wording may change |
//! | `run`, `thread`, `app` | what it concerns |
//! | `value`, `limit`, `unit` | the amount and its threshold: exact decimals, as strings, in this unit |
//! | `usd` | what it has cost: an exact decimal, as a string |
//! | `scope`, `cap`, `level` | of a cap; `scope` is `run`, `key` or `unnamed`, `level` is in percent |
//! | `action` | what was done: `refused`, or the step of a loop's ladder |
//! | `detector`, `tools`, `count`, `threshold` | of a loop |
//! | `model` | that has no price |
//! | `path` | that breaks the prompt cache |
//! | `ratio_before`, `ratio_now` | hit ratios in percent, exact decimals as strings |
//! | `dropped_in_all` | records dropped since the start |
//!
//! There is no prompt text, no tool data and no key in an alert.

mod alert;
mod form;
mod post;
#[cfg(test)]
mod samples;
mod send;
mod watch;

pub use alert::{Alert, Amount, Kind, Severity, Unit};
pub use post::{Post, Reply};
pub use send::{Hooks, Sending, start};
pub use watch::Watch;

use crate::config::Config;

/// Whether the alerts have anything to do: there is a webhook, or a threshold is set whose alerts
/// are recorded also when they are sent nowhere.
///
/// What is told without being asked for (models without a price, dropped records) is no reason of
/// its own: without a webhook the metrics say as much.
#[must_use]
pub fn wanted(config: &Config) -> bool {
    let alerts = &config.alerts;
    !config.webhooks.is_empty()
        || alerts.cost_per_hour_pico.is_some()
        || alerts.hit_ratio_drop.is_some()
        || alerts.culprit_pico.is_some()
}
