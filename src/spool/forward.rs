//! From the spool to the store: batch by batch, in order, for as long as it takes.

mod pace;
mod progress;

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::reader::{Claimed, Most, Reader};
use super::{Batch, Monitor};
use crate::clock::Clock;
pub use pace::Jitter;
use pace::Pace;
pub use progress::{Change, Failures, Progress, View};

/// How often a deliverer is told that time goes by.
const IDLE: Duration = Duration::from_secs(1);
/// What the last call of [`Deliver::idle`] gets, even when the grace is over.
const LAST_WORD: Duration = Duration::from_millis(250);

/// Why a batch was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An outage or back-pressure: the same batch comes again.
    #[error("{why}")]
    Later {
        /// What has happened, without content of records.
        why: String,
        /// When the store wants to be asked again.
        after: Option<Duration>,
    },
    /// This batch will never be taken. It comes again in halves, down to the records that are the
    /// cause, which are set aside.
    #[error("{why}")]
    Refused {
        /// What has happened. It is kept with the record.
        why: String,
    },
}

impl Failure {
    /// The same batch again, at the pace of whoever forwards.
    #[must_use]
    pub fn later(why: impl Into<String>) -> Self {
        Self::Later {
            why: why.into(),
            after: None,
        }
    }
}

/// Brings batches to a store.
pub trait Deliver: Send + 'static {
    /// Delivers a batch. The future is dropped when it takes too long, which says nothing of whether
    /// the store has the batch: it comes again with the same token.
    fn deliver(&mut self, batch: &Batch) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Called about once a second while the store is not known to be down, and a last time at the end.
    fn idle(&mut self, ending: bool) -> impl Future<Output = ()> + Send {
        let _ = ending;
        async {}
    }
}

/// How a store is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its name, for logs.
    pub store: String,
    /// When a batch is complete.
    pub most: Most,
    /// How long one attempt may take.
    pub attempt: Duration,
}

/// Told of changes. It is called from the forwarding task, and must not block.
pub type OnChange = Arc<dyn Fn(&Change) + Send + Sync>;

/// What the forwarding needs from outside.
#[derive(Clone, Default)]
pub struct Hooks {
    /// The time of what is shown.
    pub clock: Clock,
    /// Chance, for the pauses.
    pub jitter: Jitter,
    /// Told when the store goes down and when it is up again.
    pub changed: Option<OnChange>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// A store that is being served. Dropping it ends the serving at once; what waits stays on disk.
#[derive(Debug)]
pub struct Forwarder {
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<()>,
    progress: Progress,
}

impl Forwarder {
    /// How it goes. The directory stays locked as long as a copy is left.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Delivers what waits, for at most `grace`, and ends. What is left waits for the next process.
    pub async fn finish(self, grace: Duration) {
        self.stop.send_replace(Some(Instant::now() + grace));
        if self.task.await.is_err() {
            tracing::error!("the forwarding of records ended by a panic");
        }
        let left = self.progress.view().waiting.records;
        if left > 0 {
            tracing::info!(
                store = self.progress.store(),
                records = left,
                "records stay in the spool for the next start"
            );
        }
    }
}

/// Starts serving a store. Needs a runtime with time.
pub fn forward<D: Deliver>(
    reader: Reader,
    deliver: D,
    settings: Settings,
    hooks: Hooks,
) -> Forwarder {
    let (stop, stopping) = watch::channel(None);
    let progress = Progress::new(settings.store.clone(), reader.monitor(), &hooks);
    let work = Loop {
        monitor: reader.monitor(),
        reader,
        deliver,
        settings,
        pace: Pace::new(hooks.jitter),
        progress: progress.clone(),
        stopping,
        idle_at: Instant::now() + IDLE,
    };
    Forwarder {
        stop,
        task: tokio::spawn(work.run()),
        progress,
    }
}

struct Loop<D> {
    reader: Reader,
    monitor: Monitor,
    deliver: D,
    settings: Settings,
    pace: Pace,
    progress: Progress,
    /// Until when to go on, once the end has been announced.
    stopping: watch::Receiver<Option<Instant>>,
    idle_at: Instant,
}

/// The time is over.
struct Over;

/// What became of a batch.
enum End {
    Taken,
    Refused(String),
}

impl<D: Deliver> Loop<D> {
    async fn run(mut self) {
        while let Ok(Some(claimed)) = self.next().await {
            if self.settle(&claimed).await.is_err() {
                break;
            }
            if Instant::now() >= self.idle_at {
                self.idle().await;
            }
        }
        let until = self.until().unwrap_or_else(Instant::now);
        let last = until.max(Instant::now() + LAST_WORD);
        // Cut off at worst.
        let _ = tokio::time::timeout_at(last, self.deliver.idle(true)).await;
    }

    /// The next batch; `None` when the end was announced and nothing is left.
    async fn next(&mut self) -> Result<Option<Claimed>, Over> {
        loop {
            if let Some(until) = self.until() {
                if self.monitor.waiting().records == 0 {
                    return Ok(None);
                }
                if Instant::now() >= until {
                    return Err(Over);
                }
            } else {
                tokio::select! {
                    () = self.reader.ready(&self.settings.most) => {}
                    () = announced(&mut self.stopping) => continue,
                    () = sleep_until(self.idle_at) => {
                        self.idle().await;
                        continue;
                    }
                }
            }
            match self.reader.take(&self.settings.most).await {
                Ok(Some(claimed)) => return Ok(Some(claimed)),
                Ok(None) => {}
                Err(error) => self.disk_failed(&error).await?,
            }
        }
    }

    async fn disk_failed(&mut self, error: &io::Error) -> Result<(), Over> {
        self.progress.disk_failed(&error.to_string());
        self.pause(None).await
    }

    /// Delivers a batch: whole or, where it is refused, in halves. The borders of the halves follow from
    /// its own, so that a later process splits it alike.
    async fn settle(&mut self, claimed: &Claimed) -> Result<(), Over> {
        let batch = &claimed.batch;
        // Each range is half of the one before, so there are as many as a count has bits.
        let mut ranges = vec![(claimed.from, batch.end())];
        let mut settled = batch.first;
        while let Some((first, end)) = ranges.pop() {
            if end <= settled {
                continue;
            }
            let mut halves = || {
                let middle = first + (end - first) / 2;
                ranges.push((middle, end));
                ranges.push((first, middle));
            };
            if first < settled {
                halves();
                continue;
            }
            let part = batch.part(first, end);
            match self.send(&part).await? {
                End::Taken => {
                    self.reader.ack(end).await;
                    settled = end;
                }
                End::Refused(_) if part.records.len() > 1 => halves(),
                End::Refused(why) => {
                    if let Some(record) = part.records.into_iter().next() {
                        self.reader.refuse(first, record, why).await;
                    }
                    settled = end;
                }
            }
        }
        Ok(())
    }

    /// Offers a batch until the store has said yes or no.
    async fn send(&mut self, batch: &Batch) -> Result<End, Over> {
        loop {
            if self.until().is_some_and(|until| Instant::now() >= until) {
                return Err(Over);
            }
            let attempt = timeout(self.settings.attempt, self.deliver.deliver(batch));
            let result = tokio::select! {
                biased;
                result = attempt => result,
                () = over(self.stopping.clone()) => return Err(Over),
            };
            let after = match result {
                Ok(Ok(())) => {
                    self.answered();
                    return Ok(End::Taken);
                }
                Ok(Err(Failure::Refused { why })) => {
                    self.answered();
                    self.progress.refused(&why);
                    return Ok(End::Refused(why));
                }
                Ok(Err(Failure::Later { why, after })) => {
                    self.progress.down(&why, false);
                    after
                }
                Err(_) => {
                    let limit = self.settings.attempt;
                    self.progress
                        .down(&format!("no answer within {limit:?}"), true);
                    None
                }
            };
            self.pause(after).await?;
        }
    }

    fn answered(&mut self) {
        self.pace.reset();
        self.progress.up();
    }

    /// Waits before the next attempt. The announcement of the end cuts it short, once.
    async fn pause(&mut self, after: Option<Duration>) -> Result<(), Over> {
        let pause = sleep(self.pace.next(after));
        if let Some(until) = self.until() {
            tokio::select! {
                () = pause => Ok(()),
                () = sleep_until(until) => Err(Over),
            }
        } else {
            tokio::select! {
                () = pause => {}
                () = announced(&mut self.stopping) => self.pace.reset(),
            }
            Ok(())
        }
    }

    async fn idle(&mut self) {
        // A deliverer that hangs must hold up neither the next batch for ever, nor the end.
        tokio::select! {
            _ = timeout(self.settings.attempt, self.deliver.idle(false)) => {}
            () = over(self.stopping.clone()) => {}
        }
        self.idle_at = Instant::now() + IDLE;
    }

    /// Until when to go on, once the end has been announced. Whoever could announce it being gone is
    /// an announcement as well.
    fn until(&self) -> Option<Instant> {
        let announced = *self.stopping.borrow();
        let alone = self.stopping.has_changed().is_err();
        announced.or_else(|| alone.then(Instant::now))
    }
}

/// Ready when the end has been announced.
async fn announced(stopping: &mut watch::Receiver<Option<Instant>>) {
    // An error says that the sender is gone.
    let _ = stopping.wait_for(Option::is_some).await;
}

/// Ready when the time is over.
async fn over(mut stopping: watch::Receiver<Option<Instant>>) {
    announced(&mut stopping).await;
    let until = *stopping.borrow();
    if let Some(until) = until {
        sleep_until(until).await;
    }
}
