//! The books of caps: asked before a request goes upstream, told when it has ended.
//!
//! What the books decide is in [`crate::guard::caps::books`]; here is where they are kept, and what
//! they begin with.

mod local;
pub mod seeds;

pub mod redis;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::local::LocalBooks;
use self::redis::SharedBooks;

use crate::guard::caps::{Amounts, Ask, Crossing, Denied, Left, Scope};
use crate::trace::metrics::LedgerStats;

/// What is known of a scope from earlier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed {
    /// What it has used.
    pub spent: Amounts,
    /// Start of its first request, UTC milliseconds.
    pub first_ms: Option<i64>,
}

/// Where the books of scopes that this process has not seen yet begin.
pub trait Seeds: Send + Sync + std::fmt::Debug + 'static {
    /// What the scope has used so far. May block.
    ///
    /// # Errors
    /// It cannot be found out; the text says why.
    fn seed(&self, scope: &Scope) -> Result<Seed, String>;
}

/// What a request under way holds. It is given back by [`Ledger::settle`], and by nothing else.
#[derive(Debug)]
pub struct Hold {
    /// What was asked.
    pub ask: Arc<Ask>,
    /// Names the hold in its books.
    pub id: u128,
    /// Those are the books of this process.
    pub local: bool,
}

/// The answer to a request that asks.
#[derive(Debug)]
pub enum Reserved {
    /// It may go upstream.
    Granted {
        /// To be given back.
        hold: Hold,
        /// What is left in each scope with it under way.
        left: Vec<(Scope, Left)>,
        /// Levels that were reached by asking (time passes without spending).
        crossings: Vec<Crossing>,
    },
    /// A cap does not let it.
    Denied {
        /// Which one.
        denied: Box<Denied>,
        /// As above. A denial is no level: what was asked has not been used.
        crossings: Vec<Crossing>,
    },
    /// The books cannot be reached; the text says why.
    Unavailable(String),
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    kept: Kept,
    /// Requests that the books of this process decided on while the shared ones were away.
    fallback: AtomicU64,
}

/// Where the books are kept.
#[derive(Debug)]
enum Kept {
    /// In this process.
    Local(LocalBooks),
    /// In Redis, for several gateways; and in this process while that cannot be reached, where the
    /// settings say so.
    Shared(SharedBooks, Option<LocalBooks>),
}

impl Ledger {
    /// Books of this process, which begin with what `seeds` know. `levels` are the shares in
    /// percent, ascending, at which a [`Crossing`] is told.
    #[must_use]
    pub fn local(seeds: Arc<dyn Seeds>, levels: Vec<u32>) -> Self {
        Self::of(Kept::Local(LocalBooks::new(seeds, levels)))
    }

    /// Books that several gateways share. While they cannot be reached, requests go by the books of
    /// this process where there are `local` ones, and are told so otherwise. To be called inside a
    /// Tokio runtime.
    ///
    /// # Errors
    /// The URL is none of Redis; the text says why. A Redis that is away is no error.
    pub async fn shared(
        url: &str,
        local: Option<Arc<dyn Seeds>>,
        levels: Vec<u32>,
    ) -> Result<Self, String> {
        let shared = SharedBooks::connect(url, levels.clone()).await?;
        let local = local.map(|seeds| LocalBooks::new(seeds, levels));
        Ok(Self::of(Kept::Shared(shared, local)))
    }

    fn of(kept: Kept) -> Self {
        Self {
            kept,
            fallback: AtomicU64::new(0),
        }
    }

    /// How shared books stand; `None` with those of this process alone.
    #[must_use]
    pub fn stats(&self) -> Option<LedgerStats> {
        match &self.kept {
            Kept::Local(_) => None,
            Kept::Shared(shared, _) => Some(LedgerStats {
                up: shared.is_up(),
                fallback: self.fallback.load(Ordering::Relaxed),
                waiting: shared.waiting(),
                lost: shared.lost(),
            }),
        }
    }

    /// Waits until what ended has been told to shared books, for at most so long; whether it has.
    pub async fn flush(&self, within: Duration) -> bool {
        match &self.kept {
            Kept::Local(_) => true,
            Kept::Shared(shared, _) => shared.flush(within).await,
        }
    }

    /// Asks. All scopes grant it, or nothing is held. To be called inside a Tokio runtime.
    pub async fn reserve(&self, ask: Ask) -> Reserved {
        match &self.kept {
            Kept::Local(books) => books.reserve(ask).await,
            Kept::Shared(shared, None) => shared.reserve(ask).await,
            Kept::Shared(shared, Some(local)) => match shared.reserve(ask.clone()).await {
                Reserved::Unavailable(why) => {
                    tracing::debug!(why, "shared books are away; those of this process decide");
                    self.fallback.fetch_add(1, Ordering::Relaxed);
                    local.reserve(ask).await
                }
                reserved => reserved,
            },
        }
    }

    /// Puts what was used in the place of what was held. `agent_ended`: the agent that asked has
    /// nothing more to do. `tell` hears of levels that were reached; it is called once, at once
    /// with books of this process, later with shared ones.
    pub fn settle(
        &self,
        hold: Hold,
        used: Amounts,
        agent_ended: bool,
        now_ms: i64,
        tell: impl FnOnce(Vec<Crossing>) + Send + 'static,
    ) {
        match &self.kept {
            Kept::Local(books) | Kept::Shared(_, Some(books)) if hold.local => {
                tell(books.settle(&hold, &used, agent_ended, now_ms));
            }
            Kept::Shared(shared, _) => {
                shared.settle(hold, used, agent_ended, now_ms, Box::new(tell));
            }
            // Books of this process give no other holds.
            Kept::Local(_) => tell(Vec::new()),
        }
    }
}
