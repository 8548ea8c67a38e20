//! A request on its way through the engine: compared with the one before it, and planned.

use super::{Compared, Engine, News};
use crate::prompt_cache::chain::{Chain, Hash, Hasher};
use crate::prompt_cache::habits::{self, Kind, Question, Within};
use crate::prompt_cache::plan::{self, Plan, Situation};
use crate::prompt_cache::shadow::{Levels, Look};
use crate::prompt_cache::trail::{Betas, Mark, Trail};
use crate::provider::view::{History, RequestView, Ttl};
use crate::usage::Rates;

/// A request, and what is known of its place.
#[derive(Debug)]
pub struct Request<'a> {
    /// The installation's hashes.
    pub hasher: &'a Hasher,
    /// The decoded body.
    pub body: &'a [u8],
    /// The body's view.
    pub view: &'a RequestView,
    /// What the headers add.
    pub betas: Betas,
    /// Blocks that this model leaves out of its prompt, by their index.
    pub left_out: &'a [usize],
    /// Hash of its thread, the same after a restart.
    pub thread: u64,
    /// 1-based number of the turn in its thread.
    pub turn: u32,
    /// Hash of what tells apps apart.
    pub app: u64,
    /// Other threads have begun with these tools and this system prompt.
    pub root_seen: bool,
    /// Blocks of the thread's previous request.
    pub previous_blocks: Option<usize>,
    /// Insertion was switched off for this thread.
    pub insertion_off: bool,
    /// Whether the client's markers stay; `None`: nothing is planned.
    pub policy: Option<plan::Policy>,
    /// Prices of the model, if known.
    pub rates: Option<Rates>,
    /// The smallest prefix that its model caches, in tokens, if known.
    pub min_tokens: Option<u32>,
    /// Bytes per token in thousandths; 0 for unknown.
    pub bytes_per_token_milli: u32,
    /// Start of the request, UTC milliseconds.
    pub now_ms: i64,
}

/// A request that can be sent.
#[derive(Debug)]
pub struct Prepared {
    /// Its blocks, with the client's breakpoints.
    pub trail: Trail,
    /// The chain after each block; empty when the provider holds the history.
    pub at: Vec<Hash>,
    /// What separates its entries from others.
    pub levels: Levels,
    /// The thread's previous request, and what changed since.
    pub compared: Compared,
    /// What is to be learnt of it, once it is on its way.
    pub news: News,
    /// Whether the thread is likely to have another turn.
    pub next: Within,
    /// Where breakpoints should go, if that was asked and the request carries its history.
    pub plan: Option<Plan>,
}

impl Engine {
    /// Compares a request with the previous one of its thread, takes note of it, and plans its
    /// breakpoints. What is sent in the end is told with [`Engine::sent`].
    pub fn prepare(&self, request: &Request<'_>, mut chain: Chain) -> Prepared {
        let Request {
            hasher,
            body,
            view,
            thread,
            turn,
            app,
            now_ms,
            ..
        } = *request;
        let whole = !matches!(view.history, History::Continues(_));
        let client = plan::client_marks(view);
        let mut trail = Trail::new(hasher, body, view, &chain, request.betas, client);
        if !request.left_out.is_empty() {
            trail.leave_out(request.left_out);
            chain.leave_out(hasher, view.head_len(), request.left_out);
        }
        if !whole {
            // What it stands behind is not in it.
            trail.steps = Box::default();
            trail.marks = Vec::new();
        }
        let root = hasher.extend(chain.root, trail.model.as_bytes());
        let (compared, news) = self.compare(thread, &trail, body, view);
        let outlook = self.outlook(
            habits::Arrival {
                app,
                root,
                thread,
                turn,
                bytes: view.blocks.iter().map(|b| u64::from(b.span.len())).sum(),
                shared: compared.kept,
                now_ms,
            },
            &Question {
                app,
                root,
                thread,
                turn,
                kind: Kind::of(view),
                forced: view.forced_call,
                root_seen: request.root_seen,
                now_ms,
            },
        );
        let mut prepared = Prepared {
            levels: Levels::of(hasher, &trail),
            trail,
            at: if whole { chain.at } else { Vec::new() },
            compared,
            news,
            next: outlook.next,
            plan: None,
        };
        let planned = whole && view.spelling.is_some();
        if let Some(policy) = request.policy.filter(|_| planned) {
            let look = prepared.look(request);
            let expected = self.look(&look);
            prepared.plan = Some(plan::plan(&Situation {
                policy,
                outlook,
                rates: request.rates,
                min_tokens: request.min_tokens,
                bytes_per_token_milli: request.bytes_per_token_milli,
                // A number of blocks there, the index of the last of them here.
                previous_end: request.previous_blocks.and_then(|n| n.checked_sub(1)),
                read_at: expected.alive.map(|known| known.at),
                pending_at: expected.pending.map(|known| known.at),
                ttl: chosen_before(&prepared.compared),
                head_ttl: self.head_lifetime(&look),
                insertion_off: request.insertion_off,
                ..Situation::new(body, view)
            }));
        }
        prepared
    }
}

impl Prepared {
    /// The request as the shadow cache looks at it.
    #[must_use]
    pub fn look<'a>(&'a self, request: &Request<'_>) -> Look<'a> {
        Look {
            trail: &self.trail,
            at: &self.at,
            levels: &self.levels,
            min_tokens: request.min_tokens,
            bytes_per_token_milli: request.bytes_per_token_milli,
            now_ms: request.now_ms,
            marks: &self.trail.marks,
            automatic: request.view.caching.automatic(),
        }
    }
}

/// The lifetime of our breakpoints in this thread, which must not change while it runs.
fn chosen_before(compared: &Compared) -> Option<Ttl> {
    let past = compared.past.as_deref()?;
    let head = past.trail.head;
    let ours = past.trail.marks.iter().rev();
    ours.filter(|mark| mark.ours && mark.at >= head)
        .find_map(|mark| mark.ttl)
}

/// All breakpoints of a request that is sent as planned.
#[must_use]
pub fn marks_after(view: &RequestView, plan: &Plan) -> Vec<Mark> {
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
