//! The settings of the remote stores and of captured content.

use super::super::Config;
use super::super::value::{OtlpUrl, Share, Size, Span};
use super::guards::Add;
use super::quoted;

/// Adds them in the order of the documentation. Secrets are shown as `***`.
pub(super) fn settings(config: &Config, add: Add<'_>) {
    if let Some(store) = &config.clickhouse {
        let mut add = |key, value| add("clickhouse", key, value);
        add("url", quoted(&store.url));
        add("database", quoted(&store.database));
        if let Some(user) = &store.user {
            add("user", quoted(user));
        }
        if store.password.is_some() {
            add("password", quoted("***"));
        }
        if let Some(cluster) = &store.cluster {
            add("cluster", quoted(cluster));
        }
        add("retention_days", store.retention_days.to_string());
        add("batch_rows", store.batch_rows.to_string());
        add("batch_wait", quoted(&Span::spelled(store.batch_wait)));
        add("async_insert", store.async_insert.to_string());
    }
    if let Some(otlp) = &config.otlp {
        let mut add = |key, value| add("otlp", key, value);
        add("endpoint", quoted(&OtlpUrl::spelled(&otlp.traces)));
        if !otlp.headers.is_empty() {
            let names = otlp.headers.iter().map(|(name, _)| (name.as_str(), "***"));
            add("headers", table(names));
        }
        let resource = otlp.resource.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        add("resource", table(resource));
        add("gzip", otlp.gzip.to_string());
        add("timeout", quoted(&Span::spelled(otlp.timeout)));
        add("sample", Share::spelled(otlp.sample_ppm));
        add("run_idle", quoted(&Span::spelled(otlp.run_idle)));
        add("propagate", otlp.propagate.to_string());
        add("semconv", quoted(otlp.semconv.word()));
        add("metrics", otlp.metrics.is_some().to_string());
        let interval = quoted(&Span::spelled(otlp.metrics_interval));
        add("metrics_interval", interval);
    }
    let spool = &config.spool;
    add("spool", "max_size", quoted(&Size::spelled(spool.max_bytes)));
    add("spool", "full", quoted(spool.full.word()));
    let capture = &config.capture;
    let mut add = |key, value| add("capture", key, value);
    add("mode", quoted(capture.mode.word()));
    add("max_body", quoted(&Size::spelled(capture.max_bytes as u64)));
    add("retention_days", capture.retention_days.to_string());
    add(
        "retention_size",
        quoted(&Size::spelled(capture.retention_bytes)),
    );
    if !capture.rules.is_empty() {
        let rules = capture.rules.iter().map(|(n, r)| (n.as_str(), r.as_str()));
        add("rules", table(rules));
    }
}

fn table<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let entries: Vec<String> = entries
        .map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)))
        .collect();
    format!("{{ {} }}", entries.join(", "))
}
