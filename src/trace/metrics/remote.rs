//! The metrics of the remote stores and of the spools before them.

use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::{Metrics, OTHER, catch_up};

/// Remote stores that get a label of their own.
pub const REMOTE_STORES: [&str; 2] = ["clickhouse", "otlp"];
/// Why a record never reaches its remote store: the words of [`crate::spool::Reason`].
pub const REMOTE_DROPS: [&str; 5] = ["full", "disk", "damaged", "refused", "discarded"];

/// What became of the records for one remote store, as its spool and its forwarder know it. Counts of
/// records go on over restarts, with the spool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Records that wait.
    pub waiting_records: u64,
    /// Bytes that they take on disk.
    pub waiting_bytes: u64,
    /// Bytes that the spool may take.
    pub limit_bytes: u64,
    /// How long the oldest of them has waited, in milliseconds; `None` when nothing waits.
    pub oldest_ms: Option<u64>,
    /// Records that were put into the spool.
    pub appended: u64,
    /// Records that the store has confirmed.
    pub delivered: u64,
    /// Records that never reach the store, by a word of [`REMOTE_DROPS`].
    pub dropped: Vec<(&'static str, u64)>,
    /// Deliveries that failed; each is tried again.
    pub failures: u64,
    /// Whether the store took the last delivery; `None` before the first.
    pub up: Option<bool>,
}

/// What became of spans and of posts of metrics, since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OtlpStats {
    /// Spans that the receiver has taken.
    pub sent: u64,
    /// Spans that it rejected from posts which it took otherwise.
    pub rejected: u64,
    /// Spans that are in no record and were given up.
    pub given_up: u64,
    /// Posts of spans that arrived.
    pub posts: u64,
    /// Posts of spans that failed.
    pub failed_posts: u64,
    /// Posts of metrics that arrived.
    pub metric_posts: u64,
    /// Posts of metrics that failed.
    pub failed_metric_posts: u64,
}

/// Families by store. A store that is not configured has no series in them.
#[derive(Debug)]
pub(super) struct Remote {
    up: IntGaugeVec,
    records: IntGaugeVec,
    bytes: IntGaugeVec,
    limit: IntGaugeVec,
    oldest: GaugeVec,
    appended: IntCounterVec,
    delivered: IntCounterVec,
    dropped: IntCounterVec,
    failures: IntCounterVec,
    spans: IntCounterVec,
    posts: IntCounterVec,
}

impl Remote {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let gauge = |name: &str, help: &str| {
            let metric = IntGaugeVec::new(Opts::new(name, help), &["store"])?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let oldest = Opts::new(
            "prefixgate_spool_oldest_seconds",
            "How long the oldest waiting record has waited; 0 when none waits",
        );
        let oldest = GaugeVec::new(oldest, &["store"])?;
        registry.register(Box::new(oldest.clone()))?;
        Ok(Self {
            up: gauge(
                "prefixgate_remote_up",
                "Whether the remote store took the last delivery",
            )?,
            records: gauge(
                "prefixgate_spool_records",
                "Records that wait on disk for the remote store",
            )?,
            bytes: gauge(
                "prefixgate_spool_bytes",
                "Bytes on disk that wait for the remote store",
            )?,
            limit: gauge(
                "prefixgate_spool_limit_bytes",
                "Bytes that the spool of the remote store may take",
            )?,
            oldest,
            appended: counter(
                "prefixgate_spool_appended_total",
                "Records that were put into the spool",
                &["store"],
            )?,
            delivered: counter(
                "prefixgate_spool_delivered_total",
                "Records that the remote store has confirmed",
                &["store"],
            )?,
            dropped: counter(
                "prefixgate_spool_dropped_total",
                "Records that never reach the remote store, by reason",
                &["store", "reason"],
            )?,
            failures: counter(
                "prefixgate_remote_failures_total",
                "Deliveries to the remote store that failed and are tried again",
                &["store"],
            )?,
            spans: counter(
                "prefixgate_otlp_spans_total",
                "Spans by what became of them: sent, rejected by the receiver, given up",
                &["result"],
            )?,
            posts: counter(
                "prefixgate_otlp_posts_total",
                "Posts to the OTLP receiver by what they held and whether it took them",
                &["signal", "result"],
            )?,
        })
    }
}

fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Metrics {
    /// Takes over what is known of a remote store (`clickhouse`, `otlp`). From the first call on
    /// all of its series exist.
    pub fn remote(&self, store: &str, stats: &RemoteStats) {
        let known = REMOTE_STORES.into_iter().find(|known| *known == store);
        let store = known.unwrap_or(OTHER);
        let remote = &self.remote;
        // Before the first delivery nothing speaks against it.
        let up = stats.up.unwrap_or(true);
        remote.up.with_label_values(&[store]).set(up.into());
        let set = |gauge: &IntGaugeVec, n: u64| gauge.with_label_values(&[store]).set(whole(n));
        set(&remote.records, stats.waiting_records);
        set(&remote.bytes, stats.waiting_bytes);
        set(&remote.limit, stats.limit_bytes);
        let oldest = std::time::Duration::from_millis(stats.oldest_ms.unwrap_or(0));
        remote
            .oldest
            .with_label_values(&[store])
            .set(oldest.as_secs_f64());

        let _alone = self.alone();
        let count = |family: &IntCounterVec, n: u64| {
            catch_up(&family.with_label_values(&[store]), n);
        };
        count(&remote.appended, stats.appended);
        count(&remote.delivered, stats.delivered);
        count(&remote.failures, stats.failures);
        let dropped =
            |reason: &str| -> IntCounter { remote.dropped.with_label_values(&[store, reason]) };
        let mut other = 0;
        for reason in REMOTE_DROPS {
            dropped(reason);
        }
        for (reason, n) in &stats.dropped {
            if REMOTE_DROPS.contains(reason) {
                catch_up(&dropped(reason), *n);
            } else {
                other += n;
            }
        }
        if other > 0 {
            catch_up(&dropped(OTHER), other);
        }
    }

    /// Takes over what the exporter of spans has counted. From the first call on all of its series
    /// exist.
    pub fn otlp(&self, stats: &OtlpStats) {
        let _alone = self.alone();
        let remote = &self.remote;
        for (result, n) in [
            ("sent", stats.sent),
            ("rejected", stats.rejected),
            ("given_up", stats.given_up),
        ] {
            catch_up(&remote.spans.with_label_values(&[result]), n);
        }
        for (signal, result, n) in [
            ("traces", "taken", stats.posts),
            ("traces", "failed", stats.failed_posts),
            ("metrics", "taken", stats.metric_posts),
            ("metrics", "failed", stats.failed_metric_posts),
        ] {
            catch_up(&remote.posts.with_label_values(&[signal, result]), n);
        }
    }
}
