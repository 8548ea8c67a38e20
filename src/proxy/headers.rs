//! Which headers go on, and which end here.

use http::header::{
    CONNECTION, CONTENT_ENCODING, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};

use super::lower;
use crate::run::Labels;

/// Prefix of the headers that speak to prefixgate. They are read and stripped.
pub(super) const OWN_PREFIX: &str = "x-prefixgate-";

/// Meant for one connection only (RFC 9110 section 7.6.1), besides what `connection` names.
/// `trailer` is not among them: it announces fields that are passed on.
fn is_hop(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TE
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || matches!(
            name.as_str(),
            "keep-alive" | "proxy-connection" | "proxy-authenticate" | "proxy-authorization"
        )
}

/// Removes everything that is meant for one hop, including what `connection` names.
/// End-to-end headers that a hostile `connection` header names are kept where dropping them would
/// change what the message means.
pub fn strip_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .filter(|name: &HeaderName| !is_protected(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    // Most messages carry none: look before removing, which walks the map.
    let hops: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_hop(name))
        .cloned()
        .collect();
    for name in hops {
        headers.remove(name);
    }
}

/// A client cannot make us drop the framing, the credential or the meaning of the body.
fn is_protected(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "content-length"
            | "content-type"
            | "content-encoding"
            | "host"
            | "authorization"
            | "x-api-key"
    ) || name.as_str().starts_with("anthropic-")
}

/// Prepares request headers for the upstream: one hop ends here, our own headers are read and
/// removed. `expect` ends here too, since the body is always sent at once.
///
/// # Errors
/// A limit in one of our headers that cannot be read, for the client; the headers are fit for the
/// upstream all the same.
pub fn to_upstream(headers: &mut HeaderMap, labels: &mut Labels) -> Result<(), String> {
    strip_hop(headers);
    headers.remove(EXPECT);
    headers.remove(HOST);
    let limits = lower::lowered(headers, &labels.limits);
    let own: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OWN_PREFIX))
        .cloned()
        .collect();
    for name in own {
        let value = headers.remove(&name);
        let text = value
            .as_ref()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        match name.as_str().strip_prefix(OWN_PREFIX) {
            Some("run" | "session-id") => labels.run = text,
            Some("app") => labels.app = text,
            Some("agent") => labels.agent = text,
            Some("parent") => labels.parent = text,
            _ => {}
        }
    }
    labels.limits = limits?;
    Ok(())
}

/// Whether the client asks to leave HTTP on this connection, and for what. An offer to go on in
/// HTTP/2 (Java's client makes it with its first request) is not that: it is declined by being
/// ignored, as RFC 9113 wants it, since it would hide all that follows.
#[must_use]
pub fn wants_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    let protocol = headers.get(UPGRADE).filter(|_| named)?;
    let offers_h2c = protocol
        .as_bytes()
        .split(|b| *b == b',')
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"h2c"));
    (!offers_h2c).then(|| protocol.clone())
}

/// The credential a request carries, for the scope of caches and for records (hashed by the caller).
#[must_use]
pub fn credential(headers: &HeaderMap) -> Option<&HeaderValue> {
    ["x-api-key", "authorization", "api-key", "x-goog-api-key"]
        .iter()
        .find_map(|name| headers.get(*name))
}

/// The content encodings of a body, in one line.
pub(super) fn encodings(headers: &HeaderMap) -> String {
    let lines = headers.get_all(CONTENT_ENCODING).iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn b08_what_is_meant_for_one_hop_ends_here() {
        let mut headers = map(&[
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("proxy-authorization", "secret"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("host", "here"),
            ("x-prefixgate-run", "r1"),
            ("x-prefixgate-unknown", "z"),
            ("Anthropic-Beta", "a,b"),
            ("x-two", "1"),
            ("x-two", "2"),
        ]);
        let mut labels = Labels::default();
        to_upstream(&mut headers, &mut labels).unwrap();
        let mut names: Vec<&str> = headers.iter().map(|(n, _)| n.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["anthropic-beta", "x-two", "x-two"]);
        assert_eq!(labels.run.as_deref(), Some("r1"));
    }

    #[test]
    fn limits_are_read_and_go_no_further() {
        let mut headers = map(&[
            ("x-prefixgate-max-turns", "5"),
            ("X-Prefixgate-Max-USD", "0.5"),
            ("x-prefixgate-app", "a"),
            ("x-api-key", "k"),
        ]);
        let mut labels = Labels::default();
        labels.limits.turns = Some(3);
        to_upstream(&mut headers, &mut labels).unwrap();
        assert_eq!(headers, map(&[("x-api-key", "k")]));
        // The label of the URL was lower.
        assert_eq!(labels.limits.turns, Some(3));
        assert_eq!(labels.limits.usd_pico, Some(500_000_000_000));

        let mut headers = map(&[
            ("x-prefixgate-max-usd", "five"),
            ("x-prefixgate-run", "r1"),
            ("x-two", "1"),
        ]);
        let mut labels = Labels::default();
        let error = to_upstream(&mut headers, &mut labels).unwrap_err();
        assert!(
            error.starts_with("header x-prefixgate-max-usd: "),
            "{error}"
        );
        assert_eq!(headers, map(&[("x-two", "1")]));
        assert_eq!(labels.run.as_deref(), Some("r1"));
    }

    #[test]
    fn a_connection_header_cannot_strip_the_credential() {
        let mut headers = map(&[
            (
                "connection",
                "authorization, content-length, anthropic-version",
            ),
            ("authorization", "Bearer k"),
            ("content-length", "3"),
            ("anthropic-version", "2023-06-01"),
        ]);
        strip_hop(&mut headers);
        assert_eq!(headers.len(), 3);
    }
}
