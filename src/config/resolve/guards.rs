//! Loops, caps, applications, alerts and webhooks.

use jiff::tz::TimeZone;

use super::super::error::shown;
use super::super::file::{self, Entry, Located, named};
use super::super::options::{Options, VARIABLES};
use super::super::value::Ladder;
use super::super::{App, Config, Webhook};
use super::settings::{APP_MAX_CHARS, is_name};
use super::{Picked, Resolver, text};
use crate::guard::caps::Limits;
use crate::guard::loops::{Detector, Policy};

/// Every alert goes to each of them.
const WEBHOOKS_MAX: usize = 16;
/// Statuses on which SDKs send the same request again, whatever the answer says beside it.
const RETRIED: [u16; 3] = [408, 409, 429];
/// The limits of `[caps.run]` that hold for what names no run, unless `[caps.unnamed]` has its own.
const INHERITED: [&str; 5] = ["turns", "input_tokens", "output_tokens", "tokens", "usd"];

/// The limits of a run, as a section has them.
macro_rules! run_limits {
    ($resolver:ident, $path:expr, $section:ident) => {
        Limits {
            turns: $resolver.plain($path, "turns", $section.turns).map(|n| n.0),
            input_tokens: $resolver
                .plain($path, "input_tokens", $section.input_tokens)
                .map(|n| n.0),
            output_tokens: $resolver
                .plain($path, "output_tokens", $section.output_tokens)
                .map(|n| n.0),
            tokens: $resolver
                .plain($path, "tokens", $section.tokens)
                .map(|n| n.0),
            usd_pico: $resolver.plain($path, "usd", $section.usd).map(|n| n.0),
            wall_ms: $resolver
                .plain($path, "wall_time", $section.wall_time)
                .map(|n| n.0),
            depth: $resolver.plain($path, "depth", $section.depth).map(|n| n.0),
            agents: $resolver
                .plain($path, "agents", $section.agents)
                .map(|n| n.0),
            ..Limits::default()
        }
    };
}

/// A detector's key for its own action.
const fn action_key(detector: Detector) -> &'static str {
    match detector {
        Detector::SameCall => "same_call_action",
        Detector::SameError => "same_error_action",
        Detector::Cycle => "cycle_action",
        Detector::NoProgress => "no_progress_action",
    }
}

impl Resolver<'_> {
    pub(super) fn loops(&mut self, config: &mut Config, options: &Options, typed: file::Loops) {
        let action = self.above(
            "loops.action",
            typed.action,
            text("--loops", &options.guards.loops),
            VARIABLES[9],
        );
        let thresholds = [
            (Detector::SameCall, typed.same_call),
            (Detector::SameError, typed.same_error),
            (Detector::Cycle, typed.cycle),
            (Detector::NoProgress, typed.no_progress),
        ];
        for (detector, typed) in thresholds {
            if let Some(threshold) = self.plain("loops", detector.as_str(), typed) {
                config.loops.rule_mut(detector).threshold = threshold.0;
            }
        }
        let own = [
            (Detector::SameCall, typed.same_call_action),
            (Detector::SameError, typed.same_error_action),
            (Detector::Cycle, typed.cycle_action),
            (Detector::NoProgress, typed.no_progress_action),
        ];
        self.ladders("loops", "action", &mut config.loops, action, own);
    }

    /// Puts a section's actions into a policy: the one of `all`, then those of single detectors.
    /// Returns whether there were any.
    fn ladders(
        &mut self,
        path: &str,
        all: &str,
        policy: &mut Policy,
        action: Option<Picked<Ladder>>,
        own: [(Detector, Option<Located<Ladder>>); 4],
    ) -> bool {
        let mut any = action.is_some();
        let inherited = action.as_ref().map(|action| action.origin.clone());
        if let Some(Picked { value, .. }) = action {
            for detector in Detector::ALL {
                policy.rule_mut(detector).ladder.clone_from(&value.0);
            }
        }
        for (detector, typed) in own {
            let key = format!("{path}.{}", action_key(detector));
            if let Some(picked) = self.in_file(&key, typed) {
                policy.rule_mut(detector).ladder = picked.value.0;
                any = true;
            } else if let Some(origin) = &inherited {
                self.origins.insert(key, origin.clone());
            }
        }
        // Where single actions come to the same for all, that is how they are shown.
        let key = format!("{path}.{all}");
        let first = self.origins.get(&format!("{path}.same_call_action"));
        if let (false, Some(first)) = (self.origins.contains_key(&key), first.cloned()) {
            self.origins.insert(key, first);
        }
        any
    }

    pub(super) fn caps(&mut self, config: &mut Config, typed: file::Caps) {
        let caps = &mut config.caps;
        if let Some(action) = self.plain("caps", "action", typed.action) {
            caps.action = action;
        }
        if let Some(status) = self.in_file("caps.status", typed.status) {
            caps.status = status.value.0;
            self.retried("caps.status", caps.status);
        }
        if let Some(reserve) = self.plain("caps", "reserve", typed.reserve) {
            caps.reserve = reserve;
        }
        if let Some(unpriced) = self.plain("caps", "unpriced", typed.unpriced) {
            caps.unpriced = unpriced;
        }
        if let Some(tokens) = self.plain("caps", "default_max_tokens", typed.default_max_tokens) {
            caps.default_max_tokens = tokens.0;
        }
        if let Some(headers) = self.plain("caps", "headers", typed.headers) {
            caps.headers = headers;
        }
        if let Some(zone) = self.in_file("caps.zone", typed.zone) {
            match TimeZone::get(&zone.value) {
                Ok(found) => {
                    caps.zone_name = found.iana_name().unwrap_or(&zone.value).to_owned();
                    caps.zone = found;
                }
                Err(_) => {
                    let allowed = "must be a name of the time-zone database, such as \"Europe/Berlin\" or \"UTC\"";
                    self.wrong(&zone.origin, "caps.zone", &zone.shown, allowed);
                }
            }
        }
        if let Some(redis) = self.plain("caps", "redis", typed.redis) {
            caps.redis = Some(redis.0);
        }
        if let Some(down) = self.plain("caps", "redis_down", typed.redis_down) {
            caps.redis_down = down;
        }
    }

    pub(super) fn run_caps(
        &mut self,
        config: &mut Config,
        options: &Options,
        typed: file::RunCaps,
    ) {
        let flags = &options.guards;
        let (turns, usd, tokens) = (typed.turns, typed.usd, typed.tokens);
        let rest = file::RunCaps {
            turns: None,
            usd: None,
            tokens: None,
            ..typed
        };
        config.caps.run = run_limits!(self, "caps.run", rest);
        let limits = &mut config.caps.run;
        limits.turns = self
            .above(
                "caps.run.turns",
                turns,
                text("--max-turns", &flags.max_turns),
                VARIABLES[6],
            )
            .map(|picked| picked.value.0);
        limits.usd_pico = self
            .above(
                "caps.run.usd",
                usd,
                text("--max-usd", &flags.max_usd),
                VARIABLES[7],
            )
            .map(|picked| picked.value.0);
        limits.tokens = self
            .above(
                "caps.run.tokens",
                tokens,
                text("--max-tokens", &flags.max_tokens),
                VARIABLES[8],
            )
            .map(|picked| picked.value.0);
    }

    /// After the limits of runs: what is not set here is as there. Wall time, depth and agents are
    /// things of a run, and a day of requests without one has none.
    pub(super) fn unnamed_caps(&mut self, config: &mut Config, typed: file::UnnamedCaps) {
        let path = "caps.unnamed";
        let run = config.caps.run;
        let limit = |own: Option<u64>, inherited: Option<u64>| own.or(inherited);
        config.caps.unnamed = Limits {
            turns: limit(
                self.plain(path, "turns", typed.turns).map(|n| n.0),
                run.turns,
            ),
            input_tokens: limit(
                self.plain(path, "input_tokens", typed.input_tokens)
                    .map(|n| n.0),
                run.input_tokens,
            ),
            output_tokens: limit(
                self.plain(path, "output_tokens", typed.output_tokens)
                    .map(|n| n.0),
                run.output_tokens,
            ),
            tokens: limit(
                self.plain(path, "tokens", typed.tokens).map(|n| n.0),
                run.tokens,
            ),
            usd_pico: limit(
                self.plain(path, "usd", typed.usd).map(|n| n.0),
                run.usd_pico,
            ),
            ..Limits::default()
        };
        for key in INHERITED {
            let origin = self.origins.get(&format!("caps.run.{key}")).cloned();
            if let Some(origin) = origin {
                let key = format!("{path}.{key}");
                self.origins.entry(key).or_insert(origin);
            }
        }
    }

    pub(super) fn key_caps(&mut self, config: &mut Config, typed: file::KeyCaps) {
        let path = "caps.key";
        config.caps.key = Limits {
            usd_pico: self
                .plain(path, "usd_per_day", typed.usd_per_day)
                .map(|n| n.0),
            tokens: self
                .plain(path, "tokens_per_day", typed.tokens_per_day)
                .map(|n| n.0),
            requests_per_minute: self
                .plain(path, "requests_per_minute", typed.requests_per_minute)
                .map(|n| n.0),
            concurrency: self
                .plain(path, "concurrency", typed.concurrency)
                .map(|n| n.0),
            ..Limits::default()
        };
    }

    /// After `[loops]`: what an application does not say of loops is as there.
    pub(super) fn app_sections(&mut self, config: &mut Config, typed: Vec<Entry<file::App>>) {
        for Entry {
            name,
            line,
            section,
        } in typed
        {
            if !self.has_name(line, "an application", &name) {
                continue;
            }
            let path = &named("app", &name);
            let mut policy = config.loops.clone();
            let all = self.in_file(&format!("{path}.loops"), section.loops);
            let own = [
                (Detector::SameCall, section.same_call_action),
                (Detector::SameError, section.same_error_action),
                (Detector::Cycle, section.cycle_action),
                (Detector::NoProgress, section.no_progress_action),
            ];
            let any = self.ladders(path, "loops", &mut policy, all, own);
            let status = self.plain(path, "status", section.status).map(|n| n.0);
            if let Some(status) = status {
                self.retried(&format!("{path}.status"), status);
            }
            let capture = self.plain(path, "capture", section.capture);
            let app = App {
                loops: any.then_some(policy),
                run: run_limits!(self, path, section),
                status,
                capture,
            };
            config.apps.insert(name, app);
        }
    }

    pub(super) fn alerts(&mut self, config: &mut Config, typed: file::Alerts) {
        let alerts = &mut config.alerts;
        if let Some(levels) = self.plain("alerts", "cap_levels", typed.cap_levels) {
            alerts.cap_levels = levels.0;
        }
        let switches = [
            ("loops", typed.loops, &mut alerts.loops),
            ("unpriced", typed.unpriced, &mut alerts.unpriced),
            ("store", typed.store, &mut alerts.store),
        ];
        for (key, typed, into) in switches {
            if let Some(on) = self.plain("alerts", key, typed) {
                *into = on;
            }
        }
        alerts.cost_per_hour_pico = self
            .plain("alerts", "cost_per_hour_usd", typed.cost_per_hour_usd)
            .map(|money| money.0);
        alerts.hit_ratio_drop = self
            .plain("alerts", "hit_ratio_drop", typed.hit_ratio_drop)
            .map(|points| points.0);
        alerts.culprit_pico = self
            .plain("alerts", "culprit_usd", typed.culprit_usd)
            .map(|money| money.0);
    }

    pub(super) fn webhooks(&mut self, config: &mut Config, typed: Vec<Entry<file::Webhook>>) {
        if let Some(beyond) = typed.get(WEBHOOKS_MAX) {
            let message = format!("at most {WEBHOOKS_MAX} webhooks: every alert goes to each");
            self.problem_in_file(beyond.line, message);
        }
        for Entry {
            name,
            line,
            section,
        } in typed.into_iter().take(WEBHOOKS_MAX)
        {
            if !self.has_name(line, "a webhook", &name) {
                continue;
            }
            let path = &named("webhook", &name);
            let url = self.plain(path, "url", section.url);
            let form = self.plain(path, "form", section.form);
            if let (Some(url), Some(form)) = (url, form) {
                config.webhooks.push(Webhook {
                    name,
                    url: url.0,
                    form,
                });
            } else if !(section.typed.contains(&"url") && section.typed.contains(&"form")) {
                let message = format!(
                    "[{path}] needs both `url` and `form` (form: \"json\" for all of an alert, \"slack\" for a message)"
                );
                self.problem_in_file(line, message);
            }
        }
    }

    /// The value of a setting that only the file has.
    fn plain<T>(&mut self, path: &str, key: &str, typed: Option<Located<T>>) -> Option<T> {
        let picked = self.in_file(&format!("{path}.{key}"), typed)?;
        Some(picked.value)
    }

    fn has_name(&mut self, line: usize, whose: &str, name: &str) -> bool {
        let good = is_name(name);
        if !good {
            let message = format!(
                "the name of {whose} must be 1 to {APP_MAX_CHARS} letters, digits, `.`, `_` and `-`; {:?} is not",
                shown(name)
            );
            self.problem_in_file(line, message);
        }
        good
    }

    fn retried(&mut self, key: &str, status: u16) {
        if RETRIED.contains(&status) {
            self.warnings.push(format!(
                "{key} = {status}: clients send the same request again on this status; 400 or 403 ends a run"
            ));
        }
    }
}
