//! A request on its way through the prompt-cache engine: compared with the one before it, planned,
//! announced to the shadow cache.

use crate::config::{CachePolicy, NativeDiagnostics};
use crate::prompt_cache::chain::{Chain, Hash};
use crate::prompt_cache::diagnosis;
use crate::prompt_cache::habits::{self, Kind, Question};
use crate::prompt_cache::plan::{self, Plan, Situation};
use crate::prompt_cache::shadow::Levels;
use crate::prompt_cache::splice::Splice;
use crate::prompt_cache::trail::{Betas, Mark, Trail, short};
use crate::provider::anthropic;
use crate::provider::view::{History, RequestView, Section, Ttl};
use crate::proxy::Shared;
use crate::proxy::account::Account;
use crate::proxy::audit::Watched;
use crate::trace::Placed;

use super::Asking;

/// What the engine wants to be sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Our breakpoints.
    pub(super) placed: Vec<(usize, Ttl)>,
    /// Edits of the body.
    pub(super) splices: Vec<Splice>,
}

/// Follows a request from here on.
pub(super) fn watch(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &[u8],
    view: &RequestView,
    chain: Chain,
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
    let betas = betas(asking);
    let whole = !matches!(view.history, History::Continues(_));
    let client: Vec<Mark> = plan::client_marks(view);
    let mut trail = Trail::new(&shared.hasher, body, view, &chain, betas, client);
    if !whole {
        // What it stands behind is not in it.
        trail.steps = Box::default();
        trail.marks = Vec::new();
    }
    let thread = short(&shared.hasher.keyed("thread", &thread_name(&seat)));
    let root = shared.hasher.extend(chain.root, model.as_bytes());
    let app = app(shared, account, asking, body, view);
    let compared = shared.engine.compare(thread, &trail, body, view);
    let mut watched = Watched {
        turn: account.record().map(|record| record.id).unwrap_or_default(),
        thread,
        app,
        levels: Levels::of(&shared.hasher, &trail),
        trail,
        at: if whole { chain.at } else { Vec::new() },
        compared,
        expected: Default::default(),
        min_tokens: facts.min_cache_tokens,
        bytes_per_token_milli: ratio,
        beside: seat.turn == 1 && &*seat.thread_id != "main",
        asked_native: view.diagnostics,
        names_previous: view.diagnostics && view.ids.previous_message.is_some(),
    };
    let outlook = shared.engine.outlook(
        habits::Arrival {
            app,
            root,
            thread,
            turn: seat.turn,
            bytes: view.blocks.iter().map(|b| u64::from(b.span.len())).sum(),
            shared: watched.compared.kept,
            now_ms,
        },
        &Question {
            app,
            root,
            thread,
            turn: seat.turn,
            kind: Kind::of(view),
            forced: view.forced_call,
            root_seen: seat.root_seen,
            now_ms,
        },
    );
    let mut sent = Sent::default();
    if policy != CachePolicy::Off && whole {
        let expected = shared.engine.look(&watched.look(now_ms));
        let plan = plan::plan(&Situation {
            policy: match policy {
                CachePolicy::Replace => plan::Policy::Replace,
                _ => plan::Policy::Fill,
            },
            outlook,
            rates: facts.rates,
            min_tokens: facts.min_cache_tokens,
            bytes_per_token_milli: ratio,
            // A number of blocks there, the index of the last of them here.
            previous_end: seat.previous_end.and_then(|blocks| blocks.checked_sub(1)),
            read_at: expected.alive.map(|known| known.at),
            pending_at: expected.pending.map(|known| known.at),
            ttl: chosen_before(&watched),
            head_ttl: shared.engine.head_lifetime(&watched.look(now_ms)),
            insertion_off: seat.insertion_off,
            ..Situation::new(body, view)
        });
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
            // It stands at the very start, before everything else.
            sent.splices.insert(0, question);
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

/// The lifetime of our breakpoints in this thread, which must not change while it runs.
fn chosen_before(watched: &Watched) -> Option<Ttl> {
    let past = watched.compared.past.as_deref()?;
    let head = past.trail.head;
    let ours = past.trail.marks.iter().rev();
    ours.filter(|mark| mark.ours && mark.at >= head)
        .find_map(|mark| mark.ttl)
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

/// All breakpoints of the request as it is sent.
fn marks_after(view: &RequestView, plan: &Plan) -> Vec<Mark> {
    let removed = |mark: &Mark| plan.removed.contains(&(mark.at as usize));
    let top = if plan.removed_top {
        view.auto_marker
    } else {
        None
    };
    let mut marks: Vec<Mark> = plan::client_marks(view)
        .into_iter()
        .filter(|mark| !removed(mark))
        .filter(|mark| {
            top.is_none()
                || view
                    .blocks
                    .get(mark.at as usize)
                    .is_some_and(|b| b.marker.is_some())
        })
        .collect();
    marks.extend(plan.placed.iter().map(|(index, ttl)| Mark {
        at: u32::try_from(*index).unwrap_or(u32::MAX),
        ttl: Some(*ttl),
        ours: true,
    }));
    marks.sort_by_key(|mark| mark.at);
    marks
}

/// The beta features that the headers ask for.
fn betas(asking: &Asking<'_>) -> Betas {
    let (hash, fast) = anthropic::betas(asking.headers);
    Betas { hash, fast }
}

/// The name of a thread, the same in every process.
fn thread_name(seat: &crate::run::Seat) -> Vec<u8> {
    let mut name = seat.run_id.as_bytes().to_vec();
    name.push(0);
    name.extend_from_slice(seat.thread_id.as_bytes());
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
