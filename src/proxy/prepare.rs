//! From a client's body to what goes upstream: look, find the place, plan, splice.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use super::Shared;
use super::account::{self, Account, hex, now_ms};
use crate::config::CachePolicy;
use crate::prompt_cache::chain::{Chain, Hash};
use crate::prompt_cache::habits::{Kind, Outlook};
use crate::prompt_cache::plan::{self, Policy, Situation};
use crate::prompt_cache::splice;
use crate::provider::view::{Block, BlockKind, History, RequestView, Role, Ttl};
use crate::provider::{anthropic, decode, json};
use crate::run::{Arrival, Identity, identify};
use crate::trace::{CallResult, CallStatus, Inspection, Placed};

/// Texts of a first message that are compared with pending prompts.
const MAX_OPENING_TEXTS: usize = 8;

/// What goes upstream.
#[derive(Debug)]
pub struct Prepared {
    /// The body in pieces.
    pub pieces: Vec<Bytes>,
    /// The body was edited; the client's own is kept for the fuse.
    pub edited: bool,
    /// The history is held by the provider.
    pub continues: bool,
}

/// The request as far as it is known before its body is read.
#[derive(Debug)]
pub struct Asking<'a> {
    /// Headers as they go upstream.
    pub headers: &'a HeaderMap,
    /// What the labels and headers say.
    pub labels: &'a crate::run::Labels,
    /// Name of the upstream.
    pub upstream: &'a str,
    /// The provider's id in the price data.
    pub price_provider: &'a str,
    /// Keyed hash of the credential.
    pub credential: Hash,
}

/// Looks at a body, finds its place and plans its breakpoints. Never fails: what cannot be read
/// is passed on as it came.
pub fn prepare(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &Bytes,
) -> Prepared {
    let untouched = |continues| Prepared {
        pieces: vec![body.clone()],
        edited: false,
        continues,
    };
    let looked = look(asking.headers, body, shared.config.inspect_bytes);
    let (decoded, view) = match looked {
        Ok(looked) => looked,
        Err(reason) => {
            if let Some(record) = account.record() {
                record.inspection = Inspection::NotInspected(reason);
            }
            shared.metrics.plan_skipped("not_inspected");
            place_unread(shared, account, asking, body);
            return untouched(false);
        }
    };
    let mut scope = [0_u8; 16 + 32];
    scope[..16].copy_from_slice(&asking.credential);
    let name = shared.hasher.keyed("upstream", asking.upstream.as_bytes());
    scope[16..32].copy_from_slice(&name);
    let chain = shared.hasher.chain(&decoded, &view, &scope);
    place(shared, account, asking, &decoded, &view, &chain);
    settle_results(shared, account, &decoded, &view);
    account.set_ttl(common_ttl(&view, &[]));

    let continues = matches!(view.history, History::Continues(_));
    if shared.config.cache == CachePolicy::Off {
        return untouched(continues);
    }
    let plan = plan_markers(shared, account, asking, &decoded, &view);
    for warning in &plan.warnings {
        account.warn(warning);
    }
    if let Some(reason) = plan.skipped {
        shared.metrics.plan_skipped(reason);
    }
    if plan.splices.is_empty() {
        return untouched(continues);
    }
    let dry_run = shared.config.cache == CachePolicy::DryRun;
    if let Some(record) = account.record() {
        record.dry_run = dry_run;
        record.markers_added = plan
            .placed
            .iter()
            .filter_map(|(index, ttl)| {
                let block = view.blocks.get(*index)?;
                Some(Placed {
                    path: view.path(block),
                    ttl: *ttl,
                    offset: block.span.end,
                })
            })
            .collect();
    }
    if dry_run {
        return untouched(continues);
    }
    account.set_ttl(common_ttl(&view, &plan.placed));
    Prepared {
        pieces: splice::apply(&decoded, &plan.splices),
        edited: true,
        continues,
    }
}

fn look(
    headers: &HeaderMap,
    body: &Bytes,
    limit: usize,
) -> Result<(Bytes, RequestView), &'static str> {
    let encodings: Vec<&str> = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .map(|v| v.to_str().unwrap_or("?"))
        .collect();
    let decoded = if encodings.is_empty() {
        body.clone()
    } else {
        decode::decode_body(&encodings.join(","), body, limit)
            .map_err(|e| e.reason())
            .map(owned)?
    };
    if decoded.len() > limit {
        return Err("too_large");
    }
    let view = anthropic::request::view(&decoded)?;
    Ok((decoded, view))
}

/// Finds run, thread and turn, and describes the request in its record.
fn place(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &[u8],
    view: &RequestView,
    chain: &Chain,
) {
    let identity = identify::identify(asking.headers, asking.labels, &view.ids, |raw| {
        hex(&shared.hasher.keyed("id", raw)[..8])
    });
    let borders: Vec<usize> = view
        .messages
        .iter()
        .map(|m| m.blocks.end as usize)
        .collect();
    let first = view.messages.first().map(|message| {
        let blocks = message.blocks.start as usize..message.blocks.end as usize;
        let hashes = chain.blocks.get(blocks).unwrap_or_default();
        shared.hasher.keyed("first", hashes.as_flattened())
    });
    let model = view.model.as_deref().unwrap_or_default();
    let arrival = Arrival {
        identity: &identity,
        trace: identify::trace_session(asking.headers),
        chain: &chain.at,
        borders: &borders,
        root: Some(chain.root),
        model_root: Some(shared.hasher.extend(chain.root, model.as_bytes())),
        first,
        has_history: view.messages.iter().any(|m| m.role == Role::Assistant),
        history: &view.history,
        body: xxhash_rust::xxh3::xxh3_128(body),
        now_ms: now_ms(),
    };
    let seat = shared
        .registry
        .arrive(&arrival, || opening_texts(shared, body, view));
    let mut end = chain.at.last().copied();
    if let (Some(base), History::Continues(_)) = (seat.base, &view.history) {
        // The provider holds the history: the chain goes on from where that answer's request ended.
        end = Some(
            chain
                .blocks
                .iter()
                .fold(base, |at, block| shared.hasher.extend(at, block)),
        );
    }
    if !seat.history_seen {
        account.warn("history_not_seen");
    }
    account.seated(seat, end, body.len());
    let Some(record) = account.record() else {
        return;
    };
    record.agent = identity.agent;
    record.parent_agent = identity.parent_agent;
    record.inspection = Inspection::Inspected;
    record.model_requested = view
        .model
        .as_deref()
        .map(|m| crate::text::prefix(m, 128).to_owned());
    record.streamed = view.stream;
    record.blocks = count(view.blocks.len());
    record.messages = count(view.messages.len());
    record.tools = view.tools;
    record.markers_client = view.client_markers();
    record.root = Some(hex(&chain.root));
    record.chain = end.map(|hash| hex(&hash));
    if record.markers_client > 4 {
        account.warn("more_than_4_breakpoints");
    }
}

/// A body that could not be read still belongs to the run its client named.
fn place_unread(shared: &Shared, account: &mut Account, asking: &Asking<'_>, body: &[u8]) {
    let ids = crate::provider::view::BodyIds::default();
    let identity: Identity = identify::identify(asking.headers, asking.labels, &ids, |raw| {
        hex(&shared.hasher.keyed("id", raw)[..8])
    });
    let arrival = Arrival {
        identity: &identity,
        trace: identify::trace_session(asking.headers),
        chain: &[],
        borders: &[],
        root: None,
        model_root: None,
        first: None,
        has_history: false,
        history: &History::Whole,
        body: xxhash_rust::xxh3::xxh3_128(body),
        now_ms: now_ms(),
    };
    let seat = shared.registry.arrive(&arrival, Vec::new);
    account.seated(seat, None, body.len());
    if let Some(record) = account.record() {
        record.agent = identity.agent;
        record.parent_agent = identity.parent_agent;
    }
}

fn plan_markers(
    shared: &Shared,
    account: &Account,
    asking: &Asking<'_>,
    body: &[u8],
    view: &RequestView,
) -> plan::Plan {
    let model = view.model.as_deref().unwrap_or_default();
    let facts = shared.prices.model(asking.price_provider, model, now_ms());
    let seat = account.seat();
    let ratio = seat
        .and_then(|s| s.bytes_per_token_milli)
        .unwrap_or(facts.bytes_per_token_milli);
    let root_seen = seat.is_some_and(|s| s.root_seen);
    plan::plan(&Situation {
        policy: match shared.config.cache {
            CachePolicy::Replace => Policy::Replace,
            CachePolicy::Off | CachePolicy::DryRun | CachePolicy::Fill => Policy::Fill,
        },
        outlook: Outlook::prior(Kind::of(view), root_seen),
        rates: facts.rates,
        min_tokens: facts.min_cache_tokens,
        bytes_per_token_milli: ratio,
        // A number of blocks there, the index of the last of them here.
        previous_end: seat.and_then(|s| s.previous_end?.checked_sub(1)),
        insertion_off: seat.is_some_and(|s| s.insertion_off),
        ..Situation::new(body, view)
    })
}

/// Hashes of the texts of the first message, trimmed, as pending prompts are hashed.
fn opening_texts(shared: &Shared, body: &[u8], view: &RequestView) -> Vec<Hash> {
    let Some(first) = view.messages.first() else {
        return Vec::new();
    };
    blocks_of(view, first.blocks.clone())
        .filter(|block| block.kind == BlockKind::Text)
        .filter_map(|block| block.content)
        .map(|content| json::unescape(content.of(body)))
        .filter(|text| text.trim().len() >= crate::run::parents::MIN_PROMPT_BYTES)
        .take(MAX_OPENING_TEXTS)
        .map(|text| shared.hasher.keyed("prompt", text.trim().as_bytes()))
        .collect()
}

/// Closes the calls whose results this request brings.
fn settle_results(shared: &Shared, account: &Account, body: &[u8], view: &RequestView) {
    let Some(seat) = account.seat() else { return };
    let spoken = view
        .messages
        .iter()
        .rposition(|m| m.role == Role::Assistant);
    let newest = view.messages.iter().skip(spoken.map_or(0, |i| i + 1));
    let results = newest
        .flat_map(|message| blocks_of(view, message.blocks.clone()))
        .filter(|block| block.kind == BlockKind::ToolResult);
    for block in results {
        let Some(id) = block.call_id else { continue };
        let id = json::unescape(id.of(body));
        let failed = block.is_error == Some(true);
        let known = shared.registry.settle(seat, &id, now_ms());
        if known.is_some() {
            shared.metrics.call(if failed { "failed" } else { "ok" });
        }
        // A call that an earlier process saw asked waits in the store; how long it took is unknown.
        let (run, thread, latency_ms) = known.map_or_else(
            || (seat.run_id.clone(), seat.thread_id.clone(), None),
            |call| (call.run_id, call.thread_id, Some(call.latency_ms)),
        );
        shared.recorder.call_result(CallResult {
            run_id: run.to_string(),
            thread_id: thread.to_string(),
            call_id: account::call_id(&id),
            status: if failed {
                CallStatus::Failed
            } else {
                CallStatus::Ok
            },
            latency_ms,
            result_bytes: Some(u64::from(block.content.unwrap_or(block.span).len())),
        });
    }
}

fn blocks_of(view: &RequestView, range: std::ops::Range<u32>) -> impl Iterator<Item = &Block> {
    view.blocks
        .get(range.start as usize..range.end as usize)
        .unwrap_or_default()
        .iter()
}

/// The lifetime of all markers of a request, if they agree. A request without any is taken as
/// five minutes: the provider's own breakpoints after server tools have that.
fn common_ttl(view: &RequestView, placed: &[(usize, Ttl)]) -> Option<Ttl> {
    let own = view
        .blocks
        .iter()
        .filter_map(|b| b.marker)
        .chain(view.auto_marker)
        .map(|m| m.ttl);
    let mut all = own.chain(placed.iter().map(|(_, ttl)| Some(*ttl)));
    let Some(first) = all.next() else {
        return Some(Ttl::M5);
    };
    all.all(|ttl| ttl == first).then_some(first).flatten()
}

/// Makes the headers fit an edited body: it goes decoded, with its new length.
pub fn fit_headers(headers: &mut HeaderMap, pieces: &[Bytes]) {
    headers.remove(CONTENT_ENCODING);
    let length: usize = pieces.iter().map(Bytes::len).sum();
    headers.insert(CONTENT_LENGTH, length.into());
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn owned(decoded: std::borrow::Cow<'_, [u8]>) -> Bytes {
    decoded.into_owned().into()
}
