//! Where a request goes, and what its address says about it.

use std::sync::Arc;

use http::Method;

use super::lower;
use crate::config::{Format, Upstream};
use crate::provider::wire::Wire;
use crate::run::Labels;
use crate::trace::RequestKind;

/// Where Responses are made shorter.
const COMPACT: &str = "/responses/compact";

/// A request's way.
#[derive(Debug, Clone)]
pub struct Route {
    /// The endpoint.
    pub upstream: Arc<Upstream>,
    /// What the request is for.
    pub kind: RequestKind,
    /// The format of a turn, and of errors of ours.
    pub wire: Wire,
    /// The turn makes a conversation shorter: it costs like others, but what it gives back is no
    /// answer of a model, and nothing is edited in it.
    pub compacts: bool,
    /// Path and query as they go upstream, the upstream's own path prefix not yet joined.
    pub target: String,
    /// Labels from the path.
    pub labels: Labels,
}

/// Why an address leads nowhere. The client's fault; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// `/u/<name>` with a name that is not configured. Sending it to the default upstream could
    /// hand a key to the wrong provider.
    #[error("no upstream is named `{name}`; configured: {known}")]
    UnknownUpstream {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A label that means nothing here.
    #[error("unknown label `{0}` in the path; known labels: run, app, agent, parent, {known}", known = lower::known())]
    UnknownLabel(String),
    /// A limit whose value is none, or that stands twice.
    #[error("label `{label}` in the path: {why}")]
    WrongLabel {
        /// The label.
        label: &'static str,
        /// What is allowed.
        why: String,
    },
}

/// The configured upstreams.
#[derive(Debug, Clone)]
pub struct Router {
    upstreams: Vec<Arc<Upstream>>,
}

impl Router {
    /// A router over `upstreams`; the first is the default.
    #[must_use]
    pub fn new(upstreams: &[Upstream]) -> Option<Self> {
        let upstreams: Vec<_> = upstreams.iter().cloned().map(Arc::new).collect();
        (!upstreams.is_empty()).then_some(Self { upstreams })
    }

    /// Finds the way of a request. `path_and_query` is the raw request target.
    ///
    /// # Errors
    /// [`RouteError`] when the path names an upstream or a label that does not exist.
    pub fn route(&self, method: &Method, path_and_query: &str) -> Result<Route, RouteError> {
        let mut rest = path_and_query;
        let mut labels = Labels::default();
        let mut named = None;
        loop {
            if let Some(tail) = rest.strip_prefix("/-/") {
                let (list, after) = split_segment(tail);
                read_labels(list, &mut labels)?;
                rest = after;
            } else if let Some(tail) = rest.strip_prefix("/u/") {
                let (name, after) = split_segment(tail);
                named = Some(self.by_name(name)?);
                rest = after;
            } else {
                break;
            }
        }
        let target = if rest.is_empty() || rest.starts_with('?') {
            format!("/{rest}")
        } else {
            rest.to_owned()
        };
        // A base URL with a slash at its end doubles the first one. What is meant is plain, and goes
        // on as it came.
        let path = target.split('?').next().unwrap_or_default();
        let path = match path.trim_start_matches('/') {
            "" => path,
            rest => &path[path.len() - rest.len() - 1..],
        };
        let upstream = named.unwrap_or_else(|| self.by_path(path));
        let turn = wire(upstream.format, method, path);
        let kind = match turn {
            Some(_) => RequestKind::Turn,
            None => kind(upstream.format, method, path),
        };
        Ok(Route {
            wire: turn.unwrap_or_else(|| spoken(upstream.format)),
            compacts: turn.is_some() && path.ends_with(COMPACT),
            upstream,
            kind,
            target,
            labels,
        })
    }

    fn by_name(&self, name: &str) -> Result<Arc<Upstream>, RouteError> {
        self.upstreams
            .iter()
            .find(|u| u.name == name)
            .cloned()
            .ok_or_else(|| {
                let known: Vec<&str> = self.upstreams.iter().map(|u| u.name.as_str()).collect();
                RouteError::UnknownUpstream {
                    name: crate::text::prefix(name, 64).to_owned(),
                    known: known.join(", "),
                }
            })
    }

    fn by_path(&self, path: &str) -> Arc<Upstream> {
        let format = match path.strip_prefix("/v1").unwrap_or(path) {
            "/chat/completions" | "/responses" | "/embeddings" | "/completions" => {
                Some(Format::OpenAi)
            }
            p if p.starts_with("/responses/") || p.starts_with("/conversations") => {
                Some(Format::OpenAi)
            }
            p if p.starts_with("/messages") => Some(Format::Anthropic),
            _ => None,
        };
        let default = &self.upstreams[0];
        match format {
            Some(format) if default.format != format => self
                .upstreams
                .iter()
                .find(|u| u.format == format)
                .unwrap_or(default)
                .clone(),
            _ => default.clone(),
        }
    }
}

/// Splits `segment/rest` or `segment?query`, keeping the separator with the rest.
fn split_segment(text: &str) -> (&str, &str) {
    let end = text.find(['/', '?']).unwrap_or(text.len());
    text.split_at(end)
}

fn read_labels(list: &str, labels: &mut Labels) -> Result<(), RouteError> {
    for label in list.split(',').filter(|l| !l.is_empty()) {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        let slot = match key {
            "run" => &mut labels.run,
            "app" => &mut labels.app,
            "agent" => &mut labels.agent,
            "parent" => &mut labels.parent,
            other => {
                let Some((label, limit)) = lower::limit(other) else {
                    return Err(RouteError::UnknownLabel(
                        crate::text::prefix(other, 64).to_owned(),
                    ));
                };
                limit(&mut labels.limits, &percent_decode(value))
                    .map_err(|why| RouteError::WrongLabel { label, why })?;
                continue;
            }
        };
        *slot = Some(percent_decode(value));
    }
    Ok(())
}

/// Decodes `%41`; what is not a valid escape, or not UTF-8 afterwards, stays as it is.
fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = (byte == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        out.push(escape.unwrap_or(byte));
        at += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// The format of a turn, by the end of its path: what stands before it is the upstream's own.
fn wire(format: Format, method: &Method, path: &str) -> Option<Wire> {
    if format == Format::Opaque || *method != Method::POST {
        return None;
    }
    let ends = |end: &str| path.ends_with(end);
    if ends("/v1/messages") {
        Some(Wire::Messages)
    } else if ends("/chat/completions") {
        Some(Wire::Chat)
    } else if ends("/responses") || ends(COMPACT) {
        Some(Wire::Responses)
    } else {
        None
    }
}

/// The provider's id in the price data for a turn of this format. An upstream that speaks the other
/// family as well (a router, or one that takes everything) is not priced by the list of the first.
#[must_use]
pub fn prices(upstream: &Upstream, wire: Wire) -> &str {
    match (upstream.format, wire, upstream.price_provider.as_str()) {
        (Format::Anthropic, Wire::Chat | Wire::Responses, "anthropic") => "openai",
        (Format::OpenAi, Wire::Messages, "openai") => "anthropic",
        (_, _, provider) => provider,
    }
}

/// The format in which an upstream words its errors.
pub(super) fn spoken(format: Format) -> Wire {
    match format {
        Format::Anthropic => Wire::Messages,
        Format::OpenAi | Format::Opaque => Wire::Chat,
    }
}

fn kind(format: Format, method: &Method, path: &str) -> RequestKind {
    let probe = *method == Method::HEAD || *method == Method::OPTIONS;
    match path {
        "/" | "/api/hello" if probe || *method == Method::GET => RequestKind::Probe,
        p if p == "/v1/models" || p.starts_with("/v1/models/") => RequestKind::Models,
        _ if format != Format::Anthropic => RequestKind::Other,
        "/v1/messages/count_tokens" => RequestKind::CountTokens,
        p if p == "/v1/messages/batches" || p.starts_with("/v1/messages/batches/") => {
            RequestKind::Batch
        }
        _ => RequestKind::Other,
    }
}

/// Joins an upstream's base URL and a target with exactly one slash.
///
/// # Errors
/// When the target has bytes that cannot stand in a URI.
pub fn join(upstream: &Upstream, target: &str) -> Result<http::Uri, http::Error> {
    let prefix = upstream.base.path().trim_end_matches('/');
    let path = if prefix.is_empty() {
        target.to_owned()
    } else {
        format!("{prefix}{target}")
    };
    let mut parts = http::uri::Parts::default();
    parts.scheme = upstream.base.scheme().cloned();
    parts.authority = upstream.base.authority().cloned();
    parts.path_and_query = Some(path.parse()?);
    Ok(http::Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(name: &str, base: &str, format: Format) -> Upstream {
        Upstream {
            name: name.into(),
            base: base.parse().unwrap(),
            format,
            price_provider: name.into(),
            dialect: crate::provider::dialect::Dialect::default(),
        }
    }

    fn router() -> Router {
        Router::new(&[
            upstream("anthropic", "http://a", Format::Anthropic),
            upstream("openai", "http://o", Format::OpenAi),
            upstream("other", "http://x", Format::Anthropic),
        ])
        .unwrap()
    }

    #[test]
    fn paths_names_and_labels_find_their_way() {
        let check = |path: &str, name: &str, kind: RequestKind, target: &str| {
            let route = router().route(&Method::POST, path).unwrap();
            assert_eq!(
                (route.upstream.name.as_str(), route.kind),
                (name, kind),
                "{path}"
            );
            assert_eq!(route.target, target);
            route.labels
        };
        check(
            "/v1/messages?beta=true&x=a%2Fb",
            "anthropic",
            RequestKind::Turn,
            "/v1/messages?beta=true&x=a%2Fb",
        );
        check(
            "/v1/chat/completions",
            "openai",
            RequestKind::Turn,
            "/v1/chat/completions",
        );
        check(
            "/v1/responses/compact?x",
            "openai",
            RequestKind::Turn,
            "/v1/responses/compact?x",
        );
        check(
            "/v1/responses/resp_1/cancel",
            "openai",
            RequestKind::Other,
            "/v1/responses/resp_1/cancel",
        );
        check(
            "/u/other/v1/messages",
            "other",
            RequestKind::Turn,
            "/v1/messages",
        );
        check(
            "/u/openai/v1/messages",
            "openai",
            RequestKind::Turn,
            "/v1/messages",
        );
        check(
            "/what/ever//x?",
            "anthropic",
            RequestKind::Other,
            "/what/ever//x?",
        );
        check(
            "/v1/messages/count_tokens?beta=true",
            "anthropic",
            RequestKind::CountTokens,
            "/v1/messages/count_tokens?beta=true",
        );
        check(
            "/v1/messages/batches/b1/results",
            "anthropic",
            RequestKind::Batch,
            "/v1/messages/batches/b1/results",
        );
        check(
            "/v1/messages/cache_touch",
            "anthropic",
            RequestKind::Other,
            "/v1/messages/cache_touch",
        );
        let labels = check(
            "/-/run=r1,app=x.y/v1/messages",
            "anthropic",
            RequestKind::Turn,
            "/v1/messages",
        );
        assert_eq!(
            (labels.run.as_deref(), labels.app.as_deref()),
            (Some("r1"), Some("x.y"))
        );
        let labels = check(
            "/u/other/-/run=a%20b/v1/messages?q",
            "other",
            RequestKind::Turn,
            "/v1/messages?q",
        );
        assert_eq!(labels.run.as_deref(), Some("a b"));
        check("/-/run=r1", "anthropic", RequestKind::Other, "/");
        check("/-/run=r1?x=1", "anthropic", RequestKind::Other, "/?x=1");
    }

    #[test]
    fn a_wrong_name_or_label_is_said() {
        let error = |path: &str| router().route(&Method::POST, path).unwrap_err().to_string();
        assert_eq!(
            error("/u/othr/v1/messages"),
            "no upstream is named `othr`; configured: anthropic, openai, other"
        );
        assert_eq!(
            error("/-/rnu=1/v1/messages"),
            "unknown label `rnu` in the path; known labels: run, app, agent, parent, max-turns, max-input-tokens, \
             max-output-tokens, max-tokens, max-usd, max-wall-time, max-depth, max-agents"
        );
        assert_eq!(
            error("/-/run=r1,max-turns=0/v1/messages"),
            "label `max-turns` in the path: must be a whole number from 1 to 1000000000000000"
        );
        assert_eq!(
            error("/-/max-usd=1/-/max-usd=2/v1/messages"),
            "label `max-usd` in the path: must be given once"
        );
    }

    #[test]
    fn labels_hold_limits() {
        let route = router()
            .route(
                &Method::POST,
                "/-/run=r1,max-usd=0.5,max-wall-time=30m/v1/messages",
            )
            .unwrap();
        assert_eq!(route.target, "/v1/messages");
        assert_eq!(route.labels.run.as_deref(), Some("r1"));
        let limits = crate::guard::caps::Limits {
            usd_pico: Some(500_000_000_000),
            wall_ms: Some(1_800_000),
            ..Default::default()
        };
        assert_eq!(route.labels.limits, limits);
    }

    #[test]
    fn b11_the_prefix_is_joined_by_exactly_one_slash() {
        for (base, expected) in [
            ("http://u", "http://u/v1/messages?x=a%2Fb"),
            ("http://u/", "http://u/v1/messages?x=a%2Fb"),
            ("http://u/prefix/", "http://u/prefix/v1/messages?x=a%2Fb"),
            ("http://u/prefix", "http://u/prefix/v1/messages?x=a%2Fb"),
        ] {
            let joined =
                join(&upstream("u", base, Format::Opaque), "/v1/messages?x=a%2Fb").unwrap();
            assert_eq!(joined.to_string(), expected);
        }
    }
}
