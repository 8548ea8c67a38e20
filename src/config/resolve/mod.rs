//! What is meant: layers put over each other, checked, and turned into a [`Config`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{ConfigError, Problem, nearest, shown};
use super::file::{File, Located};
use super::options::{Environment, Options, VARIABLES};
use super::value::{Count, Size, Span, Value};
use super::{Config, Origin};

mod agent;
mod guards;
mod settings;
mod stores;
mod upstreams;

/// A configuration file larger than this is not one.
const FILE_MAX_BYTES: u64 = 1 << 20;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A body of more cannot be: offsets into it are 32 bits wide, and providers refuse far less.
const BODY_BYTES: RangeInclusive<u64> = KIB..=GIB;
const BUFFERED_BYTES: RangeInclusive<u64> = MIB..=1024 * GIB;
const RETENTION_BYTES: RangeInclusive<u64> = 16 * MIB..=1024 * GIB;
const RETENTION_DAYS: RangeInclusive<u64> = 1..=36_500;
const RECORD_QUEUE: RangeInclusive<u64> = 1..=(1 << 24);
const CONNECT_MS: RangeInclusive<u64> = 100..=5 * 60_000;
const IDLE_MS: RangeInclusive<u64> = 1_000..=24 * 3_600_000;
const POOL_IDLE_MS: RangeInclusive<u64> = 0..=3_600_000;
const DRAIN_MS: RangeInclusive<u64> = 0..=3_600_000;
const HOLDOUT_PERCENT: RangeInclusive<u64> = 0..=90;
const CACHE_BYTES: RangeInclusive<u64> = MIB..=16 * GIB;
const WARM_FIRST_MS: RangeInclusive<u64> = 0..=60_000;

/// Models may think this long without a byte; a shorter limit would cut them off.
const IDLE_ADVISED: Duration = Duration::from_secs(10 * 60);
/// From here on, providers were seen to close idle connections first.
const POOL_IDLE_ADVISED: Duration = Duration::from_secs(15);

/// Finds and reads the file, and resolves all layers.
pub(super) fn load(options: &Options, environment: &Environment) -> Result<Config, ConfigError> {
    let path = file_path(options, environment)?;
    let (file, problems) = match &path {
        None => (File::default(), Vec::new()),
        Some((path, origin)) => {
            let text = read(path).map_err(|message| {
                let place = match origin {
                    Origin::Default => path.display().to_string(),
                    named => named.to_string(),
                };
                ConfigError {
                    problems: vec![Problem { place, message }],
                }
            })?;
            File::parse(&path.display().to_string(), &text)
        }
    };
    let path = path.map(|(path, _)| path);
    let mut resolver = Resolver {
        file_name: path
            .as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        directory: path
            .as_deref()
            .and_then(Path::parent)
            .map(Path::to_owned)
            .unwrap_or_default(),
        environment,
        problems,
        warnings: Vec::new(),
        origins: BTreeMap::new(),
    };
    let mut config = resolver.resolve(options, file);
    if !resolver.problems.is_empty() {
        return Err(ConfigError {
            problems: resolver.problems,
        });
    }
    config.file = path;
    config.warnings = resolver.warnings;
    config.origins = resolver.origins;
    Ok(config)
}

/// The file to read and who named it; `None` when nobody did and none is at the usual place.
fn file_path(
    options: &Options,
    environment: &Environment,
) -> Result<Option<(PathBuf, Origin)>, ConfigError> {
    if let Some(path) = &options.config {
        return Ok(Some((path.clone(), Origin::Flag("--config"))));
    }
    if let Some(path) = environment.get("PREFIXGATE_CONFIG") {
        return Ok(Some((
            PathBuf::from(path),
            Origin::Environment("PREFIXGATE_CONFIG"),
        )));
    }
    let Some(path) = environment.usual_file() else {
        return Ok(None);
    };
    // A file that is there and cannot be seen must not be taken for no file.
    match path.try_exists() {
        Ok(exists) => Ok(exists.then_some((path, Origin::Default))),
        Err(error) => Err(ConfigError {
            problems: vec![Problem {
                place: path.display().to_string(),
                message: format!("cannot be read: {error}"),
            }],
        }),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: &dyn Display| format!("cannot read {}: {error}", path.display());
    let size = std::fs::metadata(path)
        .map_err(|error| cannot(&error))?
        .len();
    if size > FILE_MAX_BYTES {
        return Err(cannot(&format_args!(
            "larger than {}",
            Size::spelled(FILE_MAX_BYTES)
        )));
    }
    let bytes = std::fs::read(path).map_err(|error| cannot(&error))?;
    String::from_utf8(bytes).map_err(|_| cannot(&"not UTF-8 text"))
}

/// A value with its origin, as layers are put over each other.
struct Picked<T> {
    value: T,
    origin: Origin,
    shown: String,
}

struct Resolver<'a> {
    file_name: String,
    /// Of the file; relative paths in it start here.
    directory: PathBuf,
    environment: &'a Environment,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    origins: BTreeMap<String, Origin>,
}

impl Resolver<'_> {
    fn resolve(&mut self, options: &Options, file: File) -> Config {
        let server = file.server;
        let mut config = Config::embedded(self.environment.data_dir());
        for name in self.environment.unknown() {
            let meant = nearest(name, VARIABLES).map(|meant| format!("; did you mean {meant}?"));
            self.warnings.push(format!(
                "environment variable {name} means nothing{}",
                meant.unwrap_or_default()
            ));
        }

        let listen = self.above(
            "server.listen",
            server.listen,
            text("--listen", &options.listen),
            VARIABLES[1],
        );
        let admin = self.above(
            "server.admin",
            server.admin,
            text("--admin", &options.admin),
            VARIABLES[2],
        );
        let allow_remote = self.in_file("server.admin_allow_remote", server.admin_allow_remote);
        config.admin_allow_remote = allow_remote.is_some_and(|allow| allow.value);
        self.addresses(&mut config, listen, admin);

        let (max_body, buffered) = (server.max_body.clone(), server.max_buffered.clone());
        self.memory(
            "server.max_body",
            server.max_body,
            BODY_BYTES,
            &mut config.max_body_bytes,
        );
        self.memory(
            "server.max_buffered",
            server.max_buffered,
            BUFFERED_BYTES,
            &mut config.buffered_bytes,
        );
        self.memory(
            "server.max_inspect",
            server.max_inspect,
            BODY_BYTES,
            &mut config.inspect_bytes,
        );
        if config.buffered_bytes < config.max_body_bytes
            && let Some(typed) = buffered.or(max_body)
        {
            let message = format!(
                "server.max_buffered ({}) must not be below server.max_body ({}): the largest body would never fit",
                Size::spelled(config.buffered_bytes as u64),
                Size::spelled(config.max_body_bytes as u64),
            );
            self.problem_in_file(typed.line, message);
        }

        let timeouts = file.timeouts;
        self.span(
            "timeouts.connect",
            timeouts.connect,
            CONNECT_MS,
            &mut config.connect_timeout,
        );
        self.span(
            "timeouts.idle",
            timeouts.idle,
            IDLE_MS,
            &mut config.idle_timeout,
        );
        self.span(
            "timeouts.pool_idle",
            timeouts.pool_idle,
            POOL_IDLE_MS,
            &mut config.pool_idle,
        );
        self.span(
            "timeouts.drain",
            timeouts.drain,
            DRAIN_MS,
            &mut config.drain,
        );
        if config.idle_timeout < IDLE_ADVISED {
            self.warnings.push(format!(
                "timeouts.idle = {}: a model that thinks silently for longer is cut off; 10m or more is advised",
                Span::spelled(config.idle_timeout)
            ));
        }
        if config.pool_idle >= POOL_IDLE_ADVISED {
            self.warnings.push(format!(
                "timeouts.pool_idle = {}: upstreams may close idle connections earlier; below 15s is advised",
                Span::spelled(config.pool_idle)
            ));
        }

        self.upstreams(&mut config, options, file.default_upstream, file.upstreams);
        self.cache(&mut config, options, file.cache);
        let openai = file.openai;
        if let Some(key) = self.in_file("openai.prompt_cache_key", openai.prompt_cache_key) {
            config.cache_key = key.value;
        }
        if let Some(lifetime) = self.in_file("openai.cache_ttl", openai.cache_ttl) {
            config.cache_lifetime = lifetime.value;
        }
        if let Some(kept) = self.in_file("openai.cache_retention", openai.cache_retention) {
            config.cache_retention = kept.value;
        }
        if let Some(sockets) = self.in_file("openai.websocket", openai.websocket) {
            config.websockets = sockets.value;
        }
        if let Some(threads) = self.in_file("anthropic.threads", file.anthropic.threads) {
            config.threads = threads.value;
        }
        self.loops(&mut config, options, file.loops);
        self.caps(&mut config, file.caps);
        self.run_caps(&mut config, options, file.run_caps);
        self.unnamed_caps(&mut config, file.unnamed_caps);
        self.key_caps(&mut config, file.key_caps);
        self.app_sections(&mut config, file.apps);
        self.alerts(&mut config, file.alerts);
        self.webhooks(&mut config, file.webhooks);

        let store = file.store;
        let flag = (
            "--data-dir",
            options.data_dir.as_ref().map(|path| path.as_os_str()),
        );
        if let Some(picked) = self.above("store.data_dir", store.data_dir, flag, VARIABLES[4]) {
            self.data_dir(&mut config, &picked);
        }
        if let Some(days) = self.count("store.retention_days", store.retention_days, RETENTION_DAYS)
        {
            config.retention_days = u32::try_from(days).unwrap_or(u32::MAX);
        }
        if let Some(bytes) = self.size(
            "store.retention_size",
            store.retention_size,
            RETENTION_BYTES,
        ) {
            config.retention_bytes = bytes;
        }
        if let Some(queue) = self.count("store.queue", store.queue, RECORD_QUEUE) {
            config.record_queue = usize::try_from(queue).unwrap_or(usize::MAX);
        }

        self.clickhouse(&mut config, options, file.clickhouse);
        self.otlp(&mut config, options, file.otlp);
        self.spool(&mut config, file.spool);
        self.capture(&mut config, file.capture);

        if let Some(apps) = self.in_file("metrics.apps", file.metrics.apps) {
            self.apps(&mut config, apps);
        }
        if let Some(bundle) = self.in_file("tls.extra_ca", file.tls.extra_ca) {
            self.extra_ca(&mut config, &bundle);
        }
        config.prices = self.prices(file.prices);
        self.agent(&mut config, &options.agent, file.agent);
        config
    }

    // Layers.

    /// A setting that only the file has.
    fn cache(&mut self, config: &mut Config, options: &Options, cache: super::file::Cache) {
        if let Some(policy) = self.above(
            "cache.policy",
            cache.policy,
            text("--cache", &options.cache),
            VARIABLES[5],
        ) {
            config.cache = policy.value;
        }
        if let Some(percent) = self.count(
            "cache.holdout_percent",
            cache.holdout_percent,
            HOLDOUT_PERCENT,
        ) {
            config.holdout_percent = u32::try_from(percent).unwrap_or(0);
        }
        self.memory(
            "cache.memory",
            cache.memory,
            CACHE_BYTES,
            &mut config.cache_bytes,
        );
        if let Some(native) = self.in_file("cache.native_diagnostics", cache.native_diagnostics) {
            config.native_diagnostics = native.value;
        }
        if let Some(excerpts) = self.in_file("cache.excerpts", cache.excerpts) {
            config.excerpts = excerpts.value;
        }
        if let Some(order) = self.in_file("cache.stable_tool_order", cache.stable_tool_order) {
            config.stable_tool_order = order.value;
        }
        self.span(
            "cache.warm_first",
            cache.warm_first,
            WARM_FIRST_MS,
            &mut config.warm_first,
        );
        if let Some(most) = self.in_file("cache.keep_warm_max_usd", cache.keep_warm_max_usd) {
            config.keep_warm_max_micro_usd = most.value.0;
        }
    }

    /// A setting that only the file has.
    fn in_file<T>(&mut self, key: &str, typed: Option<Located<T>>) -> Option<Picked<T>> {
        let Located { value, line, shown } = typed?;
        let origin = Origin::File(format!("{}:{line}", self.file_name));
        self.origins.insert(key.to_owned(), origin.clone());
        Some(Picked {
            value,
            origin,
            shown,
        })
    }

    /// A setting that a flag or variable may set: flag before variable before file. All that are
    /// given are checked, so that a wrong one does not hide behind a right one.
    fn above<T: Value>(
        &mut self,
        key: &str,
        typed: Option<Located<T>>,
        flag: (&'static str, Option<&OsStr>),
        variable: &'static str,
    ) -> Option<Picked<T>> {
        let from_file = self.in_file(key, typed);
        let value = self
            .environment
            .get(variable)
            .map(|value| value.as_os_str());
        let from_variable = self.given(key, value, Origin::Environment(variable));
        let from_flag = self.given(key, flag.1, Origin::Flag(flag.0));
        let picked = from_flag.or(from_variable).or(from_file)?;
        self.origins.insert(key.to_owned(), picked.origin.clone());
        Some(picked)
    }

    fn given<T: Value>(
        &mut self,
        key: &str,
        value: Option<&OsStr>,
        origin: Origin,
    ) -> Option<Picked<T>> {
        let value = value?;
        let shown = if T::SECRET {
            "***".to_owned()
        } else {
            shown(&format!("{value:?}"))
        };
        let read = value
            .to_str()
            .ok_or_else(|| "must be UTF-8 text".to_owned())
            .and_then(T::parse);
        match read {
            Ok(value) => Some(Picked {
                value,
                origin,
                shown,
            }),
            Err(allowed) => {
                self.wrong(&origin, key, &shown, &allowed);
                None
            }
        }
    }

    // Problems.

    fn wrong(&mut self, origin: &Origin, key: &str, shown: &str, allowed: &str) {
        let message = format!("{key} = {shown}: {allowed}");
        self.problems.push(Problem {
            place: origin.to_string(),
            message,
        });
    }

    fn problem_in_file(&mut self, line: usize, message: String) {
        self.problems.push(Problem {
            place: format!("{}:{line}", self.file_name),
            message,
        });
    }

    // Checks of single kinds.

    fn size(
        &mut self,
        key: &str,
        typed: Option<Located<Size>>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let picked = self.in_file(key, typed)?;
        if range.contains(&picked.value.0) {
            return Some(picked.value.0);
        }
        let allowed = format!(
            "must be from {} to {}",
            Size::spelled(*range.start()),
            Size::spelled(*range.end())
        );
        self.wrong(&picked.origin, key, &picked.shown, &allowed);
        None
    }

    /// A size of something in memory.
    fn memory(
        &mut self,
        key: &str,
        typed: Option<Located<Size>>,
        range: RangeInclusive<u64>,
        into: &mut usize,
    ) {
        if let Some(bytes) = self.size(key, typed, range) {
            *into = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
    }

    fn span(
        &mut self,
        key: &str,
        typed: Option<Located<Span>>,
        range: RangeInclusive<u64>,
        into: &mut Duration,
    ) {
        let Some(picked) = self.in_file(key, typed) else {
            return;
        };
        if range.contains(&picked.value.0) {
            *into = picked.value.duration();
            return;
        }
        let spelled = |millis: &u64| Span::spelled(Duration::from_millis(*millis));
        let allowed = format!(
            "must be from {} to {}",
            spelled(range.start()),
            spelled(range.end())
        );
        self.wrong(&picked.origin, key, &picked.shown, &allowed);
    }

    fn count(
        &mut self,
        key: &str,
        typed: Option<Located<Count>>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let picked = self.in_file(key, typed)?;
        if range.contains(&picked.value.0) {
            return Some(picked.value.0);
        }
        let allowed = format!("must be from {} to {}", range.start(), range.end());
        self.wrong(&picked.origin, key, &picked.shown, &allowed);
        None
    }

    /// A path of the file starts at the file's directory, any other at the working directory.
    fn path(&mut self, key: &str, picked: &Picked<PathBuf>) -> Option<PathBuf> {
        let Some(path) = self.environment.expand(&picked.value) else {
            self.wrong(
                &picked.origin,
                key,
                &picked.shown,
                "starts with ~, but HOME is not set",
            );
            return None;
        };
        let path = match picked.origin {
            Origin::File(_) => self.directory.join(path),
            _ => path,
        };
        // Absolute, so that it means the same in every message and in a printed configuration.
        Some(std::path::absolute(&path).unwrap_or(path))
    }
}

fn text<'o>(flag: &'static str, value: &'o Option<String>) -> (&'static str, Option<&'o OsStr>) {
    (flag, value.as_deref().map(OsStr::new))
}

/// Only this machine can reach it.
fn is_local(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
