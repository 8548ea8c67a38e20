//! The tables.

use std::fmt::Write as _;

use super::{Audit, advice_on, word};
use crate::cli::report::show::{UNKNOWN, bounded, many, time, tokens};
use crate::cli::report::table::{Align, Table, clean, duration, percent};
use crate::prompt_cache::verdict::{Reason, Status, What, Whose};
use crate::store::{Culprit, CulpritBy, Place, Sum};

/// Everything, section by section; a section about nothing is left out.
pub(super) fn audit(audit: &Audit) -> String {
    if audit.totals.requests == 0 {
        return "no turns in this range\n".into();
    }
    let sections = [
        head(audit),
        culprits(audit),
        losses(audit),
        unread(audit),
        duplicates(audit),
        agreement(audit),
        format!(
            "times and days in {}\n",
            audit.zone.iana_name().unwrap_or("UTC")
        ),
    ];
    let shown: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
    shown.join("\n")
}

fn money(sum: Sum) -> String {
    bounded(sum.total(), sum.complete())
}

fn token_sum(sum: Sum) -> String {
    let known = tokens(sum.total().and_then(|n| u64::try_from(n).ok()));
    if sum.complete() || sum.total().is_none() {
        known
    } else {
        format!("\u{2265}{known}")
    }
}

/// The table of a section under its title; at most some of its rows.
fn section(title: &str, table: &Table, shown: usize, all: u64) -> String {
    let more = if (shown as u64) < all {
        format!("only {shown} of {all}; --limit shows more\n")
    } else {
        String::new()
    };
    format!("{title}\n{}{more}", table.render())
}

fn head(audit: &Audit) -> String {
    let totals = &audit.totals;
    let mut text = format!(
        "{} of {} judged, hit {}, cost {}\n",
        totals.judged,
        many(totals.requests, "request"),
        totals.hit_ratio().map_or_else(|| UNKNOWN.into(), percent),
        bounded(totals.known_cost(), totals.cost_complete()),
    );
    let counts = |counts: Vec<String>| counts.join(", ");
    let judged = audit.verdicts.by_status.iter();
    let judged = counts(judged.map(|(word, n)| format!("{n} {word}")).collect());
    if !judged.is_empty() {
        let _ = writeln!(text, "verdicts: {judged}");
    }
    let unjudged = audit.verdicts.unjudged.iter();
    let unjudged = counts(
        unjudged
            .map(|(why, n)| format!("{n} {}", clean(why.as_deref().unwrap_or("not recorded"))))
            .collect(),
    );
    if !unjudged.is_empty() {
        let _ = writeln!(text, "not judged: {unjudged}");
    }
    text
}

fn culprits(audit: &Audit) -> String {
    let rows = &audit.culprits.rows;
    if rows.is_empty() {
        return if audit.totals.judged > 0 {
            "nothing broke the cache\n".into()
        } else {
            String::new()
        };
    }
    let group = match audit.by {
        CulpritBy::Culprit => "",
        CulpritBy::Run => "RUN",
        CulpritBy::App => "APP",
        CulpritBy::Day => "DAY",
        CulpritBy::Client => "CLIENT",
    };
    let mut table = Table::new(&[
        ("", Align::Right),
        (group, Align::Left),
        ("LOST", Align::Right),
        ("TOKENS", Align::Right),
        ("TURNS", Align::Right),
        ("RUNS", Align::Right),
        ("REASON", Align::Left),
        ("WHAT", Align::Left),
        ("PLACE", Align::Left),
        ("LAST SEEN", Align::Left),
        ("FOR EXAMPLE", Align::Left),
    ]);
    let mut advice = String::new();
    for (place, of) in rows.iter().enumerate() {
        table.row(vec![
            format!("{}.", place + 1),
            group_of(audit.by, of),
            money(of.pico),
            token_sum(of.tokens),
            of.count.to_string(),
            of.runs.to_string(),
            of.reason.map(Reason::as_str).unwrap_or_default().into(),
            of.what.map(What::as_str).unwrap_or_default().into(),
            of.path.clone().unwrap_or_default(),
            time(of.last.started_ms, &audit.zone),
            name(&of.last),
        ]);
        let said = [Some(of.verdict.detail.clone()), advice_on(of)];
        let said: Vec<String> = said
            .into_iter()
            .flatten()
            .filter(|text| !text.is_empty())
            .map(|text| printable(&text))
            .collect();
        if !said.is_empty() {
            let _ = writeln!(advice, "{}. {}", place + 1, said.join(": "));
        }
    }
    let by = match audit.by {
        CulpritBy::Culprit => String::new(),
        by => format!(" by {}", word(by)),
    };
    let title = format!(
        "what broke the cache{by}: {}, lost {}",
        many(audit.totals.breaks, "turn"),
        bounded(audit.totals.known_loss(), audit.totals.breaks_unpriced == 0)
    );
    let table = section(&title, &table, rows.len(), audit.culprits.all as u64);
    format!("{table}{advice}")
}

fn group_of(by: CulpritBy, of: &Culprit) -> String {
    match by {
        CulpritBy::Culprit => String::new(),
        _ => of
            .group
            .clone()
            .unwrap_or_else(|| format!("(no {})", word(by))),
    }
}

/// Text of any length without what steers a terminal.
fn printable(text: &str) -> String {
    text.split(' ').map(clean).collect::<Vec<_>>().join(" ")
}

/// Run and turn.
fn name(place: &Place) -> String {
    format!("{} {}", place.run_id, place.turn)
}

fn losses(audit: &Audit) -> String {
    let losses = &audit.culprits.losses;
    if losses.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("REASON", Align::Left),
        ("WHOSE", Align::Left),
        ("TURNS", Align::Right),
        ("TOKENS", Align::Right),
        ("LOST", Align::Right),
    ]);
    for of in losses {
        table.row(vec![
            of.reason.map_or(UNKNOWN, Reason::as_str).into(),
            of.whose.map(Whose::as_str).unwrap_or_default().into(),
            of.count.to_string(),
            token_sum(of.tokens),
            money(of.pico),
        ]);
    }
    section("losses by reason", &table, losses.len(), 0)
}

fn unread(audit: &Audit) -> String {
    let of = &audit.unread;
    if of.turns + of.pending + of.unattributed == 0 {
        return String::new();
    }
    let mut title = format!(
        "written, never read: {}, {} tokens, wasted {}",
        many(of.turns, "turn"),
        token_sum(of.tokens),
        money(of.wasted)
    );
    if of.pending > 0 {
        let _ = write!(title, "; {} not over yet", of.pending);
    }
    if of.unattributed > 0 {
        let _ = write!(title, "; of {} it cannot be known", of.unattributed);
    }
    let mut table = Table::new(&[
        ("WASTED", Align::Right),
        ("TOKENS", Align::Right),
        ("LIFETIME", Align::Right),
        ("MODEL", Align::Left),
        ("RUN", Align::Left),
        ("TURN", Align::Right),
        ("STARTED", Align::Left),
    ]);
    for row in &of.rows {
        let pico = row.premium_pico.map(i128::from);
        table.row(vec![
            bounded(pico, true),
            tokens(row.tokens),
            duration(row.ttl_ms.unsigned_abs()),
            row.model.clone().unwrap_or_default(),
            row.place.run_id.clone(),
            row.place.turn.to_string(),
            time(row.place.started_ms, &audit.zone),
        ]);
    }
    if of.rows.is_empty() {
        return title + "\n";
    }
    section(&title, &table, of.rows.len(), of.turns)
}

fn duplicates(audit: &Audit) -> String {
    let of = &audit.duplicates;
    if of.turns == 0 {
        return String::new();
    }
    let title = format!(
        "written twice by parallel requests: {}, {} tokens, {} more than reading them",
        many(of.turns, "turn"),
        token_sum(of.tokens),
        money(of.pico)
    );
    let mut table = Table::new(&[
        ("LOST", Align::Right),
        ("TOKENS", Align::Right),
        ("RUN", Align::Left),
        ("THREAD", Align::Left),
        ("TURN", Align::Right),
        ("STARTED", Align::Left),
    ]);
    for row in &of.rows {
        table.row(vec![
            bounded(row.pico.map(i128::from), true),
            tokens(row.tokens),
            row.place.run_id.clone(),
            row.place.thread_id.clone(),
            row.place.turn.to_string(),
            time(row.place.started_ms, &audit.zone),
        ]);
    }
    section(&title, &table, of.rows.len(), of.turns)
}

fn agreement(audit: &Audit) -> String {
    let of = &audit.agreement;
    if of.agree + of.disagree + of.not_comparable == 0 {
        return String::new();
    }
    let title = format!(
        "the provider's own diagnosis: {} agree, {} disagree, {} not comparable",
        of.agree, of.disagree, of.not_comparable
    );
    if of.rows.is_empty() {
        return title + "\n";
    }
    let mut table = Table::new(&[
        ("OURS", Align::Left),
        ("THE PROVIDER'S", Align::Left),
        ("RUN", Align::Left),
        ("TURN", Align::Right),
        ("STARTED", Align::Left),
    ]);
    for row in &of.rows {
        let status = row.status.map_or(UNKNOWN, Status::as_str);
        let ours = match row.reason {
            Some(reason) => format!("{status}: {}", reason.as_str()),
            None => status.to_owned(),
        };
        table.row(vec![
            ours,
            row.native.clone().unwrap_or_else(|| UNKNOWN.into()),
            row.place.run_id.clone(),
            row.place.turn.to_string(),
            time(row.place.started_ms, &audit.zone),
        ]);
    }
    section(&title, &table, of.rows.len(), of.disagree)
}
