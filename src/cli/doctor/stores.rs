//! What the gateway works with beside the upstreams: remote stores, what waits for them on disk, and
//! the Redis of the caps. None of them stops traffic, but for capped requests where the settings say so.

use std::time::Duration;

use http::Uri;

use super::Finding;
use super::network::{Trouble, connect_to};
use crate::cli::report::json::time as utc;
use crate::cli::report::show::many;
use crate::config::{ClickHouse, Config, Otlp, RedisDown, SpoolFull};
use crate::export::otlp::{self, Fault};
use crate::proxy::ledger::redis;
use crate::proxy::upstream;
use crate::server::remotes::{CLICKHOUSE, OTLP, spool_dir};
use crate::spool::{self, Status};
use crate::store::ClickHouseSink;
use crate::store::clickhouse::{SCHEMA, Schema};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Reasons of refused records that are shown.
const REASONS: usize = 3;
/// Longest reason that is shown, in bytes.
const REASON_BYTES: usize = 160;
/// What is said where a store takes nothing.
const MEANWHILE: &str = "records wait on disk meanwhile";

/// Looks at all that is configured, and at what waits for a store that is not any more.
pub(super) async fn examine(config: &Config, findings: &mut Vec<Finding>) {
    if let Some(store) = &config.clickhouse {
        findings.push(clickhouse(store, config.connect_timeout).await);
    }
    findings.extend(waiting(config, CLICKHOUSE, config.clickhouse.is_some()));
    if let Some(settings) = &config.otlp {
        otlp(config, settings, findings).await;
    }
    findings.extend(waiting(config, OTLP, config.otlp.is_some()));
    if let Some(url) = &config.caps.redis {
        findings.push(caps(url, config.caps.redis_down).await);
    }
}

/// Host and port of a URL.
fn place(uri: &Uri) -> Option<(&str, u16)> {
    let host = uri.host()?.trim_matches(['[', ']']);
    let default = if uri.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    Some((host, uri.port_u16().unwrap_or(default)))
}

async fn clickhouse(store: &ClickHouse, connect: Duration) -> Finding {
    const CHECK: &str = "clickhouse";
    const URL: &str = "[clickhouse] url";
    let (url, database) = (&store.url, &store.database);
    let uri = url.parse::<Uri>().ok();
    if let Some((host, port)) = uri.as_ref().and_then(place)
        && let Err(Trouble { what, advice }) = connect_to(host, port, connect, URL).await
    {
        let advice = format!("{advice} ({URL}); {MEANWHILE}");
        return Finding::fail(CHECK, format!("{url}: {what}"), advice);
    }
    let look = match ClickHouseSink::new(store).look(PATIENCE).await {
        Ok(look) => look,
        Err(unseen) => {
            let advice = if unseen.settings {
                format!(
                    "it answers, and the settings or the user's rights are at fault; {MEANWHILE}"
                )
            } else {
                format!(
                    "the server or what stands before it is at fault: its log knows more; is the url that \
                     of its HTTP interface (8123, with TLS 8443)? {MEANWHILE}"
                )
            };
            return Finding::fail(CHECK, format!("{url}: {}", unseen.why), advice);
        }
    };
    let answers = format!("{url}: answers (ClickHouse {})", look.server);
    match look.schema {
        Schema::Current => {
            let detail = format!("{answers}, database {database} has schema {SCHEMA}");
            Finding::ok(CHECK, detail)
        }
        Schema::NoDatabase => Finding::ok(
            CHECK,
            format!("{answers}; `serve` makes database {database} with the first records"),
        ),
        Schema::NoTables => Finding::ok(
            CHECK,
            format!(
                "{answers}; `serve` makes its tables in database {database} with the first records"
            ),
        ),
        Schema::Behind { found } => Finding::ok(
            CHECK,
            format!(
                "{answers}; database {database} has schema {found}, `serve` brings it to {SCHEMA} with the \
                 first records"
            ),
        ),
        Schema::Newer { found } => Finding::fail(
            CHECK,
            format!(
                "{answers}, but database {database} has schema {found} and this prefixgate knows up to \
                 {SCHEMA}: `serve` writes nothing to it"
            ),
            format!(
                "use the newer prefixgate that made it, or another [clickhouse] database; {MEANWHILE}"
            ),
        ),
    }
}

/// What waits for a store. Nothing to say of one that is not configured and has nothing waiting.
fn waiting(config: &Config, store: &str, configured: bool) -> Option<Finding> {
    let check = format!("spool {store}");
    let dir = spool_dir(&config.data_dir, store);
    if !dir.exists() {
        return configured.then(|| Finding::ok(check, "nothing was ever put into it"));
    }
    let found = spool::status(&dir).and_then(|status| {
        let reasons = spool::refusals(&dir, REASONS)?;
        Ok((status, reasons))
    });
    let (status, reasons) = match found {
        Ok(found) => found,
        Err(error) => {
            let detail = format!("{}: cannot be read: {error}", dir.display());
            let advice = "give this user the right to read it; records are lost while the gateway cannot use it";
            return Some(Finding::fail(check, detail, advice));
        }
    };
    if !configured {
        let waits = many(status.waiting.records, "record");
        let detail = format!("{waits} wait for a store that is not configured any more");
        let advice = "configure it again, or give them up with `prefixgate spool drop`";
        return (status.waiting.records > 0).then(|| Finding::warn(check, detail, advice));
    }
    Some(judged(config, check, &status, &reasons))
}

fn judged(config: &Config, check: String, status: &Status, reasons: &[(String, usize)]) -> Finding {
    let (used, limit) = (status.segments.1, config.spool.max_bytes);
    let percent = used.saturating_mul(100) / limit.max(1);
    let mut detail = match status.waiting.records {
        0 => "nothing waits".to_owned(),
        n => {
            let since = status.waiting.oldest_ms.and_then(utc);
            let since = since.map_or_else(String::new, |since| format!(" since {since}"));
            let whose = if status.in_use {
                ""
            } else {
                ", and go out when the gateway runs"
            };
            format!("{} wait{since}{whose}", many(n, "record"))
        }
    };
    let room = format!("; {used} of {limit} bytes used ({percent} %)");
    detail += &room;
    let lost = status.counted.dropped_total();
    detail += &format!(
        "; {} delivered, {lost} lost so far",
        status.counted.delivered
    );
    let mut advice = Vec::new();
    if status.set_aside.0 > 0 {
        let shown: Vec<String> = reasons
            .iter()
            .map(|(why, n)| format!("{n} x {}", crate::text::prefix(why, REASON_BYTES)))
            .collect();
        detail += &format!("; {} refused: {}", status.set_aside.0, shown.join("; "));
        advice.push(
            "the store will not take the refused ones as it is: remove the cause, then `prefixgate spool replay`",
        );
    }
    if status.unreadable > 0 {
        detail += &format!(
            "; {} cannot be read",
            many(status.unreadable as u64, "segment")
        );
        advice.push("the disk has damaged it: its records are counted as lost at the next start");
    }
    if percent >= 50 {
        advice.push(match config.spool.full {
            SpoolFull::DropOldest => {
                "the store is down or too slow; when it is full the oldest records are lost: bring the store \
                 back, or raise [spool] max_size"
            }
            SpoolFull::DropNewest => {
                "the store is down or too slow; when it is full new records are lost: bring the store back, or \
                 raise [spool] max_size"
            }
        });
    }
    if advice.is_empty() {
        Finding::ok(check, detail)
    } else {
        Finding::warn(check, detail, advice.join("; "))
    }
}

async fn otlp(config: &Config, settings: &Otlp, findings: &mut Vec<Finding>) {
    const CHECK: &str = "otlp";
    const ENDPOINT: &str = "[otlp] endpoint";
    let at = &settings.traces;
    if let Some((host, port)) = place(at)
        && let Err(Trouble { what, advice }) =
            connect_to(host, port, config.connect_timeout, ENDPOINT).await
    {
        let advice = format!("{advice} ({ENDPOINT}); {MEANWHILE}");
        findings.push(Finding::fail(CHECK, format!("{at}: {what}"), advice));
        return;
    }
    let client = match upstream::clients(config) {
        Ok(clients) => clients.pooled,
        Err(error) => {
            findings.push(Finding::fail(
                CHECK,
                format!("{error:#}"),
                "check [tls] extra_ca",
            ));
            return;
        }
    };
    for probe in otlp::probe(settings, client).await {
        let at = match (probe.signal, &settings.metrics) {
            ("metrics", Some(uri)) => uri,
            _ => at,
        };
        let detail = format!(
            "{at}: {} to an empty export of {}",
            probe.said, probe.signal
        );
        let make =
            |advice: &str| Finding::fail(CHECK, detail.clone(), format!("{advice}; {MEANWHILE}"));
        findings.push(match probe.fault {
            Fault::None => Finding::ok(CHECK, detail),
            Fault::Settings => make(
                "the settings are at fault: check [otlp] endpoint (its path) and headers (the key)",
            ),
            Fault::Receiver => make(
                "the receiver is at fault, or the way to it: it is down, failing or has too much to do",
            ),
            // Some take no empty ones, so that this one says little.
            Fault::Protocol => Finding::warn(
                CHECK,
                detail,
                "does it speak OTLP over HTTP with protobuf? If so, see the log for what becomes of real spans",
            ),
        });
    }
}

async fn caps(url: &str, down: RedisDown) -> Finding {
    const CHECK: &str = "caps.redis";
    // A socket's password stands behind the path.
    let shown = url.split_once('?').map_or(url, |(url, _)| url);
    let shown = super::without_password(shown);
    let meanwhile = match down {
        RedisDown::Refuse => {
            "requests with caps are refused meanwhile (caps.redis_down = \"refuse\")"
        }
        RedisDown::Local => {
            "each gateway counts alone meanwhile (caps.redis_down = \"local\"), so that together they may go \
             beyond a cap"
        }
    };
    let seen = match redis::ping(url, PATIENCE).await {
        Ok(seen) => seen,
        Err(unseen) => {
            let fault = if unseen.login {
                "it answers; user or password in caps.redis are wrong, or that user may not do this"
            } else {
                "Redis or the way to it is at fault: is it running there? check caps.redis"
            };
            let detail = format!("{shown}: {}", unseen.why);
            return Finding::fail(CHECK, detail, format!("{fault}; {meanwhile}"));
        }
    };
    let version = seen.version.as_deref().unwrap_or("of an unknown version");
    let answers = format!("{shown}: answers (Redis {version})");
    if seen.cluster {
        let advice = "caps need a single Redis, or one with replicas: the books of one request lie in several slots";
        return Finding::fail(CHECK, format!("{answers}, as a node of a cluster"), advice);
    }
    match seen.evicts {
        None => Finding::ok(CHECK, answers),
        Some(policy) => Finding::warn(
            CHECK,
            format!("{answers}, and gives up keys when its memory is full ({policy})"),
            "set its maxmemory-policy to noeviction: a book that is given up begins at 0 again",
        ),
    }
}
