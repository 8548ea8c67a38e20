//! A request on its way through the prompt-cache engine: compared with the one before it, planned,
//! announced to the shadow cache.

use crate::config::{CachePolicy, NativeDiagnostics};
use crate::prompt_cache::chain::{Chain, Hash};
use crate::prompt_cache::diagnosis;
use crate::prompt_cache::engine::{News, Request, marks_after};
use crate::prompt_cache::plan::{self, Plan};
use crate::prompt_cache::splice::{self, Splice};
use crate::prompt_cache::trail::{Betas, earlier_thinking, short};
use crate::provider::anthropic;
use crate::provider::openai::{claude, models};
use crate::provider::view::{RequestView, Section, Ttl};
use crate::proxy::Shared;
use crate::proxy::account::Account;
use crate::proxy::audit::{Helped, Watched};
use crate::trace::Placed;

use super::Asking;

/// What the engine wants to be sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Our breakpoints.
    pub(super) placed: Vec<(usize, Ttl)>,
    /// Edits of the body.
    pub(super) splices: Vec<Splice>,
    /// The provider is asked by us why its cache missed.
    pub(super) asks_why: bool,
    /// What is to be learnt of it.
    pub(super) news: News,
}

/// Follows a request from here on.
pub(super) fn watch(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &[u8],
    view: &RequestView,
    chain: Chain,
    client_order: Option<u64>,
) -> Sent {
    let now_ms = shared.clock.utc_ms();
    let Some(seat) = account.seat().cloned() else {
        return Sent::default();
    };
    let (policy, word) = policy(shared, &seat.run_id);
    let model = view.model.as_deref().unwrap_or_default();
    let facts = shared.prices.model(asking.price_provider, model, now_ms);
    let ratio = seat
        .bytes_per_token_milli
        .unwrap_or(facts.bytes_per_token_milli);
    let by_rule = || match view.caching.automatic() {
        Some(rules) => Some(rules.min_tokens),
        None if view.anthropic_rules => {
            let name = models::name(model);
            let facts = shared.prices.model(claude::MAKER, name, now_ms);
            facts.min_cache_tokens
        }
        None => None,
    };
    let min_tokens = facts.min_cache_tokens.or_else(by_rule);
    let dropped = dropped_thinking(model, body, view);
    let thread = short(&shared.hasher.keyed("thread", &thread_name(&seat, asking)));
    let app = app(shared, account, asking, body, view);
    let prepared = shared.engine.prepare(
        &Request {
            hasher: &shared.hasher,
            body,
            view,
            betas: betas(asking),
            left_out: &dropped,
            thread,
            turn: seat.turn,
            app,
            root_seen: seat.root_seen,
            previous_blocks: seat.previous_end,
            insertion_off: seat.insertion_off,
            policy: match policy {
                CachePolicy::Off => None,
                CachePolicy::Replace => Some(plan::Policy::Replace),
                CachePolicy::Fill | CachePolicy::DryRun => Some(plan::Policy::Fill),
            },
            rates: facts.rates,
            min_tokens,
            bytes_per_token_milli: ratio,
            now_ms,
        },
        chain,
    );
    let mut watched = Watched {
        turn: account.record().map(|record| record.id).unwrap_or_default(),
        thread,
        app,
        levels: prepared.levels,
        client_marks: prepared.trail.marks.clone(),
        trail: prepared.trail,
        at: prepared.at,
        compared: prepared.compared,
        expected: Default::default(),
        min_tokens,
        wire: view.wire,
        automatic: view.caching.automatic(),
        bytes_per_token_milli: ratio,
        beside: seat.turn == 1 && &*seat.thread_id != "main",
        asked_native: view.diagnostics,
        client_asked: view.diagnostics,
        names_previous: view.diagnostics && view.ids.previous_message.is_some(),
        rates: facts.rates,
        next: prepared.next,
        helped: Helped {
            client_order,
            waited: None,
            resumed: shared
                .keeper
                .resumed(&(seat.run_id.clone(), seat.thread_id.clone())),
        },
    };
    let mut sent = Sent {
        news: prepared.news,
        ..Sent::default()
    };
    if let Some(plan) = prepared.plan {
        note(shared, account, view, &plan, policy == CachePolicy::DryRun);
        if policy != CachePolicy::DryRun {
            watched.trail.marks = marks_after(view, &plan);
            sent.placed = plan.placed;
            sent.splices = plan.splices;
        }
    }
    if shared.config.native_diagnostics == NativeDiagnostics::Request && !seat.insertion_off {
        let previous = watched.compared.past.as_deref();
        let previous = previous.and_then(|past| past.response_id.clone());
        if let Some(question) = diagnosis::ask(view, previous.as_deref()) {
            watched.asked_native = true;
            watched.names_previous = previous.is_some();
            sent.asks_why = true;
            splice::put(&mut sent.splices, question);
        }
    }
    let marks = std::mem::take(&mut watched.trail.marks);
    watched.sent(shared, marks, now_ms);
    if let Some(record) = account.record() {
        record.cache.policy = Some(word);
    }
    account.watch(watched);
    sent
}

/// What the planner may do in this run, and the word for it.
fn policy(shared: &Shared, run: &str) -> (CachePolicy, &'static str) {
    use crate::config::CachePolicy::{DryRun, Fill, Off, Replace};
    let percent = u64::from(shared.config.holdout_percent);
    // A run is in or out as a whole, in every process of the installation.
    let left_alone = percent > 0 && {
        let drawn = short(&shared.hasher.keyed("holdout", run.as_bytes())) % 100;
        drawn < percent
    };
    match shared.config.cache {
        Off => (Off, "off"),
        DryRun => (DryRun, "dry-run"),
        Fill | Replace if left_alone => (Off, "holdout"),
        Fill => (Fill, "fill"),
        Replace => (Replace, "replace"),
    }
}

/// Writes the plan into the record.
fn note(shared: &Shared, account: &mut Account, view: &RequestView, plan: &Plan, dry_run: bool) {
    for warning in &plan.warnings {
        account.warn(warning);
    }
    if let Some(reason) = plan.skipped {
        shared.metrics.plan_skipped(reason);
    }
    let Some(record) = account.record() else {
        return;
    };
    record.dry_run = dry_run && !plan.placed.is_empty();
    let placed = plan.placed.iter().filter_map(|(index, ttl)| {
        let block = view.blocks.get(*index)?;
        Some(Placed {
            path: view.path(block),
            ttl: *ttl,
            offset: block.span.end,
        })
    });
    record.markers_added = placed.collect();
}

/// The blocks that the model leaves out of this prompt. A request that says itself what becomes of
/// its thinking is taken to keep it.
fn dropped_thinking(model: &str, body: &[u8], view: &RequestView) -> Vec<usize> {
    let told = || memchr::memmem::find(body, b"\"clear_thinking").is_some();
    match anthropic::thinking::drops_thinking(model) && !told() {
        true => earlier_thinking(view),
        false => Vec::new(),
    }
}

/// The beta features that the headers ask for.
fn betas(asking: &Asking<'_>) -> Betas {
    let (hash, fast) = anthropic::betas(asking.headers);
    Betas { hash, fast }
}

/// The name of a thread before one cache, the same in every process. Another credential or upstream
/// has another cache, in which nothing of the thread has been written.
fn thread_name(seat: &crate::run::Seat, asking: &Asking<'_>) -> Vec<u8> {
    let mut name = seat.run_id.as_bytes().to_vec();
    name.push(0);
    name.extend_from_slice(seat.thread_id.as_bytes());
    name.push(0);
    name.extend_from_slice(&asking.credential);
    name.extend_from_slice(asking.upstream.as_bytes());
    name
}

/// Hash of what tells apps apart: who asks, through which program, with which tools.
fn app(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &[u8],
    view: &RequestView,
) -> u64 {
    let tools = view
        .blocks
        .iter()
        .take_while(|b| b.section == Section::Tools);
    let mut names: Vec<&[u8]> = tools.filter_map(|b| Some(b.name?.of(body))).collect();
    names.sort_unstable();
    let mut all: Vec<u8> = Vec::with_capacity(256);
    all.extend_from_slice(&asking.credential);
    all.extend_from_slice(asking.upstream.as_bytes());
    if let Some(record) = account.record() {
        let told = record.app.as_deref().or(record.client.as_deref());
        all.push(0);
        all.extend_from_slice(told.unwrap_or_default().as_bytes());
    }
    for name in names {
        all.push(0);
        all.extend_from_slice(name);
    }
    let hash: Hash = shared.hasher.keyed("app", &all);
    short(&hash)
}
