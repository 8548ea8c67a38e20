//! The threads that serve connections, each with a runtime and upstream connections of its own.
//!
//! A connection stays on one thread, and so do its requests and the upstream connections they use:
//! nothing on the way of a turn wakes another thread, which costs more than all else that the
//! gateway does with a small request.

use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{CUT_TIME, connection};
use crate::proxy::Shared;
use crate::proxy::upstream::{self, Clients};

/// Most threads, on whatever machine.
const MAX_WORKERS: usize = 64;

/// See the module. Dropping it lets the threads drain and end.
#[derive(Debug)]
pub(super) struct Workers {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    streams: mpsc::UnboundedSender<StdTcpStream>,
    open: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

impl Workers {
    /// Starts a thread for each core.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be had, or the CA bundle cannot be read.
    pub(super) fn start(shared: &Arc<Shared>) -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = (0..cores.min(MAX_WORKERS))
            .map(|number| Worker::start(number, shared))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { workers })
    }

    /// Gives a connection to the thread with the fewest.
    pub(super) fn serve(&self, stream: TcpStream) {
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be handed on");
                return;
            }
        };
        let idlest = self
            .workers
            .iter()
            .min_by_key(|worker| worker.open.load(Ordering::Relaxed));
        let Some(worker) = idlest else { return };
        worker.open.fetch_add(1, Ordering::Relaxed);
        if worker.streams.send(stream).is_err() {
            tracing::error!("a worker thread has ended; the connection is closed");
        }
    }

    /// Lets the threads finish what they have begun; ready when all have ended.
    pub(super) async fn drain(self) {
        let ended: Vec<_> = self
            .workers
            .into_iter()
            .map(|worker| worker.ended)
            .collect();
        for end in ended {
            // An error means that the thread has ended without a word, which is an end as well.
            let _ = end.await;
        }
    }
}

impl Worker {
    fn start(number: usize, shared: &Arc<Shared>) -> anyhow::Result<Self> {
        let (streams, receiver) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let clients = Arc::new(upstream::clients(&shared.config)?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("a worker's runtime cannot be started")?;
        let (shared, counter) = (shared.clone(), open.clone());
        std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                runtime.block_on(work(receiver, &shared, &clients, &counter));
                // Nobody listens any more when the gateway was dropped.
                let _ = end.send(());
            })
            .context("a worker thread cannot be started")?;
        Ok(Self {
            streams,
            open,
            ended,
        })
    }
}

async fn work(
    mut streams: mpsc::UnboundedReceiver<StdTcpStream>,
    shared: &Arc<Shared>,
    clients: &Arc<Clients>,
    open: &Arc<AtomicUsize>,
) {
    let graceful = GracefulShutdown::new();
    // Dropping the set ends what is in it.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = streams.recv() => stream,
            Some(_ended) = connections.join_next() => {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
        };
        let Some(stream) = stream else { break };
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                connections.spawn(connection(stream, shared, clients, &graceful));
            }
            Err(error) => {
                open.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!(%error, "a connection could not be taken over");
            }
        }
    }
    let mut cut = shared.cut.subscribe();
    let drained = async {
        // Connections first; tunnels have left theirs.
        graceful.shutdown().await;
        shared.quiet().await;
    };
    tokio::select! {
        () = drained => {}
        _ = cut.wait_for(|cut| *cut) => {
            drop(connections);
            // Tunnels close their own accounts. Whoever waits for this thread says what is lost.
            let _ = tokio::time::timeout(CUT_TIME, shared.quiet()).await;
        }
    }
}
