//! `prefixgate report savings`.

use jiff::tz::TimeZone;
use serde::Serialize;

use super::json::{TotalsJson, object};
use super::money;
use super::show::{UNKNOWN, bounded, many, saved, tokens};
use super::table::{Align, Table, percent};
use crate::store::{Compared, Savings, Side, Sum};
use crate::usage::usd;

#[derive(Serialize)]
struct SavingsJson<'a> {
    /// All requests of the range; `saving_usd` is what the cache saved against no cache.
    totals: TotalsJson,
    helpers: Vec<HelperJson<'a>>,
    comparison: Vec<ComparedJson<'a>>,
    /// Runs that each side of a comparison needs.
    comparison_min_runs: u64,
    dry_run: DryRunJson,
}

#[derive(Serialize)]
struct HelperJson<'a> {
    helper: &'a str,
    requests: u64,
    /// Requests that the helper sent itself, and their cost.
    own_requests: u64,
    own_cost_usd: Option<String>,
    tokens: Option<i128>,
    /// Negative where it cost more than it saved.
    saved_usd: Option<String>,
    /// Requests of which it is not known what they saved.
    unknown_requests: u64,
}

#[derive(Serialize)]
struct ComparedJson<'a> {
    app: Option<&'a str>,
    model: Option<&'a str>,
    holdout: SideJson,
    inserted: SideJson,
    /// Whether both sides have enough runs; without, there is no difference.
    enough_runs: bool,
    /// What 1,000 prompt tokens cost less with insertion; negative: more.
    saving_per_1000_prompt_tokens_usd: Option<String>,
    /// The same as a share of their cost without.
    saving_share: Option<f64>,
}

#[derive(Serialize)]
struct SideJson {
    runs: u64,
    turns: u64,
    unpriced_requests: u64,
    cost_per_turn_usd: Option<String>,
    cost_per_1000_prompt_tokens_usd: Option<String>,
    hit_ratio: Option<f64>,
}

impl From<&Side> for SideJson {
    fn from(side: &Side) -> Self {
        Self {
            runs: side.runs,
            turns: side.turns,
            unpriced_requests: side.unpriced,
            cost_per_turn_usd: side.per_turn().map(usd),
            cost_per_1000_prompt_tokens_usd: side.per_thousand().map(usd),
            hit_ratio: side.hit_ratio(),
        }
    }
}

#[derive(Serialize)]
struct DryRunJson {
    turns: u64,
    turns_with_markers: u64,
    markers: u64,
}

/// One object.
pub(super) fn json(savings: &Savings) -> anyhow::Result<String> {
    let helpers = savings.helpers.iter().map(|of| HelperJson {
        helper: &of.helper,
        requests: of.requests,
        own_requests: of.own_requests,
        own_cost_usd: of.own_cost.total().map(usd),
        tokens: of.tokens.total(),
        saved_usd: of.pico.total().map(usd),
        unknown_requests: of.pico.unknown,
    });
    let comparison = savings.compared.iter().map(|of| {
        let saving = of.saving();
        ComparedJson {
            app: of.app.as_deref(),
            model: of.model.as_deref(),
            holdout: SideJson::from(&of.holdout),
            inserted: SideJson::from(&of.inserted),
            enough_runs: of.enough(),
            saving_per_1000_prompt_tokens_usd: saving.map(|(pico, _)| usd(pico)),
            saving_share: saving.map(|(_, share)| share),
        }
    });
    object(&SavingsJson {
        totals: TotalsJson::from(&savings.totals),
        helpers: helpers.collect(),
        comparison: comparison.collect(),
        comparison_min_runs: Compared::MIN_RUNS,
        dry_run: DryRunJson {
            turns: savings.dry_run.turns,
            turns_with_markers: savings.dry_run.turns_planned,
            markers: savings.dry_run.markers,
        },
    })
}

/// The tables.
pub(super) fn show(savings: &Savings, zone: &TimeZone) -> String {
    let totals = &savings.totals;
    if totals.requests == 0 && totals.keep_warm == 0 {
        return "no requests in this range\n".into();
    }
    let mut text = format!(
        "{}, cost {}, the cache saved {} against no cache, hit {}\n",
        many(totals.turns, "turn"),
        bounded(totals.known_cost(), totals.cost_complete()),
        saved(totals),
        totals.hit_ratio().map_or_else(|| UNKNOWN.into(), percent),
    );
    if !savings.helpers.is_empty() {
        text += "\nhelpers (SAVED is what is left when their own cost is taken off)\n";
        text += &helpers(savings);
    }
    text += "\n";
    if savings.compared.is_empty() {
        text += "no run was left alone to be compared with: the setting `cache.holdout_percent` does that\n";
    } else {
        text += "runs left alone (holdout) against runs with inserted breakpoints\n";
        text += &comparison(savings);
    }
    let dry = savings.dry_run;
    if dry.turns > 0 {
        text += &format!(
            "\ndry run: {} would have been placed on {} of {}; \
             `prefixgate replay` says what that would have saved\n",
            many(dry.markers, "breakpoint"),
            dry.turns_planned,
            many(dry.turns, "turn"),
        );
    }
    text + &format!(
        "\ntimes and days in {}\n",
        zone.iana_name().unwrap_or("UTC")
    )
}

fn helpers(savings: &Savings) -> String {
    let mut table = Table::new(&[
        ("HELPER", Align::Left),
        ("REQUESTS", Align::Right),
        ("ITS OWN", Align::Right),
        ("THEIR COST", Align::Right),
        ("READ", Align::Right),
        ("SAVED", Align::Right),
    ]);
    for of in &savings.helpers {
        let own = of.own_requests > 0;
        table.row(vec![
            of.helper.clone(),
            of.requests.to_string(),
            if own {
                of.own_requests.to_string()
            } else {
                String::new()
            },
            if own { sum(of.own_cost) } else { String::new() },
            tokens(of.tokens.total().and_then(|n| u64::try_from(n).ok())),
            sum(of.pico),
        ]);
    }
    table.render()
}

/// A sum of which parts may be unknown: no bound, since the unknown parts may have any sign.
fn sum(sum: Sum) -> String {
    match sum.total() {
        None => UNKNOWN.into(),
        Some(pico) if sum.complete() => money::short(pico),
        Some(pico) => format!("{} + {} unknown", money::short(pico), sum.unknown),
    }
}

fn comparison(savings: &Savings) -> String {
    let mut table = Table::new(&[
        ("APP", Align::Left),
        ("MODEL", Align::Left),
        ("", Align::Left),
        ("RUNS", Align::Right),
        ("TURNS", Align::Right),
        ("A TURN", Align::Right),
        ("1,000 TOKENS", Align::Right),
        ("HIT", Align::Right),
        ("SAVED", Align::Left),
    ]);
    let or_unknown = |pico: Option<i128>| pico.map_or_else(|| UNKNOWN.into(), money::short);
    let fine = |pico: Option<i128>| pico.map_or_else(|| UNKNOWN.into(), money::fine);
    for of in &savings.compared {
        let saving = match of.saving() {
            Some((_, share)) => percent(share),
            None if !of.enough() => {
                format!("too few runs (below {} on a side)", Compared::MIN_RUNS)
            }
            None => UNKNOWN.into(),
        };
        for (name, side, saving) in [
            ("holdout", &of.holdout, String::new()),
            ("inserted", &of.inserted, saving),
        ] {
            table.row(vec![
                of.app.clone().unwrap_or_else(|| "(no app)".into()),
                of.model.clone().unwrap_or_else(|| "(no model)".into()),
                name.into(),
                side.runs.to_string(),
                side.turns.to_string(),
                or_unknown(side.per_turn()),
                fine(side.per_thousand()),
                side.hit_ratio().map_or_else(|| UNKNOWN.into(), percent),
                saving,
            ]);
        }
    }
    table.render()
}
