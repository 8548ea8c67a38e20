//! The JSON shapes that scripts rely on. Fields are added, never renamed.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::guard::GuardJson;
use super::verdict::{CacheJson, Shown, VerdictJson};
use crate::store::{By, RunSummary, Spend, Totals};
use crate::usage::usd;

#[derive(Serialize)]
struct TokensJson {
    uncached: Option<u64>,
    read: Option<u64>,
    write_5m: Option<u64>,
    write_1h: Option<u64>,
    write_30m: Option<u64>,
    write_12h: Option<u64>,
    output: Option<u64>,
}

/// The sums of a run or of a group of spend.
#[derive(Serialize)]
pub(in crate::cli) struct TotalsJson {
    turns: u64,
    /// Retries and refused requests included.
    requests: u64,
    errors: u64,
    /// Requests of our own, which are in tokens and cost alone.
    keep_warm_requests: u64,
    tokens: TokensJson,
    hit_ratio: Option<f64>,
    /// The sum of what is known; `null` when nothing is.
    cost_usd: Option<String>,
    cost_complete: bool,
    cost_is_lower_bound: bool,
    unpriced_turns: u64,
    incomplete_turns: u64,
    estimated_turns: u64,
    cost_no_cache_usd: Option<String>,
    saving_usd: Option<String>,
    /// Turns with a verdict; what follows is about them.
    judged_turns: u64,
    /// Turns of which less was read than was there.
    breaks: u64,
    /// `null` when nothing was judged.
    lost_tokens: Option<u64>,
    /// The sum of what is known; `null` when nothing is.
    lost_usd: Option<String>,
    lost_complete: bool,
}

impl From<&Totals> for TotalsJson {
    fn from(totals: &Totals) -> Self {
        let tokens = &totals.tokens;
        Self {
            turns: totals.turns,
            requests: totals.requests,
            errors: totals.errors,
            keep_warm_requests: totals.keep_warm,
            tokens: TokensJson {
                uncached: tokens.uncached,
                read: tokens.read,
                write_5m: tokens.write_5m,
                write_1h: tokens.write_1h,
                write_30m: tokens.write_30m,
                write_12h: tokens.write_12h,
                output: tokens.output,
            },
            hit_ratio: totals.hit_ratio(),
            cost_usd: totals.known_cost().map(usd),
            cost_complete: totals.cost_complete(),
            cost_is_lower_bound: !totals.cost_complete() && totals.known_cost().is_some(),
            unpriced_turns: totals.unpriced,
            incomplete_turns: totals.incomplete,
            estimated_turns: totals.estimated,
            cost_no_cache_usd: totals.cost_no_cache_pico.map(usd),
            saving_usd: totals.saving_pico.map(usd),
            judged_turns: totals.judged,
            breaks: totals.breaks,
            lost_tokens: (totals.judged > 0).then_some(totals.lost_tokens),
            lost_usd: totals.known_loss().map(usd),
            lost_complete: totals.breaks_unpriced == 0,
        }
    }
}

#[derive(Serialize)]
struct RunJson<'a> {
    id: &'a str,
    id_source: &'a str,
    app: Option<&'a str>,
    client: Option<&'a str>,
    models: &'a [String],
    started: Option<String>,
    ended: Option<String>,
    threads: u32,
    #[serde(flatten)]
    totals: TotalsJson,
}

/// An array of runs.
pub(super) fn runs(runs: &[RunSummary]) -> anyhow::Result<String> {
    let rows = runs.iter().map(|run| RunJson {
        id: &run.id,
        id_source: &run.source,
        app: run.app.as_deref(),
        client: run.client.as_deref(),
        models: &run.models,
        started: time(run.started_ms),
        ended: time(run.ended_ms),
        threads: run.threads,
        totals: TotalsJson::from(&run.totals),
    });
    array(rows)
}

#[derive(Serialize)]
struct SpendJson<'a> {
    /// The application, model or day, whichever the groups are.
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hour: Option<Option<&'a str>>,
    /// The zone whose days these are, or by whose days the range was cut.
    zone: Option<&'a str>,
    #[serde(flatten)]
    totals: TotalsJson,
}

/// An array of groups.
pub(super) fn spend(by: By, groups: &[Spend], zone: &TimeZone) -> anyhow::Result<String> {
    let rows = groups.iter().map(|group| {
        let key = Some(group.key.as_deref());
        SpendJson {
            id: group.key.as_deref(),
            app: key.filter(|_| by == By::App),
            model: key.filter(|_| by == By::Model),
            key: key.filter(|_| by == By::Key),
            upstream: key.filter(|_| by == By::Upstream),
            day: key.filter(|_| by == By::Day),
            hour: key.filter(|_| by == By::Hour),
            zone: zone.iana_name(),
            totals: TotalsJson::from(&group.totals),
        }
    });
    array(rows)
}

#[derive(Serialize)]
struct MarkersJson<'a> {
    client: u32,
    added: usize,
    /// Whether the additions were only planned.
    dry_run: bool,
    placed: Vec<PlacedJson<'a>>,
}

#[derive(Serialize)]
struct PlacedJson<'a> {
    path: &'a str,
    ttl: &'static str,
    offset: u32,
}

#[derive(Serialize)]
struct TurnJson<'a> {
    id: String,
    run: &'a str,
    thread: &'a str,
    parent_thread: Option<&'a str>,
    agent: Option<&'a str>,
    parent_agent: Option<&'a str>,
    kind: &'static str,
    turn: u32,
    attempt: u32,
    app: Option<&'a str>,
    client: Option<&'a str>,
    upstream: &'a str,
    method: &'a str,
    path: &'a str,
    model_requested: Option<&'a str>,
    model_served: Option<&'a str>,
    started: Option<String>,
    overhead_us: Option<u64>,
    first_token_us: Option<u64>,
    duration_us: u64,
    status: Option<u16>,
    outcome: &'static str,
    stop_reason: Option<&'a str>,
    error_type: Option<&'a str>,
    error_message: Option<&'a str>,
    streamed: bool,
    tokens: TokensJson,
    usage_complete: bool,
    usage_estimated: bool,
    /// The provider gave only the sum of the writes; their lifetime is that of the request's markers.
    split_inferred: bool,
    hit_ratio: Option<f64>,
    cost_usd: Option<String>,
    cost_no_cache_usd: Option<String>,
    saving_usd: Option<String>,
    price_version: Option<&'a str>,
    inspection: &'static str,
    inspection_reason: Option<&'static str>,
    request_bytes: u64,
    sent_bytes: u64,
    response_bytes: u64,
    blocks: u32,
    messages: u32,
    tools: u32,
    markers: MarkersJson<'a>,
    response_id: Option<&'a str>,
    request_id: Option<&'a str>,
    native_diagnosis: Option<&'a str>,
    /// What became of the prompt cache; `null` when it was not judged.
    verdict: Option<VerdictJson<'a>>,
    /// Why it was not.
    unjudged: Option<&'static str>,
    cache: CacheJson,
    /// Loops and caps; not there when the guards have nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<GuardJson<'a>>,
    warnings: &'a [String],
}

/// An array of requests.
pub(super) fn turns(turns: &[Shown<'_>]) -> anyhow::Result<String> {
    array(turns.iter().map(turn))
}

fn turn<'a>(shown: &Shown<'a>) -> TurnJson<'a> {
    let turn = shown.turn;
    let usage = &turn.usage;
    let (cost, no_cache) = (
        turn.cost_pico.map(i128::from),
        turn.cost_no_cache_pico.map(i128::from),
    );
    let placed = turn.markers_added.iter().map(|marker| PlacedJson {
        path: &marker.path,
        ttl: marker.ttl.word(),
        offset: marker.offset,
    });
    TurnJson {
        id: turn.id.to_string(),
        run: &turn.run_id,
        thread: &turn.thread_id,
        parent_thread: turn.parent_thread.as_deref(),
        agent: turn.agent.as_deref(),
        parent_agent: turn.parent_agent.as_deref(),
        kind: turn.kind.as_str(),
        turn: turn.turn,
        attempt: turn.attempt,
        app: turn.app.as_deref(),
        client: turn.client.as_deref(),
        upstream: &turn.upstream,
        method: &turn.method,
        path: &turn.path,
        model_requested: turn.model_requested.as_deref(),
        model_served: turn.model_served.as_deref(),
        started: time(turn.started_ms),
        overhead_us: turn.overhead_us,
        first_token_us: turn.first_token_us,
        duration_us: turn.duration_us,
        status: turn.status,
        outcome: turn.outcome.as_str(),
        stop_reason: turn.stop_reason.as_deref(),
        error_type: turn.error_type.as_deref(),
        error_message: turn.error_message.as_deref(),
        streamed: turn.streamed,
        tokens: TokensJson {
            uncached: usage.uncached,
            read: usage.read,
            write_5m: usage.write_5m,
            write_1h: usage.write_1h,
            write_30m: usage.write_30m,
            write_12h: usage.write_12h,
            output: usage.output,
        },
        usage_complete: turn.usage_complete,
        usage_estimated: turn.usage_estimated,
        split_inferred: usage.split_inferred,
        hit_ratio: usage.hit_ratio(),
        cost_usd: cost.map(usd),
        cost_no_cache_usd: no_cache.map(usd),
        saving_usd: no_cache
            .zip(cost)
            .map(|(without, cost)| usd(without - cost)),
        price_version: turn.price_version.as_deref(),
        inspection: turn.inspection.as_str(),
        inspection_reason: turn.inspection.reason(),
        request_bytes: turn.request_bytes,
        sent_bytes: turn.sent_bytes,
        response_bytes: turn.response_bytes,
        blocks: turn.blocks,
        messages: turn.messages,
        tools: turn.tools,
        markers: MarkersJson {
            client: turn.markers_client,
            added: turn.markers_added.len(),
            dry_run: turn.dry_run,
            placed: placed.collect(),
        },
        response_id: turn.response_id.as_deref(),
        request_id: turn.request_id.as_deref(),
        native_diagnosis: turn.native_diagnosis.as_deref(),
        verdict: shown.verdict().map(|v| VerdictJson::new(v, shown.strikes)),
        unjudged: turn.cache.unjudged,
        cache: CacheJson::from(&turn.cache),
        guard: GuardJson::new(&turn.guard),
        warnings: &turn.warnings,
    }
}

/// One element a line: good for people with `grep`, and an array for everything else.
pub(super) fn array<T: Serialize>(rows: impl Iterator<Item = T>) -> anyhow::Result<String> {
    let lines: Vec<String> = rows
        .map(|row| serde_json::to_string(&row))
        .collect::<Result<_, _>>()?;
    if lines.is_empty() {
        return Ok("[]\n".into());
    }
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// One object.
pub(in crate::cli) fn object(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// RFC 3339 in UTC.
pub(in crate::cli) fn time(ms: i64) -> Option<String> {
    // Of one width, so that times sort as text.
    Timestamp::from_millisecond(ms)
        .ok()
        .map(|t| format!("{t:.3}"))
}
