//! Keeps the prefixes of pausing threads in the provider's cache (see
//! [`crate::prompt_cache::helpers::keep_warm`] for when that pays).
//!
//! One task holds the timers of all threads. What it needs to send a request once more, the
//! credential among it, is held in memory only, bounded, never printed, and let go when the thread
//! goes on, when no ping follows, and when the process ends.

mod held;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::prompt_cache::helpers::keep_warm::{Next, Pause, Progress, Stop, next};
use crate::usage::Usage;
pub use held::{Held, Ping};

/// Threads whose pauses are remembered; further ones are not kept warm.
const MAX_THREADS: usize = 4096;
/// Pings under way at the same time; further ones wait for the next to end.
const MAX_IN_FLIGHT: usize = 16;
/// How long one ping may take.
const PING_TIMEOUT: Duration = Duration::from_secs(60);
/// The clock is looked at this often, since it may be set and machines may sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A thread: its run and its name there.
pub type ThreadKey = (Arc<str>, Arc<str>);

/// The way out, which also brings each ping into the books.
pub trait Sender: Send + Sync + 'static {
    /// Sends a ping, prices and records it. `None` where it was not answered with success.
    fn send(&self, ping: Ping) -> impl Future<Output = Option<Sent>> + Send;
}

/// A ping that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its tokens.
    pub usage: Usage,
    /// What it cost in pico-USD; `None` when that is not known.
    pub cost_pico: Option<u64>,
}

/// Why a thread is not kept warm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declined {
    /// It does not pay, or is not allowed to.
    Stop(Stop),
    /// The request cannot be sent as one that generates nothing.
    Unfit,
    /// There is no memory for it.
    Full,
    /// The process ends.
    Ended,
}

impl Declined {
    /// A stable word for metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Stop(Stop::Off) => "off",
            Self::Stop(Stop::ShortPauses) => "short_pauses",
            Self::Stop(Stop::NotWorthIt) => "not_worth_it",
            Self::Stop(Stop::Ceiling) => "ceiling",
            Self::Stop(Stop::Expired) => "expired",
            Self::Unfit => "unfit",
            Self::Full => "full",
            Self::Ended => "ended",
        }
    }
}

/// What had been done for a thread in the pause that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Pings that were answered, and one that is still under way.
    pub pings: u32,
    /// What they cost in pico-USD; `None` when the cost of one is not known.
    pub cost_pico: Option<u64>,
}

/// The pausing threads.
#[derive(Debug)]
pub struct Keeper {
    state: Mutex<State>,
    /// Something is due at another time than before.
    changed: Notify,
    max_bytes: usize,
    clock: Clock,
}

#[derive(Debug, Default)]
struct State {
    threads: HashMap<ThreadKey, Thread>,
    /// Of the threads that wait for a ping: when it is due.
    due: BTreeSet<(i64, ThreadKey)>,
    /// Memory that all requests take.
    bytes: usize,
    /// Counts pauses, so that a ping of an earlier one is not taken for one of this.
    pauses: u64,
    ended: bool,
}

#[derive(Debug)]
struct Thread {
    number: u64,
    pause: Pause,
    so_far: Progress,
    /// The cost of some ping is not known.
    cost_unknown: bool,
    under_way: bool,
    /// When the next ping is due, while one is.
    due: Option<i64>,
    /// The request; gone when no ping follows.
    held: Option<Arc<Held>>,
}

impl Keeper {
    /// Nothing is kept yet; all requests together may take `max_bytes`.
    #[must_use]
    pub fn new(max_bytes: usize, clock: Clock) -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            max_bytes,
            clock,
        }
    }

    /// A thread's answer has ended, and its request began at `started_ms` (UTC). `request` is asked
    /// for only when a ping pays. Returns when the first ping is due.
    ///
    /// # Errors
    /// Why the thread is not kept warm.
    pub fn paused(
        &self,
        thread: ThreadKey,
        pause: Pause,
        started_ms: i64,
        request: impl FnOnce() -> Option<Held>,
    ) -> Result<i64, Declined> {
        let so_far = Progress {
            refreshed_ms: started_ms,
            pings: 0,
            spent_pico: 0,
        };
        let due = match next(&pause, &so_far, self.clock.utc_ms()) {
            Next::At(due) => due,
            Next::Stop(why) => return Err(Declined::Stop(why)),
        };
        let held = request().ok_or(Declined::Unfit)?;
        let mut state = self.lock();
        let state = &mut *state;
        if state.ended {
            return Err(Declined::Ended);
        }
        state.forget(&thread);
        if state.bytes.saturating_add(held.bytes()) > self.max_bytes || !state.has_room() {
            return Err(Declined::Full);
        }
        state.bytes += held.bytes();
        state.pauses += 1;
        let kept = Thread {
            number: state.pauses,
            pause,
            so_far,
            cost_unknown: false,
            under_way: false,
            due: Some(due),
            held: Some(Arc::new(held)),
        };
        state.due.insert((due, thread.clone()));
        state.threads.insert(thread, kept);
        self.changed.notify_one();
        Ok(due)
    }

    /// The thread goes on: its pause is over. What was done in it, if anything was.
    pub fn resumed(&self, thread: &ThreadKey) -> Option<Resumed> {
        let mut state = self.lock();
        let kept = state.forget(thread)?;
        let pings = kept.so_far.pings + u32::from(kept.under_way);
        (pings > 0).then_some(Resumed {
            pings,
            cost_pico: (!kept.cost_unknown && !kept.under_way).then_some(kept.so_far.spent_pico),
        })
    }

    /// Looks at the clock now. For clocks that are moved by hand.
    pub fn look(&self) {
        self.changed.notify_one();
    }

    /// Threads that are remembered, and the bytes of the requests that are held.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let state = self.lock();
        (state.threads.len(), state.bytes)
    }

    /// Sends pings as they become due, until the process is told to end: from then on nothing is
    /// sent, what is under way is dropped, and all that was held is let go.
    pub async fn run<S: Sender>(self: Arc<Self>, sender: Arc<S>, until: impl Future<Output = ()>) {
        tokio::pin!(until);
        let mut under_way = JoinSet::new();
        loop {
            let mut wait = LOOK_AGAIN;
            while under_way.len() < MAX_IN_FLIGHT {
                let now = self.clock.utc_ms();
                let due = self.lock().due(now);
                match due {
                    Due::Ping(flight, held) => {
                        let ping = held.ping(now);
                        let flight = Flight {
                            keeper: self.clone(),
                            landing: Some(flight),
                            started_ms: now,
                        };
                        let sender = sender.clone();
                        under_way.spawn(async move {
                            let sent = tokio::time::timeout(PING_TIMEOUT, sender.send(ping)).await;
                            flight.landed(sent.ok().flatten());
                        });
                    }
                    Due::In(ms) => {
                        wait = wait.min(Duration::from_millis(ms));
                        break;
                    }
                    Due::Never => break,
                }
            }
            tokio::select! {
                biased;
                () = &mut until => break,
                () = self.changed.notified() => {}
                Some(_ended) = under_way.join_next() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        // Before the pings under way are dropped, so that none of them plans another one.
        *self.lock() = State {
            ended: true,
            ..State::default()
        };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the timers say.
enum Due {
    /// A ping now.
    Ping((ThreadKey, u64), Arc<Held>),
    /// The next one in so many milliseconds.
    In(u64),
    /// None is planned.
    Never,
}

impl State {
    fn forget(&mut self, thread: &ThreadKey) -> Option<Thread> {
        let mut kept = self.threads.remove(thread)?;
        self.let_go(thread, &mut kept);
        Some(kept)
    }

    fn let_go(&mut self, thread: &ThreadKey, kept: &mut Thread) {
        if let Some(due) = kept.due.take() {
            self.due.remove(&(due, thread.clone()));
        }
        if let Some(held) = kept.held.take() {
            self.bytes = self.bytes.saturating_sub(held.bytes());
        }
    }

    /// Whether one more thread can be remembered; pauses that only wait to be reported give way.
    fn has_room(&mut self) -> bool {
        if self.threads.len() < MAX_THREADS {
            return true;
        }
        let over = self.threads.iter().filter(|(_, kept)| kept.held.is_none());
        let oldest = over.min_by_key(|(_, kept)| kept.number);
        let oldest = oldest.map(|(thread, _)| thread.clone());
        oldest.is_some_and(|thread| self.threads.remove(&thread).is_some())
    }

    /// Takes the next ping that is due.
    fn due(&mut self, now_ms: i64) -> Due {
        loop {
            let Some((due, _)) = self.due.first() else {
                return Due::Never;
            };
            if let Ok(ms) = u64::try_from(due.saturating_sub(now_ms))
                && ms > 0
            {
                return Due::In(ms);
            }
            let Some((_, thread)) = self.due.pop_first() else {
                return Due::Never;
            };
            let Some(kept) = self.threads.get_mut(&thread) else {
                continue;
            };
            kept.due = None;
            // The machine may have slept meanwhile.
            let still = matches!(next(&kept.pause, &kept.so_far, now_ms), Next::At(_));
            if let (true, Some(held)) = (still, kept.held.clone()) {
                kept.under_way = true;
                return Due::Ping((thread, kept.number), held);
            }
            self.end(&thread);
        }
    }

    /// No further ping in this pause. What was done is kept until the thread goes on.
    fn end(&mut self, thread: &ThreadKey) {
        let Some(mut kept) = self.threads.remove(thread) else {
            return;
        };
        self.let_go(thread, &mut kept);
        if kept.so_far.pings > 0 {
            self.threads.insert(thread.clone(), kept);
        }
    }

    /// A ping is over; plans the next one.
    fn landed(
        &mut self,
        (thread, number): (ThreadKey, u64),
        started_ms: i64,
        now_ms: i64,
        sent: Option<Sent>,
    ) {
        let Some(kept) = self.threads.get_mut(&thread) else {
            return;
        };
        if kept.number != number {
            return;
        }
        kept.under_way = false;
        let mut again = false;
        if let Some(sent) = sent {
            let expected = kept
                .pause
                .prefix_tokens
                .saturating_mul(kept.pause.rates.read_pico);
            let so_far = &mut kept.so_far;
            so_far.pings += 1;
            // An unknown cost is decided about by what it should have been, and never reported.
            let cost = sent.cost_pico.unwrap_or(expected);
            so_far.spent_pico = so_far.spent_pico.saturating_add(cost);
            kept.cost_unknown |= sent.cost_pico.is_none();
            let cached = sent.usage.read.unwrap_or(0) + sent.usage.written().unwrap_or(0);
            if cached > 0 {
                so_far.refreshed_ms = started_ms;
                again = true;
            }
        }
        match next(&kept.pause, &kept.so_far, now_ms) {
            Next::At(due) if again => {
                kept.due = Some(due);
                self.due.insert((due, thread));
            }
            _ => self.end(&thread),
        }
    }
}

/// A ping under way. Dropped before it has landed, it has failed.
struct Flight {
    keeper: Arc<Keeper>,
    landing: Option<(ThreadKey, u64)>,
    started_ms: i64,
}

impl Flight {
    fn landed(mut self, sent: Option<Sent>) {
        self.land(sent);
    }

    fn land(&mut self, sent: Option<Sent>) {
        if let Some(landing) = self.landing.take() {
            let now = self.keeper.clock.utc_ms();
            let mut state = self.keeper.lock();
            state.landed(landing, self.started_ms, now, sent);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.land(None);
    }
}
