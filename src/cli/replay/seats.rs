//! Bodies as the gateway sees them: looked at, and seated in runs and threads.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;

use super::line::Line;
use crate::prompt_cache::chain::{Chain, Hash, Hasher};
use crate::prompt_cache::plan::client_marks;
use crate::prompt_cache::trail::{Betas, Trail, short};
use crate::provider::anthropic::{self, request::view};
use crate::provider::view::{History, RequestView, Role, Unmarkable};
use crate::run::{Answered, Arrival, Identity, Labels, Registry, identify};

/// Hashes are compared within one replay only, and the same input gives the same output: the
/// secret of an installation has no part in it.
const SECRET: [u8; 32] = *b"prefixgate replay, no secret....";

/// A request that was looked at.
pub(in crate::cli) struct Looked {
    pub(in crate::cli) at_ms: i64,
    pub(in crate::cli) scope: u64,
    pub(in crate::cli) trail: Trail,
    pub(in crate::cli) unmarkable: Box<[Option<Unmarkable>]>,
    pub(in crate::cli) forced: bool,
    pub(in crate::cli) prompt_tokens: Option<u64>,
    /// What was looked at, where that is wanted again.
    pub(in crate::cli) seen: Option<Box<Seen>>,
    identity: Identity,
    trace: Option<String>,
    /// Chain hash after each message.
    borders: Vec<Hash>,
    root: Hash,
    model_root: Hash,
    first: Option<Hash>,
    has_history: bool,
    history: History,
    body: u128,
}

/// A body, and what was seen in it.
pub(in crate::cli) struct Seen {
    pub(in crate::cli) body: Vec<u8>,
    pub(in crate::cli) view: RequestView,
    pub(in crate::cli) chain: Chain,
    pub(in crate::cli) betas: Betas,
}

/// Looks at bodies.
pub(in crate::cli) struct Eyes {
    hasher: Hasher,
    /// Bodies are kept, to be looked at again.
    keep: bool,
}

impl Default for Eyes {
    fn default() -> Self {
        Self {
            hasher: Hasher::new(SECRET),
            keep: false,
        }
    }
}

/// The hashes by which [`Eyes`] look.
pub(in crate::cli) fn hasher() -> Hasher {
    Hasher::new(SECRET)
}

impl Eyes {
    /// That keep what they saw.
    pub(in crate::cli) fn keeping() -> Self {
        Self {
            keep: true,
            ..Self::default()
        }
    }

    /// Looks at one.
    ///
    /// # Errors
    /// Why it is no request that could be looked at.
    pub(super) fn look(&self, line: &Line, at_ms: i64) -> Result<Looked, String> {
        let hasher = &self.hasher;
        let view = view(&line.body).map_err(|fault| format!("the body: {fault}"))?;
        if view.blocks.is_empty() {
            return Err("the body: no blocks".into());
        }
        if let History::Continues(_) = view.history {
            return Err("the body: its history is held by the provider".into());
        }
        let scope = hasher.keyed("credential", credential(&line.headers));
        let chain = hasher.chain(&line.body, &view, &scope);
        let labels = Labels {
            run: line.run.clone(),
            ..Labels::default()
        };
        let identity = identify::identify(&line.headers, &labels, &view.ids, |raw| {
            let hash = hasher.keyed("id", raw);
            hash.iter().take(8).map(|b| format!("{b:02x}")).collect()
        });
        let blocks =
            |m: &crate::provider::view::Message| m.blocks.start as usize..m.blocks.end as usize;
        let first = view.messages.first().map(|message| {
            let hashes = chain.blocks.get(blocks(message)).unwrap_or_default();
            hasher.keyed("first", hashes.as_flattened())
        });
        let ends = view.messages.iter().map(|m| m.blocks.end as usize);
        let borders = ends
            .map(|end| match end.checked_sub(1) {
                Some(last) => chain.at.get(last).copied().unwrap_or(chain.root),
                None => chain.root,
            })
            .collect();
        let (hash, fast) = anthropic::betas(&line.headers);
        let betas = Betas { hash, fast };
        let model = view.model.clone().unwrap_or_default();
        let marks = client_marks(&view);
        let trail = Trail::new(hasher, &line.body, &view, &chain, betas, marks);
        let (root, history) = (chain.root, view.history.clone());
        let unmarkable = view.blocks.iter().map(|block| block.unmarkable).collect();
        let has_history = view.messages.iter().any(|m| m.role == Role::Assistant);
        let (forced, model_root) = (view.forced_call, hasher.extend(root, model.as_bytes()));
        let seen = self.keep.then(|| {
            Box::new(Seen {
                body: line.body.clone(),
                view,
                chain,
                betas,
            })
        });
        Ok(Looked {
            at_ms,
            scope: short(&scope),
            trail,
            unmarkable,
            forced,
            seen,
            prompt_tokens: line.prompt_tokens,
            identity,
            trace: identify::trace_session(&line.headers),
            borders,
            root,
            model_root,
            first,
            has_history,
            history,
            body: xxhash_rust::xxh3::xxh3_128(&line.body),
        })
    }
}

/// Where a request belongs.
pub(in crate::cli) struct Place {
    pub(in crate::cli) run: Arc<str>,
    pub(in crate::cli) name: Arc<str>,
    /// The thread's number, over all runs.
    pub(in crate::cli) thread: u32,
    pub(in crate::cli) turn: u32,
}

/// Finds runs and threads. Requests come in the order of time.
#[derive(Default)]
pub(in crate::cli) struct Seats {
    registry: Registry,
    threads: HashMap<(Arc<str>, Arc<str>), u32>,
}

impl Seats {
    /// The place of the next request.
    pub(in crate::cli) fn seat(&mut self, looked: &Looked) -> Place {
        let ends: Vec<usize> = (1..=looked.borders.len()).collect();
        let arrival = Arrival {
            identity: &looked.identity,
            trace: looked.trace.clone(),
            chain: &looked.borders,
            borders: &ends,
            root: Some(looked.root),
            model_root: Some(looked.model_root),
            first: looked.first,
            newest: None,
            has_history: looked.has_history,
            history: &looked.history,
            body: looked.body,
            now_ms: looked.at_ms,
        };
        let seat = self.registry.arrive(&arrival, &crate::run::NoSearch);
        self.registry.answered(
            &seat,
            Answered {
                ok: true,
                end: looked.borders.last().copied(),
                now_ms: looked.at_ms,
                ..Answered::default()
            },
        );
        let next = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        let key = (seat.run_id.clone(), seat.thread_id.clone());
        let thread = *self.threads.entry(key).or_insert(next);
        Place {
            run: seat.run_id,
            name: seat.thread_id,
            thread,
            turn: seat.turn,
        }
    }
}

/// What was sent to prove who asks; recordings often have it blotted out, which is as good.
fn credential(headers: &HeaderMap) -> &[u8] {
    let named = |name| headers.get(name).map(http::HeaderValue::as_bytes);
    named("x-api-key")
        .or_else(|| named("authorization"))
        .unwrap_or_default()
}
