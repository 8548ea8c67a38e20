//! The comparison for people and for scripts.

use serde::Serialize;

use super::{Compared, Outcome};
use crate::cli::report::money;
use crate::cli::report::table::{Align, Table, clean, count, percent};
use crate::prompt_cache::strategies::{Policy, Tally};
use crate::usage::usd;

/// Runs in the table; JSON has them all.
const TABLE_RUNS: usize = 20;

/// The tables.
pub(super) fn table(compared: &Compared) -> String {
    let estimated = compared.requests - compared.counted;
    // What rests on estimated tokens is marked as such.
    let about = if estimated > 0 { "~" } else { "" };
    let cost = |tally: &Tally| match compared.unpriced {
        unpriced if unpriced == compared.requests => "?".to_owned(),
        _ => format!("{about}{}", money::short(signed(tally.cost_pico))),
    };
    let sent = compared.of(Policy::AsSent);
    let best = compared.of(Policy::Optimum);
    let mut all = Table::new(&[
        ("POLICY", Align::Left),
        ("COST", Align::Right),
        ("HIT", Align::Right),
        ("READ", Align::Right),
        ("WRITTEN", Align::Right),
        ("UNCACHED", Align::Right),
        ("SAVED", Align::Right),
        ("OVER OPTIMUM", Align::Right),
    ]);
    for outcome in &compared.policies {
        let own = &outcome.all;
        let saved = sent.filter(|sent| sent.policy != outcome.policy && sent.all.cost_pico > 0);
        let saved = saved.map(|sent| {
            let saved = signed(sent.all.cost_pico) - signed(own.cost_pico);
            format!(
                "{about}{} ({})",
                money::short(saved),
                percent(ratio(saved, signed(sent.all.cost_pico)))
            )
        });
        let over = best.filter(|best| best.policy != outcome.policy && best.all.cost_pico > 0);
        let over = over.map(|best| {
            let over = signed(own.cost_pico) - signed(best.all.cost_pico);
            percent(ratio(over, signed(best.all.cost_pico)))
        });
        all.row(vec![
            outcome.policy.as_str().into(),
            cost(own),
            hit_ratio(own).map_or_else(|| "?".into(), percent),
            count(own.read),
            count(own.written()),
            count(own.uncached),
            saved.unwrap_or_default(),
            over.unwrap_or_default(),
        ]);
    }
    let mut text = format!(
        "{} in {}\n\n{}",
        many(compared.requests, "request"),
        many(compared.runs.len() as u64, "run"),
        all.render()
    );
    if compared.runs.len() > 1 {
        text.push('\n');
        text.push_str(&runs(compared, &cost));
    }
    text.push('\n');
    for note in notes(compared) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// The cost of each run under each policy.
fn runs(compared: &Compared, cost: &impl Fn(&Tally) -> String) -> String {
    let mut head = vec![("RUN", Align::Left), ("REQUESTS", Align::Right)];
    let policies = compared.policies.iter();
    head.extend(policies.map(|outcome| (outcome.policy.as_str(), Align::Right)));
    let mut table = Table::new(&head);
    for (number, name) in compared.runs.iter().enumerate().take(TABLE_RUNS) {
        let of = |outcome: &Outcome| outcome.runs.get(number).copied().unwrap_or_default();
        let requests = compared.policies.first().map_or(0, |outcome| of(outcome).0);
        let mut cells = vec![clean(name), requests.to_string()];
        cells.extend(compared.policies.iter().map(|outcome| cost(&of(outcome).1)));
        table.row(cells);
    }
    table.render()
}

fn notes(compared: &Compared) -> Vec<String> {
    let mut notes = Vec::new();
    let estimated = compared.requests - compared.counted;
    if estimated > 0 {
        notes.push(format!(
            "tokens of {} are estimated from bytes, and so is what they cost (~)",
            many(estimated, "request")
        ));
    }
    if compared.unpriced > 0 {
        notes.push(format!(
            "{} of models without a known price: not in COST; --model names one to price them as",
            many(compared.unpriced, "request")
        ));
    }
    notes.extend(compared.notes.iter().cloned());
    let sum = |of: fn(&super::Source) -> u64| compared.sources.iter().map(of).sum::<u64>();
    let (skipped, bad) = (sum(|s| s.skipped), sum(|s| s.bad));
    if skipped > 0 {
        notes.push(format!("{skipped} skipped: no turns, or not answered"));
    }
    if bad > 0 {
        notes.push(format!("{bad} could not be used"));
    }
    if compared.runs.len() > TABLE_RUNS {
        notes.push(format!(
            "only the first {TABLE_RUNS} runs; --json has them all"
        ));
    }
    notes.push("COST is that of the prompts; the output costs the same under every policy".into());
    if compared.of(Policy::Optimum).is_some() {
        notes.push(
            "optimum is a lower bound: the whole future is known, and more than four breakpoints allowed"
                .into(),
        );
    }
    notes
}

fn many(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

fn signed(pico: u128) -> i128 {
    i128::try_from(pico).unwrap_or(i128::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people, not money")]
fn ratio(part: i128, whole: i128) -> f64 {
    part as f64 / whole as f64
}

fn hit_ratio(tally: &Tally) -> Option<f64> {
    let prompt = tally.prompt();
    (prompt > 0).then(|| ratio(tally.read.into(), prompt.into()))
}

#[derive(Serialize)]
struct ComparedJson<'a> {
    files: Vec<SourceJson<'a>>,
    requests: u64,
    skipped: u64,
    bad: u64,
    /// Requests whose tokens are estimated from bytes.
    estimated: u64,
    /// Requests of models without a known price; they are in no cost.
    unpriced: u64,
    policies: Vec<PolicyJson<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct SourceJson<'a> {
    name: &'a str,
    requests: u64,
    skipped: u64,
    bad: u64,
}

#[derive(Serialize)]
struct PolicyJson<'a> {
    policy: &'static str,
    #[serde(flatten)]
    sums: SumsJson,
    /// Against the requests as they were sent.
    saving_usd: Option<String>,
    /// How much more it costs than the optimum, as a share of that.
    over_optimum: Option<f64>,
    runs: Vec<RunJson<'a>>,
}

#[derive(Serialize)]
struct RunJson<'a> {
    run: &'a str,
    requests: u64,
    #[serde(flatten)]
    sums: SumsJson,
}

#[derive(Serialize)]
struct SumsJson {
    /// Of the prompts; `null` when no price is known.
    cost_usd: Option<String>,
    hit_ratio: Option<f64>,
    tokens: TokensJson,
}

#[derive(Serialize)]
struct TokensJson {
    prompt: u64,
    read: u64,
    write_5m: u64,
    write_1h: u64,
    uncached: u64,
}

/// One object.
pub(super) fn json(compared: &Compared) -> anyhow::Result<String> {
    let priced = compared.unpriced < compared.requests;
    let sums = |tally: &Tally| SumsJson {
        cost_usd: priced.then(|| usd(signed(tally.cost_pico))),
        hit_ratio: hit_ratio(tally),
        tokens: TokensJson {
            prompt: tally.prompt(),
            read: tally.read,
            write_5m: tally.write_5m,
            write_1h: tally.write_1h,
            uncached: tally.uncached,
        },
    };
    let sent = compared.of(Policy::AsSent).filter(|_| priced);
    let best = compared.of(Policy::Optimum);
    let best = best.filter(|best| best.all.cost_pico > 0);
    let policy = |outcome: &'_ Outcome| {
        let own = signed(outcome.all.cost_pico);
        let runs = compared.runs.iter().zip(&outcome.runs);
        PolicyJson {
            policy: outcome.policy.as_str(),
            sums: sums(&outcome.all),
            saving_usd: sent.map(|sent| usd(signed(sent.all.cost_pico) - own)),
            over_optimum: best.map(|best| {
                let least = signed(best.all.cost_pico);
                ratio(own - least, least)
            }),
            runs: runs
                .map(|(run, (requests, tally))| RunJson {
                    run,
                    requests: *requests,
                    sums: sums(tally),
                })
                .collect(),
        }
    };
    let sources = compared.sources.iter();
    let files = sources.map(|source| SourceJson {
        name: &source.name,
        requests: source.requests,
        skipped: source.skipped,
        bad: source.bad,
    });
    let sum = |of: fn(&super::Source) -> u64| compared.sources.iter().map(of).sum::<u64>();
    let mut text = serde_json::to_string_pretty(&ComparedJson {
        files: files.collect(),
        requests: compared.requests,
        skipped: sum(|s| s.skipped),
        bad: sum(|s| s.bad),
        estimated: compared.requests - compared.counted,
        unpriced: compared.unpriced,
        policies: compared.policies.iter().map(policy).collect(),
        notes: &compared.notes,
    })?;
    text.push('\n');
    Ok(text)
}
