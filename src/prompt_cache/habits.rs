//! What an app has shown: whether its turns are followed, after how long, and how much of a prefix
//! survives until then.
//!
//! Everything is learnt from what arrives, not from what the cache did, so nothing has to be marked
//! to find out. Pure and bounded; counts are integers that are halved when they grow, so old days
//! fade. It starts anew with each process, from priors: what is lost by that is a premium on a
//! handful of turns.
//!
//! Gaps run from the start of one request to the start of the next, as lifetimes do.

mod counts;
mod outlook;
mod recent;

use std::collections::VecDeque;

use super::chain::Hash;
use crate::provider::view::{RequestView, Role};
use counts::{Gap, Gaps, Kept, SizeSums, Stops};
pub use outlook::{Outlook, Question, Stable, Within};
use recent::Recent;

/// Five minutes, in milliseconds.
pub const M5_MS: i64 = 300_000;
/// One hour, in milliseconds.
pub const H1_MS: i64 = 3_600_000;

/// Apps of one generation; two are kept, an app is about 4 kB.
const APPS: usize = 512;
/// Roots of one generation.
const ROOTS: usize = 4096;
/// Threads of one generation; a thread is about 200 bytes.
const THREADS: usize = 16_384;
/// Ended turns of an app that wait for their successor. When more do, the oldest is judged early.
const WAITING: usize = 64;
/// Transitions of a thread that are remembered.
const TRANSITIONS: usize = 8;
/// Classes of turns by their number: the first, the second, up to the eighth, later ones.
const AGES: usize = 4;

/// What kind of request it is, as far as its shape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No tools, and no answer that the conversation went on from.
    Lone,
    /// A conversation without tools.
    Chat,
    /// With tools.
    Agent,
}

impl Kind {
    /// Of a request. An assistant message at the end only prefills the first answer.
    #[must_use]
    pub fn of(view: &RequestView) -> Self {
        let answered = view.messages.split_last().is_some_and(|(_, earlier)| {
            earlier
                .iter()
                .any(|message| message.role == Role::Assistant)
        });
        match (view.tools, answered) {
            (0, false) => Self::Lone,
            (0, true) => Self::Chat,
            _ => Self::Agent,
        }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The model waits for results of tools.
    ToolUse,
    /// Anything else that is an answer.
    Other,
    /// There is no answer; nothing is learnt from it.
    Failed,
}

/// How a request compares with the answered one before it in its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Blocks of the previous request.
    pub prev_len: u32,
    /// Leading blocks that both have in common: index of the first block of the previous request
    /// that is another one now, `prev_len` if none is ([`super::trail::Shared::theirs`] of this
    /// request's trail against the earlier one's).
    pub shared: u32,
    /// Blocks of the previous request that are tool definitions.
    pub tools_len: u32,
    /// Blocks of the previous request before its first message.
    pub head_len: u32,
    /// The first difference is one that will come again: a clock, a counter, an id, tools in an
    /// order that is not kept.
    pub volatile: bool,
}

/// A request that has been placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Hash of what tells apps apart: credential, upstream, label or client name, the set of the
    /// tools' names.
    pub app: u64,
    /// Hash of tools and system, of a model.
    pub root: Hash,
    /// Hash of the thread.
    pub thread: u64,
    /// 1-based number of the turn in its thread.
    pub turn: u32,
    /// Size of the prompt in bytes.
    pub bytes: u64,
    /// What became of the previous request's blocks; `None` for the first turn, and where the
    /// previous one is not remembered.
    pub shared: Option<Transition>,
    /// Start of the request, UTC milliseconds.
    pub now_ms: i64,
}

/// An ended turn that waits for its successor.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    thread: u64,
    stop: Stop,
    age: u8,
    /// Start of its request.
    started_ms: i64,
    ended_ms: i64,
    /// Threads of the app that have started since it ended.
    newer: u8,
}

#[derive(Debug, Clone, Default)]
struct App {
    /// Gaps to a thread's next turn, by age and stop.
    gaps: [Stops; AGES],
    waiting: VecDeque<Waiting>,
    /// Gaps between any two arrivals: of use of its tools.
    uses: Gaps,
    /// How often a root that was new was used again by another thread's first turn.
    returns: Kept,
    /// How often the tools, the head and all of a request survived.
    tools: Kept,
    head: Kept,
    all: Kept,
    sizes: SizeSums,
    last_ms: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Root {
    uses: Gaps,
    threads: u32,
    last_ms: i64,
    last_thread: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    app: u64,
    turn: u32,
    bytes: u64,
    started_ms: i64,
    /// The newest first.
    kept: [Option<Survived>; TRANSITIONS],
}

/// What survived of a request until the next one.
#[derive(Debug, Clone, Copy)]
struct Survived {
    tools: bool,
    head: bool,
    all: bool,
    shared: u32,
    /// Blocks at the end that did not survive.
    cut: u32,
    volatile: bool,
}

/// What all apps have shown.
#[derive(Debug)]
pub struct Habits {
    apps: Recent<u64, App>,
    roots: Recent<Hash, Root>,
    threads: Recent<u64, Thread>,
}

impl Default for Habits {
    fn default() -> Self {
        Self::new()
    }
}

impl Habits {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            apps: Recent::new(APPS),
            roots: Recent::new(ROOTS),
            threads: Recent::new(THREADS),
        }
    }

    /// A request has come. A retry of a turn that has come already teaches nothing.
    pub fn arrived(&mut self, arrival: Arrival) {
        let Arrival {
            app,
            root,
            thread: id,
            turn,
            bytes,
            shared,
            now_ms,
        } = arrival;
        let thread = self.threads.entry(id);
        let known = thread.turn > 0;
        if known && thread.turn == turn && thread.app == app {
            return;
        }
        let before = *thread;
        *thread = Thread {
            app,
            turn,
            bytes,
            started_ms: now_ms,
            ..before
        };
        let survived = shared.map(Survived::of);
        if let Some(survived) = survived {
            thread.kept.rotate_right(1);
            thread.kept[0] = Some(survived);
        }
        if known {
            // The turn before may have been counted under another set of tools.
            self.apps.entry(before.app).followed(id, now_ms);
        }
        let app = self.apps.entry(app);
        app.settle(now_ms);
        if app.last_ms != 0 {
            app.uses.add(Gap::of(now_ms - app.last_ms));
        }
        app.last_ms = now_ms;
        if !known {
            for waiting in &mut app.waiting {
                waiting.newer = waiting.newer.saturating_add(1);
            }
        }
        if let Some(survived) = survived {
            let weight = if survived.volatile {
                VOLATILE_WEIGHT
            } else {
                1
            };
            app.tools.add(survived.tools, weight);
            app.head.add(survived.head, weight);
            app.all.add(survived.all, weight);
        }
        app.sizes.add(known.then_some(before.bytes), bytes);

        let root = self.roots.entry(root);
        if root.last_ms != 0 {
            root.uses.add(Gap::of(now_ms - root.last_ms));
        }
        if root.threads == 0 || (!known && root.last_thread != id) {
            match root.threads {
                // Whether it returns is not known yet; until it does it counts as a root that did not.
                0 => app.returns.add(false, 1),
                1 => app.returns.correct(),
                _ => {}
            }
            root.threads = root.threads.saturating_add(1);
        }
        root.last_ms = now_ms;
        root.last_thread = id;
    }

    /// An answer has ended; `app` and `thread` are those of its arrival.
    pub fn ended(&mut self, app: u64, thread: u64, stop: Stop, now_ms: i64) {
        if stop == Stop::Failed {
            return;
        }
        let Some(of) = self.threads.get(&thread).copied() else {
            return;
        };
        let app = self.apps.entry(app);
        app.settle(now_ms);
        app.waiting.retain(|waiting| waiting.thread != thread);
        if app.waiting.len() >= WAITING
            && let Some(oldest) = app.waiting.pop_front()
        {
            app.give_up(oldest, now_ms);
        }
        app.waiting.push_back(Waiting {
            thread,
            stop,
            age: age(of.turn),
            started_ms: of.started_ms,
            ended_ms: now_ms,
            newer: 0,
        });
    }
}

/// What a change that comes again counts for, so that the app's next thread knows it at once.
const VOLATILE_WEIGHT: u16 = 6;

/// The class of a turn's number.
fn age(turn: u32) -> u8 {
    match turn {
        0 | 1 => 0,
        2 => 1,
        3..=8 => 2,
        _ => 3,
    }
}

impl App {
    /// The thread has its next turn.
    fn followed(&mut self, thread: u64, now_ms: i64) {
        let Some(at) = self.waiting.iter().position(|w| w.thread == thread) else {
            return;
        };
        if let Some(waiting) = self.waiting.remove(at) {
            self.count(waiting, Gap::of(now_ms - waiting.started_ms));
        }
    }

    /// Judges turns that nothing can be read of any more.
    fn settle(&mut self, now_ms: i64) {
        while let Some(oldest) = self.waiting.front().copied()
            && now_ms - oldest.started_ms > H1_MS
        {
            self.waiting.pop_front();
            self.count(oldest, Gap::Later);
        }
    }

    /// Judges a turn early: after five minutes it is taken as not followed, before as unknown.
    fn give_up(&mut self, waiting: Waiting, now_ms: i64) {
        if now_ms - waiting.started_ms > M5_MS {
            self.count(waiting, Gap::Later);
        }
    }

    fn count(&mut self, waiting: Waiting, gap: Gap) {
        if let Some(stops) = self.gaps.get_mut(usize::from(waiting.age)) {
            stops.of_mut(waiting.stop).add(gap);
        }
    }
}

impl Survived {
    fn of(transition: Transition) -> Self {
        let Transition {
            prev_len,
            shared,
            tools_len,
            head_len,
            volatile,
        } = transition;
        let all = shared >= prev_len;
        Self {
            // A request without tools or without a head has none to lose.
            tools: shared >= tools_len.min(prev_len),
            head: shared >= head_len.min(prev_len),
            all,
            shared,
            cut: prev_len.saturating_sub(shared),
            volatile: volatile && !all,
        }
    }
}

#[cfg(test)]
mod tests;
