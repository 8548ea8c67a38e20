//! The effective configuration, spelled as the file would have it.

use std::fmt::Write;

use super::value::{AbsentCached, BaseUrl, CostBy, Price, Size, Span};
use super::{Config, Origin};

mod agent;
mod guards;
mod stores;

/// One setting as it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Head of its section, `[cache]` or `[[price]]`.
    pub head: String,
    /// Whole key, `cache.policy`; entries of `[[price]]` have none.
    pub path: String,
    /// Key inside the section.
    pub key: &'static str,
    /// Value in TOML.
    pub value: String,
}

impl Config {
    /// All settings in force, in the order of the documentation. What has no value is left out.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        let mut all = Vec::new();
        let mut add = |section: &str, key: &'static str, value: String| {
            let (head, path) = (format!("[{section}]"), format!("{section}.{key}"));
            all.push(Setting {
                head,
                path,
                key,
                value,
            });
        };
        add("server", "listen", quoted(&self.listen.to_string()));
        add("server", "admin", quoted(&self.admin.to_string()));
        add(
            "server",
            "admin_allow_remote",
            self.admin_allow_remote.to_string(),
        );
        add(
            "server",
            "max_body",
            quoted(&Size::spelled(self.max_body_bytes as u64)),
        );
        add(
            "server",
            "max_buffered",
            quoted(&Size::spelled(self.buffered_bytes as u64)),
        );
        add(
            "server",
            "max_inspect",
            quoted(&Size::spelled(self.inspect_bytes as u64)),
        );
        add(
            "timeouts",
            "connect",
            quoted(&Span::spelled(self.connect_timeout)),
        );
        add(
            "timeouts",
            "idle",
            quoted(&Span::spelled(self.idle_timeout)),
        );
        add(
            "timeouts",
            "pool_idle",
            quoted(&Span::spelled(self.pool_idle)),
        );
        add("timeouts", "drain", quoted(&Span::spelled(self.drain)));
        let names: Vec<&str> = self
            .upstreams
            .iter()
            .map(|upstream| upstream.name.as_str())
            .collect();
        add("upstream", "default", list(&names));
        for upstream in &self.upstreams {
            let section = format!("upstream.{}", upstream.name);
            add(&section, "url", quoted(&BaseUrl::spelled(&upstream.base)));
            add(&section, "format", quoted(upstream.format.word()));
            add(&section, "prices", quoted(&upstream.price_provider));
            let dialect = &upstream.dialect;
            let counting = &dialect.counting;
            add(&section, "ask_usage", dialect.ask_usage.to_string());
            add(
                &section,
                "cached_beside",
                counting.cached_beside.to_string(),
            );
            let beside = counting.reasoning_beside;
            add(&section, "reasoning_beside", beside.to_string());
            let absent = match counting.absent_is_none {
                true => AbsentCached::None,
                false => AbsentCached::Unknown,
            };
            add(&section, "absent_cached", quoted(absent.word()));
            add(&section, "writes", quoted(counting.writes.word()));
            let cost = match dialect.tells_cost {
                true => CostBy::Provider,
                false => CostBy::Own,
            };
            add(&section, "cost", quoted(cost.word()));
            let known = dialect.cache_options;
            add(&section, "cache_options", quoted(known.word()));
            let places = dialect.cache_control;
            add(&section, "cache_control", quoted(places.word()));
            if let Some(rules) = dialect.caching {
                add(&section, "cache_step", rules.step.to_string());
                add(&section, "cache_min", rules.min_tokens.to_string());
                if let Some(ttl) = rules.ttl {
                    add(&section, "cache_ttl", quoted(ttl.word()));
                }
            }
        }
        add("cache", "policy", quoted(self.cache.word()));
        add("cache", "holdout_percent", self.holdout_percent.to_string());
        add(
            "cache",
            "memory",
            quoted(&Size::spelled(self.cache_bytes as u64)),
        );
        add(
            "cache",
            "native_diagnostics",
            quoted(self.native_diagnostics.word()),
        );
        add("cache", "excerpts", self.excerpts.to_string());
        add(
            "cache",
            "stable_tool_order",
            self.stable_tool_order.to_string(),
        );
        add(
            "cache",
            "warm_first",
            quoted(&Span::spelled(self.warm_first)),
        );
        add(
            "cache",
            "keep_warm_max_usd",
            Price::spelled(self.keep_warm_max_micro_usd),
        );
        add("anthropic", "threads", quoted(self.threads.word()));
        let key = quoted(self.cache_key.word());
        add("openai", "prompt_cache_key", key);
        let lifetime = quoted(self.cache_lifetime.word());
        add("openai", "cache_ttl", lifetime);
        let kept = quoted(self.cache_retention.word());
        add("openai", "cache_retention", kept);
        add("openai", "websocket", quoted(self.websockets.word()));
        guards::settings(self, &mut add);
        add(
            "store",
            "data_dir",
            quoted(&self.data_dir.to_string_lossy()),
        );
        add("store", "retention_days", self.retention_days.to_string());
        add(
            "store",
            "retention_size",
            quoted(&Size::spelled(self.retention_bytes)),
        );
        add("store", "queue", self.record_queue.to_string());
        stores::settings(self, &mut add);
        add("metrics", "apps", list(&self.app_labels));
        if let Some(path) = &self.extra_ca {
            add("tls", "extra_ca", quoted(&path.to_string_lossy()));
        }
        for price in &self.prices {
            let mut add = |key: &'static str, value: String| {
                all.push(Setting {
                    head: "[[price]]".to_owned(),
                    path: String::new(),
                    key,
                    value,
                });
            };
            add("model", quoted(&price.model));
            add("input", Price::spelled(price.input_pico));
            add("output", Price::spelled(price.output_pico));
            add("read", Price::spelled(price.read_pico));
            add("write_5m", Price::spelled(price.write_5m_pico));
            add("write_1h", Price::spelled(price.write_1h_pico));
            if let Some(tokens) = price.min_cache_tokens {
                add("min_cache_tokens", tokens.to_string());
            }
        }
        agent::settings(self, &mut |section, key, value| {
            let (head, path) = (format!("[{section}]"), format!("{section}.{key}"));
            all.push(Setting {
                head,
                path,
                key,
                value,
            });
        });
        all
    }

    /// The settings in force as a configuration file that gives the same configuration.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut head = String::new();
        for setting in self.settings() {
            // Each price is a section of its own and starts with its model.
            if setting.head != head || (setting.head == "[[price]]" && setting.key == "model") {
                let gap = if out.is_empty() { "" } else { "\n" };
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{gap}{}", setting.head);
                head.clone_from(&setting.head);
            }
            let _ = writeln!(out, "{} = {}", setting.key, setting.value);
        }
        out
    }

    /// Where a setting came from.
    #[must_use]
    pub fn origin(&self, path: &str) -> &Origin {
        self.origins.get(path).unwrap_or(&Origin::Default)
    }
}

fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}
