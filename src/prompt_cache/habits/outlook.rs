//! From counts to probabilities.

use super::counts::{Gaps, Kept, STOPS};
use super::{
    App, H1_MS, Habits, Hash, Kind, M5_MS, Root, Stop, Survived, TRANSITIONS, Thread, Waiting, age,
};

/// Chances that something is wanted again in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Within {
    /// Within five minutes.
    pub m5: f64,
    /// Within an hour (includes `m5`).
    pub h1: f64,
}

/// How much of a conversation the next turn keeps, where it does not keep all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stable {
    /// That many leading blocks: one place changes again and again.
    Blocks(u32),
    /// All but that many blocks at the end.
    AllBut(u32),
}

/// What is asked about; the request has been reported by [`Habits::arrived`] before.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// As in the arrival.
    pub app: u64,
    /// As in the arrival.
    pub root: Hash,
    /// As in the arrival.
    pub thread: u64,
    /// As in the arrival.
    pub turn: u32,
    /// What kind of request it is.
    pub kind: Kind,
    /// The request makes the model call one certain tool, as calls for structured output do, which
    /// are rarely followed. `false` where that is not known.
    pub forced: bool,
    /// The root was seen before, by somebody who remembers longer than this process.
    pub root_seen: bool,
    /// UTC milliseconds.
    pub now_ms: i64,
}

/// What is likely to come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// The thread has another turn; gaps count from this request's start.
    pub next: Within,
    /// Gaps after any turn of this app's threads: what a lifetime is chosen by.
    pub thread: Within,
    /// The same tools and system are used again, by this or another thread.
    pub root: Within,
    /// The same app asks again, by this or another thread.
    pub app: Within,
    /// Chance that the tool definitions are the same on the thread's next turn.
    pub tools: f64,
    /// Chance that tools and system are.
    pub head: f64,
    /// Chance that the whole request is.
    pub all: f64,
    /// What is likely to be kept of the conversation besides, and how likely.
    pub stable: Option<(Stable, f64)>,
    /// Tokens that are new in a turn, per token that the turn before had already.
    pub growth: f64,
    /// Tools and system were seen before.
    pub root_seen: bool,
}

impl Within {
    /// Both chances, under a condition of this chance.
    fn times(self, condition: f64) -> Self {
        Self {
            m5: self.m5 * condition,
            h1: self.h1 * condition,
        }
    }
}

/// From so many uses on a root speaks for itself.
const ROOT_USES: f64 = 3.0;
/// What priors of gaps count for, in events: so little that three calls decide.
const GAP_PRIOR: f64 = 0.7;
/// The same for the gaps of whole threads, where a wrong guess lasts for a thread.
const THREAD_PRIOR: f64 = 2.0;
/// The same for what survives.
const SURVIVAL_PRIOR: f64 = 1.5;
/// The same for which share of the answers ask for tools.
const SHARE_PRIOR: f64 = 0.5;
/// How an older transition of a thread counts beside the next newer one.
const FADE: f64 = 0.75;
/// What is left of the chance of what stands behind a clock, a counter or an id.
const BEHIND_VOLATILE: f64 = 0.1;
/// Transitions back in which a changed place of the conversation is looked for.
const PLACES: usize = 3;
/// Bytes of history that the prior of growth counts for.
const GROWTH_BYTES: f64 = 50_000.0;
/// New tokens per old one in a thread about which nothing is known.
const GROWTH: f64 = 0.15;
/// No pending turn counts for more than this before its time is up.
const PENDING: f64 = 0.95;

impl Habits {
    /// What is likely to come after a request.
    #[must_use]
    pub fn outlook(&self, question: &Question) -> Outlook {
        let nobody = App::default();
        let app = self.apps.get(&question.app).unwrap_or(&nobody);
        let root = self.roots.get(&question.root).copied().unwrap_or_default();
        let thread = self
            .threads
            .get(&question.thread)
            .copied()
            .unwrap_or_default();
        let Question {
            kind, root_seen, ..
        } = *question;
        let root_seen = root_seen || root.threads > 1 || root.uses.total() > 0.0;
        let level = |of: fn(&Survived) -> bool, app: &Kept, prior| {
            thread.survival(of, app.share(prior, SURVIVAL_PRIOR))
        };
        let tools = level(|s| s.tools, &app.tools, 0.99);
        let head = level(|s| s.head, &app.head, 0.97).min(tools);
        let all = level(|s| s.all, &app.all, 0.95).min(head);
        Outlook {
            next: app.next(question),
            thread: app.any_turn(question),
            root: of_root(app, &root, root_seen, kind).times(match root.uses.total() {
                // Hardly seen yet: it returns no more often than heads of this thread survive.
                ..ROOT_USES => head,
                _ => 1.0,
            }),
            app: within(&app.uses, 0.0, 0.0, Within { m5: 0.3, h1: 0.4 }, 1.0),
            tools,
            head,
            all,
            stable: thread
                .stable(head)
                .map(|(stable, share)| (stable, share.max(all))),
            growth: app.sizes.ratio(GROWTH, GROWTH_BYTES),
            root_seen,
        }
        .sane()
    }
}

impl Outlook {
    /// Nothing is known but the kind of request.
    #[must_use]
    pub fn prior(kind: Kind, root_seen: bool) -> Self {
        Habits::new().outlook(&Question {
            app: 0,
            root: Hash::default(),
            thread: 0,
            turn: if kind == Kind::Chat { 2 } else { 1 },
            kind,
            forced: false,
            root_seen,
            now_ms: 0,
        })
    }

    /// Later is never less likely than sooner.
    fn sane(mut self) -> Self {
        for within in [
            &mut self.next,
            &mut self.thread,
            &mut self.root,
            &mut self.app,
        ] {
            within.h1 = within.h1.max(within.m5);
        }
        self
    }
}

/// The chances of counts and of an assumption that counts for `weight` events; `open5` and `open1h`
/// are events that are not over and look like failures.
fn within(gaps: &Gaps, open5: f64, open1h: f64, prior: Within, weight: f64) -> Within {
    let (soon, hour) = (f64::from(gaps.soon), f64::from(gaps.hour));
    let total = gaps.total() + weight;
    Within {
        m5: (prior.m5 * weight + soon) / (total + open5),
        h1: (prior.h1 * weight + soon + hour) / (total + open1h),
    }
}

/// Gaps after an answer, from nothing but the shape of the request. After calls of tools 0.74 % of
/// the gaps that end are over five minutes, after other answers 37 % (public measurement of 2026).
fn prior(kind: Kind, first: bool, forced: bool, stop: Stop) -> Within {
    let (m5, h1) = match (stop, kind, first) {
        (Stop::ToolUse, ..) if forced && first => (0.15, 0.2),
        (Stop::ToolUse, ..) => (0.97, 0.98),
        (_, Kind::Lone, true) => (0.08, 0.12),
        (_, Kind::Lone, false) => (0.3, 0.4),
        (_, Kind::Agent, true) => (0.4, 0.55),
        (_, Kind::Agent | Kind::Chat, _) => (0.5, 0.7),
    };
    Within { m5, h1 }
}

/// Share of the answers that ask for tools.
fn asks(kind: Kind, forced: bool) -> f64 {
    match kind {
        Kind::Lone | Kind::Chat => 0.0,
        Kind::Agent if forced => 1.0,
        Kind::Agent => 0.8,
    }
}

impl App {
    /// Whether the thread's next turn comes in time: the chances by why answers end, weighed by how
    /// often they end so.
    fn next(&self, question: &Question) -> Within {
        let class = age(question.turn);
        let first = class == 0 && question.kind != Kind::Chat;
        let Some(stops) = self.gaps.get(usize::from(class)) else {
            return prior(question.kind, first, question.forced, Stop::Other);
        };
        let mut sum = Within { m5: 0.0, h1: 0.0 };
        let mut parts = 0.0;
        for stop in STOPS {
            let gaps = stops.of(stop);
            let waiting = self
                .waiting
                .iter()
                .filter(|w| w.stop == stop && w.age == class && w.thread != question.thread);
            let (mut open5, mut open1h, mut number) = (0.0, 0.0, 0.0);
            for waiting in waiting {
                let (m5, h1) = waiting.looks_final(question.now_ms);
                open5 += m5;
                open1h += h1;
                number += 1.0;
            }
            let asks = asks(question.kind, question.forced);
            let usual = if stop == Stop::ToolUse {
                asks
            } else {
                1.0 - asks
            };
            let part = usual * SHARE_PRIOR + gaps.total() + number;
            let prior = prior(question.kind, first, question.forced, stop);
            let chance = within(gaps, open5, open1h, prior, GAP_PRIOR);
            sum.m5 += part * chance.m5;
            sum.h1 += part * chance.h1;
            parts += part;
        }
        Within {
            m5: sum.m5 / parts,
            h1: sum.h1 / parts,
        }
    }

    /// Gaps over all turns of all threads.
    fn any_turn(&self, question: &Question) -> Within {
        let usual = match question.kind {
            Kind::Lone => Within { m5: 0.3, h1: 0.4 },
            Kind::Chat => Within { m5: 0.5, h1: 0.7 },
            Kind::Agent => Within { m5: 0.88, h1: 0.92 },
        };
        let (mut soon, mut hour, mut later) = (0.0, 0.0, 0.0);
        for stops in &self.gaps {
            for stop in STOPS {
                let gaps = stops.of(stop);
                soon += f64::from(gaps.soon);
                hour += f64::from(gaps.hour);
                later += f64::from(gaps.later);
            }
        }
        let (mut open5, mut open1h) = (0.0, 0.0);
        for waiting in self.waiting.iter().filter(|w| w.thread != question.thread) {
            let (m5, h1) = waiting.looks_final(question.now_ms);
            open5 += m5;
            open1h += h1;
        }
        let total = soon + hour + later + THREAD_PRIOR;
        Within {
            m5: (usual.m5 * THREAD_PRIOR + soon) / (total + open5),
            h1: (usual.h1 * THREAD_PRIOR + soon + hour) / (total + open1h),
        }
    }
}

impl Waiting {
    /// How much an open turn looks as if nothing would follow in five minutes, and in an hour.
    ///
    /// Results of tools come fast, people do not. Other threads that the app has begun since are a
    /// sign too, a strong one where only one request was ever made.
    fn looks_final(&self, now_ms: i64) -> (f64, f64) {
        let over = now_ms - self.started_ms;
        let quiet = (now_ms - self.ended_ms).max(0) as f64;
        let share = |half_ms: f64| quiet / (quiet + half_ms);
        let (newer, half5, half1h) = match (self.stop, self.age) {
            (Stop::ToolUse, _) => (0.3, 20_000.0, 60_000.0),
            (_, 0) => (0.3, 150_000.0, 1_800_000.0),
            _ => (0.08, 150_000.0, 1_800_000.0),
        };
        let others = newer * f64::from(self.newer);
        let m5 = if over > M5_MS {
            1.0
        } else {
            (share(half5) + others).min(PENDING)
        };
        let h1 = if over > H1_MS {
            1.0
        } else {
            (share(half1h) + others).min(PENDING)
        };
        (m5, h1.min(m5))
    }
}

fn of_root(app: &App, root: &Root, seen: bool, kind: Kind) -> Within {
    if seen {
        let usual = Within { m5: 0.7, h1: 0.78 };
        return within(&root.uses, 0.0, 0.0, usual, GAP_PRIOR);
    }
    let usual = match kind {
        Kind::Lone => 0.1,
        Kind::Chat => 0.2,
        Kind::Agent => 0.3,
    };
    // This one was counted as one that has not returned.
    let mut returns = app.returns;
    if root.threads == 1 {
        returns.take_back();
    }
    let share = returns.share(usual, SURVIVAL_PRIOR);
    Within {
        m5: 0.75 * share,
        h1: 0.9 * share,
    }
}

impl Thread {
    /// The chance that a level survives, where the app's record says `usual`.
    fn survival(&self, of: impl Fn(&Survived) -> bool, usual: f64) -> f64 {
        let hopeless = self.kept[0].is_some_and(|newest| newest.volatile && !of(&newest));
        self.share(of, usual) * if hopeless { BEHIND_VOLATILE } else { 1.0 }
    }

    /// The share of transitions of which `of` holds, recent ones before others; what is usual
    /// counts like the newest.
    fn share(&self, of: impl Fn(&Survived) -> bool, usual: f64) -> f64 {
        let (mut sum, mut weights, mut weight) = (usual, 1.0, 1.0);
        for survived in self.kept.iter().flatten() {
            if of(survived) {
                sum += weight;
            }
            weights += weight;
            weight *= FADE;
        }
        sum / weights
    }

    /// Which part of the conversation a thread keeps that does not keep all of it.
    fn stable(&self, usual: f64) -> Option<(Stable, f64)> {
        let changed = |s: &&Survived| s.head && !s.all;
        let (at, newest) = self.kept[..PLACES.min(TRANSITIONS)]
            .iter()
            .enumerate()
            .find_map(|(at, kept)| Some((at, kept.as_ref().filter(changed)?)))?;
        let before = self.kept[at + 1..].iter().flatten().find(changed);
        let again = match before {
            Some(before) => before.shared == newest.shared,
            None => newest.volatile,
        };
        Some(if again {
            let blocks = newest.shared;
            let held = self.share(|s| s.all || s.shared >= blocks, usual);
            (Stable::Blocks(blocks), held)
        } else {
            let cut = newest.cut;
            let held = self.share(|s| s.head && s.cut <= cut, usual);
            (Stable::AllBut(cut), held)
        })
    }
}
