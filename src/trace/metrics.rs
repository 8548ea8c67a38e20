//! The metric set. Every label value comes from a bounded set: configured names, words of this
//! program, and at most [`MAX_MODEL_LABELS`] models that the price data knows.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use prometheus::{
    CounterVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};

use self::cache::Cache;
use self::guard::Guard;
pub use self::guard::LedgerStats;
use self::process::Process;
use self::remote::Remote;
pub use self::remote::{OtlpStats, REMOTE_DROPS, REMOTE_STORES, RemoteStats};
use self::runs::Runs;
use super::capture::{Capture, Loss};
use super::{DropReason, Inspection, Outcome, RequestKind, TurnRecord};

mod cache;
mod guard;
mod process;
mod remote;
mod runs;
mod setup;
#[cfg(test)]
mod tests;

/// Models that get a label of their own; later ones share `other`.
pub const MAX_MODEL_LABELS: usize = 64;
/// The label of everything that is not in a bounded set.
pub const OTHER: &str = "other";
/// The label of requests that name no application.
pub const NO_APP: &str = "";

const SECONDS: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
const OVERHEAD_SECONDS: [f64; 13] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];
/// Classes of errors of an upstream: that it was asked too much (429), that the request was wrong, that
/// it failed, and that it failed inside of a stream that had begun well.
const ERROR_CLASSES: [&str; 4] = ["429", "4xx", "5xx", "in_stream"];

/// All metrics of a gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    turns: IntCounterVec,
    tokens: IntCounterVec,
    cost: CounterVec,
    cost_no_cache: CounterVec,
    unpriced: IntCounterVec,
    incomplete: IntCounterVec,
    duration: HistogramVec,
    first_token: HistogramVec,
    head: HistogramVec,
    overhead: HistogramVec,
    markers: IntCounterVec,
    skipped: IntCounterVec,
    not_inspected: IntCounterVec,
    warnings: IntCounterVec,
    upstream_errors: IntCounterVec,
    calls: IntCounterVec,
    retries: IntCounterVec,
    threads_started: IntCounterVec,
    runs: Runs,
    cache: Cache,
    guard: Guard,
    remote: Remote,
    config_info: IntGaugeVec,
    /// Requests under way.
    pub in_flight: IntGauge,
    /// Open client connections.
    pub connections: IntGauge,
    /// Threads the registry remembers.
    pub threads: IntGauge,
    /// Records that reached the store.
    records_written: IntCounter,
    /// Records that did not, since the queue was full or the store refused.
    records_dropped: IntCounterVec,
    /// Turns whose content was kept.
    captured: IntCounter,
    /// Turns whose content was to be kept, and was not.
    capture_lost: IntCounterVec,
    /// Held while counts of others are taken over: two scrapes at once must not do it twice.
    taking_over: Mutex<()>,
    models: RwLock<HashSet<Arc<str>>>,
    apps: Vec<String>,
}

impl Metrics {
    /// The metric set; `apps` are the applications that get a label of their own.
    ///
    /// # Errors
    /// When a metric is defined twice or with a wrong name: a fault of this program.
    pub fn new(apps: &[String]) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let money = |name: &str, help: &str, labels: &[&str]| {
            let metric = CounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let seconds = |name: &str, help: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let metric = HistogramVec::new(opts, &["upstream"])?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let plain = |name: &str, help: &str| {
            let metric = IntCounter::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let by_model = ["upstream", "model", "app", "outcome"];
        let payer = ["upstream", "model", "app"];
        let metrics = Self {
            requests: counter(
                "prefixgate_requests_total",
                "Requests by what they were for and how they ended",
                &["upstream", "kind", "outcome"],
            )?,
            turns: counter(
                "prefixgate_turns_total",
                "Model requests by how they ended",
                &by_model,
            )?,
            tokens: counter(
                "prefixgate_tokens_total",
                "Tokens in disjoint kinds: uncached, read, write_5m, write_1h, write_30m, write_12h, output",
                &["upstream", "model", "app", "kind"],
            )?,
            cost: money(
                "prefixgate_cost_usd_total",
                "Cost in USD of priced turns, and of requests of our own that keep a prefix warm",
                &payer,
            )?,
            cost_no_cache: money(
                "prefixgate_cost_without_cache_usd_total",
                "What the same turns would have cost without any prompt cache, in USD",
                &payer,
            )?,
            unpriced: counter(
                "prefixgate_unpriced_turns_total",
                "Turns with tokens whose price or usage is unknown",
                &["upstream", "model"],
            )?,
            incomplete: counter(
                "prefixgate_usage_incomplete_total",
                "Turns that ended before the final usage was seen",
                &["upstream"],
            )?,
            duration: seconds(
                "prefixgate_turn_duration_seconds",
                "From the request to the end of the answer",
                &SECONDS,
            )?,
            first_token: seconds(
                "prefixgate_time_to_first_token_seconds",
                "From the request to the first content of the answer",
                &SECONDS,
            )?,
            head: seconds(
                "prefixgate_upstream_head_seconds",
                "From the request to the head of the answer",
                &SECONDS,
            )?,
            overhead: seconds(
                "prefixgate_overhead_seconds",
                "From the last byte of the request to its way upstream",
                &OVERHEAD_SECONDS,
            )?,
            markers: counter(
                "prefixgate_cache_markers_total",
                "Cache breakpoints by who set them: client, added, planned (dry run), refused (the fuse blew)",
                &["by"],
            )?,
            skipped: counter(
                "prefixgate_cache_plan_skipped_total",
                "Turns to which no breakpoint was added, by reason",
                &["reason"],
            )?,
            not_inspected: counter(
                "prefixgate_not_inspected_total",
                "Turns whose body was passed on without being read, by reason",
                &["reason"],
            )?,
            warnings: counter(
                "prefixgate_warnings_total",
                "Warnings on turns",
                &["warning"],
            )?,
            upstream_errors: counter(
                "prefixgate_upstream_errors_total",
                "Errors of the upstream by class: 429, other 4xx, 5xx, in_stream after a good status",
                &["upstream", "class"],
            )?,
            calls: counter(
                "prefixgate_tool_calls_total",
                "Tool calls by how they stand: asked, then ok, failed, unanswered, or incomplete; \
                 undeclared and invalid_input besides",
                &["status"],
            )?,
            retries: counter(
                "prefixgate_retries_total",
                "Turns that repeat the request before them, since the client tried again",
                &["upstream"],
            )?,
            threads_started: counter(
                "prefixgate_threads_started_total",
                "Conversation threads that began, by who began them: main for the user's, sub for \
                 those of sub-agents",
                &["agent"],
            )?,
            runs: Runs::new()?,
            cache: Cache {
                verdicts: counter(
                    "prefixgate_cache_verdicts_total",
                    "Turns by what became of the prompt cache, and why",
                    &["status", "reason"],
                )?,
                lost_tokens: counter(
                    "prefixgate_cache_lost_tokens_total",
                    "Tokens that were in the cache and were not read, by reason",
                    &["app", "reason"],
                )?,
                lost_usd: money(
                    "prefixgate_cache_lost_usd_total",
                    "What those cost more than reading them would have, in USD",
                    &["app", "reason"],
                )?,
                duplicates: plain(
                    "prefixgate_cache_duplicate_writes_total",
                    "Turns that wrote a prefix which another turn was writing at the same time",
                )?,
                native: counter(
                    "prefixgate_native_diagnosis_total",
                    "Turns with a diagnosis of the provider's own, by whether it agrees with the verdict",
                    &["agrees"],
                )?,
                helper_saved: money(
                    "prefixgate_helper_saved_usd_total",
                    "What helpers saved where they did, in USD; what they overspent is to be taken off",
                    &["helper"],
                )?,
                helper_overspent: money(
                    "prefixgate_helper_overspent_usd_total",
                    "What helpers cost where they cost more than they saved, in USD",
                    &["helper"],
                )?,
            },
            guard: Guard::new(&registry)?,
            remote: Remote::new(&registry)?,
            config_info: setup::info()?,
            in_flight: gauge("prefixgate_requests_in_flight", "Requests under way")?,
            connections: gauge("prefixgate_client_connections", "Open client connections")?,
            threads: gauge("prefixgate_threads", "Conversation threads remembered")?,
            records_written: plain("prefixgate_records_written_total", "Records stored")?,
            records_dropped: counter(
                "prefixgate_records_dropped_total",
                "Records that are not in the trace database of this gateway, by reason",
                &["reason"],
            )?,
            captured: plain(
                "prefixgate_captured_turns_total",
                "Turns whose content was written to disk",
            )?,
            capture_lost: counter(
                "prefixgate_capture_lost_total",
                "Turns whose content was to be captured and was not, by reason",
                &["reason"],
            )?,
            taking_over: Mutex::default(),
            models: RwLock::default(),
            apps: apps.to_vec(),
            registry: registry.clone(),
        };
        let build = Opts::new(
            "prefixgate_build_info",
            "Always 1; the version is the label",
        )
        .const_label("version", env!("CARGO_PKG_VERSION"));
        let build = IntGauge::with_opts(build)?;
        build.set(1);
        registry.register(Box::new(build))?;
        registry.register(Box::new(metrics.config_info.clone()))?;
        registry.register(Box::new(metrics.runs.clone()))?;
        registry.register(Box::new(Process::new()?))?;
        Ok(metrics)
    }

    /// The library's registry, for the exposition.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Takes over what the recorder has counted: what was written, and what was dropped for each
    /// reason.
    pub fn records(&self, written: u64, dropped: impl Fn(DropReason) -> u64) {
        let _alone = self.alone();
        catch_up(&self.records_written, written);
        for reason in DropReason::ALL {
            let metric = self.records_dropped.with_label_values(&[reason.as_str()]);
            catch_up(&metric, dropped(reason));
        }
    }

    /// Takes over what the capture of content has counted.
    pub fn capture(&self, capture: &Capture) {
        let _alone = self.alone();
        catch_up(&self.captured, capture.captured());
        for why in Loss::ALL {
            let metric = self.capture_lost.with_label_values(&[why.as_str()]);
            catch_up(&metric, capture.lost(why));
        }
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.taking_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a finished request. `model` is its label in the price data, if it has one.
    pub fn turn(&self, r: &TurnRecord, model: Option<&Arc<str>>) {
        let upstream = r.upstream.as_str();
        self.requests
            .with_label_values(&[upstream, r.kind.as_str(), r.outcome.as_str()])
            .inc();
        if matches!(r.outcome, Outcome::UpstreamError) {
            let class = match r.status {
                Some(429) => "429",
                Some(400..500) => "4xx",
                Some(500..) => "5xx",
                _ => "in_stream",
            };
            self.upstream_errors
                .with_label_values(&[upstream, class])
                .inc();
        }
        self.cache.helper(r);
        if !matches!(r.kind, RequestKind::Turn | RequestKind::KeepWarm) {
            return;
        }
        let model = self.model_label(model);
        let app = self.app_label(r.app.as_deref());
        self.bill(r, &model, app);
        if r.kind != RequestKind::Turn {
            return;
        }
        self.cache.turn(r, app);
        self.runs.heard_of(&r.run_id, Instant::now());
        if r.attempt > 1 {
            self.retries.with_label_values(&[upstream]).inc();
        } else if r.turn == 1 && r.outcome.forwarded() {
            let agent = match (&r.parent_thread, &r.parent_agent) {
                (None, None) => "main",
                _ => "sub",
            };
            self.threads_started.with_label_values(&[agent]).inc();
        }
        self.turns
            .with_label_values(&[upstream, &model, app, r.outcome.as_str()])
            .inc();
        if !r.usage_complete && r.status.is_some_and(|s| s < 400) {
            self.incomplete.with_label_values(&[upstream]).inc();
        }
        let observe = |metric: &HistogramVec, us: Option<u64>| {
            if let Some(us) = us {
                metric
                    .with_label_values(&[upstream])
                    .observe(seconds_of(us));
            }
        };
        observe(&self.duration, Some(r.duration_us));
        observe(&self.first_token, r.first_token_us);
        observe(&self.head, r.head_us);
        observe(&self.overhead, r.overhead_us);
        self.markers
            .with_label_values(&["client"])
            .inc_by(u64::from(r.markers_client));
        let by = if r.dry_run { "planned" } else { "added" };
        self.markers
            .with_label_values(&[by])
            .inc_by(r.markers_added.len() as u64);
        if let Inspection::NotInspected(reason) = r.inspection {
            self.not_inspected.with_label_values(&[reason]).inc();
        }
        for warning in &r.warnings {
            let word = warning.split(':').next().unwrap_or_default();
            self.warnings.with_label_values(&[word]).inc();
        }
    }

    /// Counts tokens and money.
    fn bill(&self, r: &TurnRecord, model: &str, app: &str) {
        let upstream = r.upstream.as_str();
        let kinds = [
            ("uncached", r.usage.uncached),
            ("read", r.usage.read),
            ("write_5m", r.usage.write_5m),
            ("write_1h", r.usage.write_1h),
            ("write_30m", r.usage.write_30m),
            ("write_12h", r.usage.write_12h),
            ("output", r.usage.output),
        ];
        for (kind, count) in kinds {
            if let Some(count) = count.filter(|n| *n > 0) {
                self.tokens
                    .with_label_values(&[upstream, model, app, kind])
                    .inc_by(count);
            }
        }
        match (r.cost_pico, r.cost_no_cache_pico) {
            (Some(cost), no_cache) => {
                self.cost
                    .with_label_values(&[upstream, model, app])
                    .inc_by(usd(cost));
                // Without a cache nothing would be kept warm.
                let without = match r.kind {
                    RequestKind::KeepWarm => 0.0,
                    _ => usd(no_cache.unwrap_or(cost)),
                };
                self.cost_no_cache
                    .with_label_values(&[upstream, model, app])
                    .inc_by(without);
            }
            (None, _) if r.outcome == Outcome::Ok => {
                self.unpriced.with_label_values(&[upstream, model]).inc();
            }
            _ => {}
        }
    }

    /// Counts a turn to which the planner added nothing.
    pub fn plan_skipped(&self, reason: &'static str) {
        self.skipped.with_label_values(&[reason]).inc();
    }

    /// Counts markers of ours that the upstream refused.
    pub fn fuse(&self, markers: usize) {
        self.markers
            .with_label_values(&["refused"])
            .inc_by(markers as u64);
    }

    /// Counts a tool call: `asked`, a word of [`super::CallStatus`], or what is wrong with the call
    /// itself (`undeclared`, `invalid_input`).
    pub fn call(&self, status: &'static str) {
        self.calls.with_label_values(&[status]).inc();
    }

    fn model_label(&self, model: Option<&Arc<str>>) -> Arc<str> {
        let Some(model) = model else {
            return OTHER.into();
        };
        if self.models.read().is_ok_and(|known| known.contains(model)) {
            return model.clone();
        }
        match self.models.write() {
            Ok(mut known) if known.len() < MAX_MODEL_LABELS => {
                known.insert(model.clone());
                model.clone()
            }
            _ => OTHER.into(),
        }
    }

    fn app_label<'a>(&'a self, app: Option<&str>) -> &'a str {
        match app {
            None => NO_APP,
            Some(app) => self
                .apps
                .iter()
                .find(|a| *a == app)
                .map_or(OTHER, String::as_str),
        }
    }
}

/// Brings a counter up to a count that is kept elsewhere. Not for two threads at once.
fn catch_up(metric: &IntCounter, count: u64) {
    metric.inc_by(count.saturating_sub(metric.get()));
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the exposition is floating point; records are exact"
)]
fn usd(pico: u64) -> f64 {
    pico as f64 / 1e12
}

#[expect(clippy::cast_precision_loss, reason = "a duration for a histogram")]
fn seconds_of(us: u64) -> f64 {
    us as f64 / 1e6
}
