//! `prefixgate report loops`, `caps` and `tools`.

use jiff::tz::TimeZone;
use serde::Serialize;

use super::json::{array, time as json_time};
use super::money;
use super::show::{UNKNOWN, time};
use super::table::{Align, Table, count, duration};
use crate::guard::caps::Cap;
use crate::store::{CapSeen, LoopSeen, ToolSeen};
use crate::usage::usd;

#[derive(Serialize)]
struct LoopJson<'a> {
    run: &'a str,
    thread: &'a str,
    app: Option<&'a str>,
    detector: &'a str,
    tools: &'a [String],
    /// The highest one.
    count: Option<u64>,
    threshold: Option<u64>,
    /// How often it was told: at each step, and each time that it has doubled since the last.
    steps: u64,
    /// What was done at the last of them; `null` where nothing.
    action: Option<&'a str>,
    /// What it had cost by then.
    cost_usd: Option<String>,
    first: Option<String>,
    last: Option<String>,
}

/// An array of loops.
pub(super) fn loops_json(loops: &[LoopSeen]) -> anyhow::Result<String> {
    array(loops.iter().map(|of| LoopJson {
        run: &of.run_id,
        thread: &of.thread_id,
        app: of.app.as_deref(),
        detector: &of.detector,
        tools: &of.tools,
        count: of.count,
        threshold: of.threshold,
        steps: of.steps,
        action: Some(of.action.as_str()).filter(|word| !word.is_empty()),
        cost_usd: of.pico.map(usd),
        first: json_time(of.first_ms),
        last: json_time(of.last_ms),
    }))
}

/// The loops; one beyond `limit` only says that there are more.
pub(super) fn loops(loops: &[LoopSeen], limit: usize, zone: &TimeZone) -> String {
    if loops.is_empty() {
        return "no loops in this range\n".into();
    }
    let mut table = Table::new(&[
        ("RUN", Align::Left),
        ("THREAD", Align::Left),
        ("APP", Align::Left),
        ("LOOP", Align::Left),
        ("TOOLS", Align::Left),
        ("COUNT", Align::Right),
        ("ACTION", Align::Left),
        ("COST", Align::Right),
        ("FIRST", Align::Left),
        ("LAST", Align::Left),
    ]);
    for of in loops.iter().take(limit) {
        table.row(vec![
            of.run_id.clone(),
            of.thread_id.clone(),
            of.app.clone().unwrap_or_default(),
            of.detector.clone(),
            of.tools.join(" "),
            or_unknown(of.count),
            of.action.clone(),
            of.pico
                .map_or_else(|| UNKNOWN.into(), |pico| money::short(pico.into())),
            time(of.first_ms, zone),
            time(of.last_ms, zone),
        ]);
    }
    let name = zone.iana_name().unwrap_or("UTC");
    table.render() + &note(Some(format!("times in {name}")), loops.len(), limit)
}

#[derive(Serialize)]
struct CapJson<'a> {
    scope: &'a str,
    run: &'a str,
    app: Option<&'a str>,
    cap: &'a str,
    /// The highest share that was told, in per cent.
    level_percent: Option<u32>,
    /// `usd`, `ms` or `count`; money is in the fields of its own.
    unit: &'static str,
    value: Option<u64>,
    limit: Option<u64>,
    value_usd: Option<String>,
    limit_usd: Option<String>,
    crossings: u64,
    refusals: u64,
    unenforced: u64,
    first: Option<String>,
    last: Option<String>,
}

/// The unit of a cap's amounts.
fn unit(cap: &str) -> &'static str {
    match Cap::ALL.into_iter().find(|known| known.as_str() == cap) {
        Some(Cap::Usd) => "usd",
        Some(Cap::WallTime) => "ms",
        _ => "count",
    }
}

/// An array of caps.
pub(super) fn caps_json(caps: &[CapSeen]) -> anyhow::Result<String> {
    array(caps.iter().map(|of| {
        let unit = unit(&of.cap);
        let (money, other) = if unit == "usd" {
            ((of.value, of.limit), (None, None))
        } else {
            ((None, None), (of.value, of.limit))
        };
        CapJson {
            scope: &of.scope,
            run: &of.run_id,
            app: of.app.as_deref(),
            cap: &of.cap,
            level_percent: of.level,
            unit,
            value: other.0,
            limit: other.1,
            value_usd: money.0.map(usd),
            limit_usd: money.1.map(usd),
            crossings: of.crossings,
            refusals: of.refusals,
            unenforced: of.unenforced,
            first: json_time(of.first_ms),
            last: json_time(of.last_ms),
        }
    }))
}

/// The caps; one beyond `limit` only says that there are more.
pub(super) fn caps(caps: &[CapSeen], limit: usize, zone: &TimeZone) -> String {
    if caps.is_empty() {
        return "no cap was reached in this range, not even in part\n".into();
    }
    let mut table = Table::new(&[
        ("RUN", Align::Left),
        ("APP", Align::Left),
        ("SCOPE", Align::Left),
        ("CAP", Align::Left),
        ("USED", Align::Right),
        ("LIMIT", Align::Right),
        ("LEVEL", Align::Right),
        ("REFUSED", Align::Right),
        ("UNENFORCED", Align::Right),
        ("FIRST", Align::Left),
        ("LAST", Align::Left),
    ]);
    for of in caps.iter().take(limit) {
        let amount = |n: Option<u64>| match (n, unit(&of.cap)) {
            (None, _) => UNKNOWN.into(),
            (Some(pico), "usd") => money::short(pico.into()),
            (Some(ms), "ms") => duration(ms),
            (Some(n), _) => count(n),
        };
        table.row(vec![
            of.run_id.clone(),
            of.app.clone().unwrap_or_default(),
            of.scope.clone(),
            of.cap.clone(),
            amount(of.value),
            amount(of.limit),
            of.level
                .map_or_else(String::new, |level| format!("{level}%")),
            or_blank(of.refusals),
            or_blank(of.unenforced),
            time(of.first_ms, zone),
            time(of.last_ms, zone),
        ]);
    }
    let name = zone.iana_name().unwrap_or("UTC");
    table.render() + &note(Some(format!("times in {name}")), caps.len(), limit)
}

#[derive(Serialize)]
struct ToolJson<'a> {
    tool: &'a str,
    calls: u64,
    ok: u64,
    failed: u64,
    incomplete: u64,
    unanswered: u64,
    pending: u64,
    undeclared: u64,
    invalid_input: u64,
    /// Calls that repeat one which had failed right before.
    retried: u64,
    latency_p50_ms: Option<u64>,
    latency_p95_ms: Option<u64>,
}

/// An array of tools.
pub(super) fn tools_json(tools: &[ToolSeen]) -> anyhow::Result<String> {
    array(tools.iter().map(|of| ToolJson {
        tool: &of.name,
        calls: of.calls,
        ok: of.ok,
        failed: of.failed,
        incomplete: of.incomplete,
        unanswered: of.unanswered,
        pending: of.pending,
        undeclared: of.undeclared,
        invalid_input: of.invalid_input,
        retried: of.retried,
        latency_p50_ms: of.p50_ms,
        latency_p95_ms: of.p95_ms,
    }))
}

/// The tools; one beyond `limit` only says that there are more.
pub(super) fn tools(tools: &[ToolSeen], limit: usize) -> String {
    if tools.is_empty() {
        return "no tool calls in this range\n".into();
    }
    let mut table = Table::new(&[
        ("TOOL", Align::Left),
        ("CALLS", Align::Right),
        ("OK", Align::Right),
        ("FAILED", Align::Right),
        ("INCOMPLETE", Align::Right),
        ("UNANSWERED", Align::Right),
        ("PENDING", Align::Right),
        ("UNDECLARED", Align::Right),
        ("INVALID", Align::Right),
        ("RETRIED", Align::Right),
        ("P50", Align::Right),
        ("P95", Align::Right),
    ]);
    for of in tools.iter().take(limit) {
        table.row(vec![
            of.name.clone(),
            of.calls.to_string(),
            of.ok.to_string(),
            or_blank(of.failed),
            or_blank(of.incomplete),
            or_blank(of.unanswered),
            or_blank(of.pending),
            or_blank(of.undeclared),
            or_blank(of.invalid_input),
            or_blank(of.retried),
            of.p50_ms.map_or_else(String::new, duration),
            of.p95_ms.map_or_else(String::new, duration),
        ]);
    }
    let what = "P50 and P95 are the time until the request with the result";
    let told = tools.iter().take(limit).any(|of| of.p50_ms.is_some());
    table.render() + &note(told.then(|| what.into()), tools.len(), limit)
}

fn or_unknown(n: Option<u64>) -> String {
    n.map_or_else(|| UNKNOWN.into(), |n| n.to_string())
}

/// A number; nothing for none.
fn or_blank(n: u64) -> String {
    if n == 0 { String::new() } else { n.to_string() }
}

/// What stands below a table of `rows` of which `limit` are shown.
fn note(what: Option<String>, rows: usize, limit: usize) -> String {
    let more = (rows > limit).then(|| format!("only the first {limit}; --limit shows more"));
    let notes: Vec<String> = what.into_iter().chain(more).collect();
    if notes.is_empty() {
        return String::new();
    }
    format!("\n{}\n", notes.join("; "))
}
