//! The task that reads notices and sends what is told.
//!
//! Each webhook has a bounded queue and a task of its own, so a slow one delays neither the others
//! nor the reading of notices. Every alert that is meant for a webhook is counted once for it:
//! `sent`, `failed`, or `dropped` where the queue was full or the end came first.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::post::{Pace, Post, Reply, Way};
use super::{Alert, Watch};
use crate::clock::Clock;
use crate::config::Config;
use crate::proxy::upstream;
use crate::trace::{EventRecord, Notice};

/// Alerts that may wait for one webhook.
const QUEUE: usize = 256;
/// How long the end waits for what is still queued.
const FAREWELL: Duration = Duration::from_secs(3);

/// What is told of the sending itself.
#[derive(Clone)]
pub struct Hooks {
    /// What became of an alert at one webhook: `sent`, `failed` or `dropped`.
    pub counted: Arc<dyn Fn(&'static str) + Send + Sync>,
    /// An alert that no event stands behind, to be recorded.
    pub recorded: Arc<dyn Fn(EventRecord) + Send + Sync>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// Alerts that are being sent. Dropping it ends the sending without anybody waiting for it.
#[derive(Debug)]
pub struct Sending {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Sending {
    /// Ends it: each alert that is queued by now is tried once more, for three seconds at most.
    pub async fn finish(self) {
        self.stop.send_replace(true);
        if self.task.await.is_err() {
            tracing::error!("the sending of alerts ended by a panic");
        }
    }
}

/// Starts it; see [`super::wanted`] for whether there is anything to do. Needs a runtime.
///
/// # Errors
/// When the extra CA bundle cannot be read.
pub fn start(
    config: &Config,
    notices: mpsc::Receiver<Notice>,
    clock: Clock,
    hooks: Hooks,
) -> anyhow::Result<Sending> {
    start_paced(config, notices, clock, hooks, Pace::default())
}

fn start_paced(
    config: &Config,
    notices: mpsc::Receiver<Notice>,
    clock: Clock,
    hooks: Hooks,
    pace: Pace,
) -> anyhow::Result<Sending> {
    let client = upstream::clients(config)?.pooled;
    let watch = Watch::new(&config.alerts, config.caps.zone.clone());
    let ways = config.webhooks.iter().map(|webhook| {
        let post = Post::new(client.clone(), webhook).within(pace.timeout);
        (webhook.name.clone(), post)
    });
    Ok(spawn(watch, ways.collect(), notices, clock, hooks, pace))
}

fn spawn<W: Way>(
    watch: Watch,
    ways: Vec<(String, W)>,
    notices: mpsc::Receiver<Notice>,
    clock: Clock,
    hooks: Hooks,
    pace: Pace,
) -> Sending {
    let (stop, stopped) = watch::channel(false);
    let (leave, leaving) = watch::channel(false);
    let mut deliveries = JoinSet::new();
    let routes = ways
        .into_iter()
        .map(|(name, way)| {
            let (queue, parcels) = mpsc::channel(QUEUE);
            deliveries.spawn(deliver(name.clone(), way, parcels, pace, leaving.clone()));
            Route { name, queue }
        })
        .collect();
    let desk = Desk {
        watch,
        routes,
        clock,
        hooks,
    };
    let task = tokio::spawn(desk.run(notices, stopped, leave, deliveries));
    Sending { stop, task }
}

/// Where notices become alerts, and alerts go to their webhooks.
struct Desk {
    watch: Watch,
    routes: Vec<Route>,
    clock: Clock,
    hooks: Hooks,
}

struct Route {
    name: String,
    queue: mpsc::Sender<Parcel>,
}

/// An alert on its way to one webhook. One whose end nobody said counts as dropped.
struct Parcel {
    alert: Arc<Alert>,
    counted: Arc<dyn Fn(&'static str) + Send + Sync>,
    result: &'static str,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        (self.counted)(self.result);
    }
}

impl Desk {
    async fn run(
        mut self,
        mut notices: mpsc::Receiver<Notice>,
        mut stopped: watch::Receiver<bool>,
        leave: watch::Sender<bool>,
        mut deliveries: JoinSet<()>,
    ) {
        loop {
            let notice = tokio::select! {
                () = told(&mut stopped) => break,
                notice = notices.recv() => notice,
            };
            let Some(notice) = notice else { break };
            self.hear(&notice);
        }
        notices.close();
        while let Ok(notice) = notices.try_recv() {
            self.hear(&notice);
        }
        // Without their senders the deliveries end when their queues are empty.
        self.routes.clear();
        leave.send_replace(true);
        let all = async { while deliveries.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            tracing::warn!("alerts that were still waiting to be sent are dropped");
            deliveries.shutdown().await;
        }
    }

    fn hear(&mut self, notice: &Notice) {
        for alert in self.watch.hear(notice, self.clock.utc_ms()) {
            if let Some(record) = alert.record() {
                (self.hooks.recorded)(record);
            }
            let alert = Arc::new(alert);
            for route in &self.routes {
                let parcel = Parcel {
                    alert: alert.clone(),
                    counted: self.hooks.counted.clone(),
                    result: "dropped",
                };
                if route.queue.try_send(parcel).is_err() {
                    let (webhook, kind) = (route.name.as_str(), alert.kind.as_str());
                    tracing::warn!(webhook, kind, "an alert was dropped: too many are waiting");
                }
            }
        }
    }
}

/// Ready when the word is given, also when whoever could give it is gone.
async fn told(word: &mut watch::Receiver<bool>) {
    let _ = word.wait_for(|told| *told).await;
}

/// Sends the alerts of one webhook, one after the other.
async fn deliver<W: Way>(
    webhook: String,
    way: W,
    mut parcels: mpsc::Receiver<Parcel>,
    pace: Pace,
    mut leaving: watch::Receiver<bool>,
) {
    while let Some(mut parcel) = parcels.recv().await {
        let reply = persist(&way, &parcel.alert, pace, &mut leaving).await;
        if reply.is_sent() {
            parcel.result = "sent";
            continue;
        }
        parcel.result = "failed";
        let (webhook, kind) = (webhook.as_str(), parcel.alert.kind.as_str());
        tracing::warn!(webhook, kind, %reply, "an alert could not be sent");
    }
}

/// Tries until it is sent or there is no use in trying. At the end one last try is made at once.
async fn persist<W: Way>(
    way: &W,
    alert: &Alert,
    pace: Pace,
    leaving: &mut watch::Receiver<bool>,
) -> Reply {
    let mut tries = 0;
    loop {
        let last = *leaving.borrow();
        let reply = way.send(alert).await;
        tries += 1;
        if reply.is_sent() || last {
            return reply;
        }
        let Some(wait) = pace.wait(&reply, tries) else {
            return reply;
        };
        tokio::select! {
            () = told(leaving) => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

#[cfg(test)]
mod tests;
