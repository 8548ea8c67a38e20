//! Ways to a gateway: is one running, does a client's URL lead to it, does a proxy stand between.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

use crate::config::Environment;

/// A gateway on this machine answers at once; anything slower is not one.
const PATIENCE: Duration = Duration::from_secs(2);
/// Far more than a health answer has.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// What was found on an admin address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// A prefixgate whose proxy is at this base URL, as reachable from here.
    Prefixgate {
        /// `http://HOST:PORT`, without a slash at the end.
        proxy: String,
        /// Where its records are.
        data_dir: Option<PathBuf>,
    },
    /// Something that is no prefixgate.
    Other,
    /// Nobody listens.
    Nobody,
}

/// The part of `/healthz` that is looked at.
#[derive(Deserialize)]
struct Health {
    service: String,
    proxy: String,
    data_dir: Option<PathBuf>,
}

/// Asks `/healthz` of the admin address.
pub(super) async fn ask(admin: SocketAddr) -> Found {
    let at = from_here(admin);
    if admin.port() == 0 {
        return Found::Nobody;
    }
    match tokio::time::timeout(PATIENCE, health(at)).await {
        Ok(Ok(health)) if health.service == "prefixgate" => Found::Prefixgate {
            proxy: reachable(&health.proxy),
            data_dir: health.data_dir,
        },
        Ok(Err(error)) if is_refused(error.as_ref()) => Found::Nobody,
        _ => Found::Other,
    }
}

async fn health(at: SocketAddr) -> anyhow::Result<Health> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = client.get(format!("http://{at}/healthz").parse()?).await?;
    let body = Limited::new(answer.into_body(), ANSWER_MAX_BYTES);
    let bytes = body
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!(error))?
        .to_bytes();
    Ok(serde_json::from_slice(&bytes)?)
}

/// Asks `/readyz` of the admin address.
///
/// # Errors
/// When nobody answers in time, or the answer is no.
pub(super) async fn ready(admin: SocketAddr) -> anyhow::Result<()> {
    let at = from_here(admin);
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = client.get(format!("http://{at}/readyz").parse()?);
    let answer = tokio::time::timeout(PATIENCE, answer)
        .await
        .with_context(|| format!("{at} did not answer in {PATIENCE:?}"))?
        .with_context(|| format!("nothing answers at {at}"))?;
    anyhow::ensure!(
        answer.status().is_success(),
        "{at} says {}",
        answer.status()
    );
    Ok(())
}

fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Where to connect to reach a listener: one on all addresses is reached by loopback.
pub(super) fn from_here(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// The same for a base URL.
fn reachable(proxy: &str) -> String {
    let proxy = proxy.trim_end_matches('/');
    let address = proxy
        .strip_prefix("http://")
        .and_then(|text| text.parse().ok());
    address.map_or_else(
        || proxy.to_owned(),
        |address| format!("http://{}", from_here(address)),
    )
}

/// Whether a client with this base URL talks to the gateway at `base`, whatever path it has.
pub(super) fn points_to(url: &str, base: &str) -> bool {
    match (endpoint(url), endpoint(base)) {
        (Some(url), Some(base)) => url == base,
        _ => false,
    }
}

/// Scheme, host and port; the names of this machine count as one.
fn endpoint(url: &str) -> Option<(String, String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_owned();
    let host = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
    let port = uri
        .port_u16()
        .unwrap_or(if scheme == "https" { 443 } else { 80 });
    let local = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    Some((
        scheme,
        if local { "localhost".to_owned() } else { host },
        port,
    ))
}

/// Variables that send a client's requests through a proxy.
const PROXY_VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// A proxy that a client would use even to reach the gateway at `base`: the variable at fault and
/// what NO_PROXY should be.
pub(super) fn proxy_between(
    environment: &Environment,
    base: &str,
) -> Option<(&'static str, String)> {
    let variable = PROXY_VARIABLES
        .into_iter()
        .find(|name| environment.get(name).is_some())?;
    let uri: http::Uri = base.parse().ok()?;
    let host = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
    let set = environment
        .get("NO_PROXY")
        .or_else(|| environment.get("no_proxy"));
    let set = set
        .map(|value| value.to_string_lossy().into_owned())
        .unwrap_or_default();
    let entries = set
        .split([',', ' '])
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    let covered = entries.map(str::to_ascii_lowercase).any(|entry| {
        let name = entry.trim_start_matches("*.").trim_start_matches('.');
        entry == "*"
            || host == name
            || host
                .strip_suffix(name)
                .is_some_and(|rest| rest.ends_with('.'))
    });
    if covered {
        return None;
    }
    let gap = if set.is_empty() { "" } else { "," };
    Some((variable, format!("{set}{gap}{host}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_to_the_gateway_whatever_their_path() {
        let base = "http://127.0.0.1:8787";
        for (url, leads) in [
            ("http://127.0.0.1:8787", true),
            ("http://localhost:8787/-/run=x/v1", true),
            ("http://[::1]:8787/", true),
            ("http://127.0.0.1:8788", false),
            ("https://127.0.0.1:8787", false),
            ("http://gateway:8787", false),
            ("127.0.0.1:8787", false),
            ("", false),
        ] {
            assert_eq!(points_to(url, base), leads, "{url}");
        }
        assert!(points_to("http://gw", "http://GW:80/x"));
    }

    #[test]
    fn proxies_are_seen_unless_the_gateway_is_excepted() {
        let with = |pairs: &[(&str, &str)], base: &str| {
            proxy_between(&pairs.iter().copied().collect(), base).map(|(_, value)| value)
        };
        let base = "http://127.0.0.1:8787";
        assert_eq!(with(&[], base), None);
        assert_eq!(with(&[("HTTP_PROXY", "")], base), None);
        assert_eq!(
            with(&[("https_proxy", "http://p")], base).as_deref(),
            Some("127.0.0.1")
        );
        let set = |no_proxy: &'static str| [("HTTP_PROXY", "http://p"), ("NO_PROXY", no_proxy)];
        assert_eq!(
            with(&set("localhost"), base).as_deref(),
            Some("localhost,127.0.0.1")
        );
        assert_eq!(with(&set("a, 127.0.0.1"), base), None);
        assert_eq!(with(&set("*"), base), None);
        assert_eq!(with(&set(".corp.example"), "http://gw.corp.example"), None);
        assert_eq!(
            with(&set("example"), "http://gwexample").as_deref(),
            Some("example,gwexample")
        );
    }

    #[test]
    fn listeners_on_all_addresses_are_reached_by_loopback() {
        for (told, reached) in [
            ("http://0.0.0.0:8787", "http://127.0.0.1:8787"),
            ("http://[::]:8787/", "http://[::1]:8787"),
            ("http://10.0.0.5:8787", "http://10.0.0.5:8787"),
            ("http://gateway:8787/", "http://gateway:8787"),
        ] {
            assert_eq!(reachable(told), reached);
        }
    }
}
