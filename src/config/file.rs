//! What is typed: the configuration file as the user wrote it, every value with its place.
//!
//! The file is read completely, whatever is wrong with it, so that all problems can be reported
//! at once. Each section is declared once; its list of known keys is made from the same
//! declaration as its fields, so that they cannot differ.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Problem, nearest, shown};
use super::value::{AbsentCached, BaseUrl, CostBy, Count, Price, Size, Span, Usd, Value, Words};
use super::{
    CacheKey, CacheLifetime, CachePolicy, CacheRetention, Format, NativeDiagnostics, Threads,
    WebSockets,
};
use crate::provider::dialect::{CacheControl, CacheOptions};
use crate::provider::view::Ttl;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// 1-based line.
    pub line: usize,
    /// The value as it was typed, for messages.
    pub shown: String,
}

/// Declares a section: its fields are its known keys.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Option<Located<$kind>>,)*
            /// The known keys that stand in the file, also those with a wrong value.
            pub typed: Vec<&'static str>,
        }

        impl $name {
            /// The keys of this section.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($field)),*];

            #[allow(dead_code, reason = "[caps] has sections inside it and is read key by key")]
            pub(in crate::config::file) fn read(
                reader: &mut Reader<'_>,
                path: &str,
                table: &DeTable<'_>,
            ) -> Self {
                let mut section = Self::default();
                for (key, value) in in_file_order(table) {
                    section.set(reader, path, key, value, Self::KEYS);
                }
                section
            }

            /// These settings, and where one is not typed that of `below`.
            #[allow(dead_code, reason = "only some sections have others below them")]
            #[must_use]
            pub fn or(mut self, below: Self) -> Self {
                $(self.$field = self.$field.or(below.$field);)*
                self
            }

            /// Reads one key; `known` are the names that a message about it lists.
            pub(in crate::config::file) fn set(
                &mut self,
                reader: &mut Reader<'_>,
                path: &str,
                key: &Key<'_>,
                value: &Spanned<DeValue<'_>>,
                known: &[&str],
            ) {
                match key.get_ref().as_ref() {
                    $(stringify!($field) => {
                        self.typed.push(stringify!($field));
                        self.$field = reader.value(path, stringify!($field), value);
                    })*
                    _ => reader.unknown(path, key, known),
                }
            }
        }
    };
}

mod agent;
mod guards;
mod stores;
pub use agent::Agent;
pub use guards::{Alerts, App, Caps, KeyCaps, Loops, RunCaps, UnnamedCaps, Webhook, named};
pub use stores::{Capture, ClickHouse, Otlp, Spool};

section! {
    /// `[server]`
    Server {
        /// Where clients connect.
        listen: SocketAddr,
        /// Metrics and health.
        admin: SocketAddr,
        /// Allows an admin address that others can reach.
        admin_allow_remote: bool,
        /// Largest request body.
        max_body: Size,
        /// Memory of all buffered request bodies together.
        max_buffered: Size,
        /// Largest decoded body that is looked at.
        max_inspect: Size,
    }
}

section! {
    /// `[timeouts]`
    Timeouts {
        /// Connection attempt.
        connect: Span,
        /// Silence of the upstream.
        idle: Span,
        /// Idle pooled connections.
        pool_idle: Span,
        /// Running turns after SIGTERM.
        drain: Span,
    }
}

section! {
    /// `[upstream.NAME]`
    Upstream {
        /// A profile, whose settings these are unless said otherwise here.
        profile: String,
        /// Base URL.
        url: BaseUrl,
        /// Wire format.
        format: Format,
        /// Provider id in the price data.
        prices: String,
        /// Chat streams are asked for their tokens where the client did not.
        ask_usage: bool,
        /// Cached tokens are counted beside the prompt.
        cached_beside: bool,
        /// Reasoning is counted beside the output.
        reasoning_beside: bool,
        /// What a usage without cached tokens means.
        absent_cached: AbsentCached,
        /// Lifetime of writes that are told without one.
        writes: Ttl,
        /// Whose word counts for the cost.
        cost: CostBy,
        /// Reads are told in multiples of so many tokens.
        cache_step: Count,
        /// The smallest prompt that is cached.
        cache_min: Count,
        /// How long it lives.
        cache_ttl: Ttl,
        /// What it knows of what can be said about OpenAI's cache.
        cache_options: CacheOptions,
        /// Where it takes Anthropic's breakpoints in Chat requests for Claude.
        cache_control: CacheControl,
    }
}

section! {
    /// `[cache]`
    Cache {
        /// What the planner may do.
        policy: CachePolicy,
        /// Percent of runs that are left alone, to be compared with.
        holdout_percent: Count,
        /// Memory of the engine.
        memory: Size,
        /// The provider's own explanation of misses.
        native_diagnostics: NativeDiagnostics,
        /// Whether records may quote a few bytes around a change.
        excerpts: bool,
        /// Helper: tools always in the same order.
        stable_tool_order: bool,
        /// Helper: how long siblings of a fan-out may wait for the first.
        warm_first: Span,
        /// Helper: what keeping a prefix warm over one pause may cost, in USD.
        keep_warm_max_usd: Usd,
    }
}

section! {
    /// `[anthropic]`
    Anthropic {
        /// Conversations that the provider holds.
        threads: Threads,
    }
}

section! {
    /// `[openai]`
    OpenAi {
        /// Whether requests without a key by which they are routed to one cache get one.
        prompt_cache_key: CacheKey,
        /// The lifetime that is asked for where the client says nothing.
        cache_ttl: CacheLifetime,
        /// The same for models that know no lifetimes.
        cache_retention: CacheRetention,
        /// What is done with the WebSocket mode of Responses.
        websocket: WebSockets,
    }
}

section! {
    /// `[store]`
    Store {
        /// Where the database lives.
        data_dir: PathBuf,
        /// Age limit.
        retention_days: Count,
        /// Size limit.
        retention_size: Size,
        /// Records that may wait for the writer.
        queue: Count,
    }
}

section! {
    /// `[metrics]`
    Metrics {
        /// Applications with a label of their own.
        apps: Words,
    }
}

section! {
    /// `[tls]`
    Tls {
        /// CA bundle.
        extra_ca: PathBuf,
    }
}

section! {
    /// `[[price]]`
    PriceEntry {
        /// Model id.
        model: String,
        /// Uncached input.
        input: Price,
        /// Output.
        output: Price,
        /// Cache read.
        read: Price,
        /// Five-minute write.
        write_5m: Price,
        /// One-hour write.
        write_1h: Price,
        /// Smallest cacheable prefix.
        min_cache_tokens: Count,
    }
}

/// A section that may occur many times, with the line of its head.
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// Name (upstreams) or number (prices), for messages.
    pub name: String,
    /// 1-based line.
    pub line: usize,
    /// Its settings.
    pub section: T,
}

/// The whole file.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// `[server]`
    pub server: Server,
    /// `[timeouts]`
    pub timeouts: Timeouts,
    /// `[upstream] default`
    pub default_upstream: Option<Located<Words>>,
    /// `[upstream.NAME]`, in the order of the file.
    pub upstreams: Vec<Entry<Upstream>>,
    /// `[cache]`
    pub cache: Cache,
    /// `[anthropic]`
    pub anthropic: Anthropic,
    /// `[openai]`
    pub openai: OpenAi,
    /// `[loops]`
    pub loops: Loops,
    /// `[caps]`
    pub caps: Caps,
    /// `[caps.run]`
    pub run_caps: RunCaps,
    /// `[caps.unnamed]`
    pub unnamed_caps: UnnamedCaps,
    /// `[caps.key]`
    pub key_caps: KeyCaps,
    /// `[app.NAME]`, in the order of the file.
    pub apps: Vec<Entry<App>>,
    /// `[alerts]`
    pub alerts: Alerts,
    /// `[webhook.NAME]`, in the order of the file.
    pub webhooks: Vec<Entry<Webhook>>,
    /// `[store]`
    pub store: Store,
    /// `[clickhouse]`
    pub clickhouse: ClickHouse,
    /// `[otlp]`
    pub otlp: Otlp,
    /// `[spool]`
    pub spool: Spool,
    /// `[capture]`
    pub capture: Capture,
    /// `[metrics]`
    pub metrics: Metrics,
    /// `[tls]`
    pub tls: Tls,
    /// `[[price]]`
    pub prices: Vec<Entry<PriceEntry>>,
    /// `[agent]`
    pub agent: Agent,
}

/// Keys of `[upstream]` and of the sections in it.
const UPSTREAM_KEYS: &[&str] = &[
    "default",
    "NAME.profile",
    "NAME.url",
    "NAME.format",
    "NAME.prices",
    "NAME.ask_usage",
    "NAME.cached_beside",
    "NAME.reasoning_beside",
    "NAME.absent_cached",
    "NAME.writes",
    "NAME.cost",
    "NAME.cache_step",
    "NAME.cache_min",
    "NAME.cache_ttl",
    "NAME.cache_options",
    "NAME.cache_control",
];

/// Every section with its keys, as messages and the documentation test need them.
pub const SECTIONS: [(&str, &[&str]); 20] = [
    ("server", Server::KEYS),
    ("timeouts", Timeouts::KEYS),
    ("upstream", UPSTREAM_KEYS),
    ("cache", Cache::KEYS),
    ("anthropic", Anthropic::KEYS),
    ("openai", OpenAi::KEYS),
    ("loops", Loops::KEYS),
    ("caps", guards::CAPS_KEYS),
    ("app", guards::APP_KEYS),
    ("alerts", Alerts::KEYS),
    ("webhook", &["NAME.url", "NAME.form"]),
    ("store", Store::KEYS),
    ("clickhouse", ClickHouse::KEYS),
    ("otlp", Otlp::KEYS),
    ("spool", Spool::KEYS),
    ("capture", Capture::KEYS),
    ("metrics", Metrics::KEYS),
    ("tls", Tls::KEYS),
    ("price", PriceEntry::KEYS),
    ("agent", Agent::KEYS),
];

/// Every key with the head of the section that it stands in, `caps.run` or `upstream.NAME`.
fn places() -> impl Iterator<Item = (String, &'static str)> {
    SECTIONS.iter().flat_map(|(section, keys)| {
        keys.iter().map(move |key| match key.rsplit_once('.') {
            Some((inner, key)) => (format!("{section}.{inner}"), key),
            None => ((*section).to_owned(), *key),
        })
    })
}

/// Names that people try and that are no near misses: section or its first word, typed key, what to do.
const HINTS: [(&str, &str, &str); 19] = [
    (
        "server",
        "port",
        "the port is part of `listen`, such as \"127.0.0.1:8787\"",
    ),
    (
        "server",
        "host",
        "the address is `listen`, such as \"127.0.0.1:8787\"",
    ),
    (
        "server",
        "bind",
        "the address is `listen`, such as \"127.0.0.1:8787\"",
    ),
    (
        "upstream",
        "api_key",
        "keys are not configured: the client's own are passed on",
    ),
    (
        "upstream",
        "key",
        "keys are not configured: the client's own are passed on",
    ),
    ("upstream", "base_url", "did you mean `url`?"),
    ("upstream", "endpoint", "did you mean `url`?"),
    ("cache", "mode", "did you mean `policy`?"),
    (
        "cache",
        "enabled",
        "use `policy` with \"off\", \"dry-run\" or \"fill\"",
    ),
    ("loops", "policy", "did you mean `action`?"),
    ("loops", "enabled", "use `action` with \"off\" or \"warn\""),
    ("caps.key", "usd", "did you mean `usd_per_day`?"),
    ("caps.key", "tokens", "did you mean `tokens_per_day`?"),
    ("caps", "max_turns", "did you mean `turns` in [caps.run]?"),
    ("caps", "max_usd", "did you mean `usd` in [caps.run]?"),
    ("caps", "max_tokens", "did you mean `tokens` in [caps.run]?"),
    ("caps", "timezone", "did you mean `zone`?"),
    ("app", "action", "did you mean `loops`?"),
    ("webhook", "type", "did you mean `form`?"),
];

impl File {
    /// Reads a file's text. `name` is the file in messages.
    ///
    /// Always gives what could be read, with all problems found; with a problem in the TOML
    /// itself only those of the syntax, as the rest would be guesswork.
    #[must_use]
    pub fn parse(name: &str, text: &str) -> (Self, Vec<Problem>) {
        let mut reader = Reader {
            name,
            text,
            problems: Vec::new(),
        };
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let at = error.span().unwrap_or(0..0);
            reader.problem(&at, error.message().to_owned());
        }
        let mut file = Self::default();
        if errors.is_empty() {
            file.read(&mut reader, document.get_ref());
        }
        (file, reader.problems)
    }

    fn read(&mut self, reader: &mut Reader<'_>, document: &DeTable<'_>) {
        for (key, value) in in_file_order(document) {
            let section = key.get_ref().as_ref();
            if section == "price" {
                self.prices = reader.prices(value);
                continue;
            }
            if !SECTIONS.iter().any(|(name, _)| *name == section) {
                reader.unknown_section(key, value);
                continue;
            }
            let Some(table) = value.get_ref().as_table() else {
                reader.problem(
                    &key.span(),
                    format!("`{section}` must be a section: [{section}]"),
                );
                continue;
            };
            match section {
                "server" => self.server = Server::read(reader, section, table),
                "timeouts" => self.timeouts = Timeouts::read(reader, section, table),
                "upstream" => self.read_upstreams(reader, table),
                "cache" => self.cache = Cache::read(reader, section, table),
                "anthropic" => self.anthropic = Anthropic::read(reader, section, table),
                "openai" => self.openai = OpenAi::read(reader, section, table),
                "loops" => self.loops = Loops::read(reader, section, table),
                "caps" => self.read_caps(reader, table),
                "app" => {
                    self.apps = reader.entries(section, table, App::read);
                }
                "alerts" => self.alerts = Alerts::read(reader, section, table),
                "webhook" => {
                    self.webhooks = reader.entries(section, table, Webhook::read);
                }
                "store" => self.store = Store::read(reader, section, table),
                "clickhouse" => self.clickhouse = ClickHouse::read(reader, section, table),
                "otlp" => self.otlp = Otlp::read(reader, section, table),
                "spool" => self.spool = Spool::read(reader, section, table),
                "capture" => self.capture = Capture::read(reader, section, table),
                "metrics" => self.metrics = Metrics::read(reader, section, table),
                "agent" => self.agent = Agent::read(reader, section, table),
                _ => self.tls = Tls::read(reader, section, table),
            }
        }
    }

    fn read_upstreams(&mut self, reader: &mut Reader<'_>, table: &DeTable<'_>) {
        for (key, value) in in_file_order(table) {
            let name = key.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(_) if name == "default" => reader.problem(
                    &key.span(),
                    "`default` cannot be the name of an upstream: it says which one is the default"
                        .to_owned(),
                ),
                DeValue::Table(table) => {
                    let path = format!("upstream.{name}");
                    let section = Upstream::read(reader, &path, table);
                    self.upstreams.push(Entry {
                        name: name.to_owned(),
                        line: reader.line(&key.span()),
                        section,
                    });
                }
                _ if name == "default" => {
                    self.default_upstream = reader.value("upstream", "default", value)
                }
                _ => reader.unknown("upstream", key, &["default"]),
            }
        }
    }
}

type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;

/// One pass over the document.
struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        1 + memchr::memchr_iter(b'\n', before).count()
    }

    fn problem(&mut self, at: &Range<usize>, message: String) {
        let place = format!("{}:{}", self.name, self.line(at));
        self.problems.push(Problem { place, message });
    }

    fn value<T: Value>(
        &mut self,
        path: &str,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Located<T>> {
        let at = value.span();
        let shown = if T::SECRET {
            "***".to_owned()
        } else {
            shown(self.text.get(at.clone()).unwrap_or_default())
        };
        match T::from_toml(value.get_ref()) {
            Ok(value) => Some(Located {
                value,
                line: self.line(&at),
                shown,
            }),
            Err(allowed) => {
                self.problem(&at, format!("{path}.{key} = {shown}: {allowed}"));
                None
            }
        }
    }

    fn unknown(&mut self, path: &str, key: &Key<'_>, known: &[&str]) {
        let typed = key.get_ref().as_ref();
        let section = path.split('.').next().unwrap_or(path);
        let hint = HINTS
            .iter()
            .find(|(of, name, _)| (*of == section || *of == path) && *name == typed);
        let elsewhere = || places().find(|(_, key)| *key == typed);
        let advice = if let Some((_, _, advice)) = hint {
            (*advice).to_owned()
        } else if let Some(name) = nearest(typed, known.iter().copied()) {
            format!("did you mean `{name}`?")
        } else if let Some((other, _)) = elsewhere() {
            format!("it belongs into [{other}]")
        } else {
            String::new()
        };
        let separator = if advice.is_empty() { "" } else { "; " };
        let message = format!(
            "unknown key `{}` in [{path}]{separator}{advice} (known keys: {})",
            shown(typed),
            known.join(", ")
        );
        self.problem(&key.span(), message);
    }

    fn unknown_section(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let typed = key.get_ref().as_ref();
        let names = SECTIONS.iter().map(|(name, _)| *name);
        let is_section = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
        let what = if is_section {
            format!("section [{}]", shown(typed))
        } else {
            format!("key `{}`", shown(typed))
        };
        let meant = places().find_map(|(section, key)| {
            let key = nearest(typed, [key]).filter(|_| !is_section)?;
            Some(format!("; did you mean `{key}` in [{section}]?"))
        });
        let meant = meant.or_else(|| {
            nearest(typed, names.clone()).map(|name| format!("; did you mean [{name}]?"))
        });
        let list: Vec<_> = names.collect();
        let message = format!(
            "unknown {what}{} (known sections: {})",
            meant.unwrap_or_default(),
            list.join(", ")
        );
        self.problem(&key.span(), message);
    }

    fn prices(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Entry<PriceEntry>> {
        let mut prices = Vec::new();
        let DeValue::Array(entries) = value.get_ref() else {
            self.problem(
                &value.span(),
                "prices are a list: write [[price]] with two brackets".to_owned(),
            );
            return prices;
        };
        for (index, entry) in entries.iter().enumerate() {
            let Some(table) = entry.get_ref().as_table() else {
                self.problem(
                    &entry.span(),
                    "each price must be a section: [[price]]".to_owned(),
                );
                continue;
            };
            let section = PriceEntry::read(self, "price", table);
            let line = self.line(&entry.span());
            prices.push(Entry {
                name: (index + 1).to_string(),
                line,
                section,
            });
        }
        prices
    }
}

type Pair<'t, 'i> = (&'t Key<'i>, &'t Spanned<DeValue<'i>>);

/// Tables are sorted by name; people read from top to bottom.
fn in_file_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Pair<'t, 'i>> {
    let mut pairs: Vec<Pair<'t, 'i>> = table.iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    pairs
}
