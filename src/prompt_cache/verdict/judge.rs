//! From facts to a verdict.

use super::{Change, Reason, Status, Verdict, What, Whose};
use crate::prompt_cache::shadow::{Expected, Known, LOOKBACK};
use crate::prompt_cache::trail::{Past, Trail};
use crate::provider::view::{Automatic, BlockKind, Section, Ttl};
use crate::usage::Usage;

/// What is said of the first turn of a further thread.
const BESIDE: &str = "shares no prefix with the run's other threads: a side call or a sub-agent";

/// What a verdict is made of.
#[expect(missing_debug_implementations, reason = "holds a function")]
pub struct Facts<'a> {
    /// What the provider reported for this turn.
    pub usage: &'a Usage,
    /// This request, with its breakpoints as sent.
    pub now: &'a Trail,
    /// Its start, UTC milliseconds.
    pub started_ms: i64,
    /// The model that answered.
    pub served: Option<&'a str>,
    /// The thread's previous answered request.
    pub past: Option<&'a Past>,
    /// Where its prompt first differs from that.
    pub change: Option<&'a Change>,
    /// What the shadow cache expected.
    pub expected: &'a Expected,
    /// The smallest prefix that the model caches, in tokens.
    pub min_tokens: Option<u32>,
    /// The rules of a cache that needs no breakpoints.
    pub automatic: Option<Automatic>,
    /// The run has another thread that is older: a first turn without a prefix in common with it
    /// is a side call or a sub-agent.
    pub beside: bool,
    /// The price of a usage of this turn's model and tier, in pico-USD.
    pub price: &'a dyn Fn(&Usage) -> Option<u64>,
}

/// Why less was read than was there.
struct Cause {
    reason: Reason,
    whose: Whose,
    detail: String,
    /// JSON path, for settings; a change brings its own.
    path: Option<&'static str>,
    /// The change is the cause.
    by_change: bool,
}

impl Cause {
    fn new(reason: Reason, whose: Whose, detail: impl Into<String>) -> Self {
        Self {
            reason,
            whose,
            detail: detail.into(),
            path: None,
            by_change: false,
        }
    }
}

/// The verdict of a turn; `Err` with a stable word when the provider reported too little for one.
///
/// # Errors
/// `usage_unknown`: neither read nor written tokens were reported. `history_held`: something was not
/// read, and what was sent is not known, because the provider holds the conversation.
pub fn judge(facts: &Facts<'_>) -> Result<Verdict, &'static str> {
    let usage = facts.usage;
    let (Some(read), Some(written), Some(prompt)) = (usage.read, usage.written(), usage.prompt())
    else {
        return Err("usage_unknown");
    };
    let there = match facts.past {
        Some(past) => past.readable().unwrap_or(0),
        // Nobody of this thread has written anything; others may have.
        None => facts
            .expected
            .alive
            .and_then(|known| known.tokens)
            .unwrap_or(0),
    };
    // What is not sent any more cannot be lost.
    let there = there.min(prompt);
    // Nor can what is too little to be told.
    let told = |tokens: u64| match facts.automatic {
        Some(rules) => tokens - tokens % u64::from(rules.step.max(1)),
        None => tokens,
    };
    // A conversation that was taken back has lost only what still stands on its new path; so has one
    // of several that go on from one point at the same time.
    let alive = facts.expected.alive.and_then(|known| known.tokens);
    let there = match facts.change {
        Some(change) if goes_beyond(facts, change) => there.min(alive.unwrap_or(read)),
        Some(change) if change.what == What::Rewound => there.min(alive.unwrap_or(0)),
        _ => there,
    };
    let there = told(there);
    if read >= there && read > 0 {
        let status = if written == 0 {
            Status::Hit
        } else {
            Status::Extended
        };
        return Ok(nothing_lost(status));
    }
    let unseen = |trail: &Trail| trail.steps.is_empty();
    if unseen(facts.now) || facts.past.is_some_and(|past| unseen(&past.trail)) {
        return Err("history_held");
    }
    if there == 0 {
        return Ok(first(facts, written, prompt));
    }
    let lost = there - read;
    let cause = cause(facts, read);
    let status = if read == 0 {
        Status::Miss
    } else {
        Status::Partial
    };
    let change = facts.change.filter(|_| cause.by_change);
    Ok(Verdict {
        status,
        reason: Some(cause.reason),
        first_changed: match change {
            Some(change) => Some(change.path.clone()),
            None => cause.path.map(str::to_owned),
        },
        offset: change.and_then(|change| change.offset),
        what: change.map(|change| change.what),
        detail: cause.detail,
        whose: Some(cause.whose),
        lost_tokens: Some(lost),
        lost_pico: unread_pico(usage, lost, facts.price),
        excerpt: change.and_then(|change| change.excerpt.clone()),
    })
}

fn nothing_lost(status: Status) -> Verdict {
    Verdict {
        status,
        reason: None,
        first_changed: None,
        offset: None,
        what: None,
        detail: String::new(),
        whose: None,
        lost_tokens: Some(0),
        lost_pico: Some(0),
        excerpt: None,
    }
}

/// Nothing was there to be read, as far as exact counts say.
fn first(facts: &Facts<'_>, written: u64, prompt: u64) -> Verdict {
    let expected = facts.expected;
    let beside = facts.past.is_none() && facts.beside;
    if written == 0 {
        let (reason, mut detail) = not_written(facts, prompt);
        // A side call is there to be asked once: that it is not cached is no fault of the main
        // conversation, and is said of it beside what it is.
        let mut status = Status::NotCacheable;
        if beside && reason == Reason::NoMarker {
            status = Status::Cold;
            detail = format!("{BESIDE}; {detail}");
        }
        return Verdict {
            reason: Some(reason),
            detail,
            whose: match reason {
                Reason::NotWritten => Some(Whose::Provider),
                Reason::NoMarker => Some(Whose::Client),
                _ => None,
            },
            ..nothing_lost(status)
        };
    }
    if facts.past.is_none() && expected.alive.is_some() {
        // There was an entry of unknown size.
        let cause = unexplained(facts);
        return Verdict {
            reason: Some(cause.reason),
            detail: cause.detail,
            whose: Some(cause.whose),
            lost_tokens: None,
            lost_pico: None,
            ..nothing_lost(Status::Miss)
        };
    }
    if expected.pending.is_some() {
        return Verdict {
            reason: Some(Reason::Concurrent),
            detail: "the same prefix was being written by another request, whose answer had not \
                     begun"
                .to_owned(),
            whose: Some(Whose::Time),
            lost_tokens: None,
            lost_pico: None,
            ..nothing_lost(Status::Cold)
        };
    }
    let detail = if expected.expired.is_some() {
        "an earlier entry of this prefix had expired"
    } else if beside {
        BESIDE
    } else {
        ""
    };
    Verdict {
        detail: detail.to_owned(),
        ..nothing_lost(Status::Cold)
    }
}

/// Why a request neither read nor wrote.
fn not_written(facts: &Facts<'_>, prompt: u64) -> (Reason, String) {
    let Some(last) = facts.now.last_mark() else {
        return (
            Reason::NoMarker,
            "the request had no cache breakpoint".to_owned(),
        );
    };
    if let Some(min) = facts.min_tokens {
        let (mut until, mut all) = (0_u64, 0_u64);
        for (index, step) in facts.now.steps.iter().enumerate().filter(|(_, s)| s.counts) {
            all += u64::from(step.len);
            if index <= last.at as usize {
                until += u64::from(step.len);
            }
        }
        // The exact prompt, shared out by bytes.
        let prefix = u128::from(prompt) * u128::from(until) / u128::from(all.max(1));
        if prompt < u64::from(min) || prefix < u128::from(min) {
            return (
                Reason::BelowMinimum,
                format!("below minimum of {min} tokens for this model"),
            );
        }
    }
    (Reason::NotWritten, "no entry was written".to_owned())
}

/// Why less was read than the thread's previous turn had left.
fn cause(facts: &Facts<'_>, read: u64) -> Cause {
    let Some(past) = facts.past else {
        return unexplained(facts);
    };
    if let Some(cause) = expired(facts, past) {
        return cause;
    }
    if let Some(cause) = other_model(facts, past) {
        return cause;
    }
    if past.trail.fast_beta != facts.now.fast_beta {
        return Cause::new(
            Reason::Beta,
            Whose::Client,
            "the fast-mode beta feature was switched, which is part of the cache's key",
        );
    }
    // A change behind the last breakpoint has cost nothing, nor has one that another request had made
    // before.
    let change = facts.change.filter(|change| {
        let last = past.trail.last_mark();
        last.is_none_or(|mark| change.before <= mark.at) && !goes_beyond(facts, change)
    });
    let level = change.map(|change| change.section);
    if let Some((setting, how)) = setting(&past.trail, facts.now)
        && level.is_none_or(|level| level >= setting.0)
        && !change.is_some_and(|change| follows(setting.1, how, change, facts.now))
    {
        let (_, name) = setting;
        let reason = if name == "speed" {
            Reason::Speed
        } else {
            Reason::Parameter
        };
        let mut cause = Cause::new(reason, Whose::Client, format!("{name} {how}"));
        cause.path = Some(name);
        return cause;
    }
    if let Some(change) = change {
        let reason = match change.section {
            Section::Tools => Reason::Tools,
            Section::System => Reason::System,
            Section::Messages => Reason::Messages,
        };
        let whose = match sent_all_the_same(facts.now, &past.trail, change) {
            true => Whose::Provider,
            false => Whose::Client,
        };
        let mut cause = Cause::new(reason, whose, change.detail.clone());
        cause.by_change = true;
        return cause;
    }
    if past.trail.betas != facts.now.betas && read == 0 && !facts.now.marks.is_empty() {
        return Cause::new(
            Reason::Beta,
            Whose::Client,
            "the set of beta features changed; some of them are part of the cache's key",
        );
    }
    unexplained(facts)
}

/// Whether a fact about the whole conversation (it has images, citations) is another one because of
/// the change of a block: the block is what can be mended.
fn follows(name: &str, how: &str, change: &Change, now: &Trail) -> bool {
    let kind = now.steps.get(change.index as usize).map(|step| step.kind);
    let bears = match name {
        "images" => [BlockKind::Image, BlockKind::ToolResult],
        "citations" => [BlockKind::Document, BlockKind::ToolResult],
        _ => return false,
    };
    // What is gone stood at the first change or behind it; what came may as well stand in the tail.
    how == REMOVED || kind.is_some_and(|kind| bears.contains(&kind))
}

/// Whether a living entry stands on the request's path behind the change: then it goes on from
/// another request than the thread's newest.
fn goes_beyond(facts: &Facts<'_>, change: &Change) -> bool {
    let alive = facts.expected.alive;
    alive.is_some_and(|alive| alive.at >= change.index)
}

/// Whether the client sent the missing block, and the model left it out.
fn sent_all_the_same(now: &Trail, past: &Trail, change: &Change) -> bool {
    let missing = past.steps.get(change.before as usize);
    change.what == What::ThinkingDropped
        && missing.is_some_and(|missing| {
            let mut left_out = now.steps.iter().filter(|step| !step.counts);
            left_out.any(|step| step.hash == missing.hash)
        })
}

/// The lifetime of what the previous turn left was over, and nobody else had renewed it.
fn expired(facts: &Facts<'_>, past: &Past) -> Option<Cause> {
    let mark = past.trail.last_mark()?;
    let lifetime = match mark.ttl {
        Some(ttl) => ttl.ms(),
        None if facts.automatic.is_some() => Automatic::UNPROMISED.0,
        // What this version does not know lives for an unknown time.
        None => return None,
    };
    let gap = facts.started_ms.saturating_sub(past.started_ms);
    let renewed = facts.change.is_none()
        && facts
            .expected
            .alive
            .is_some_and(|alive| alive.at >= mark.at);
    // Where a read renews nothing, the previous turn may have read what was old already.
    let exact = facts.automatic.is_some_and(|rules| rules.at_breakpoints);
    let old = facts
        .expected
        .expired
        .filter(|old| exact && old.at >= mark.at);
    // What outlives the tail was lost by a change before its end, and that can be mended.
    let mut marks = past.trail.marks.iter().rev();
    let outlives = marks.find(|mark| mark.ttl.is_some_and(|ttl| ttl.is_long() && gap < ttl.ms()));
    let broken = outlives
        .zip(facts.change)
        .is_some_and(|(mark, change)| change.before <= mark.at);
    let over = gap >= lifetime || old.is_some();
    (over && !renewed && !broken).then(|| {
        let limit = mark.ttl.map_or(Automatic::UNPROMISED.1, Ttl::word);
        let detail = match gap >= lifetime {
            true => format!(
                "{} passed since the previous turn's request; entries live {limit}",
                span(gap)
            ),
            false => format!("entries live {limit} from when they are written, read or not"),
        };
        Cause::new(Reason::Expired, Whose::Time, detail)
    })
}

fn other_model(facts: &Facts<'_>, past: &Past) -> Option<Cause> {
    let (before, now) = (&*past.trail.model, &*facts.now.model);
    if before != now {
        let detail =
            format!("the client asked for {now} after {before}; each model has its own cache");
        return Some(Cause::new(Reason::Model, Whose::Client, detail));
    }
    let (before, now) = (past.model_served.as_deref()?, facts.served?);
    (before != now).then(|| {
        let detail = format!("{now} answered after {before}, though the same model was asked for");
        Cause::new(Reason::Model, Whose::Provider, detail)
    })
}

/// What became of a setting that is not there any more.
const REMOVED: &str = "was removed";

/// The first setting that changed, by the level at which it acts, and how.
fn setting(before: &Trail, now: &Trail) -> Option<((Section, &'static str), &'static str)> {
    let old = |name| before.settings.iter().find(|s| s.name == name);
    let new = |name| now.settings.iter().find(|s| s.name == name);
    let came = now.settings.iter().filter_map(|s| match old(s.name) {
        None => Some(((s.from, s.name), "was added")),
        Some(old) if old.value != s.value => Some(((s.from, s.name), "changed")),
        Some(_) => None,
    });
    let went = before
        .settings
        .iter()
        .filter(|s| new(s.name).is_none())
        .map(|s| ((s.from, s.name), REMOVED));
    came.chain(went).min_by_key(|((from, _), _)| *from)
}

/// The prompt is the same as far as it was cached.
fn unexplained(facts: &Facts<'_>) -> Cause {
    let expected = facts.expected;
    if facts.now.marks.is_empty() {
        // All that the previous request had were ours, and this time there were none.
        let before = facts.past.map_or(&[][..], |past| &past.trail.marks);
        if !before.is_empty() && before.iter().all(|mark| mark.ours) {
            return Cause::new(
                Reason::NoMarker,
                Whose::Gateway,
                "prefixgate added no cache breakpoint this time, so nothing was looked for",
            );
        }
        return Cause::new(
            Reason::NoMarker,
            Whose::Client,
            "the request had no cache breakpoint, so nothing was looked for",
        );
    }
    let found = expected.read.map_or(-1, |read| i64::from(read.at));
    if expected
        .pending
        .is_some_and(|pending| i64::from(pending.at) > found)
    {
        return Cause::new(
            Reason::Concurrent,
            Whose::Time,
            "the request that writes the prefix had not been answered yet",
        );
    }
    let beyond = |known: Known| i64::from(known.at) > found;
    if facts.automatic.is_some_and(|rules| rules.at_breakpoints)
        && expected.alive.is_some_and(beyond)
    {
        return Cause::new(
            Reason::NoMarker,
            Whose::Client,
            "no breakpoint stands where what had been written ends, and nothing looks back to it",
        );
    }
    if facts.automatic.is_some() {
        return Cause::new(
            Reason::Evicted,
            Whose::Provider,
            "the prefix is the same and in time, and the provider did not read it (another machine \
             may have answered: a key that routes requests keeps them together)",
        );
    }
    // That runs of calls or results count once is newer wording, and not kept everywhere: where
    // something was not read, each block is counted.
    if expected.alive.is_some_and(|alive| {
        i64::from(alive.at) > found || !within_reach(facts.now, alive.at as usize)
    }) {
        return Cause::new(
            Reason::Lookback,
            Whose::Client,
            "more than 20 blocks lie between what had been written and the next breakpoint",
        );
    }
    Cause::new(
        Reason::Evicted,
        Whose::Provider,
        "the prefix is the same and in time, and the provider did not read it",
    )
}

/// Whether a breakpoint finds what ends at this block, if every block counts.
fn within_reach(now: &Trail, at: usize) -> bool {
    let marks = now.marks.iter().map(|mark| mark.at as usize);
    marks.filter(|mark| *mark >= at).any(|mark| {
        let between = now.steps.get(at..=mark).unwrap_or_default();
        between.iter().filter(|step| step.counts).count() <= LOOKBACK
    })
}

/// What so many tokens that were not read cost more than reading them would have, in pico-USD: the
/// price of a usage against the price of the same usage in which they had been read. They lie
/// behind what was read, where the provider bills one-hour writes first, then five-minute writes,
/// then plain input. `None` without a price.
#[must_use]
pub fn unread_pico(
    usage: &Usage,
    tokens: u64,
    price: &dyn Fn(&Usage) -> Option<u64>,
) -> Option<u64> {
    let mut read = *usage;
    let mut left = tokens;
    let mut take = |kind: &mut Option<u64>| {
        let taken = kind.unwrap_or(0).min(left);
        *kind = kind.map(|tokens| tokens - taken);
        left -= taken;
    };
    take(&mut read.write_1h);
    take(&mut read.write_12h);
    take(&mut read.write_5m);
    take(&mut read.write_30m);
    take(&mut read.uncached);
    read.read = read.read.map(|before| before + (tokens - left));
    Some(price(usage)?.saturating_sub(price(&read)?))
}

/// A gap for people.
fn span(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        ..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
