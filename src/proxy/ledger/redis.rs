//! Books of caps that several gateways share through Redis.
//!
//! The semantics are those of the books of one process; the decisions are made in Redis, by one
//! script over all scopes of a request, so that what gateways do at the same time is in some order
//! and no cap is passed. Sums are decimal strings there: the numbers of its scripts are doubles, and
//! pico-USD outgrow those at 9,007 USD.
//!
//! **Order.** All that a gateway sends goes through one queue to one task, which sends what has
//! gathered there as one pipeline, in the order of the queue, and the next one when that has been
//! answered. So a settlement takes effect before whatever is asked after it by the same gateway, and
//! a request waits for at most what is under way and its own round trip. When the connection breaks,
//! what it left unanswered goes first on the next one, in the same order. A settlement that
//! Redis had booked already is known by its number, and a request by its hold, so that nothing
//! counts twice.
//!
//! **Redis away.** A request is told so, at once when it is known and within [`Timing::answer`]
//! otherwise. Settlements wait and are sent in order when Redis is back; those that find no room are
//! counted as [lost](SharedBooks::lost).
//!
//! **Leases.** A hold ends by itself [`Timing::lease`] after its gateway last renewed it, by Redis's
//! clock, when the next request asks in its scope. If its request is settled later after all, what
//! it used is booked. All other times are those of the gateways, whose clocks should agree to within
//! a few seconds.
//!
//! **Keys** begin with `prefixgate:{…}`. A scope has four; runs are kept for 35 days after their last
//! use, days of keys for 3. The keys of one request are in several hash slots, so a Redis Cluster
//! does not work. A Redis that evicts keys without a time to live only (`noeviction`) is required:
//! evicted books begin at 0.

mod answer;
mod call;
mod driver;
mod ping;
mod queue;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use self::answer::{Answer, read_answer};
use self::call::Outcome;
pub use self::ping::{Seen, Unseen, ping};
use self::queue::{Asking, Live, Place, Queue, Settling, Tell};
use super::{Hold, Reserved};
use crate::guard::caps::{Amounts, Ask, Crossing};

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A hold ends so long after it was last renewed.
    pub lease: Duration,
    /// How often holds are renewed; several times in a lease.
    pub renew: Duration,
    /// A connection and an answer are waited for at most so long.
    pub answer: Duration,
    /// Longest pause between attempts to connect.
    pub pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            renew: Duration::from_secs(20),
            answer: Duration::from_millis(500),
            pause: Duration::from_secs(1),
        }
    }
}

/// What the callers and the task that talks to Redis share.
struct Shared {
    queue: Queue,
    live: Live,
    levels: Vec<u32>,
    timing: Timing,
    lost: AtomicU64,
    /// Two attempts in a row have failed, and none has gone well since.
    down: AtomicBool,
}

impl Shared {
    /// Puts a settlement into the queue. One that finds no room is lost.
    fn settle(&self, settling: Settling) {
        if let Err(settling) = self.queue.settle(settling) {
            self.lose(settling);
        }
    }

    /// Gives a settlement up: the hold ends with its lease.
    fn lose(&self, settling: Settling) {
        if settling.outcome != Outcome::Unsent {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        settling.tell(Vec::new());
    }
}

/// See the module. Dropping it ends its task when what is in the queue has been sent, or at once
/// when Redis is away; holds that are left then end with their leases.
pub struct SharedBooks {
    shared: Arc<Shared>,
}

impl fmt::Debug for SharedBooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address: it may hold a password.
        f.debug_struct("SharedBooks")
            .field("waiting", &self.shared.queue.settlements())
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}

impl SharedBooks {
    /// Books in the Redis at `url` (`redis://[user][:password@]host[:port][/db]`, or
    /// `redis+unix:///path`). `levels` are the shares in percent, ascending, at which a [`Crossing`]
    /// is told. Must be called within a tokio runtime. A Redis that is not there is no error: it is
    /// tried again until it is.
    ///
    /// # Errors
    /// The URL is not one; the text does not repeat it.
    #[allow(
        clippy::unused_async,
        reason = "needs a runtime, like all that comes after"
    )]
    pub async fn connect(url: &str, levels: Vec<u32>) -> Result<Self, String> {
        Self::connect_timed(url, levels, Timing::default())
    }

    /// As [`SharedBooks::connect`], with other times.
    ///
    /// # Errors
    /// As there.
    pub fn connect_timed(url: &str, levels: Vec<u32>, timing: Timing) -> Result<Self, String> {
        let client = ::redis::Client::open(url).map_err(|e| format!("not a Redis URL: {e}"))?;
        let shared = Arc::new(Shared {
            queue: Queue::default(),
            live: Live::default(),
            levels,
            timing,
            lost: AtomicU64::new(0),
            down: AtomicBool::new(false),
        });
        tokio::spawn(driver::run(Arc::clone(&shared), client));
        Ok(Self { shared })
    }

    /// Asks. All scopes grant it, or nothing is held; if this future is dropped, nothing is either.
    pub async fn reserve(&self, ask: Ask) -> Reserved {
        let ask = Arc::new(ask);
        let id = Uuid::new_v4().as_u128();
        if ask.scopes.is_empty() {
            return Reserved::Granted {
                hold: Hold {
                    ask,
                    id,
                    local: false,
                },
                left: Vec::new(),
                crossings: Vec::new(),
            };
        }
        let place = Arc::new(Place::default());
        let (reply, answer) = oneshot::channel();
        let asking = Asking::new(id, Arc::clone(&ask), Arc::clone(&place), reply);
        if self.shared.queue.ask(asking).is_err() {
            return Reserved::Unavailable("too many requests wait for Redis".into());
        }
        let mut regret = Regret {
            shared: &self.shared,
            ask: &ask,
            id,
            place: &place,
            armed: true,
        };
        let limit = self.shared.timing.answer;
        let value = match tokio::time::timeout(limit, answer).await {
            Ok(Ok(Ok(value))) => value,
            Ok(Ok(Err(why))) => return Reserved::Unavailable(why),
            Ok(Err(_)) => return Reserved::Unavailable("the connection to Redis has ended".into()),
            Err(_) => {
                let ms = limit.as_millis();
                return Reserved::Unavailable(format!("Redis did not answer within {ms} ms"));
            }
        };
        match read_answer(&ask, value) {
            Ok(Answer::Granted { left, crossings }) => {
                regret.armed = false;
                drop(regret);
                self.shared.live.add(id, &ask);
                Reserved::Granted {
                    hold: Hold {
                        ask,
                        id,
                        local: false,
                    },
                    left,
                    crossings,
                }
            }
            Ok(Answer::Denied { denied, crossings }) => {
                regret.armed = false;
                Reserved::Denied { denied, crossings }
            }
            Err(why) => Reserved::Unavailable(why),
        }
    }

    /// Puts what was used in the place of what was held. `agent_ended`: the agent that asked has
    /// nothing more to do. `tell` hears of levels that were reached; it is called once, later and by
    /// another task, and must not block. Takes effect before whatever is asked later.
    pub fn settle(
        &self,
        hold: Hold,
        used: Amounts,
        agent_ended: bool,
        now_ms: i64,
        tell: Box<dyn FnOnce(Vec<Crossing>) + Send>,
    ) {
        self.shared.live.remove(hold.id);
        let settling = Settling {
            id: hold.id,
            ask: hold.ask,
            used,
            outcome: if agent_ended {
                Outcome::Ended
            } else {
                Outcome::Open
            },
            now_ms,
            number: None,
            tell: Tell(Some(tell)),
        };
        if settling.ask.scopes.is_empty() {
            settling.tell(Vec::new());
        } else {
            self.shared.settle(settling);
        }
    }

    /// Settlements that were given up: there was no room for them, or Redis refused them for good.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Whether Redis answers, as far as is known: one connection that breaks says nothing yet, and
    /// one on which nothing happens is tried with each renewal.
    #[must_use]
    pub fn is_up(&self) -> bool {
        !self.shared.down.load(Ordering::Relaxed)
    }

    /// Settlements that have not been booked yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queue.settlements()
    }

    /// Waits until all settlements have been booked or lost, but not longer than `within`. Says
    /// whether they have. For the end of a gateway.
    pub async fn flush(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.shared.queue.settled())
            .await
            .is_ok()
    }
}

impl Drop for SharedBooks {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// Gives back what Redis may have granted to somebody who did not wait for the answer.
struct Regret<'a> {
    shared: &'a Shared,
    ask: &'a Arc<Ask>,
    id: u128,
    place: &'a Place,
    armed: bool,
}

impl Drop for Regret<'_> {
    fn drop(&mut self) {
        if self.armed && !self.place.give_up() {
            self.shared.settle(Settling {
                id: self.id,
                ask: Arc::clone(self.ask),
                used: Amounts::default(),
                outcome: Outcome::Unsent,
                now_ms: self.ask.now_ms,
                number: None,
                tell: Tell(None),
            });
        }
    }
}
