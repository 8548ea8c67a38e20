//! From a client's body to what goes upstream: look, find the place, plan, splice.

mod place;
mod watch;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use super::Shared;
use super::account::Account;
use crate::prompt_cache::chain::Hash;
use crate::prompt_cache::engine::News;
use crate::prompt_cache::helpers::tool_order;
use crate::prompt_cache::splice;
use crate::provider::view::{History, RequestView, Ttl};
use crate::provider::{anthropic, decode};
use crate::trace::Inspection;

/// What goes upstream.
#[derive(Debug)]
pub struct Prepared {
    /// The body in pieces.
    pub pieces: Vec<Bytes>,
    /// The body was edited; the client's own is kept for the fuse.
    pub edited: bool,
    /// The history is held by the provider.
    pub continues: bool,
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
}

/// Looks at a body, finds its place and plans its breakpoints. Never fails: what cannot be read
/// is passed on as it came.
pub fn prepare(
    shared: &Shared,
    account: &mut Account,
    asking: &Asking<'_>,
    body: &Bytes,
) -> Prepared {
    let untouched = |continues, learning| Prepared {
        pieces: vec![body.clone()],
        edited: false,
        continues,
        learning,
    };
    let looked = look(asking.headers, body, shared.config.inspect_bytes);
    let (mut decoded, mut view) = match looked {
        Ok(looked) => looked,
        Err(reason) => {
            if let Some(record) = account.record() {
                record.inspection = Inspection::NotInspected(reason);
                record.cache.unjudged = Some(reason);
            }
            shared.metrics.plan_skipped("not_inspected");
            place::place_unread(shared, account, asking, body);
            return untouched(false, None);
        }
    };
    let client_order = shared
        .config
        .stable_tool_order
        .then(|| tool_order::client_order(&decoded, &view));
    let sorted = client_order.and_then(|_| tool_order::rewritten(&decoded, &mut view));
    let reordered = sorted.is_some();
    if let Some(sorted) = sorted {
        decoded = sorted;
    }
    let mut scope = [0_u8; 16 + 32];
    scope[..16].copy_from_slice(&asking.credential);
    let name = shared.hasher.keyed("upstream", asking.upstream.as_bytes());
    scope[16..32].copy_from_slice(&name);
    let chain = shared.hasher.chain(&decoded, &view, &scope);
    place::place(shared, account, asking, &decoded, &view, &chain);
    place::settle_results(shared, account, &decoded, &view);
    let sent = watch::watch(
        shared,
        account,
        asking,
        &decoded,
        &view,
        chain,
        client_order,
    );
    account.set_ttl(common_ttl(&view, &sent.placed));
    let continues = matches!(view.history, History::Continues(_));
    let learning = (!sent.news.is_empty()).then(|| (decoded.clone(), sent.news));
    if !reordered && sent.splices.is_empty() {
        // As it came, encoded or not.
        return untouched(continues, learning);
    }
    Prepared {
        edited: true,
        pieces: splice::apply(&decoded, &sent.splices),
        continues,
        learning,
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

fn owned(decoded: std::borrow::Cow<'_, [u8]>) -> Bytes {
    decoded.into_owned().into()
}
