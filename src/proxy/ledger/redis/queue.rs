//! What waits to be sent, in order, and which holds are to be renewed.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use redis::Value;
use tokio::sync::{Notify, oneshot};

use super::call::Outcome;
use crate::guard::caps::{Amounts, Ask, Crossing};

/// Settlements that may wait, those being sent included.
const MAX_SETTLEMENTS: usize = 10_000;
/// Requests that may wait.
const MAX_ASKS: usize = 10_000;
/// Holds that are renewed; further ones end with their first lease.
const MAX_LIVE: usize = 100_000;

const WAITING: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Whether an ask may have reached Redis.
#[derive(Debug, Default)]
pub(super) struct Place(AtomicU8);

impl Place {
    /// It is about to be sent; false when nobody waits for it any more.
    pub(super) fn send(&self) -> bool {
        self.advance(SENT) != Err(GIVEN_UP)
    }

    /// Nobody waits for it any more; false when it has been sent.
    pub(super) fn give_up(&self) -> bool {
        self.advance(GIVEN_UP) != Err(SENT)
    }

    fn advance(&self, to: u8) -> Result<u8, u8> {
        self.0
            .compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// A request that asks.
pub(super) struct Asking {
    pub(super) id: u128,
    pub(super) ask: Arc<Ask>,
    /// It was sent on a connection that broke.
    pub(super) tried: bool,
    place: Arc<Place>,
    reply: oneshot::Sender<Result<Value, String>>,
}

impl Asking {
    pub(super) fn new(
        id: u128,
        ask: Arc<Ask>,
        place: Arc<Place>,
        reply: oneshot::Sender<Result<Value, String>>,
    ) -> Self {
        Self {
            id,
            ask,
            tried: false,
            place,
            reply,
        }
    }

    /// Whoever asked hears it, unless gone; then its [`Place`] tells what is to be given back.
    pub(super) fn answer(self, answer: Result<Value, String>) {
        let _ = self.reply.send(answer);
    }
}

/// Who is told of levels.
pub(super) struct Tell(pub(super) Option<Box<dyn FnOnce(Vec<Crossing>) + Send>>);

/// A request that has ended.
pub(super) struct Settling {
    pub(super) id: u128,
    pub(super) ask: Arc<Ask>,
    pub(super) used: Amounts,
    pub(super) outcome: Outcome,
    pub(super) now_ms: i64,
    /// Under which it was sent, while Redis may know it under that number.
    pub(super) number: Option<u64>,
    pub(super) tell: Tell,
}

impl Settling {
    pub(super) fn tell(self, crossings: Vec<Crossing>) {
        // The task that talks to Redis must outlive a mistake of whoever is told.
        if let Some(tell) = self.tell.0
            && catch_unwind(AssertUnwindSafe(|| tell(crossings))).is_err()
        {
            tracing::error!("whoever is told of levels of caps ended by a panic");
        }
    }
}

/// Something to send.
pub(super) enum Job {
    Ask(Asking),
    Settle(Settling),
}

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    jobs: Mutex<Jobs>,
    more: Notify,
    fewer: Notify,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    asks: usize,
    /// Waiting or being sent.
    settlements: usize,
    closed: bool,
}

impl Queue {
    /// Puts an ask at the end, if there is room.
    pub(super) fn ask(&self, asking: Asking) -> Result<(), Asking> {
        let mut jobs = self.lock();
        if jobs.closed || jobs.asks >= MAX_ASKS {
            return Err(asking);
        }
        jobs.asks += 1;
        jobs.waiting.push_back(Job::Ask(asking));
        drop(jobs);
        self.more.notify_one();
        Ok(())
    }

    /// Puts a settlement at the end, if there is room.
    pub(super) fn settle(&self, settling: Settling) -> Result<(), Settling> {
        let mut jobs = self.lock();
        if jobs.closed || jobs.settlements >= MAX_SETTLEMENTS {
            return Err(settling);
        }
        jobs.settlements += 1;
        jobs.waiting.push_back(Job::Settle(settling));
        drop(jobs);
        self.more.notify_one();
        Ok(())
    }

    /// The first jobs, without asks that nobody waits for any more.
    pub(super) fn take(&self, most: usize) -> Vec<Job> {
        let mut jobs = self.lock();
        let mut taken = Vec::with_capacity(most.min(jobs.waiting.len()));
        while taken.len() < most
            && let Some(job) = jobs.waiting.pop_front()
        {
            if let Job::Ask(asking) = &job {
                jobs.asks = jobs.asks.saturating_sub(1);
                if asking.reply.is_closed() || !asking.place.send() {
                    continue;
                }
            }
            taken.push(job);
        }
        taken
    }

    /// Puts jobs that were taken back to the front.
    pub(super) fn put_back(&self, taken: Vec<Job>) {
        let mut jobs = self.lock();
        for job in taken.into_iter().rev() {
            jobs.asks += usize::from(matches!(job, Job::Ask(_)));
            jobs.waiting.push_front(job);
        }
    }

    /// A settlement that was taken has been dealt with.
    pub(super) fn settled_one(&self) {
        let mut jobs = self.lock();
        jobs.settlements = jobs.settlements.saturating_sub(1);
        if jobs.settlements == 0 {
            drop(jobs);
            self.fewer.notify_waiters();
        }
    }

    /// Takes all asks out.
    pub(super) fn take_asks(&self) -> Vec<Asking> {
        let mut jobs = self.lock();
        if jobs.asks == 0 {
            return Vec::new();
        }
        let mut asks = Vec::with_capacity(jobs.asks);
        let mut rest = VecDeque::with_capacity(jobs.waiting.len());
        for job in std::mem::take(&mut jobs.waiting) {
            match job {
                Job::Ask(asking) => asks.push(asking),
                Job::Settle(_) => rest.push_back(job),
            }
        }
        jobs.waiting = rest;
        jobs.asks = 0;
        asks
    }

    /// Waits until something has been put in, or the queue has been closed.
    pub(super) async fn more(&self) {
        loop {
            let told = self.more.notified();
            {
                let jobs = self.lock();
                if jobs.closed || !jobs.waiting.is_empty() {
                    return;
                }
            }
            told.await;
        }
    }

    /// Waits until something is put in from now on, or the queue is closed.
    pub(super) async fn change(&self) {
        self.more.notified().await;
    }

    /// Waits until no settlement is left.
    pub(super) async fn settled(&self) {
        loop {
            let told = self.fewer.notified();
            if self.settlements() == 0 {
                return;
            }
            told.await;
        }
    }

    pub(super) fn settlements(&self) -> usize {
        self.lock().settlements
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The holds of this gateway. One whose owner has forgotten it is not renewed.
#[derive(Default)]
pub(super) struct Live(Mutex<HashMap<u128, Weak<Ask>>>);

impl Live {
    pub(super) fn add(&self, id: u128, ask: &Arc<Ask>) {
        let mut live = self.lock();
        if live.len() < MAX_LIVE {
            live.insert(id, Arc::downgrade(ask));
        }
    }

    pub(super) fn remove(&self, id: u128) {
        self.lock().remove(&id);
    }

    /// All of them.
    pub(super) fn holds(&self) -> Vec<(u128, Arc<Ask>)> {
        let mut holds = Vec::new();
        self.lock().retain(|id, ask| match ask.upgrade() {
            Some(ask) => {
                holds.push((*id, ask));
                true
            }
            None => false,
        });
        holds
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Weak<Ask>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
