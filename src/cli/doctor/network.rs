//! The upstreams, the clock, and a round trip through a running gateway.

use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::Finding;
use crate::config::{BaseUrl, Config, Upstream};

/// How long a probe may take after the connection attempt.
const ANSWER_PATIENCE: Duration = Duration::from_secs(15);
/// From here on a wrong clock makes reports and cache lifetimes misleading.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// Asked for by Claude Code before its first request; any provider answers something.
const PROBE_PATH: &str = "/api/hello";

type Probe = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// A small client of its own: no pool worth tuning, the same roots as the gateway.
fn client(extra_ca: Option<&Path>) -> anyhow::Result<Probe> {
    let mut roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    if let Some(path) = extra_ca {
        for certificate in CertificateDer::pem_file_iter(path)? {
            roots
                .add(certificate?)
                .with_context(|| format!("{} cannot be trusted", path.display()))?;
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Whether every upstream can be reached, and whether the clock agrees with the first that tells.
/// One that is not the default only warns: many people use a single provider.
pub(super) async fn upstreams(config: &Config) -> Vec<Finding> {
    let client = match client(config.extra_ca.as_deref()) {
        Ok(client) => client,
        Err(error) => {
            return vec![Finding::fail(
                "tls",
                format!("{error:#}"),
                "check [tls] extra_ca",
            )];
        }
    };
    // All at once: each may take long to fail.
    let probes: Vec<_> = config
        .upstreams
        .iter()
        .map(|upstream| {
            let (client, upstream, connect) =
                (client.clone(), upstream.clone(), config.connect_timeout);
            tokio::spawn(async move { reach(&client, &upstream, connect).await })
        })
        .collect();
    let mut findings = Vec::new();
    let mut clock = None;
    for (rank, (upstream, probe)) in config.upstreams.iter().zip(probes).enumerate() {
        let result = probe.await.unwrap_or_else(|error| {
            let advice = "this is a fault of prefixgate; please report it".to_owned();
            Err(Trouble {
                what: format!("the check broke: {error}"),
                advice,
            })
        });
        let check = format!("upstream {}", upstream.name);
        let url = BaseUrl::spelled(&upstream.base);
        match result {
            Ok(reached) => {
                let took = reached.took.as_millis();
                findings.push(Finding::ok(
                    check,
                    format!("{url}: answers (HTTP {}, {took} ms)", reached.status),
                ));
                clock = clock.or(reached.clock);
            }
            Err(trouble) => {
                let detail = format!("{url}: {}", trouble.what);
                let make = if rank == 0 {
                    Finding::fail
                } else {
                    Finding::warn
                };
                findings.push(make(check, detail, trouble.advice));
            }
        }
    }
    findings.extend(clock.map(clock_finding));
    findings
}

/// An answer of an upstream.
struct Reached {
    status: u16,
    took: Duration,
    /// The upstream's clock minus ours, in seconds.
    clock: Option<i64>,
}

/// Why there is none, and what to do.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) what: String,
    pub(super) advice: String,
}

/// Name, connection, TLS, HTTP: step by step, so that the step at fault is named. Sends no key.
async fn reach(client: &Probe, upstream: &Upstream, connect: Duration) -> Result<Reached, Trouble> {
    let host = upstream
        .base
        .host()
        .unwrap_or_default()
        .trim_matches(['[', ']']);
    let plain = upstream.base.scheme_str() == Some("http");
    let port = upstream
        .base
        .port_u16()
        .unwrap_or(if plain { 80 } else { 443 });
    connect_to(host, port, connect, "[upstream.NAME] url").await?;
    let started = Instant::now();
    let base = BaseUrl::spelled(&upstream.base);
    let response = head(client, &format!("{base}/"))
        .await
        .map_err(|error| explain(&error))?;
    Ok(Reached {
        status: response.status().as_u16(),
        took: started.elapsed(),
        clock: clock_of(&response),
    })
}

/// Name and connection, so that the step at fault is named. `setting` is where the URL stands.
pub(super) async fn connect_to(
    host: &str,
    port: u16,
    connect: Duration,
    setting: &str,
) -> Result<(), Trouble> {
    // Where only a proxy leads out, this is the reason, and nothing else hints at it.
    let proxied = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let direct = if proxied.iter().any(|name| std::env::var_os(name).is_some()) {
        format!(
            "check the network; a proxy is set, but prefixgate connects directly: name an endpoint that is \
             reachable with {setting}"
        )
    } else {
        "check the network, the firewall and the url".to_owned()
    };
    let direct = direct.as_str();
    let trouble = |what: String, advice: &str| Trouble {
        what,
        advice: advice.to_owned(),
    };

    let addresses: Vec<_> =
        match tokio::time::timeout(connect, tokio::net::lookup_host((host, port))).await {
            Ok(Ok(found)) => found.collect(),
            Ok(Err(error)) => {
                return Err(trouble(
                    format!("the name {host} cannot be resolved: {error}"),
                    direct,
                ));
            }
            Err(_) => {
                return Err(trouble(
                    format!("no answer to the lookup of {host}"),
                    direct,
                ));
            }
        };
    match tokio::time::timeout(
        connect,
        tokio::net::TcpStream::connect(addresses.as_slice()),
    )
    .await
    {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            return Err(trouble(
                format!("port {port} of {host} refuses connections"),
                "is it running there? check host and port of the url",
            ));
        }
        Ok(Err(error)) => {
            return Err(trouble(
                format!("cannot connect to {host}:{port}: {error}"),
                direct,
            ));
        }
        Err(_) => {
            return Err(trouble(
                format!("no connection to {host}:{port} within {connect:?}"),
                direct,
            ));
        }
    }
    Ok(())
}

async fn head(client: &Probe, url: &str) -> anyhow::Result<Response<Incoming>> {
    let user_agent = concat!("prefixgate-doctor/", env!("CARGO_PKG_VERSION"));
    let request = Request::builder()
        .method(Method::HEAD)
        .uri(url)
        .header(http::header::USER_AGENT, user_agent)
        .body(Empty::new())?;
    let answer = tokio::time::timeout(ANSWER_PATIENCE, client.request(request)).await;
    Ok(answer.with_context(|| format!("no answer within {ANSWER_PATIENCE:?}"))??)
}

/// What a failed exchange means: TLS has reasons that a person can act on.
fn explain(error: &anyhow::Error) -> Trouble {
    use rustls::CertificateError as Certificate;
    let tls = error.chain().find_map(tls_error);
    let advice = match tls {
        Some(rustls::Error::InvalidCertificate(Certificate::UnknownIssuer)) => {
            "its certificate is from an unknown authority: a proxy that opens TLS? name the company's CA in [tls] extra_ca"
        }
        Some(rustls::Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        )) => "its certificate is not valid at this time: check this machine's clock first",
        Some(rustls::Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        )) => {
            "its certificate is for another name: check the url, and whether a login page or proxy answers instead"
        }
        Some(_) => "it does not speak TLS as expected: check scheme and port of the url",
        None => {
            "it accepts connections, but gives no HTTP answer: check scheme and port of the url"
        }
    };
    let what = match tls {
        Some(error) => format!("TLS failed: {error}"),
        None => format!("no HTTP answer: {error:#}"),
    };
    Trouble {
        what,
        advice: advice.to_owned(),
    }
}

/// `io::Error` does not show its inner error as a source.
fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let inner = error
        .downcast_ref::<std::io::Error>()
        .and_then(|error| error.get_ref());
    let inner = inner.and_then(|inner| {
        let inner: &(dyn Error + 'static) = inner;
        tls_error(inner)
    });
    error.downcast_ref().or(inner)
}

/// The `Date` of an answer minus our clock, in seconds.
fn clock_of(response: &Response<Incoming>) -> Option<i64> {
    let date = response.headers().get(http::header::DATE)?.to_str().ok()?;
    let theirs = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(date)
        .ok()?;
    Some(
        theirs
            .as_second()
            .saturating_sub(Timestamp::now().as_second()),
    )
}

fn clock_finding(difference: i64) -> Finding {
    let seconds = difference.unsigned_abs();
    if seconds <= CLOCK_TOLERANCE.as_secs() {
        return Finding::ok("clock", "agrees with the upstream's");
    }
    let direction = if difference > 0 { "behind" } else { "ahead of" };
    let detail = format!("{seconds} s {direction} the upstream's");
    Finding::warn(
        "clock",
        detail,
        "set it (NTP): cache lifetimes and reports by day follow it",
    )
}

/// A request through a gateway to its upstream and back, without a key.
pub(super) async fn round_trip(gateway: &str) -> Finding {
    const CHECK: &str = "gateway";
    let url = format!("{gateway}{PROBE_PATH}");
    // The gateway may be behind TLS of its own; the user's CA is for upstreams, so no `extra_ca`.
    let response = match client(None) {
        Ok(client) => head(&client, &url).await,
        Err(error) => Err(error),
    };
    match response.map(|response| response.status().as_u16()) {
        Ok(status @ (502..=504)) => {
            let detail = format!("{gateway}: answers HTTP {status} for its upstream");
            Finding::fail(
                CHECK,
                detail,
                "its upstream does not answer: see the checks of upstreams and the gateway's log",
            )
        }
        Ok(status) => Finding::ok(
            CHECK,
            format!("{gateway}: HEAD {PROBE_PATH} went through (HTTP {status})"),
        ),
        Err(error) => {
            let Trouble { what, .. } = explain(&error);
            Finding::fail(
                CHECK,
                format!("{gateway}: {what}"),
                "start it with `prefixgate serve`, and check host and port",
            )
        }
    }
}

/// A gateway's base URL as typed.
pub(super) fn parse_gateway(text: &str) -> Result<String, String> {
    use crate::config::Value as _;
    BaseUrl::parse(text)
        .map(|url| BaseUrl::spelled(&url.0))
        .map_err(|allowed| format!("{text:?} {allowed}"))
}
