//! Listeners, drain and the admin surface: everything around the life of a turn.

mod admin;
mod framing;
pub(crate) mod remotes;
mod state;
mod workers;

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use http::StatusCode;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use self::framing::{HeadTap, Tapped};
use self::remotes::Remotes;
use self::workers::Workers;
use crate::clock::Clock;
use crate::config::{Config, RedisDown};
use crate::export::alerts::{self, Hooks, Sending};
use crate::prompt_cache::chain::{Hash, Hasher};
use crate::proxy::{
    self, Shared,
    guard::Guards,
    intake::Budget,
    keep_warm::Keeper,
    ledger::{Ledger, Seeds, seeds::StoreSeeds},
    ping::Pinger,
    route::Router,
    upstream,
    upstream::Clients,
    warm::Gate,
};
use crate::redact::Redactor;
use crate::run::{MAX_THREADS, Registry, Seed};
use crate::store::{Sqlite, ThreadSeed};
use crate::trace::capture::{Capture, CaptureHandle};
use crate::trace::metrics::Metrics;
use crate::trace::{self, AlertSender, Notice, RecorderHandle, Retention};
use crate::usage::PriceBook;

/// Threads of earlier processes that are taken up at start, at most this old.
const RESTORE_MS: i64 = 24 * 60 * 60 * 1000;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Flow-control window for HTTP/2 clients: a whole agent body in one round trip.
const H2_WINDOW: u32 = 4 << 20;
/// Requests one HTTP/2 connection may have under way.
const H2_STREAMS: u32 = 256;
/// After the drain, what is cut gets this long to close its records.
const CUT_TIME: Duration = Duration::from_secs(2);
/// How long shared books of caps are told of what ended before the gateway goes.
const FLUSH_TIME: Duration = Duration::from_secs(2);
/// Memory for requests that may be sent again in a pause.
const KEPT_WARM_BYTES: usize = 64 << 20;
/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    proxy: SocketAddr,
    admin: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    proxy_task: JoinHandle<()>,
    admin_task: JoinHandle<()>,
    state_task: JoinHandle<()>,
    alerts: Option<Sending>,
    recorder: Option<RecorderHandle>,
    remotes: Option<Remotes>,
    captured: Option<CaptureHandle>,
    /// Held while this gateway uses its data directory; the system lets go of it with the process.
    _lock: File,
}

impl Gateway {
    /// Starts a gateway. Everything that can be wrong is found before a port is bound.
    ///
    /// # Errors
    /// An unusable data directory, CA bundle or address; the text says which and what to do.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        Self::start_at(config, Clock::Real).await
    }

    /// As [`Gateway::start`], by another clock: lifetimes of cache entries and times of records
    /// follow it, timeouts do not.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub async fn start_at(config: Config, clock: Clock) -> anyhow::Result<Self> {
        let lock = lock(&config.data_dir)?;
        let store = Sqlite::open(&config.data_dir).with_context(|| {
            format!(
                "cannot open the trace database in {}",
                config.data_dir.display()
            )
        })?;
        let hasher = Hasher::new(secret(&config.data_dir)?);
        let registry = Registry::new(MAX_THREADS);
        let since = clock.utc_ms() - RESTORE_MS;
        match store.recent_threads(MAX_THREADS, since) {
            Ok(threads) => registry.restore(threads.into_iter().rev().map(seed)),
            Err(error) => tracing::warn!(%error, "earlier threads cannot be read; they start anew"),
        }
        let engine = state::load(&config, clock.utc_ms());
        let prices = PriceBook::new(&config.prices).context("the price data is not usable")?;
        let metrics = Metrics::new(&config.app_labels).context("the metric set is not usable")?;
        metrics.announce(&config);
        let router = Router::new(&config.upstreams).context("no upstream is configured")?;

        let listener = bind(config.listen, "server.listen").await?;
        let admin_listener = bind(config.admin, "server.admin").await?;
        let proxy = listener.local_addr()?;
        let admin = admin_listener.local_addr()?;

        let (outlets, spools) = remotes::open(&config, &clock)?;
        let retention = Retention {
            days: config.retention_days,
            bytes: config.retention_bytes,
        };
        let (recorder, handle) = trace::start(store, outlets, config.record_queue, retention)
            .context("the recorder's thread cannot be started")?;
        let seeds = StoreSeeds::new(config.data_dir.clone(), config.caps.zone.clone());
        let own_rules = config.captures() || !config.capture.rules.is_empty();
        let redactor = own_rules
            .then(|| Redactor::new(&config.capture.rules).map(Arc::new))
            .transpose()
            .context("capture.rules are not usable")?;
        let (capture, captured) =
            if let Some(redactor) = redactor.as_ref().filter(|_| config.captures()) {
                let settings = &config.capture;
                tracing::info!(
                    default = settings.mode.word(),
                    "content of requests and answers is captured as [capture] and [app.NAME] say"
                );
                let (capture, handle) =
                    Capture::start(&config.data_dir, settings, redactor.clone(), clock.clone())
                        .context("the thread that keeps captured content cannot be started")?;
                (Some(capture), Some(handle))
            } else {
                (None, None)
            };
        let levels = config.alerts.cap_levels.clone();
        let seeds = Arc::new(seeds);
        let ledger = match &config.caps.redis {
            None => Ledger::local(seeds, levels),
            Some(url) => {
                let local = config.caps.redis_down == RedisDown::Local;
                let local = local.then_some(seeds as Arc<dyn Seeds>);
                let shared = Ledger::shared(url, local, levels).await;
                // The URL itself may hold a password.
                shared.map_err(|why| anyhow::anyhow!("caps.redis is not usable: {why}"))?
            }
        };
        let (told, notices) = if alerts::wanted(&config) {
            let (sender, receiver) = AlertSender::channel();
            (sender, Some(receiver))
        } else {
            (AlertSender::default(), None)
        };
        let client = upstream::clients(&config)?.pooled;
        let remotes = remotes::start(spools, &config, &told, client, &clock);
        let shared = Arc::new(Shared {
            router,
            budget: Budget::new(
                config.max_body_bytes,
                config.buffered_bytes,
                config.idle_timeout,
            ),
            clock: clock.clone(),
            hasher,
            registry,
            engine,
            gate: Gate::default(),
            keeper: Arc::new(Keeper::new(KEPT_WARM_BYTES, clock)),
            prices,
            recorder,
            metrics,
            guards: Guards::new(ledger, told),
            redactor,
            capture,
            unpriced: Mutex::new(HashSet::new()),
            idle: Notify::new(),
            cut: watch::Sender::new(false),
            config,
        });
        let alerts = notices
            .map(|notices| sending(&shared, notices))
            .transpose()?;
        let (stop, stopped) = watch::channel(false);
        let workers = Workers::start(&shared)?;
        let proxy_task = tokio::spawn(accept(listener, workers, stopped.clone()));
        let admin_task = tokio::spawn(admin::serve(
            admin_listener,
            shared.clone(),
            remotes.view.clone(),
            proxy,
            stopped,
        ));
        let state_task = tokio::spawn(state::keep(shared.clone()));
        if shared.config.keep_warm_max_micro_usd > 0 {
            let pinger = Pinger {
                shared: shared.clone(),
                clients: upstream::clients(&shared.config)?,
            };
            let mut stopping = stop.subscribe();
            let end = async move {
                // An error means that the gateway is gone, which is an end as well.
                let _ = stopping.wait_for(|stop| *stop).await;
            };
            tokio::spawn(shared.keeper.clone().run(Arc::new(pinger), end));
        }
        Ok(Self {
            proxy,
            admin,
            shared,
            stop,
            proxy_task,
            admin_task,
            state_task,
            alerts,
            recorder: Some(handle),
            remotes: Some(remotes),
            captured,
            _lock: lock,
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn proxy_addr(&self) -> SocketAddr {
        self.proxy
    }

    /// Metrics and health.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    /// Looks at the clock again, for what is due. For clocks that are moved by hand.
    pub fn look_at_clock(&self) {
        self.shared.keeper.look();
    }

    /// Stops accepting, lets running turns end (for the configured time), and stores all records.
    pub async fn shutdown(self) {
        self.shutdown_unless(std::future::pending()).await;
    }

    /// Like [`Self::shutdown`]; running turns are cut as soon as `hurry` is ready. Their records
    /// are stored as well.
    pub async fn shutdown_unless(mut self, hurry: impl Future<Output = ()>) {
        // No receiver is left only when both tasks have ended already.
        let _ = self.stop.send(true);
        let whole = tokio::select! {
            drained = tokio::time::timeout(self.shared.config.drain, &mut self.proxy_task) => drained.is_ok(),
            () = hurry => false,
        };
        if !whole {
            tracing::warn!("turns that are still running are cut");
            self.shared.cut.send_replace(true);
            let ended = tokio::time::timeout(CUT_TIME, &mut self.proxy_task).await;
            if ended.is_err() || self.shared.metrics.in_flight.get() > 0 {
                tracing::warn!("requests were still open at the end; their records are lost");
            }
        }
        self.admin_task.abort();
        self.state_task.abort();
        if !self.shared.guards.ledger.flush(FLUSH_TIME).await {
            tracing::warn!("shared books of caps have not heard of all that ended");
        }
        if let Some(alerts) = self.alerts.take() {
            alerts.finish().await;
        }
        if let Err(error) = state::save(&self.shared.engine, &self.shared.config.data_dir) {
            tracing::warn!(%error, "the prompt-cache engine's state was not kept");
        }
        if let Some(handle) = self.captured.take() {
            let closed = tokio::task::spawn_blocking(move || handle.close()).await;
            if let Err(error) = closed {
                tracing::error!(%error, "the keeping of captured content did not close");
            }
        }
        if let Some(handle) = self.recorder.take() {
            let closed = tokio::task::spawn_blocking(move || handle.close()).await;
            if let Err(error) = closed {
                tracing::error!(%error, "the recorder did not close");
            }
        }
        // Now that everything lies in the spools.
        if let Some(remotes) = self.remotes.take() {
            remotes.finish().await;
        }
    }
}

/// Starts the sending of alerts.
fn sending(shared: &Arc<Shared>, notices: mpsc::Receiver<Notice>) -> anyhow::Result<Sending> {
    let (counting, recording) = (shared.clone(), shared.clone());
    let hooks = Hooks {
        counted: Arc::new(move |result| counting.metrics.alert(result)),
        recorded: Arc::new(move |event| recording.recorder.event(event)),
    };
    alerts::start(&shared.config, notices, shared.clock.clone(), hooks)
        .context("alerts cannot be sent")
}

async fn bind(address: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} ({setting}): is another gateway running there?")
    })
}

/// Makes sure that no other gateway writes into the data directory: two would take each other's
/// threads for their own.
fn lock(data_dir: &Path) -> anyhow::Result<File> {
    use std::os::unix::fs::DirBuilderExt as _;

    let place = data_dir.display();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)
        .with_context(|| format!("cannot create the data directory {place}"))?;
    let file = File::create(data_dir.join("lock"))
        .with_context(|| format!("cannot write to the data directory {place}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => anyhow::bail!(
            "another gateway uses the data directory {place}: give this one its own (--data-dir)"
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock the data directory {place}"))
        }
    }
}

/// The installation's secret, made at the first start. Replicas that share a store share it by
/// copying the file.
fn secret(data_dir: &Path) -> anyhow::Result<[u8; 32]> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    let path = data_dir.join("secret");
    let context = || format!("cannot use the installation's secret {}", path.display());
    let mut fresh = [0_u8; 32];
    getrandom::fill(&mut fresh).map_err(|e| anyhow::anyhow!("no randomness: {e}"))?;
    let created = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    match created {
        Ok(mut file) => {
            file.write_all(&fresh).with_context(context)?;
            file.sync_all().with_context(context)?;
            Ok(fresh)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let bytes = std::fs::read(&path).with_context(context)?;
            let exact = <[u8; 32]>::try_from(bytes.as_slice());
            exact
                .map_err(|_| anyhow::anyhow!("it has {} bytes instead of 32", bytes.len()))
                .with_context(context)
        }
        Err(error) => Err(error).with_context(context),
    }
}

fn seed(thread: ThreadSeed) -> Seed {
    Seed {
        run_id: thread.run_id,
        thread_id: thread.thread_id,
        parent_thread: thread.parent_thread,
        agent: thread.agent,
        turns: thread.turn,
        root: thread.root.as_deref().and_then(unhex),
        chain: thread.chain.as_deref().and_then(unhex),
        response_id: thread.response_id,
        last_ms: thread.started_ms,
        policy: thread.policy,
    }
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return None;
    }
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(hash)
}

/// Accepts until told to stop, then waits for the workers to drain.
async fn accept(listener: TcpListener, workers: Workers, mut stopped: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
        };
        match accepted {
            Ok((stream, _)) => workers.serve(stream),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    workers.drain().await;
}

/// Serves a connection to its end; the drain lets it finish what it has begun.
fn connection(
    stream: TcpStream,
    shared: &Arc<Shared>,
    clients: &Arc<Clients>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + 'static {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was refused");
    }
    let tap = Arc::new(HeadTap::default());
    let io = TokioIo::new(Tapped::new(stream, tap.clone()));
    let service = {
        let (shared, clients) = (shared.clone(), clients.clone());
        service_fn(move |request| {
            let (shared, clients, tap) = (shared.clone(), clients.clone(), tap.clone());
            // hyper keeps room for the largest state of it with each connection, also while the answer
            // streams, when it has ended long ago.
            Box::pin(async move {
                let ambiguous = tap.ambiguous(request.headers());
                let response = proxy::serve(shared, clients, request, ambiguous).await;
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    tap.give_up();
                }
                Ok::<_, Infallible>(response)
            })
        })
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .preserve_header_case(true)
        // A `date` the upstream did not send is not ours to add.
        .auto_date_header(false)
        .http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .initial_stream_window_size(H2_WINDOW)
        .initial_connection_window_size(4 * H2_WINDOW)
        .max_concurrent_streams(H2_STREAMS);
    let connection = builder
        .serve_connection_with_upgrades(io, service)
        .into_owned();
    let watched = graceful.watch(connection);
    let metrics = shared.clone();
    metrics.metrics.connections.inc();
    async move {
        if let Err(error) = watched.await {
            tracing::debug!(error = %error, "connection ended");
        }
        metrics.metrics.connections.dec();
    }
}
