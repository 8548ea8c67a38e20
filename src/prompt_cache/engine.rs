//! What the engine remembers between requests, and the steps of a request through it.
//!
//! Each part has a lock of its own, which is held for one step.

mod file;
mod pasts;
mod prepare;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

pub use self::file::Damaged;
use self::pasts::Pasts;
pub use self::prepare::{Prepared, Request, marks_after};
use super::change::{self, Seen};
use super::habits::{self, Habits, Outlook, Question};
use super::keep::Keep;
use super::shadow::{Expected, Look, Outcome, Shadow};
use super::trail::{Past, Trail};
use super::verdict::Change;
use crate::provider::view::{Block, RequestView, Section, Ttl};
use crate::usage::Usage;

/// Shares of the memory, in eighths: the shadow cache, the texts of recent blocks; the rest is
/// for the threads' newest requests.
const SHADOW_EIGHTHS: usize = 2;
const KEEP_EIGHTHS: usize = 2;

/// The memory of the prompt-cache engine.
#[derive(Debug)]
pub struct Engine {
    shadow: Mutex<Shadow>,
    keep: Mutex<Keep>,
    habits: Mutex<Habits>,
    pasts: Mutex<Pasts>,
    excerpts: bool,
    changes: AtomicU64,
}

/// Texts of so many blocks are copied under one lock.
const LEARNT_AT_ONCE: usize = 16;

/// Blocks of a request whose text is not remembered yet, by their hash.
#[derive(Debug, Default)]
pub struct News(Vec<(u64, Block)>);

impl News {
    /// Nothing is new.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A request beside the previous one of its thread.
#[derive(Debug, Default)]
pub struct Compared {
    /// The thread's previous answered request, as far as it is remembered.
    pub past: Option<Arc<Past>>,
    /// Where this one first differs from it.
    pub change: Option<Change>,
    /// How much of the previous one it keeps.
    pub kept: Option<habits::Transition>,
}

impl Engine {
    /// An empty memory of at most `bytes`. `excerpts`: changes may quote a few bytes.
    #[must_use]
    pub fn new(bytes: usize, excerpts: bool) -> Self {
        let (shadow, keep) = (shadow_bytes(bytes), bytes / 8 * KEEP_EIGHTHS);
        let rest = bytes - shadow - keep;
        Self {
            shadow: Mutex::new(Shadow::new(shadow)),
            keep: Mutex::new(Keep::new(keep)),
            habits: Mutex::new(Habits::new()),
            pasts: Mutex::new(Pasts::new(rest)),
            excerpts,
            changes: AtomicU64::new(0),
        }
    }

    /// Compares a request with the previous one of its thread. What is new in it is to be learnt
    /// ([`Engine::learn`]), for the next comparison.
    pub fn compare(
        &self,
        thread: u64,
        trail: &Trail,
        body: &[u8],
        view: &RequestView,
    ) -> (Compared, News) {
        let past = lock(&self.pasts).get(thread);
        // A conversation that the provider holds shows only what is new.
        let comparable = past
            .as_deref()
            .filter(|past| !past.trail.steps.is_empty() && !trail.steps.is_empty());
        let mut keep = lock(&self.keep);
        let change = comparable.and_then(|past| {
            let seen = Seen {
                body,
                view,
                keep: &keep,
                excerpts: self.excerpts,
            };
            change::first_change(&past.trail, trail, &seen)
        });
        let news = keep.news(comparable.map(|past| &*past.trail), trail, body, view);
        drop(keep);
        let kept = comparable.map(|past| {
            let before = &past.trail;
            let tools = before
                .steps
                .iter()
                .take_while(|s| s.section == Section::Tools);
            habits::Transition {
                prev_len: count(before.steps.len()),
                shared: count(trail.shared(before).theirs),
                tools_len: count(tools.count()),
                head_len: before.head,
                volatile: change.as_ref().is_some_and(Change::volatile),
            }
        });
        (Compared { past, change, kept }, News(news))
    }

    /// Remembers the texts that were new in a request, which costs a copy of them: for when the
    /// request is on its way.
    pub fn learn(&self, body: &[u8], news: &News) {
        // A few at a time, so that nobody waits long for the lock.
        for some in news.0.chunks(LEARNT_AT_ONCE) {
            let mut keep = lock(&self.keep);
            for (hash, block) in some {
                keep.put_block(*hash, body, block);
            }
        }
    }

    /// Takes note of a request, and says what is likely to come after it.
    pub fn outlook(&self, arrival: habits::Arrival, question: &Question) -> Outlook {
        let mut habits = lock(&self.habits);
        habits.arrived(arrival);
        habits.outlook(question)
    }

    /// What a request would find.
    pub fn look(&self, look: &Look<'_>) -> Expected {
        lock(&self.shadow).look(look)
    }

    /// The lifetime with which tools and system of a request live in the provider's cache, or the
    /// tools alone.
    #[must_use]
    pub fn head_lifetime(&self, look: &Look<'_>) -> Option<Ttl> {
        let shadow = lock(&self.shadow);
        let head = look.trail.head as usize;
        (0..head).rev().find_map(|at| shadow.lifetime_at(look, at))
    }

    /// A turn goes upstream with these breakpoints. Gives what it will find.
    pub fn sent(&self, turn: Uuid, look: &Look<'_>) -> Expected {
        lock(&self.shadow).pending(turn, look)
    }

    /// The answer of a turn has begun: what it writes can be read from now on.
    pub fn began(&self, turn: Uuid) {
        lock(&self.shadow).began(turn);
    }

    /// The turn came to nothing.
    pub fn abandoned(&self, turn: Uuid) {
        lock(&self.shadow).abandoned(turn);
    }

    /// The turn was answered.
    pub fn settled(&self, turn: Uuid, usage: &Usage) -> Outcome {
        lock(&self.shadow).settled(turn, usage)
    }

    /// An answer has ended, for what the app has shown.
    pub fn ended(&self, app: u64, thread: u64, stop: habits::Stop, now_ms: i64) {
        lock(&self.habits).ended(app, thread, stop, now_ms);
    }

    /// The thread's newest answered request is this one from now on.
    pub fn remember(&self, thread: u64, past: Arc<Past>) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        let gone = lock(&self.pasts).put(thread, past);
        drop(gone);
    }

    /// Counts what has changed since the start, to see whether there is anything to keep.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Memory in use, roughly: shadow cache, texts, requests.
    #[must_use]
    pub fn bytes(&self) -> [usize; 3] {
        let shadow = lock(&self.shadow).bytes();
        let keep = lock(&self.keep).bytes();
        [shadow, keep, lock(&self.pasts).bytes()]
    }
}

/// The shadow cache's share of the memory.
fn shadow_bytes(all: usize) -> usize {
    all / 8 * SHADOW_EIGHTHS
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A panic while a lock was held leaves a map that is still a map.
fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
