//! What is told, and that each thing is told once.

use jiff::tz::TimeZone;

use super::alert::{Alert, Amount, Kind, Severity, Unit, name};
use crate::bounded::Bounded;
use crate::config::Alerts;
use crate::store::generalised;
use crate::trace::{Digest, Notice, RequestKind};
use crate::usage::Usage;

use self::events::Events;
use self::rates::{Latch, MINUTE_MS, Minutes, Reading};
use self::remotes::Remotes;

mod events;
mod rates;
mod remotes;
#[cfg(test)]
mod tests;

/// Tokens that both the last 15 minutes and the hour before must have for their hit ratios to be
/// compared: below that a single request decides.
const MIN_RATIO_TOKENS: u64 = 200_000;
/// A threshold is armed again once the value has stayed below this share of it, in percent.
const CALM_PERCENT: u64 = 80;
/// Losses that are added up at the same time, each of one path in one run.
const MAX_LOSSES: usize = 4_096;
/// Culprits that are remembered as told.
const MAX_CULPRITS: usize = 1_024;
/// A culprit is told again after this time.
const CULPRIT_MS: i64 = 24 * 60 * 60_000;
/// Models without a price that are remembered as told.
const MAX_UNPRICED: usize = 256;
/// Dropped records are told at most once in this time.
const STORE_MS: i64 = 10 * 60_000;

/// Turns notices into alerts. No I/O; time is passed in.
#[derive(Debug)]
pub struct Watch {
    settings: Alerts,
    events: Events,
    minutes: Minutes,
    /// The minute of the notice before.
    minute: Option<i64>,
    cost: Latch,
    ratio: Latch,
    /// Pico-USD by run and path.
    losses: Bounded<(String, String), u64>,
    /// When a path of an application was told.
    culprits: Bounded<(String, Option<String>), i64>,
    unpriced: Bounded<String, ()>,
    dropped: Dropped,
    remotes: Remotes,
}

/// Dropped records.
#[derive(Debug, Default)]
struct Dropped {
    /// Of which it has been told.
    told: u64,
    /// When.
    told_ms: Option<i64>,
}

/// Hit ratios in hundredths of a percent.
struct Ratios {
    before: u64,
    now: u64,
}

impl Watch {
    /// By these settings; the days of caps begin and end in this zone.
    #[must_use]
    pub fn new(settings: &Alerts, zone: TimeZone) -> Self {
        Self {
            settings: settings.clone(),
            events: Events::new(zone),
            minutes: Minutes::default(),
            minute: None,
            cost: Latch::default(),
            ratio: Latch::default(),
            losses: Bounded::new(MAX_LOSSES),
            culprits: Bounded::new(MAX_CULPRITS),
            unpriced: Bounded::new(MAX_UNPRICED),
            dropped: Dropped::default(),
            remotes: Remotes::default(),
        }
    }

    /// What is to be told after this. `now_ms` is in UTC milliseconds.
    pub fn hear(&mut self, notice: &Notice, now_ms: i64) -> Vec<Alert> {
        match notice {
            Notice::Event(event) => self
                .events
                .hear(event, &self.settings)
                .into_iter()
                .collect(),
            Notice::Turn(digest) => self.turn(digest, now_ms),
            Notice::Remote(standing) if self.settings.store => self.remotes.hear(standing),
            Notice::Remote(_) => Vec::new(),
        }
    }

    fn turn(&mut self, digest: &Digest, now_ms: i64) -> Vec<Alert> {
        self.pass_to(now_ms.div_euclid(MINUTE_MS));
        let at_ms = digest.at_ms.min(now_ms);
        let prompt = digest.usage.prompt().zip(digest.usage.read);
        // What the gateway itself sends to keep a prefix warm only reads.
        let prompt = prompt.filter(|_| digest.kind == RequestKind::Turn);
        let cost = digest.cost_pico.unwrap_or(0);
        self.minutes.add(at_ms.div_euclid(MINUTE_MS), cost, prompt);
        [
            self.cost_rate(now_ms),
            self.hit_ratio(now_ms),
            self.culprit(digest, now_ms),
            self.unpriced(digest, now_ms),
            self.store(digest, now_ms),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Lets the minutes without a notice pass: in them a rate may have become calm.
    fn pass_to(&mut self, minute: i64) {
        let before = self.minute.replace(minute).unwrap_or(minute);
        // After that long nothing is left of what was before.
        let first = before.max(minute - rates::KEPT - rates::CALM_MINUTES);
        for passed in first + 1..=minute {
            if self.cost.is_told()
                && let Some((_, reading)) = self.cost_reading(passed)
            {
                self.cost.step(reading, passed);
            }
            if self.ratio.is_told()
                && let Some((_, reading)) = self.ratio_reading(passed)
            {
                self.ratio.step(reading, passed);
            }
        }
    }

    fn cost_reading(&self, minute: i64) -> Option<(u64, Reading)> {
        let limit = self.settings.cost_per_hour_pico?;
        let sum = self.minutes.cost_of_hour(minute);
        Some((sum, reading(sum, limit)))
    }

    fn cost_rate(&mut self, now_ms: i64) -> Option<Alert> {
        let minute = now_ms.div_euclid(MINUTE_MS);
        let (sum, reading) = self.cost_reading(minute)?;
        if !self.cost.step(reading, minute) {
            return None;
        }
        let amount = Amount {
            value: Some(sum),
            limit: self.settings.cost_per_hour_pico,
            unit: Unit::Usd,
        };
        let title = format!(
            "The requests of the last hour cost {}",
            amount.text().unwrap_or_default()
        );
        Some(Alert {
            amount: Some(amount),
            ..Alert::own(Kind::CostRate, Severity::Warning, now_ms, &title)
        })
    }

    /// `None` where it is not asked for, or too little is known.
    fn ratio_reading(&self, minute: i64) -> Option<(Ratios, Reading)> {
        let points = self.settings.hit_ratio_drop?;
        let (recent, before) = self.minutes.recent_and_before(minute);
        let known = |tokens: rates::Prompts| {
            (tokens.all >= MIN_RATIO_TOKENS).then(|| tokens.read_of_ten_thousand())
        };
        let ratios = Ratios {
            before: known(before)?,
            now: known(recent)?,
        };
        let reading = reading(ratios.drop(), u64::from(points) * 100);
        Some((ratios, reading))
    }

    fn hit_ratio(&mut self, now_ms: i64) -> Option<Alert> {
        let minute = now_ms.div_euclid(MINUTE_MS);
        let (ratios, reading) = self.ratio_reading(minute)?;
        if !self.ratio.step(reading, minute) {
            return None;
        }
        let percent = |ratio| Unit::Points.decimal(ratio);
        let (before, now) = (percent(ratios.before), percent(ratios.now));
        let title = format!(
            "The cache-hit ratio of the last 15 minutes is {now} %, in the hour before it was {before} %"
        );
        let limit = self.settings.hit_ratio_drop;
        let alert = Alert {
            amount: Some(Amount {
                value: Some(ratios.drop()),
                limit: limit.map(|points| u64::from(points) * 100),
                unit: Unit::Points,
            }),
            ..Alert::own(Kind::HitRatio, Severity::Warning, now_ms, &title)
        };
        Some(alert.with("ratio_before", before).with("ratio_now", now))
    }

    fn culprit(&mut self, digest: &Digest, now_ms: i64) -> Option<Alert> {
        let limit = self.settings.culprit_pico?;
        let (path, loss) = digest.culprit.as_ref()?;
        let (path, run) = (name(&generalised(path)), name(&digest.run_id));
        let app = digest.app.as_deref().map(name);
        let key = (run.clone(), path.clone());
        let sum = self.losses.get(&key).map_or(0, |sum| *sum);
        let sum = sum.saturating_add(*loss);
        self.losses.insert(key, sum);
        if sum < limit {
            return None;
        }
        let culprit = (path.clone(), app.clone());
        let told = self.culprits.get(&culprit);
        if told.is_some_and(|told_ms| now_ms - told_ms < CULPRIT_MS) {
            return None;
        }
        self.culprits.insert(culprit, now_ms);
        let amount = Amount {
            value: Some(sum),
            limit: Some(limit),
            unit: Unit::Usd,
        };
        let cost = Unit::Usd.decimal(sum);
        let title =
            format!("Changes at {path} break the prompt cache: {cost} USD lost in run {run}");
        let alert = Alert {
            run: Some(run),
            app,
            amount: Some(amount),
            pico: Some(sum),
            ..Alert::own(Kind::Culprit, Severity::Warning, now_ms, &title)
        };
        Some(alert.with("path", path))
    }

    fn unpriced(&mut self, digest: &Digest, now_ms: i64) -> Option<Alert> {
        // A request that failed names whatever model it likes, and costs nothing.
        if !self.settings.unpriced || !digest.unpriced || digest.usage == Usage::default() {
            return None;
        }
        let model = name(digest.model.as_ref()?);
        if self.unpriced.touch(&model).is_some() {
            return None;
        }
        self.unpriced.insert(model.clone(), ());
        let title = format!("Model {model} has no price: what it costs is unknown");
        let alert = Alert {
            app: digest.app.as_deref().map(name),
            run: Some(name(&digest.run_id)),
            ..Alert::own(Kind::Unpriced, Severity::Warning, now_ms, &title)
        };
        Some(alert.with("model", model))
    }

    fn store(&mut self, digest: &Digest, now_ms: i64) -> Option<Alert> {
        let lately = self
            .dropped
            .told_ms
            .is_some_and(|told_ms| now_ms - told_ms < STORE_MS);
        if !self.settings.store || lately {
            return None;
        }
        let new = digest
            .dropped
            .checked_sub(self.dropped.told)
            .filter(|new| *new > 0)?;
        self.dropped = Dropped {
            told: digest.dropped,
            told_ms: Some(now_ms),
        };
        let title = format!("{new} records were dropped: the trace database does not have them");
        let alert = Alert {
            amount: Some(Amount {
                value: Some(new),
                limit: None,
                unit: Unit::Records,
            }),
            ..Alert::own(Kind::Store, Severity::Critical, now_ms, &title)
        };
        Some(alert.with("dropped_in_all", digest.dropped))
    }
}

impl Ratios {
    fn drop(&self) -> u64 {
        self.before.saturating_sub(self.now)
    }
}

fn reading(value: u64, limit: u64) -> Reading {
    if value >= limit {
        Reading::Reached
    } else if u128::from(value) * 100 < u128::from(limit) * u128::from(CALM_PERCENT) {
        Reading::Calm
    } else {
        Reading::Between
    }
}
