//! What all requests share, from the settings to the books.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use super::intake::Budget;
use super::route::Router;
use super::{guard, keep_warm, warm};
use crate::clock::Clock;
use crate::config::Config;
use crate::prompt_cache::chain::Hasher;
use crate::prompt_cache::engine::Engine;
use crate::redact::{self, Redactor};
use crate::run::Registry;
use crate::trace::Recorder;
use crate::trace::capture::Capture;
use crate::trace::metrics::Metrics;
use crate::usage::PriceBook;

/// Models whose missing price has been logged; later ones are only counted.
const MAX_UNPRICED_LOGGED: usize = 256;

/// What all requests share.
#[derive(Debug)]
pub struct Shared {
    /// Settings.
    pub config: Config,
    /// The way to the upstreams.
    pub router: Router,
    /// Memory for bodies.
    pub budget: Budget,
    /// The time of records and lifetimes.
    pub clock: Clock,
    /// Keyed hashes.
    pub hasher: Hasher,
    /// Lineages.
    pub registry: Registry,
    /// The prompt-cache engine's memory.
    pub engine: Engine,
    /// Where requests with a common prefix wait for each other.
    pub gate: warm::Gate,
    /// Threads whose prefix is kept warm in a pause.
    pub keeper: Arc<keep_warm::Keeper>,
    /// Prices.
    pub prices: PriceBook,
    /// The way to the store.
    pub recorder: Recorder,
    /// Counters.
    pub metrics: Metrics,
    /// Loops and caps.
    pub guards: guard::Guards,
    /// What is taken out of every text that is kept, where that is more than the built-in rules: those
    /// are compiled when there is a first text, which most gateways never have.
    pub redactor: Option<Arc<Redactor>>,
    /// Where the content of turns is kept; `None` where no application's is.
    pub capture: Option<Capture>,
    /// Models already complained about.
    pub unpriced: Mutex<HashSet<String>>,
    /// Told when no request is under way any more.
    pub idle: Notify,
    /// Turns `true` when what still runs is cut by the shutdown.
    pub cut: watch::Sender<bool>,
}

impl Shared {
    /// Waits until no request is under way: all accounts are closed, their records handed over.
    pub async fn quiet(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // From here on no change is missed.
            idle.as_mut().enable();
            if self.metrics.in_flight.get() <= 0 {
                return;
            }
            idle.await;
        }
    }

    /// A text of others as it may be kept.
    pub(super) fn clean(&self, text: &str) -> String {
        let own = self.redactor.as_deref();
        own.unwrap_or_else(|| redact::built_in()).clean(text)
    }

    /// Logs a model without a price, once.
    pub(super) fn warn_unpriced(&self, model: &str, reason: &str) {
        let mut logged = self.unpriced.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_UNPRICED_LOGGED && logged.insert(model.to_owned()) {
            let model = crate::text::prefix(model, 128);
            tracing::warn!(
                model,
                reason,
                "no price: the cost of this model is unknown; add a [[price]]"
            );
        }
    }
}
