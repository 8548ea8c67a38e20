//! The remote stores: a spool before each, a task that empties it, and what is told of both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::config::{Config, SpoolFull};
use crate::export::otlp::{Counts, Exporter};
use crate::proxy::upstream::UpstreamClient;
use crate::spool::{
    self, Batch, Deliver, Failure, Forwarder, Full, Hooks, Limits, Most, Progress, Reader, Reason,
    Settings, Writer,
};
use crate::store::ClickHouseSink;
use crate::trace::metrics::RemoteStats;
use crate::trace::{AlertSender, Entry, Notice, Outlet, Standing};

/// ClickHouse's name in directories, logs, metrics and alerts.
pub(crate) const CLICKHOUSE: &str = "clickhouse";
/// The name of the receiver of spans there.
pub(crate) const OTLP: &str = "otlp";
/// How long one attempt to insert may take.
const INSERT_TIME: Duration = Duration::from_secs(60);
/// How many posts one attempt to send spans has time for: what a batch gives may be more than one.
const POSTS: u32 = 6;
/// Most bytes of records that become the spans of one delivery.
const OTLP_BYTES: usize = 4 << 20;
/// How often alerts hear how it stands.
const STANDING_EVERY: Duration = Duration::from_secs(10);
/// After the last record: how long stores are still given what waits. The rest waits for the next start.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// Where the spool of a store lies.
#[must_use]
pub(crate) fn spool_dir(data_dir: &Path, store: &str) -> PathBuf {
    data_dir.join("spool").join(store)
}

/// The bounds of a spool, as configured.
#[must_use]
pub(crate) fn limits(config: &Config) -> Limits {
    let full = match config.spool.full {
        SpoolFull::DropOldest => Full::DropOldest,
        SpoolFull::DropNewest => Full::DropNewest,
    };
    Limits::new(config.spool.max_bytes, full)
}

/// The recorder's side of a spool.
struct Spooled(Writer);

impl Outlet for Spooled {
    fn take(&mut self, records: &[&[u8]]) {
        // What it could not keep it has counted.
        let _ = self.0.append(records);
    }
}

/// Spools that are open, before anything is sent.
#[derive(Debug, Default)]
pub(super) struct Spools {
    clickhouse: Option<Reader>,
    otlp: Option<Reader>,
}

/// Opens a spool for each store that is configured.
pub(super) fn open(
    config: &Config,
    clock: &Clock,
) -> anyhow::Result<(Vec<Box<dyn Outlet>>, Spools)> {
    let mut outlets: Vec<Box<dyn Outlet>> = Vec::new();
    let mut open = |store: &str| -> anyhow::Result<Reader> {
        let dir = spool_dir(&config.data_dir, store);
        let (writer, reader) = spool::open_at(&dir, limits(config), clock.clone())
            .with_context(|| format!("cannot open the spool for {store} in {}", dir.display()))?;
        outlets.push(Box::new(Spooled(writer)));
        Ok(reader)
    };
    let spools = Spools {
        clickhouse: config
            .clickhouse
            .as_ref()
            .map(|_| open(CLICKHOUSE))
            .transpose()?,
        otlp: config.otlp.as_ref().map(|_| open(OTLP)).transpose()?,
    };
    Ok((outlets, spools))
}

/// The tasks that empty the spools.
#[derive(Debug)]
pub(super) struct Remotes {
    forwarders: Vec<Forwarder>,
    telling: Option<JoinHandle<()>>,
    /// How the stores stand.
    pub(super) view: View,
}

/// How the stores stand. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// How each of them goes.
    pub(super) progress: Arc<[Progress]>,
    /// What became of spans.
    pub(super) otlp: Option<Arc<Counts>>,
}

/// Begins to empty the spools. `client` posts spans.
pub(super) fn start(
    spools: Spools,
    config: &Config,
    alerts: &AlertSender,
    client: UpstreamClient,
    clock: &Clock,
) -> Remotes {
    let hooks = || Hooks {
        clock: clock.clone(),
        ..Hooks::default()
    };
    let mut forwarders = Vec::new();
    let mut counts = None;
    if let (Some(reader), Some(store)) = (spools.clickhouse, &config.clickhouse) {
        let settings = Settings {
            store: CLICKHOUSE.to_owned(),
            most: Most {
                records: store.batch_rows,
                bytes: store.batch_bytes,
                wait: store.batch_wait,
            },
            attempt: INSERT_TIME,
        };
        let sink = Rows(ClickHouseSink::new(store));
        forwarders.push(spool::forward(reader, sink, settings, hooks()));
    }
    if let (Some(reader), Some(otlp)) = (spools.otlp, &config.otlp) {
        let settings = Settings {
            store: OTLP.to_owned(),
            most: Most {
                records: otlp.batch_spans,
                bytes: OTLP_BYTES,
                wait: otlp.batch_wait,
            },
            attempt: otlp.timeout.saturating_mul(POSTS),
        };
        let exporter = Exporter::new(
            otlp,
            &config.upstreams,
            &config.app_labels,
            client,
            clock.clone(),
        );
        counts = Some(exporter.counts());
        let spans = Spans {
            exporter,
            clock: clock.clone(),
        };
        forwarders.push(spool::forward(reader, spans, settings, hooks()));
    }
    let progress: Arc<[Progress]> = forwarders.iter().map(Forwarder::progress).collect();
    let telling = (!forwarders.is_empty() && alerts.listens()).then(|| {
        let limit = config.spool.max_bytes;
        tokio::spawn(tell(progress.clone(), alerts.clone(), limit, clock.clone()))
    });
    let view = View {
        progress,
        otlp: counts,
    };
    Remotes {
        forwarders,
        telling,
        view,
    }
}

impl Remotes {
    /// Sends what waits, for a while, and ends. The recorder has to be closed before.
    pub(super) async fn finish(self) {
        if let Some(telling) = self.telling {
            telling.abort();
        }
        let ends: Vec<_> = (self.forwarders.into_iter())
            .map(|forwarder| tokio::spawn(forwarder.finish(FINISH_TIME)))
            .collect();
        for end in ends {
            if end.await.is_err() {
                tracing::error!("a remote store was not finished with");
            }
        }
    }
}

/// How a store stands, for the metrics.
pub(super) fn stats(progress: &Progress, limit_bytes: u64) -> RemoteStats {
    let view = progress.view();
    let failures = view.failures;
    RemoteStats {
        waiting_records: view.waiting.records,
        waiting_bytes: view.disk_bytes,
        limit_bytes,
        oldest_ms: view
            .oldest_age
            .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        appended: view.counted.appended,
        delivered: view.counted.delivered,
        dropped: Reason::ALL
            .map(|why| (why.as_str(), view.counted.dropped_for(why)))
            .to_vec(),
        failures: failures.later + failures.timeout + failures.refused + failures.disk,
        up: Some(view.down_since_ms.is_none()),
    }
}

/// Tells the alerts from time to time.
async fn tell(stores: Arc<[Progress]>, alerts: AlertSender, limit: u64, clock: Clock) {
    loop {
        tokio::time::sleep(STANDING_EVERY).await;
        for progress in &*stores {
            let view = progress.view();
            let store = if progress.store() == OTLP {
                OTLP
            } else {
                CLICKHOUSE
            };
            // One that is dropped is followed by the next.
            alerts.send(Notice::Remote(Standing {
                store,
                at_ms: clock.utc_ms(),
                down_since_ms: view.down_since_ms,
                waiting: view.waiting.records,
                bytes: view.disk_bytes,
                limit,
                dropped: view.counted.dropped_total(),
            }));
        }
    }
}

/// The records of a batch. One that cannot be read is refused, and so found and set aside.
fn entries(batch: &Batch) -> Result<Vec<Entry>, Failure> {
    let read = batch.records.iter().map(|record| Entry::decode(record));
    read.collect::<Result<_, _>>()
        .map_err(|why| Failure::Refused {
            why: format!("a record that this version does not read: {why}"),
        })
}

/// Records as rows.
struct Rows(ClickHouseSink);

impl Deliver for Rows {
    async fn deliver(&mut self, batch: &Batch) -> Result<(), Failure> {
        self.0.insert(&batch.token(), &entries(batch)?).await
    }
}

/// Records as spans.
struct Spans {
    exporter: Exporter,
    clock: Clock,
}

impl Deliver for Spans {
    async fn deliver(&mut self, batch: &Batch) -> Result<(), Failure> {
        self.exporter.deliver_entries(entries(batch)?).await
    }

    async fn idle(&mut self, ending: bool) {
        self.exporter.idle(self.clock.utc_ms(), ending).await;
    }
}
