//! From a client's body to what goes upstream: look, find the place, plan, splice.

mod place;
mod watch;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use super::Shared;
use super::account::{Account, hex};
use super::guard::caps::{self, Asked};
use super::guard::{hint, loops, loops::Stop};
use crate::config::{CacheKey, CacheRetention};
use crate::guard::caps::Limits;
use crate::prompt_cache::chain::Hash;
use crate::prompt_cache::engine::News;
use crate::prompt_cache::helpers::tool_order;
use crate::prompt_cache::splice::{self, Splice};
use crate::provider::decode;
use crate::provider::dialect::{CacheOptions, Dialect};
use crate::provider::openai::claude;
use crate::provider::view::{Caching, History, RequestView, Ttl};
use crate::provider::wire::Wire;
use crate::trace::Inspection;

/// What goes upstream.
#[derive(Debug)]
pub struct Prepared {
    /// The body in pieces.
    pub pieces: Vec<Bytes>,
    /// The body was edited; the client's own is kept for the fuse.
    pub edited: bool,
    /// There is more among the edits than texts in the history.
    pub marked: bool,
    /// The client's body with the texts that belong into its history, where there are any.
    pub hinted: Option<Bytes>,
    /// It goes nowhere: its history shows a loop.
    pub stop: Option<Stop>,
    /// What it has to ask of the books of caps.
    pub asked: Option<Asked>,
    /// The history is held by the provider.
    pub continues: bool,
    /// Lifetime of what is written, where it is not what the upstream usually gives.
    pub writes: Option<Ttl>,
    /// The body as it was looked at, and what is to be learnt of it once it is on its way.
    pub learning: Option<(Bytes, News)>,
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
    /// Limits that the request brings along.
    pub lowered: &'a Limits,
    /// Format of the body.
    pub wire: Wire,
    /// How its upstream speaks it.
    pub dialect: &'a Dialect,
    /// It came over a socket: its bytes go on as they are, and the connection remembers what was
    /// answered on it, stored or not.
    pub socket: bool,
    /// See [`super::route::Route::compacts`].
    pub compacts: bool,
}

impl Asking<'_> {
    /// What can be said about OpenAI's cache. Behind the login of ChatGPT stands another backend,
    /// which refuses all of it.
    fn knows(&self) -> CacheOptions {
        match self.headers.contains_key("chatgpt-account-id") {
            true => CacheOptions::None,
            false => self.dialect.cache_options,
        }
    }

    /// Looks at a body as its upstream would.
    fn view(&self, body: &[u8]) -> Result<RequestView, &'static str> {
        let mut view = self.wire.view(body)?;
        if view.wire != Wire::Messages {
            let knows = self.knows();
            if view.anthropic_rules {
                claude::restrict(&mut view, self.dialect.cache_control);
            } else if knows < CacheOptions::All {
                (view.spelling, view.question, view.retention) = (None, None, None);
            }
            if knows < CacheOptions::Lifetime {
                view.lifetimes = &[];
            }
        }
        if let (Some(rules), Caching::Automatic(_)) = (self.dialect.caching, view.caching) {
            view.caching = Caching::Automatic(rules);
        }
        if self.compacts {
            view.uneditable = view.uneditable.or(Some("compaction"));
        }
        if self.socket {
            view.uneditable = view.uneditable.or(Some("socket"));
            if view.history == History::Whole {
                view.history = History::Opened;
            }
        }
        Ok(view)
    }
}

/// Looks at a body, finds its place and plans its breakpoints. Never fails: what cannot be read
/// is passed on as it came.
pub fn prepare(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &Bytes,
) -> Prepared {
    let mut prepared = Prepared {
        pieces: vec![body.clone()],
        edited: false,
        marked: false,
        hinted: None,
        stop: None,
        asked: None,
        continues: false,
        writes: None,
        learning: None,
    };
    let looked = look(asking, body, shared.config.inspect_bytes);
    let (mut decoded, mut view) = match looked {
        Ok(looked) => looked,
        Err(reason) => {
            if let Some(record) = account.record() {
                record.inspection = Inspection::NotInspected(reason);
                record.cache.unjudged = Some(reason);
            }
            shared.metrics.plan_skipped("not_inspected");
            place::place_unread(shared, account, asking, body);
            prepared.asked = caps(shared, account, asking, body.len(), None, None);
            return prepared;
        }
    };
    prepared.continues = matches!(view.history, History::Continues(_));
    prepared.writes = view.anthropic_rules.then_some(claude::WRITES);
    let client_order = shared
        .config
        .stable_tool_order
        .then(|| tool_order::client_order(&decoded, &view));
    let sorted = client_order.and_then(|_| tool_order::rewritten(&decoded, &mut view));
    if let Some(sorted) = sorted {
        decoded = sorted;
        prepared.marked = true;
    }
    let mut scope = [0_u8; 16 + 32];
    scope[..16].copy_from_slice(&asking.credential);
    let name = shared.hasher.keyed("upstream", asking.upstream.as_bytes());
    scope[16..32].copy_from_slice(&name);
    let mut chain = shared.hasher.chain(&decoded, &view, &scope);
    place::place(shared, account, asking, &decoded, &view, &chain);
    place::settle_results(shared, account, &decoded, &view);
    account.declares(shared.guards.declared(&decoded, &view, &chain));
    match loops::judge(shared, account, &decoded, &view) {
        Err(stop) => {
            prepared.stop = Some(stop);
            return prepared;
        }
        Ok(hints) => {
            let hinted = hint::written(&decoded, &view, &hints);
            // From here on the request is the one with the texts in it.
            if let Some(hinted) = hinted
                && let Ok(seen) = asking.view(&hinted)
            {
                account.moved(|blocks| hint::shifted(blocks, &view, &hints));
                chain = shared.hasher.chain(&hinted, &seen, &scope);
                (decoded, view) = (hinted.clone(), seen);
                prepared.hinted = Some(hinted);
            }
        }
    }
    let lifetime = asked_lifetime(shared, account, &mut view);
    let root = chain.root;
    let mut sent = watch::watch(
        shared,
        account,
        asking,
        &decoded,
        &view,
        chain,
        client_order,
    );
    ask_usage(account, asking, &view, &mut sent.splices);
    // The question says it as well.
    if let Some(member) = lifetime.filter(|_| !sent.asks_why) {
        splice::put(&mut sent.splices, first_member(&view, member));
    }
    if shared.config.cache_key == CacheKey::Add {
        route_to_one_cache(account, &view, root, &mut sent.splices);
    }
    account.set_ttl(common_ttl(&view, &sent.placed));
    let writes = longest_ttl(&view, &sent.placed);
    let len = decoded.len();
    prepared.asked = caps(shared, account, asking, len, Some(&view), writes);
    prepared.learning = (!sent.news.is_empty()).then(|| (decoded.clone(), sent.news));
    prepared.marked |= !sent.splices.is_empty();
    prepared.edited = prepared.marked || prepared.hinted.is_some();
    if prepared.edited {
        prepared.pieces = splice::apply(&decoded, &sent.splices);
    }
    prepared
}

/// Has a Chat stream tell its tokens where the client did not ask for them.
fn ask_usage(
    account: &mut Account,
    asking: &Asking<'_>,
    view: &RequestView,
    splices: &mut Vec<Splice>,
) {
    let off = account.seat().is_none_or(|seat| seat.insertion_off);
    let Some(question) = view.ask_usage.filter(|_| asking.dialect.ask_usage && !off) else {
        return;
    };
    let splice = Splice {
        at: question.at.start,
        remove: question.at.len(),
        insert: Bytes::from_static(question.text.as_bytes()),
    };
    splice::put(splices, splice);
    account.asks_usage();
}

/// Gives a request a key by which it is routed to the cache of those with its tools and system
/// prompt.
fn route_to_one_cache(
    account: &Account,
    view: &RequestView,
    root: Hash,
    splices: &mut Vec<Splice>,
) {
    let off = account.seat().is_none_or(|seat| seat.insertion_off);
    let editable = view.uneditable.is_none() && !off;
    let Some((before, after)) = view.routing_key.filter(|_| editable) else {
        return;
    };
    let splice = Splice {
        at: view.object_start,
        remove: 0,
        insert: Bytes::from(format!("{before}prefixgate-{}{after}", hex(&root[..12]))),
    };
    splice::put(splices, splice);
}

/// A member before all others of a request.
fn first_member(view: &RequestView, member: &'static str) -> Splice {
    Splice {
        at: view.object_start,
        remove: 0,
        insert: Bytes::from_static(member.as_bytes()),
    }
}

/// The member by which a request is given the lifetime that the configuration wants for what it
/// writes, if the model knows it and the client has said nothing. The view is then that of a request
/// with it.
fn asked_lifetime(
    shared: &Shared,
    account: &Account,
    view: &mut RequestView,
) -> Option<&'static str> {
    let off = account.seat().is_none_or(|seat| seat.insertion_off);
    if off || view.uneditable.is_some() || view.model.is_none() {
        return None;
    }
    let wanted = shared.config.cache_lifetime.ttl();
    let found = view.lifetimes.iter().find(|one| Some(one.ttl) == wanted);
    let Some(lifetime) = found else {
        let kept = shared.config.cache_retention == CacheRetention::Day;
        return view.retention.filter(|_| kept);
    };
    if let Caching::Automatic(rules) = &mut view.caching {
        rules.ttl = Some(lifetime.ttl);
    }
    view.question = view.question.and(lifetime.question);
    Some(lifetime.member)
}

/// What the request has to ask of the books, if anything limits it.
fn caps(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    bytes: usize,
    view: Option<&RequestView>,
    writes: Option<Ttl>,
) -> Option<Asked> {
    let credential = account
        .record()
        .and_then(|record| record.credential.clone());
    caps::asked(
        shared,
        account,
        &caps::Asking {
            price_provider: asking.price_provider,
            credential: credential.as_deref().unwrap_or(caps::NO_CREDENTIAL),
            lowered: asking.lowered,
            bytes,
            view,
            writes,
        },
    )
}

fn look(
    asking: &Asking<'_>,
    body: &Bytes,
    limit: usize,
) -> Result<(Bytes, RequestView), &'static str> {
    let encodings: Vec<&str> = asking
        .headers
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
    let view = asking.view(&decoded)?;
    Ok((decoded, view))
}

/// The longest lifetime that any breakpoint of a request asks for; one that this version does not
/// know is taken for the longest.
fn longest_ttl(view: &RequestView, placed: &[(usize, Ttl)]) -> Option<Ttl> {
    let own = view
        .blocks
        .iter()
        .filter_map(|b| b.marker)
        .chain(view.auto_marker)
        .map(|m| m.ttl.unwrap_or(Ttl::H1));
    let asked = view.caching.automatic().and_then(|rules| rules.ttl);
    let asked = asked.filter(|ttl| ttl.is_long());
    own.chain(asked)
        .chain(placed.iter().map(|(_, ttl)| *ttl))
        .max()
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
    let provider = view.caching.automatic().and_then(|rules| rules.ttl);
    let mut all = own
        .chain(placed.iter().map(|(_, ttl)| Some(*ttl)))
        .chain(provider.map(Some));
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

fn owned(decoded: std::borrow::Cow<'_, [u8]>) -> Bytes {
    decoded.into_owned().into()
}
