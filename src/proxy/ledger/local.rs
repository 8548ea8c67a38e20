//! Books that one process keeps for itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Hold, Reserved, Seed, Seeds};
use crate::guard::caps::books::{Answer, Books, Full};
use crate::guard::caps::{Amounts, Ask, Crossing, Scope};

#[cfg(test)]
mod tests;

/// Scopes with a book.
const MAX_SCOPES: usize = 65_536;
/// How often a request asks whose books are forgotten while others of it are being opened.
const TRIES: usize = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct LocalBooks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    seeds: Arc<dyn Seeds>,
    levels: Vec<u32>,
    state: Mutex<State>,
    /// That scopes cannot be looked up has been logged; until the next one that can.
    warned: AtomicBool,
}

#[derive(Debug)]
struct State {
    books: Books,
    /// Scopes that are being looked up; no more than there are requests that wait for it.
    opening: HashMap<Scope, watch::Receiver<Opened>>,
    /// The id of the newest hold.
    id: u128,
}

/// What became of looking up a scope; `None` while it goes on.
type Opened = Option<Result<(), String>>;

impl LocalBooks {
    pub(super) fn new(seeds: Arc<dyn Seeds>, levels: Vec<u32>) -> Self {
        Self::with_room(seeds, levels, MAX_SCOPES)
    }

    fn with_room(seeds: Arc<dyn Seeds>, levels: Vec<u32>, scopes: usize) -> Self {
        Self(Arc::new(Shared {
            seeds,
            levels,
            state: Mutex::new(State {
                books: Books::new(scopes),
                opening: HashMap::new(),
                id: 0,
            }),
            warned: AtomicBool::new(false),
        }))
    }

    pub(super) async fn reserve(&self, ask: Ask) -> Reserved {
        let ask = Arc::new(ask);
        for _ in 0..TRIES {
            let (id, answer) = self.0.ask(&ask);
            let unknown = match answer {
                Answer::Granted { left, crossings } => {
                    return Reserved::Granted {
                        hold: Hold {
                            ask,
                            id,
                            local: true,
                        },
                        left,
                        crossings,
                    };
                }
                Answer::Denied { denied, crossings } => {
                    return Reserved::Denied { denied, crossings };
                }
                Answer::Unknown(scopes) => scopes,
            };
            for scope in unknown {
                if let Err(why) = self.0.open(scope, ask.now_ms).await {
                    return Reserved::Unavailable(why);
                }
            }
        }
        Reserved::Unavailable("its books were forgotten before they were used".into())
    }

    pub(super) fn settle(
        &self,
        hold: &Hold,
        used: &Amounts,
        agent_ended: bool,
        now_ms: i64,
    ) -> Vec<Crossing> {
        let levels = &self.0.levels;
        let mut state = self.0.lock();
        state
            .books
            .settle(&hold.ask, hold.id, used, agent_ended, now_ms, levels)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, ask: &Ask) -> (u128, Answer) {
        let mut state = self.lock();
        state.id += 1;
        let id = state.id;
        (id, state.books.ask(ask, id, &self.levels))
    }

    /// Opens the book of a scope. Those who ask for the same one meanwhile wait for the same look
    /// at the seeds, which goes on when any of them leaves.
    async fn open(self: &Arc<Self>, scope: Scope, now_ms: i64) -> Result<(), String> {
        let (mut opened, begin) = {
            let mut state = self.lock();
            if state.books.has(&scope) {
                return Ok(());
            }
            if let Some(opened) = state.opening.get(&scope) {
                (opened.clone(), None)
            } else {
                let (tell, opened) = watch::channel(None);
                state.opening.insert(scope.clone(), opened.clone());
                (opened, Some(tell))
            }
        };
        if let Some(tell) = begin {
            let opening = Opening {
                shared: Arc::clone(self),
                scope,
                tell,
                outcome: None,
            };
            tokio::task::spawn_blocking(move || opening.look_up(now_ms));
        }
        let told = opened.wait_for(Option::is_some).await;
        match told.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            Ok(None) | Err(_) => Err("looking up what a scope has used broke off".into()),
        }
    }

    /// Logs that scopes cannot be looked up, once until they can.
    fn note<T>(&self, found: &Result<T, String>) {
        match found {
            Ok(_) => self.warned.store(false, Ordering::Relaxed),
            Err(why) if !self.warned.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    %why,
                    "what capped runs and keys have used cannot be looked up: \
                     their requests are refused"
                );
            }
            Err(_) => {}
        }
    }
}

/// A scope that is being looked up. When this is dropped, however that comes, it is not any more.
struct Opening {
    shared: Arc<Shared>,
    scope: Scope,
    tell: watch::Sender<Opened>,
    outcome: Opened,
}

impl Opening {
    fn look_up(mut self, now_ms: i64) {
        let found = self.shared.seeds.seed(&self.scope);
        self.shared.note(&found);
        self.outcome = Some(found.and_then(|Seed { spent, first_ms }| {
            let mut state = self.shared.lock();
            state
                .books
                .open(self.scope.clone(), &spent, first_ms, now_ms)
                .map_err(|Full| "there are too many runs and keys with caps at once".into())
        }));
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // Before anybody is told: who asks after a failure looks again, and does not hear of it.
        self.shared.lock().opening.remove(&self.scope);
        if self.outcome.is_some() {
            self.tell.send_replace(self.outcome.take());
        }
    }
}
