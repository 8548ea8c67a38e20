//! The settings of the guards.

use std::time::Duration;

use super::super::file::named;
use super::super::value::{RedisUrl, Span, WebhookUrl};
use super::super::{Config, Policy};
use super::{list, quoted};
use crate::guard::caps::Limits;
use crate::guard::loops::{Action, Detector};
use crate::usage::usd;

/// Takes a section, a key in it, and its value in TOML.
pub(super) type Add<'a> = &'a mut dyn FnMut(&str, &'static str, String);

/// Adds them in the order of the documentation.
pub(super) fn settings(config: &Config, add: Add<'_>) {
    actions("loops", "action", &config.loops, add);
    for detector in Detector::ALL {
        let threshold = config.loops.rule(detector).threshold;
        add("loops", detector.as_str(), threshold.to_string());
    }
    let caps = &config.caps;
    add("caps", "action", quoted(caps.action.word()));
    add("caps", "status", caps.status.to_string());
    add("caps", "reserve", quoted(caps.reserve.word()));
    add("caps", "unpriced", quoted(caps.unpriced.word()));
    add(
        "caps",
        "default_max_tokens",
        caps.default_max_tokens.to_string(),
    );
    add("caps", "headers", caps.headers.to_string());
    add("caps", "zone", quoted(&caps.zone_name));
    if let Some(redis) = &caps.redis {
        add("caps", "redis", quoted(&RedisUrl::masked(redis)));
    }
    add("caps", "redis_down", quoted(caps.redis_down.word()));
    run("caps.run", &caps.run, add);
    run("caps.unnamed", &caps.unnamed, add);
    let key = &caps.key;
    let mut limit = |name, value: Option<String>| {
        if let Some(value) = value {
            add("caps.key", name, value);
        }
    };
    limit("usd_per_day", key.usd_pico.map(usd));
    limit("tokens_per_day", key.tokens.map(|n| n.to_string()));
    limit(
        "requests_per_minute",
        key.requests_per_minute.map(|n| n.to_string()),
    );
    limit("concurrency", key.concurrency.map(|n| n.to_string()));
    for (name, app) in &config.apps {
        let section = &named("app", name);
        if let Some(policy) = &app.loops {
            actions(section, "loops", policy, add);
        }
        if let Some(status) = app.status {
            add(section, "status", status.to_string());
        }
        if let Some(mode) = app.capture {
            add(section, "capture", quoted(mode.word()));
        }
        run(section, &app.run, add);
    }
    alerts(config, add);
    for webhook in &config.webhooks {
        let section = &named("webhook", &webhook.name);
        add(section, "url", quoted(&WebhookUrl::masked(&webhook.url)));
        add(section, "form", quoted(webhook.form.word()));
    }
}

/// One action where it is the same for all detectors, else each its own.
fn actions(section: &str, all: &'static str, policy: &Policy, add: Add<'_>) {
    let first = &policy.same_call.ladder;
    if Detector::ALL
        .iter()
        .all(|detector| policy.rule(*detector).ladder == *first)
    {
        add(section, all, ladder(first));
        return;
    }
    add(section, "same_call_action", ladder(first));
    add(
        section,
        "same_error_action",
        ladder(&policy.same_error.ladder),
    );
    add(section, "cycle_action", ladder(&policy.cycle.ladder));
    add(
        section,
        "no_progress_action",
        ladder(&policy.no_progress.ladder),
    );
}

fn ladder(actions: &[Action]) -> String {
    let words: Vec<&str> = actions.iter().map(|action| action.as_str()).collect();
    match words.as_slice() {
        [word] => quoted(word),
        words => list(words),
    }
}

/// The limits that a run can have, those that are set.
fn run(section: &str, limits: &Limits, add: Add<'_>) {
    let wall = |millis| quoted(&Span::spelled(Duration::from_millis(millis)));
    let set: [(&'static str, Option<String>); 8] = [
        ("turns", limits.turns.map(|n| n.to_string())),
        ("input_tokens", limits.input_tokens.map(|n| n.to_string())),
        ("output_tokens", limits.output_tokens.map(|n| n.to_string())),
        ("tokens", limits.tokens.map(|n| n.to_string())),
        ("usd", limits.usd_pico.map(usd)),
        ("wall_time", limits.wall_ms.map(wall)),
        ("depth", limits.depth.map(|n| n.to_string())),
        ("agents", limits.agents.map(|n| n.to_string())),
    ];
    for (key, value) in set {
        if let Some(value) = value {
            add(section, key, value);
        }
    }
}

fn alerts(config: &Config, add: Add<'_>) {
    let alerts = &config.alerts;
    let levels: Vec<String> = alerts.cap_levels.iter().map(u32::to_string).collect();
    add("alerts", "cap_levels", format!("[{}]", levels.join(", ")));
    add("alerts", "loops", alerts.loops.to_string());
    add("alerts", "unpriced", alerts.unpriced.to_string());
    add("alerts", "store", alerts.store.to_string());
    let set = [
        ("cost_per_hour_usd", alerts.cost_per_hour_pico.map(usd)),
        (
            "hit_ratio_drop",
            alerts.hit_ratio_drop.map(|n| n.to_string()),
        ),
        ("culprit_usd", alerts.culprit_pico.map(usd)),
    ];
    for (key, value) in set {
        if let Some(value) = value {
            add("alerts", key, value);
        }
    }
}
