//! The place of a request: its run, thread and turn, and the calls whose results it brings.

use crate::prompt_cache::chain::{Chain, Hash};
use crate::provider::json;
use crate::provider::view::{Block, BlockKind, History, Message, RequestView, Role};
use crate::proxy::Shared;
use crate::proxy::account::{self, Account, hex};
use crate::run::{Arrival, Identity, NoSearch, Search, identify};
use crate::trace::{CallResult, CallStatus, Inspection};

use super::Asking;

/// Texts of a first message that are compared with pending prompts.
const MAX_OPENING_TEXTS: usize = 8;
/// From so many bytes on, a message is taken to stand in one conversation only. Tool results and
/// answers with calls carry ids, which makes them so at any length.
const MIN_TELLING_BYTES: u32 = 160;
/// Newest messages by which the thread of an edited history is searched.
const MAX_SEARCHED_MESSAGES: usize = 64;

/// Finds run, thread and turn, and describes the request in its record.
pub(super) fn place(
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
    let looking = Looking {
        shared,
        body,
        view,
        chain,
    };
    let first = view
        .messages
        .first()
        .map(|message| looking.hash("first", message));
    let model = view.model.as_deref().unwrap_or_default();
    let arrival = Arrival {
        identity: &identity,
        trace: identify::trace_session(asking.headers),
        chain: &chain.at,
        borders: &borders,
        root: Some(chain.root),
        model_root: Some(shared.hasher.extend(chain.root, model.as_bytes())),
        first,
        newest: view.messages.last().and_then(|m| looking.telling(m)),
        has_history: view.messages.iter().any(|m| m.role == Role::Assistant),
        history: &view.history,
        body: xxhash_rust::xxh3::xxh3_128(body),
        now_ms: shared.clock.utc_ms(),
    };
    let seat = shared.registry.arrive(&arrival, &looking);
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
    if seat.unknown_parent {
        account.warn("unknown_parent");
    }
    account.seated(seat, end, body.len());
    if let Some(id) = view.history.conversation() {
        account.converses(id);
    }
    let Some(record) = account.record() else {
        return;
    };
    record.traceparent = identify::traceparent(asking.headers);
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
pub(super) fn place_unread(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &[u8],
) {
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
        newest: None,
        has_history: false,
        history: &History::Whole,
        body: xxhash_rust::xxh3::xxh3_128(body),
        now_ms: shared.clock.utc_ms(),
    };
    let seat = shared.registry.arrive(&arrival, &NoSearch);
    account.seated(seat, None, body.len());
    if let Some(record) = account.record() {
        record.traceparent = identify::traceparent(asking.headers);
        record.agent = identity.agent;
        record.parent_agent = identity.parent_agent;
    }
}

/// What the registry may ask of a request.
struct Looking<'a> {
    shared: &'a Shared,
    body: &'a [u8],
    view: &'a RequestView,
    chain: &'a Chain,
}

impl Looking<'_> {
    /// Hash of one message alone, whatever stands before it.
    fn hash(&self, label: &str, message: &Message) -> Hash {
        let blocks = message.blocks.start as usize..message.blocks.end as usize;
        let hashes = self.chain.blocks.get(blocks).unwrap_or_default();
        self.shared.hasher.keyed(label, hashes.as_flattened())
    }

    /// The same of a message that is long enough not to stand in any other conversation.
    fn telling(&self, message: &Message) -> Option<Hash> {
        let blocks = || blocks_of(self.view, message.blocks.clone());
        let telling = message.span.len() >= MIN_TELLING_BYTES
            || blocks().any(|block| block.call_id.is_some());
        telling.then(|| self.hash("message", message))
    }
}

impl Search for Looking<'_> {
    fn opening_texts(&self) -> Vec<Hash> {
        let Some(first) = self.view.messages.first() else {
            return Vec::new();
        };
        blocks_of(self.view, first.blocks.clone())
            .filter(|block| block.kind == BlockKind::Text)
            .filter_map(|block| block.content)
            .map(|content| json::unescape(content.of(self.body)))
            .filter(|text| text.trim().len() >= crate::run::parents::MIN_PROMPT_BYTES)
            .take(MAX_OPENING_TEXTS)
            .map(|text| {
                let text = text.trim().as_bytes();
                self.shared.hasher.keyed("prompt", text)
            })
            .collect()
    }

    fn messages(&self) -> Vec<Hash> {
        let newest_first = self.view.messages.iter().rev().take(MAX_SEARCHED_MESSAGES);
        newest_first.filter_map(|m| self.telling(m)).collect()
    }
}

/// Closes the calls whose results this request brings, and those that it leaves behind.
pub(super) fn settle_results(shared: &Shared, account: &Account, body: &[u8], view: &RequestView) {
    let Some(seat) = account.seat() else { return };
    let newest = shared.guards.newest(body, view);
    let answered = newest.results.into_iter().map(|result| {
        let status = match result.failed {
            true => CallStatus::Failed,
            false => CallStatus::Ok,
        };
        (result.call_id, status, Some(result.bytes), result.retries)
    });
    let left = newest.unanswered.into_iter();
    let left = left.map(|id| (id, CallStatus::Unanswered, None, 0));
    for (id, status, result_bytes, retries) in answered.chain(left) {
        let known = shared.registry.settle(seat, &id, shared.clock.utc_ms());
        if known.is_some() {
            shared.metrics.call(status.as_str());
        } else if status == CallStatus::Unanswered {
            // It was told before, or the conversation is older than what is remembered.
            continue;
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
            status,
            latency_ms: latency_ms.filter(|_| status != CallStatus::Unanswered),
            result_bytes,
            retries,
        });
    }
}

fn blocks_of(view: &RequestView, range: std::ops::Range<u32>) -> impl Iterator<Item = &Block> {
    view.blocks
        .get(range.start as usize..range.end as usize)
        .unwrap_or_default()
        .iter()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
