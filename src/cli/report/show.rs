//! The tables.

use std::collections::HashSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::guard;
use super::money;
use super::table::{Align, Table, clean, count, duration, percent};
use super::verdict::Shown;
use crate::store::{By, RunSummary, Spend, Totals};
use crate::trace::{Outcome, TurnRecord};

/// What stands for an unknown value.
pub(in crate::cli) const UNKNOWN: &str = "?";

/// The columns of sums, as [`sums`] fills them.
pub(super) const SUMS: [(&str, Align); 10] = [
    ("TURNS", Align::Right),
    ("PROMPT", Align::Right),
    ("READ", Align::Right),
    ("WRITTEN", Align::Right),
    ("OUT", Align::Right),
    ("HIT", Align::Right),
    ("COST", Align::Right),
    ("SAVED", Align::Right),
    ("LOST", Align::Right),
    ("ERRORS", Align::Right),
];

/// The runs; one beyond `limit` only says that there are more.
pub(super) fn runs(runs: &[RunSummary], limit: usize, zone: &TimeZone) -> String {
    let shown = runs.get(..limit).unwrap_or(runs);
    if shown.is_empty() {
        return "no runs recorded\n".into();
    }
    let mut head = vec![
        ("RUN", Align::Left),
        ("APP", Align::Left),
        ("MODEL", Align::Left),
        ("STARTED", Align::Left),
        ("TOOK", Align::Right),
    ];
    head.extend(SUMS);
    let mut table = Table::new(&head);
    let mut all = Totals::default();
    for run in shown {
        all.merge(&run.totals);
        let took = run.ended_ms.saturating_sub(run.started_ms).unsigned_abs();
        let mut cells = vec![
            run.id.clone(),
            run.app.clone().unwrap_or_default(),
            models(&run.models),
            time(run.started_ms, zone),
            duration(took),
        ];
        cells.extend(sums(&run.totals));
        table.row(cells);
    }
    if shown.len() > 1 {
        let mut cells = vec![format!("{} runs", shown.len())];
        cells.resize(head.len() - SUMS.len(), String::new());
        cells.extend(sums(&all));
        table.row(cells);
    }
    let more = (runs.len() > limit).then(|| format!("only the latest {limit}; --limit shows more"));
    table.render() + &notes(&all, zone, more)
}

/// The requests of one run.
///
/// `all` sums up the same requests, and what prefixgate sent itself for the run.
pub(super) fn turns(
    run: &str,
    turns: &[Shown<'_>],
    all: &Totals,
    limit: usize,
    zone: &TimeZone,
) -> String {
    let threads: HashSet<&str> = turns.iter().map(|t| t.turn.thread_id.as_str()).collect();
    let mut table = Table::new(&[
        ("TURN", Align::Right),
        ("THREAD", Align::Left),
        ("STARTED", Align::Left),
        ("MODEL", Align::Left),
        ("RESULT", Align::Left),
        ("UNCACHED", Align::Right),
        ("READ", Align::Right),
        ("WRITTEN", Align::Right),
        ("OUT", Align::Right),
        ("HIT", Align::Right),
        ("COST", Align::Right),
        ("CACHE", Align::Left),
        ("LOST", Align::Right),
        ("FIRST", Align::Right),
        ("TOOK", Align::Right),
        ("MARKERS", Align::Right),
        ("NOTES", Align::Left),
    ]);
    for shown in turns {
        let turn = shown.turn;
        let mut own = Totals::default();
        own.add(turn);
        let or_blank = |cell: String| if nothing(&own) { String::new() } else { cell };
        let thread = turn.agent.as_ref().unwrap_or(&turn.thread_id);
        table.row(vec![
            number(turn),
            if threads.len() > 1 {
                thread.clone()
            } else {
                String::new()
            },
            time(turn.started_ms, zone),
            turn.model_served
                .clone()
                .or_else(|| turn.model_requested.clone())
                .unwrap_or_default(),
            result(turn),
            or_blank(tokens(turn.usage.uncached)),
            or_blank(tokens(turn.usage.read)),
            or_blank(tokens(turn.usage.written())),
            or_blank(tokens(turn.usage.output)),
            or_blank(
                turn.usage
                    .hit_ratio()
                    .map_or_else(|| UNKNOWN.into(), percent),
            ),
            or_blank(bounded(turn.cost_pico.map(i128::from), turn.usage_complete)),
            shown.cache_cell(),
            lost(&own),
            turn.first_token_us
                .map_or_else(String::new, |us| duration(us / 1_000)),
            duration(turn.duration_us / 1_000),
            markers(turn),
            remarks(turn),
        ]);
    }
    let head = format!(
        "run {}: {} in {}, hit {}, cost {}, saved {}\n\n",
        clean(run),
        many(all.turns, "turn"),
        many(threads.len() as u64, "thread"),
        all.hit_ratio().map_or_else(|| UNKNOWN.into(), percent),
        bounded(all.known_cost(), all.cost_complete()),
        saved(all),
    );
    let mut more = vec!["MARKERS are the client's + the added ones".to_owned()];
    more.extend((turns.len() >= limit).then(|| format!("at most {limit}; --limit shows more")));
    more.extend((all.breaks > 0).then(|| {
        "LOST is what the prompt cache should have saved: `prefixgate audit --run` says why".into()
    }));
    head + &table.render() + &notes(all, zone, more)
}

/// Spend in groups, with the total over all of them.
pub(super) fn spend(by: By, groups: &[Spend], limit: usize, zone: &TimeZone) -> String {
    if groups.is_empty() {
        return "no requests in this range\n".into();
    }
    let (name, none) = match by {
        By::App => ("APP", "(no app)"),
        By::Model => ("MODEL", "(no model)"),
        By::Key => ("KEY", "(no key)"),
        By::Upstream => ("UPSTREAM", "(no upstream)"),
        By::Day => ("DAY", "(no day)"),
        By::Hour => ("HOUR", "(no hour)"),
    };
    let mut head = vec![(name, Align::Left)];
    head.extend(SUMS);
    let mut table = Table::new(&head);
    let mut all = Totals::default();
    for (place, group) in groups.iter().enumerate() {
        all.merge(&group.totals);
        if place < limit {
            let mut cells = vec![group.key.clone().unwrap_or_else(|| none.into())];
            cells.extend(sums(&group.totals));
            table.row(cells);
        }
    }
    let mut cells = vec!["total".to_owned()];
    cells.extend(sums(&all));
    table.row(cells);
    let more = (groups.len() > limit)
        .then(|| format!("only {limit} of {} rows; --limit shows more", groups.len()));
    table.render() + &notes(&all, zone, more)
}

/// The cells of [`SUMS`].
pub(super) fn sums(totals: &Totals) -> Vec<String> {
    let sum = &totals.tokens;
    // Where nothing was generated nothing is unknown.
    let or_blank = |cell: String| if nothing(totals) { String::new() } else { cell };
    vec![
        totals.turns.to_string(),
        or_blank(tokens(totals.prompt())),
        or_blank(tokens(sum.read)),
        or_blank(tokens(sum.written())),
        or_blank(tokens(sum.output)),
        or_blank(totals.hit_ratio().map_or_else(|| UNKNOWN.into(), percent)),
        bounded(totals.known_cost(), totals.cost_complete()),
        or_blank(saved(totals)),
        lost(totals),
        if totals.errors > 0 {
            totals.errors.to_string()
        } else {
            String::new()
        },
    ]
}

/// Only refusals: no tokens were told, and none are missing.
fn nothing(totals: &Totals) -> bool {
    totals.tokens == crate::store::Tokens::default() && totals.cost_complete()
}

pub(super) fn notes(
    totals: &Totals,
    zone: &TimeZone,
    more: impl IntoIterator<Item = String>,
) -> String {
    let mut notes = vec![format!(
        "times and days in {}",
        zone.iana_name().unwrap_or("UTC")
    )];
    notes.extend(more);
    if totals.keep_warm > 0 {
        notes.push(format!(
            "{} of prefixgate's own to keep a prefix warm, in tokens and cost",
            many(totals.keep_warm, "request")
        ));
    }
    if totals.unpriced > 0 {
        notes.push(format!(
            "{} without a known price or usage",
            many(totals.unpriced, "request")
        ));
    }
    if totals.incomplete > 0 {
        notes.push(format!(
            "{} whose final usage was not seen",
            many(totals.incomplete, "request")
        ));
    }
    if !totals.cost_complete() && totals.known_cost().is_some() {
        notes.push("\u{2265} means at least".into());
    }
    format!("\n{}\n", notes.join("; "))
}

/// A run in one line.
pub(super) fn run_line(run: &str, totals: &Totals) -> String {
    let read = totals
        .hit_ratio()
        .map_or(String::new(), |ratio| format!(" ({} read)", percent(ratio)));
    format!(
        "run {}: {}, {} in{read}, {} out, {}, cache saved {}",
        clean(run),
        many(totals.turns, "turn"),
        tokens(totals.prompt()),
        tokens(totals.tokens.output),
        bounded(totals.known_cost(), totals.cost_complete()),
        saved(totals),
    )
}

/// A number with its noun.
pub(in crate::cli) fn many(n: u64, noun: &str) -> String {
    let end = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{end}")
}

/// A cost; one that is not all there is to pay says so.
pub(in crate::cli) fn bounded(cost: Option<i128>, complete: bool) -> String {
    match cost {
        None => UNKNOWN.into(),
        Some(cost) if complete => money::short(cost),
        Some(cost) => money::at_least(cost),
    }
}

/// What the cache saved, and how much that is of the cost without it.
pub(in crate::cli) fn saved(totals: &Totals) -> String {
    let (Some(saving), Some(without)) = (totals.saving_pico, totals.cost_no_cache_pico) else {
        return UNKNOWN.into();
    };
    if without == 0 {
        return money::short(saving);
    }
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people, not money")]
    let share = saving as f64 / without as f64 * 100.0;
    format!("{} ({share:.0}%)", money::short(saving))
}

/// What breaks of the cache cost; nothing where there were none.
fn lost(totals: &Totals) -> String {
    if totals.breaks == 0 {
        return String::new();
    }
    bounded(totals.known_loss(), totals.breaks_unpriced == 0)
}

pub(in crate::cli) fn tokens(n: Option<u64>) -> String {
    n.map_or_else(|| UNKNOWN.into(), count)
}

fn models(models: &[String]) -> String {
    match models {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    }
}

/// `3`, and `3 retry 1` for its first retry; the kind of what is not a turn.
fn number(turn: &TurnRecord) -> String {
    match (turn.kind, turn.attempt) {
        (crate::trace::RequestKind::Turn, 0 | 1) => turn.turn.to_string(),
        (crate::trace::RequestKind::Turn, n) => format!("{} retry {}", turn.turn, n - 1),
        (kind, _) => kind.as_str().into(),
    }
}

/// Why it stopped; if it went wrong, how.
fn result(turn: &TurnRecord) -> String {
    let status = turn
        .status
        .map_or_else(String::new, |status| format!("{status} "));
    if turn.outcome == Outcome::Refused
        && let Some(why) = guard::refusal(&turn.guard)
    {
        return format!("{status}refused ({why})");
    }
    match (turn.outcome, &turn.stop_reason, &turn.error_type) {
        (Outcome::Ok, Some(stop), _) => stop.clone(),
        (Outcome::Ok, None, _) => format!("{status}ok"),
        (_, _, Some(error)) => format!("{status}{error}"),
        (outcome, _, None) => format!("{status}{}", outcome.as_str()),
    }
}

/// The client's own and ours: `1+2`; `1+(2)` when ours were only planned.
fn markers(turn: &TurnRecord) -> String {
    let added = turn.markers_added.len();
    if turn.dry_run && added > 0 {
        format!("{}+({added})", turn.markers_client)
    } else {
        format!("{}+{added}", turn.markers_client)
    }
}

/// What the guards have seen, warnings, and what the error says.
fn remarks(turn: &TurnRecord) -> String {
    let seen = guard::remarks(&turn.guard);
    let error = turn
        .error_message
        .as_deref()
        .filter(|_| turn.outcome.is_error());
    let all = seen.iter().chain(&turn.warnings).map(String::as_str);
    let all = all.chain(error);
    all.collect::<Vec<_>>().join(" ")
}

pub(in crate::cli) fn time(ms: i64, zone: &TimeZone) -> String {
    Timestamp::from_millisecond(ms).map_or_else(
        |_| UNKNOWN.into(),
        |time| {
            zone.to_datetime(time)
                .strftime("%Y-%m-%d %H:%M:%S")
                .to_string()
        },
    )
}
