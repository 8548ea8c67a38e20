//! OTLP: spans of runs, turns and tool calls, and metrics by choice, by the conventions for
//! generative AI.
//!
//! Records → [`spans`] (what hangs where) → one POST of protobuf, compressed → the receiver.
//!
//! # What is sent
//!
//! | span | name | kind |
//! |---|---|---|
//! | a run, or a thread of it | `invoke_agent {agent or app}` | internal |
//! | a turn, over all its attempts | `chat {model}` | client |
//! | a tool call whose result is known | `execute_tool {tool}` | internal |
//! | an event (loop, cap, alert) | `{kind} {name}` | internal, without duration |
//!
//! Facts without a convention (verdict, losses, exact cost, guards) stand under `prefixgate.*`.
//! Unknown is left out. There is no prompt text, no tool data and no key in a span.
//!
//! **Events are spans**, not span events, since most of them are known when their span has long been
//! sent; and not log records, since the backends that show agents take traces only.
//!
//! **Ids follow from the records**, so what is sent twice (after an outage, after a kill) is the same
//! span twice. A receiver that keys spans by id keeps one of them; one that appends shows both.
//! The span of a run is sent when the run has been silent for `run_idle`, and again, longer, should
//! it go on.
//!
//! **Sampling** is parent-based: what the client has decided in its `traceparent` holds. Without one
//! the share `sample` of runs is sent, each with everything in it, by the trace id that follows from
//! the run's name: all gateways decide alike.
//!
//! **What a kill loses** is the span of each run that is still open, and attempts that failed and
//! wait for the next one; every record itself lies in the spool until it has arrived.
//!
#![doc = include_str!("otlp/BACKENDS.md")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use crate::clock::Clock;
use crate::config::{Otlp, Upstream};
use crate::proxy::upstream::UpstreamClient;
use crate::trace::Entry;
use crate::trace::metrics::OtlpStats;

mod agents;
mod attr;
mod backends;
mod meter;
mod naming;
mod post;
mod probe;
mod span;
mod tree;

pub use crate::trace::ids::{Context, SpanId, TraceId, traceparent};
pub use agents::{AgentExporter, Report};
pub use backends::{BACKENDS, Backend};
pub use meter::MAX_SERIES;
pub use naming::{Naming, Provider};
pub use post::Failure;
pub use probe::{Fault, Probe, probe};
pub use tree::{CLIENT_RUNS, CLIENT_TURNS, HELD_ATTEMPTS, OPEN_SPANS, spans};

use attr::nanos;
use meter::Meter;
use post::{Post, Taken, Target};
use tree::{Due, Tree};

/// What is kept is looked through at most this often, in milliseconds.
const LOOK_EVERY_MS: i64 = 1_000;
/// What a receiver rejects is logged at most this often, in milliseconds.
const LOG_EVERY_MS: i64 = 60_000;
/// Wait before what is kept is offered again to a receiver that did not take it.
const QUIET: Duration = Duration::from_secs(10);

/// What became of spans and metrics, since the start of the process.
#[derive(Debug, Default)]
pub struct Counts {
    /// Spans that a receiver has taken.
    pub spans: AtomicU64,
    /// Spans that it has rejected from posts it took otherwise.
    pub rejected: AtomicU64,
    /// Spans of runs and of failed attempts that were given up.
    pub given_up: AtomicU64,
    /// Posts of spans that arrived.
    pub posts: AtomicU64,
    /// Posts of spans that failed; what was in them is posted again, unless it was given up.
    pub failures: AtomicU64,
    /// Posts of metrics that arrived.
    pub metrics: AtomicU64,
    /// Posts of metrics that failed; the next one says it all again.
    pub metrics_failures: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64, n: usize) {
        counter.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// As of now, for the metrics.
    #[must_use]
    pub fn stats(&self) -> OtlpStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OtlpStats {
            sent: of(&self.spans),
            rejected: of(&self.rejected),
            given_up: of(&self.given_up),
            posts: of(&self.posts),
            failed_posts: of(&self.failures),
            metric_posts: of(&self.metrics),
            failed_metric_posts: of(&self.metrics_failures),
        }
    }
}

/// The exporter.
pub struct Exporter {
    post: Post,
    traces: Target,
    metrics: Option<Target>,
    metrics_every: i64,
    metrics_due: i64,
    idle_ms: i64,
    batch: usize,
    resource: Resource,
    naming: Naming,
    tree: Tree,
    meter: Meter,
    clock: Clock,
    counts: Arc<Counts>,
    looked_ms: i64,
    quiet_until: i64,
    logged_ms: Option<i64>,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("traces", &self.traces)
            .finish_non_exhaustive()
    }
}

impl Exporter {
    /// One that sends over connections of `client`. `apps` are the applications that metrics tell
    /// apart.
    #[must_use]
    pub fn new(
        settings: &Otlp,
        upstreams: &[Upstream],
        apps: &[String],
        client: UpstreamClient,
        clock: Clock,
    ) -> Self {
        let naming = Naming::new(settings, upstreams);
        let now = clock.utc_ms();
        let every = millis(settings.metrics_interval).max(1);
        Self {
            post: Post::new(client, settings),
            traces: Target {
                uri: settings.traces.clone(),
                headers: settings.headers.clone(),
            },
            metrics: settings.metrics.clone().map(|uri| Target {
                uri,
                headers: settings
                    .metrics_headers
                    .as_ref()
                    .unwrap_or(&settings.headers)
                    .clone(),
            }),
            metrics_every: every,
            metrics_due: now.saturating_add(every),
            idle_ms: millis(settings.run_idle),
            batch: settings.batch_spans.max(1),
            resource: resource(&settings.resource),
            tree: Tree::new(naming.clone()),
            meter: Meter::new(now, &naming, apps),
            naming,
            clock,
            counts: Arc::default(),
            looked_ms: i64::MIN,
            quiet_until: i64::MIN,
            logged_ms: None,
        }
    }

    /// What became of everything so far.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Sends what these records give. Nothing is remembered of records that did not arrive, so the
    /// same ones may come again.
    ///
    /// # Errors
    /// The receiver did not take them: see [`Failure`].
    pub async fn deliver_entries(&mut self, entries: Vec<Entry>) -> Result<(), Failure> {
        let now = self.clock.utc_ms();
        let mut plan = self.tree.plan(&entries, now);
        let spans = std::mem::take(&mut plan.spans);
        self.send(spans, now).await?;
        self.quiet_until = i64::MIN;
        self.meter.add(&entries, &self.naming);
        self.tree.commit(plan);
        self.tend(now, false).await;
        Ok(())
    }

    /// To be called about once a second and, with `ending`, when nothing more will come: sends the
    /// spans of runs that are over, and metrics when it is their time. At the end everything is
    /// offered once.
    pub async fn idle(&mut self, now_ms: i64, ending: bool) {
        self.tend(now_ms, ending).await;
    }

    async fn tend(&mut self, now: i64, ending: bool) {
        if ending || now >= self.quiet_until {
            self.send_due(now, ending).await;
        }
        if self.metrics.is_some() && (ending || now >= self.metrics_due) {
            // Missed intervals are not made up for: what is cumulative has lost nothing.
            self.metrics_due = now.saturating_add(self.metrics_every);
            self.send_metrics(now).await;
        }
    }

    async fn send_due(&mut self, now: i64, ending: bool) {
        if !ending && now.saturating_sub(self.looked_ms) < LOOK_EVERY_MS {
            return;
        }
        self.looked_ms = now;
        let mut due = self.tree.due(now, self.idle_ms, ending);
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(self.batch));
            let (settled, spans): (Vec<Due>, Vec<Span>) = due.into_iter().unzip();
            let count = spans.len();
            match self.send(spans, now).await {
                Ok(()) => self.tree.settle(&settled),
                Err(Failure::Later { why, after }) => {
                    let left = count + rest.len();
                    if ending {
                        Counts::add(&self.counts.given_up, left);
                        tracing::warn!(spans = left, error = %why, "spans of runs were given up at the end");
                    }
                    let quiet = after.unwrap_or(QUIET).max(QUIET);
                    self.quiet_until = now.saturating_add(millis(quiet));
                    return;
                }
                Err(Failure::Refused { why }) => {
                    Counts::add(&self.counts.given_up, count);
                    tracing::warn!(spans = count, error = %why, "spans of runs were refused");
                    self.tree.settle(&settled);
                }
            }
            due = rest;
        }
    }

    async fn send(&mut self, spans: Vec<Span>, now: i64) -> Result<(), Failure> {
        if spans.is_empty() {
            return Ok(());
        }
        let count = spans.len();
        let body = self.export(spans).encode_to_vec();
        match self.post.send(&self.traces, body).await {
            Ok(taken) => {
                let rejected = usize::try_from(taken.rejected)
                    .unwrap_or(usize::MAX)
                    .min(count);
                Counts::add(&self.counts.posts, 1);
                Counts::add(&self.counts.spans, count - rejected);
                Counts::add(&self.counts.rejected, rejected);
                self.heard(&taken, "spans", now);
                Ok(())
            }
            Err(failure) => {
                Counts::add(&self.counts.failures, 1);
                Err(failure)
            }
        }
    }

    async fn send_metrics(&mut self, now: i64) {
        let metrics = self.meter.metrics(nanos(now));
        let Some(target) = self.metrics.as_ref().filter(|_| !metrics.is_empty()) else {
            return;
        };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        match self.post.send(target, request.encode_to_vec()).await {
            Ok(taken) => {
                Counts::add(&self.counts.metrics, 1);
                self.heard(&taken, "data points", now);
            }
            Err(failure) => {
                Counts::add(&self.counts.metrics_failures, 1);
                if self.may_log(now) {
                    tracing::warn!(error = %failure, "metrics were not taken; the next ones hold them too");
                }
            }
        }
    }

    /// Logs what a receiver says of a post that it took.
    fn heard(&mut self, taken: &Taken, what: &str, now: i64) {
        if (taken.rejected > 0 || !taken.message.is_empty()) && self.may_log(now) {
            tracing::warn!(rejected = taken.rejected, what, message = %taken.message,
                "the OTLP receiver took a post in part");
        }
    }

    fn may_log(&mut self, now: i64) -> bool {
        let may = self
            .logged_ms
            .is_none_or(|at| now.saturating_sub(at) >= LOG_EVERY_MS);
        if may {
            self.logged_ms = Some(now);
        }
        may
    }

    fn export(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope()),
                    spans,
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        }
    }
}

fn resource(attributes: &[(String, String)]) -> Resource {
    let mut put = attr::Attributes::default();
    for (key, value) in attributes {
        put.text(key, value.as_str());
    }
    Resource {
        attributes: put.done(),
        ..Resource::default()
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "prefixgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
