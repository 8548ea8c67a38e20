//! The remote stores and captured content.

use std::ops::RangeInclusive;

use super::super::file;
use super::super::options::{Options, VARIABLES};
use super::super::otel::{self, OtlpEnv};
use super::super::value::{ClickHouseUrl, OtlpUrl, Secret};
use super::super::{ClickHouse, Config, Origin, Otlp};
use super::{GIB, KIB, MIB, RETENTION_DAYS, Resolver, text};

const BATCH_ROWS: RangeInclusive<u64> = 1..=1_000_000;
const BATCH_WAIT_MS: RangeInclusive<u64> = 10..=600_000;
const POST_MS: RangeInclusive<u64> = 100..=10 * 60_000;
const RUN_IDLE_MS: RangeInclusive<u64> = 1_000..=24 * 3_600_000;
const METRICS_MS: RangeInclusive<u64> = 1_000..=3_600_000;
const SPOOL_BYTES: RangeInclusive<u64> = MIB..=1024 * GIB;
const CAPTURE_BYTES: RangeInclusive<u64> = KIB..=64 * MIB;
const CAPTURED_BYTES: RangeInclusive<u64> = MIB..=1024 * GIB;
const CLICKHOUSE_DAYS: RangeInclusive<u64> = 1..=ClickHouse::MAX_RETENTION_DAYS as u64;

impl Resolver<'_> {
    pub(super) fn clickhouse(
        &mut self,
        config: &mut Config,
        options: &Options,
        typed: file::ClickHouse,
    ) {
        let line = typed.url.as_ref().map(|url| url.line);
        let url = self.above::<ClickHouseUrl>(
            "clickhouse.url",
            typed.url,
            text("--clickhouse", &options.clickhouse),
            VARIABLES[10],
        );
        let password = self.above::<Secret>(
            "clickhouse.password",
            typed.password,
            ("", None),
            VARIABLES[11],
        );
        let database = self.in_file("clickhouse.database", typed.database);
        let user = self.in_file("clickhouse.user", typed.user);
        let mut store = ClickHouse::at(String::new());
        store.cluster = self
            .in_file("clickhouse.cluster", typed.cluster)
            .map(|cluster| cluster.value.0);
        if let Some(days) = self.count(
            "clickhouse.retention_days",
            typed.retention_days,
            CLICKHOUSE_DAYS,
        ) {
            store.retention_days = u32::try_from(days).unwrap_or(u32::MAX);
        }
        if let Some(rows) = self.count("clickhouse.batch_rows", typed.batch_rows, BATCH_ROWS) {
            store.batch_rows = usize::try_from(rows).unwrap_or(usize::MAX);
        }
        let wait = typed.batch_wait;
        self.span(
            "clickhouse.batch_wait",
            wait,
            BATCH_WAIT_MS,
            &mut store.batch_wait,
        );
        if let Some(gathered) = self.in_file("clickhouse.async_insert", typed.async_insert) {
            store.async_insert = gathered.value;
        }
        let Some(url) = url.map(|url| url.value) else {
            self.needless("clickhouse", "url", line, typed.typed.len());
            return;
        };
        store.url = url.url;
        store.user = user.map(|user| user.value).or(url.user);
        store.password = password.map(|secret| secret.value.0).or(url.password);
        if let Some(name) = database.map(|name| name.value.0).or(url.database) {
            store.database = name;
        }
        if store.password.is_some() && store.url.starts_with("http://") && !is_near(&store.url) {
            self.warnings.push(
                "clickhouse.url: the password goes to another machine without TLS; use https://"
                    .to_owned(),
            );
        }
        config.clickhouse = Some(store);
    }

    pub(super) fn otlp(&mut self, config: &mut Config, options: &Options, typed: file::Otlp) {
        let line = typed.endpoint.as_ref().map(|endpoint| endpoint.line);
        let endpoint = self.above::<OtlpUrl>(
            "otlp.endpoint",
            typed.endpoint,
            text("--otlp", &options.otlp),
            VARIABLES[12],
        );
        let endpoint = endpoint.map(|picked| picked.value.0);
        let env = self.standard_environment(endpoint.as_ref());
        let named = endpoint.or_else(|| env.as_ref()?.traces.clone());
        let placed = named.is_some();
        let mut otlp = Otlp::at(named.unwrap_or_default());
        if let Some(env) = env {
            let variable = "OTEL_EXPORTER_OTLP_ENDPOINT";
            let origin = Origin::Environment(variable);
            self.origins
                .entry("otlp.endpoint".to_owned())
                .or_insert(origin);
            env.apply(&mut otlp);
        }
        if let Some(headers) = self.in_file("otlp.headers", typed.headers) {
            otlp.headers = headers.value.0;
        }
        if let Some(resource) = self.in_file("otlp.resource", typed.resource) {
            let named = |name: &str| resource.value.0.iter().any(|(typed, _)| typed == name);
            otlp.resource.retain(|(name, _)| !named(name));
            otlp.resource.extend(resource.value.0);
        }
        if let Some(gzip) = self.in_file("otlp.gzip", typed.gzip) {
            otlp.gzip = gzip.value;
        }
        self.span("otlp.timeout", typed.timeout, POST_MS, &mut otlp.timeout);
        if let Some(share) = self.in_file("otlp.sample", typed.sample) {
            otlp.sample_ppm = share.value.0;
        }
        self.span(
            "otlp.run_idle",
            typed.run_idle,
            RUN_IDLE_MS,
            &mut otlp.run_idle,
        );
        if let Some(propagate) = self.in_file("otlp.propagate", typed.propagate) {
            otlp.propagate = propagate.value;
        }
        if let Some(names) = self.in_file("otlp.semconv", typed.semconv) {
            otlp.semconv = names.value;
        }
        let metrics = self.in_file("otlp.metrics", typed.metrics);
        self.span(
            "otlp.metrics_interval",
            typed.metrics_interval,
            METRICS_MS,
            &mut otlp.metrics_interval,
        );
        if !placed {
            self.needless("otlp", "endpoint", line, typed.typed.len());
            return;
        }
        match metrics.map(|on| on.value) {
            Some(true) => otlp.metrics = otlp.metrics.or_else(|| OtlpUrl::metrics(&otlp.traces)),
            Some(false) => otlp.metrics = None,
            None => {}
        }
        config.otlp = Some(otlp);
    }

    /// What the variables of the standard say. An endpoint of ours goes before theirs.
    fn standard_environment(&mut self, endpoint: Option<&http::Uri>) -> Option<OtlpEnv> {
        let found = otel::from_env(|name| match endpoint {
            Some(ours) if name == otel::TRACES_ENDPOINT => Some(ours.to_string()),
            _ => Some(self.environment.get(name)?.to_str()?.to_owned()),
        });
        found.unwrap_or_else(|problems| {
            if endpoint.is_some() {
                self.problems.extend(problems);
            } else {
                // They may be meant for the agent that runs beside: no reason not to start.
                let ignored = problems
                    .iter()
                    .map(|why| format!("no spans are sent: {why}"));
                self.warnings.extend(ignored);
            }
            None
        })
    }

    pub(super) fn spool(&mut self, config: &mut Config, typed: file::Spool) {
        if let Some(bytes) = self.size("spool.max_size", typed.max_size, SPOOL_BYTES) {
            config.spool.max_bytes = bytes;
        }
        if let Some(full) = self.in_file("spool.full", typed.full) {
            config.spool.full = full.value;
        }
    }

    pub(super) fn capture(&mut self, config: &mut Config, typed: file::Capture) {
        let capture = &mut config.capture;
        if let Some(mode) = self.in_file("capture.mode", typed.mode) {
            capture.mode = mode.value;
        }
        self.memory(
            "capture.max_body",
            typed.max_body,
            CAPTURE_BYTES,
            &mut capture.max_bytes,
        );
        let days = typed.retention_days;
        if let Some(days) = self.count("capture.retention_days", days, RETENTION_DAYS) {
            capture.retention_days = u32::try_from(days).unwrap_or(u32::MAX);
        }
        let size = typed.retention_size;
        if let Some(bytes) = self.size("capture.retention_size", size, CAPTURED_BYTES) {
            capture.retention_bytes = bytes;
        }
        if let Some(rules) = self.in_file("capture.rules", typed.rules) {
            capture.rules = rules.value.0;
        }
    }

    /// A section that sets something up, and lacks the place it is for.
    fn needless(&mut self, section: &str, place: &str, line: Option<usize>, keys: usize) {
        // With the place typed, what is wrong with it has been said.
        if line.is_none() && keys > 0 {
            self.warnings.push(format!(
                "[{section}] has no effect without `{place}` (or --{section})"
            ));
        }
    }
}

fn is_near(url: &str) -> bool {
    let host = url.trim_start_matches("http://");
    ["127.", "localhost", "[::1]"]
        .iter()
        .any(|near| host.starts_with(near))
}
