//! Keys and commands: what the scripts are called with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::answer::{short, text};
use super::queue::{Asking, Settling};
use crate::guard::caps::{Amounts, Ask, Cap, Limits, Scope};

/// The scripts, in the order of [`Hashes`].
pub(super) const SCRIPTS: [&str; 3] = [
    concat!(include_str!("common.lua"), include_str!("reserve.lua")),
    concat!(include_str!("common.lua"), include_str!("settle.lua")),
    include_str!("renew.lua"),
];

/// By what Redis calls the scripts.
#[derive(Debug, Clone)]
pub(super) struct Hashes {
    reserve: String,
    settle: String,
    renew: String,
}

impl Hashes {
    /// As loading them was answered.
    pub(super) fn read(values: Vec<Value>) -> Result<Self, String> {
        let mut hashes = values.into_iter().map(text);
        let mut next = || hashes.next().unwrap_or_else(|| Err(short()));
        Ok(Self {
            reserve: next()?,
            settle: next()?,
            renew: next()?,
        })
    }
}

/// The caps in the order in which the scripts check them.
pub(super) const CAPS: [Cap; 10] = [
    Cap::Turns,
    Cap::Usd,
    Cap::Tokens,
    Cap::InputTokens,
    Cap::OutputTokens,
    Cap::WallTime,
    Cap::Depth,
    Cap::Agents,
    Cap::RequestsPerMinute,
    Cap::Concurrency,
];
/// So many of these, the first, have levels.
const LEVELLED: usize = 6;

const DAY_SECS: u64 = 86_400;
/// How long the books of a run are kept after their last use.
const RUN_SECS: u64 = 35 * DAY_SECS;
/// How long those of a day are.
const DAY_SCOPE_SECS: u64 = 3 * DAY_SECS;
/// Leases that one ask looks after at most, in each scope.
const MAX_ENDED: usize = 64;
/// How long an agent stays live after its newest answer, in milliseconds.
const AGENT_LIVE_MS: u64 = 600_000;
/// Holds that one command renews.
const MAX_RENEWED: usize = 500;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its agent goes on.
    Open,
    /// Its agent has nothing more to do.
    Ended,
    /// It was never sent upstream.
    Unsent,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Ended => "ended",
            Self::Unsent => "unsent",
        }
    }
}

/// The first key of a scope. Others add a word to it, so no two scopes share any.
fn base(scope: &Scope) -> String {
    match scope {
        Scope::Run(id) => format!("prefixgate:{{run:{id}}}"),
        Scope::Unnamed(key, day) => format!("prefixgate:{{unnamed:{key}:{day}}}"),
        Scope::Key(key, day) => format!("prefixgate:{{key:{key}:{day}}}"),
    }
}

fn leases(scope: &Scope) -> String {
    format!("{}:leases", base(scope))
}

const fn keep_secs(scope: &Scope) -> u64 {
    match scope {
        Scope::Run(_) => RUN_SECS,
        Scope::Unnamed(..) | Scope::Key(..) => DAY_SCOPE_SECS,
    }
}

/// A call of a script with its keys, those of the scopes last.
fn call(hash: &str, first: Option<String>, scopes: &[(Scope, Limits)]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(hash);
    cmd.arg(4 * scopes.len() + usize::from(first.is_some()));
    if let Some(first) = first {
        cmd.arg(first);
    }
    for (scope, _) in scopes {
        let base = base(scope);
        cmd.arg(&base).arg(format!("{base}:holds"));
        cmd.arg(leases(scope)).arg(format!("{base}:agents"));
    }
    cmd
}

fn amounts(cmd: &mut Cmd, amounts: &Amounts) {
    cmd.arg(amounts.turns).arg(amounts.input);
    cmd.arg(amounts.output).arg(amounts.pico);
}

fn levels_and_scopes(cmd: &mut Cmd, levels: &[u32], scopes: &[(Scope, Limits)], caps: usize) {
    cmd.arg(levels.len());
    for level in levels {
        cmd.arg(*level);
    }
    cmd.arg(scopes.len());
    for (scope, limits) in scopes {
        cmd.arg(keep_secs(scope));
        for (n, cap) in CAPS.into_iter().take(caps).enumerate() {
            let Some(limit) = limits.of(cap) else {
                cmd.arg("");
                continue;
            };
            cmd.arg(limit);
            if n < LEVELLED {
                for level in levels {
                    cmd.arg(mark(limit, *level));
                }
            }
        }
    }
}

/// The least value that has reached a level.
fn mark(limit: u64, level: u32) -> String {
    (u128::from(limit) * u128::from(level))
        .div_ceil(100)
        .to_string()
}

/// The name of a hold.
fn name(id: u128) -> String {
    format!("{id:032x}")
}

/// A request asks.
pub(super) fn ask(hashes: &Hashes, asking: &Asking, lease: Duration, levels: &[u32]) -> Cmd {
    let ask = &asking.ask;
    let mut cmd = call(&hashes.reserve, None, &ask.scopes);
    cmd.arg(name(asking.id)).arg(ask.now_ms);
    cmd.arg(millis(lease)).arg(MAX_ENDED).arg(AGENT_LIVE_MS);
    cmd.arg(&ask.agent).arg(ask.depth);
    amounts(&mut cmd, &ask.most);
    levels_and_scopes(&mut cmd, levels, &ask.scopes, CAPS.len());
    cmd
}

/// A request has ended.
pub(super) fn settle(
    hashes: &Hashes,
    gateway: u128,
    number: u64,
    settling: &Settling,
    levels: &[u32],
) -> Cmd {
    let ask = &settling.ask;
    let gateway = format!("prefixgate:{{gateway:{}}}", name(gateway));
    let mut cmd = call(&hashes.settle, Some(gateway), &ask.scopes);
    cmd.arg(number).arg(RUN_SECS);
    cmd.arg(name(settling.id)).arg(settling.now_ms);
    cmd.arg(ask.now_ms).arg(&ask.agent);
    cmd.arg(settling.outcome.as_str());
    amounts(&mut cmd, &settling.used);
    levels_and_scopes(&mut cmd, levels, &ask.scopes, LEVELLED);
    cmd
}

/// Holds of one scope that are to be renewed.
pub(super) struct Renewal {
    leases: String,
    ids: Vec<u128>,
}

impl Renewal {
    /// All that there is to renew.
    pub(super) fn all(holds: &[(u128, Arc<Ask>)]) -> Vec<Self> {
        let mut of: HashMap<&Scope, Vec<u128>> = HashMap::new();
        for (id, ask) in holds {
            for (scope, _) in &ask.scopes {
                of.entry(scope).or_default().push(*id);
            }
        }
        of.into_iter()
            .flat_map(|(scope, ids)| {
                let leases = leases(scope);
                let chunks = ids.chunks(MAX_RENEWED).map(<[u128]>::to_vec);
                let renewals = chunks.map(move |ids| Self {
                    leases: leases.clone(),
                    ids,
                });
                renewals.collect::<Vec<_>>()
            })
            .collect()
    }

    pub(super) fn cmd(&self, hashes: &Hashes, lease: Duration) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&hashes.renew).arg(1).arg(&self.leases);
        cmd.arg(millis(lease));
        for id in &self.ids {
            cmd.arg(name(*id));
        }
        cmd
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_begins_at_the_first_value_that_has_reached_it() {
        for (limit, level, begins) in [
            (100, 50, "50"),
            (3, 50, "2"),
            (1, 80, "1"),
            (0, 100, "0"),
            (u64::MAX, 100, "18446744073709551615"),
        ] {
            assert_eq!(mark(limit, level), begins);
        }
    }

    #[test]
    fn a_run_cannot_be_named_so_that_it_has_the_keys_of_another_scope() {
        let run = |id: &str| Scope::Run(id.into());
        let day = "2026-11-30".to_owned();
        let scopes = [
            run("a"),
            run("a}"),
            run("a}:leases"),
            run("a}{run:a"),
            Scope::Unnamed("a".into(), day.clone()),
            Scope::Key("a".into(), day),
        ];
        let mut keys: Vec<String> = scopes
            .iter()
            .flat_map(|scope| ["", ":holds", ":leases", ":agents"].map(|s| base(scope) + s))
            .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 4 * scopes.len());
    }
}
