//! The sections of the guards, as typed.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::error::shown;
use super::super::value::{
    Depth, Heads, Ladder, Levels, Limit, Money, Percent, RedisUrl, Status, Threshold, Wall,
    WebhookUrl,
};
use super::super::{CapAction, CaptureMode, Form, RedisDown, Reserve, Unpriced};
use super::{Entry, File, Key, Located, Reader, in_file_order};

section! {
    /// `[loops]`
    Loops {
        /// What is done about any loop.
        action: Ladder,
        /// From which count on the same failing call is a loop.
        same_call: Threshold,
        /// From which count on the same error is a loop.
        same_error: Threshold,
        /// From how many rounds on a cycle is a loop.
        cycle: Threshold,
        /// From which count on the same result is a loop.
        no_progress: Threshold,
        /// What is done about the same failing call.
        same_call_action: Ladder,
        /// What is done about the same error.
        same_error_action: Ladder,
        /// What is done about a cycle.
        cycle_action: Ladder,
        /// What is done about the same result.
        no_progress_action: Ladder,
    }
}

section! {
    /// `[caps]` without the sections inside it.
    Caps {
        /// What becomes of requests that a cap does not let pass.
        action: CapAction,
        /// Status of refusals.
        status: Status,
        /// What a request holds while it is under way.
        reserve: Reserve,
        /// What becomes of requests without a price under a cap on money.
        unpriced: Unpriced,
        /// Output taken as possible where a request does not limit it.
        default_max_tokens: Limit,
        /// Whether answers say what is left.
        headers: bool,
        /// Where days begin and end.
        zone: String,
        /// Books that several gateways share.
        redis: RedisUrl,
        /// When they cannot be reached.
        redis_down: RedisDown,
    }
}

section! {
    /// `[caps.run]`
    RunCaps {
        /// Answered turns.
        turns: Limit,
        /// Input tokens.
        input_tokens: Limit,
        /// Output tokens.
        output_tokens: Limit,
        /// Input and output tokens.
        tokens: Limit,
        /// Cost.
        usd: Money,
        /// Time since the first request.
        wall_time: Wall,
        /// Nesting of sub-agents.
        depth: Depth,
        /// Agents at work.
        agents: Heads,
    }
}

section! {
    /// `[caps.unnamed]`
    UnnamedCaps {
        /// Answered turns.
        turns: Limit,
        /// Input tokens.
        input_tokens: Limit,
        /// Output tokens.
        output_tokens: Limit,
        /// Input and output tokens.
        tokens: Limit,
        /// Cost.
        usd: Money,
    }
}

section! {
    /// `[caps.key]`
    KeyCaps {
        /// Cost in a day.
        usd_per_day: Money,
        /// Input and output tokens in a day.
        tokens_per_day: Limit,
        /// Requests within a minute.
        requests_per_minute: Heads,
        /// Requests at a time.
        concurrency: Heads,
    }
}

section! {
    /// `[app.NAME]`
    App {
        /// What is done about any loop.
        loops: Ladder,
        /// As in `[loops]`.
        same_call_action: Ladder,
        /// As in `[loops]`.
        same_error_action: Ladder,
        /// As in `[loops]`.
        cycle_action: Ladder,
        /// As in `[loops]`.
        no_progress_action: Ladder,
        /// Status of refusals.
        status: Status,
        /// As `mode` in `[capture]`.
        capture: CaptureMode,
        /// As in `[caps.run]`.
        turns: Limit,
        /// As in `[caps.run]`.
        input_tokens: Limit,
        /// As in `[caps.run]`.
        output_tokens: Limit,
        /// As in `[caps.run]`.
        tokens: Limit,
        /// As in `[caps.run]`.
        usd: Money,
        /// As in `[caps.run]`.
        wall_time: Wall,
        /// As in `[caps.run]`.
        depth: Depth,
        /// As in `[caps.run]`.
        agents: Heads,
    }
}

section! {
    /// `[alerts]`
    Alerts {
        /// Shares of a cap.
        cap_levels: Levels,
        /// Loops.
        loops: bool,
        /// Models without a price.
        unpriced: bool,
        /// Records that were dropped.
        store: bool,
        /// Spend within an hour.
        cost_per_hour_usd: Money,
        /// Drop of the cache-hit ratio.
        hit_ratio_drop: Percent,
        /// Loss of a new culprit.
        culprit_usd: Money,
    }
}

section! {
    /// `[webhook.NAME]`
    Webhook {
        /// Where to.
        url: WebhookUrl,
        /// In what form.
        form: Form,
    }
}

/// The keys of `[caps]` and of the sections inside it.
pub(super) const CAPS_KEYS: &[&str] = &[
    "action",
    "status",
    "reserve",
    "unpriced",
    "default_max_tokens",
    "headers",
    "zone",
    "redis",
    "redis_down",
    "run.turns",
    "run.input_tokens",
    "run.output_tokens",
    "run.tokens",
    "run.usd",
    "run.wall_time",
    "run.depth",
    "run.agents",
    "unnamed.turns",
    "unnamed.input_tokens",
    "unnamed.output_tokens",
    "unnamed.tokens",
    "unnamed.usd",
    "key.usd_per_day",
    "key.tokens_per_day",
    "key.requests_per_minute",
    "key.concurrency",
];

/// The keys of `[app.NAME]`.
pub(super) const APP_KEYS: &[&str] = &[
    "NAME.loops",
    "NAME.same_call_action",
    "NAME.same_error_action",
    "NAME.cycle_action",
    "NAME.no_progress_action",
    "NAME.status",
    "NAME.capture",
    "NAME.turns",
    "NAME.input_tokens",
    "NAME.output_tokens",
    "NAME.tokens",
    "NAME.usd",
    "NAME.wall_time",
    "NAME.depth",
    "NAME.agents",
];

/// The sections inside `[caps]`.
const CAPS_SECTIONS: [&str; 3] = ["run", "unnamed", "key"];

/// The head of a section with a name of the user's, quoted where TOML wants it: `app."x.y"`.
#[must_use]
pub fn named(section: &str, name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !name.is_empty() && name.bytes().all(bare) {
        format!("{section}.{name}")
    } else {
        format!("{section}.{name:?}")
    }
}

impl File {
    pub(super) fn read_caps(&mut self, reader: &mut Reader<'_>, table: &DeTable<'_>) {
        let known = [Caps::KEYS, &CAPS_SECTIONS].concat();
        for (key, value) in in_file_order(table) {
            let name = key.get_ref().as_ref();
            match (name, value.get_ref()) {
                ("run", DeValue::Table(table)) => {
                    self.run_caps = RunCaps::read(reader, "caps.run", table);
                }
                ("unnamed", DeValue::Table(table)) => {
                    self.unnamed_caps = UnnamedCaps::read(reader, "caps.unnamed", table);
                }
                ("key", DeValue::Table(table)) => {
                    self.key_caps = KeyCaps::read(reader, "caps.key", table);
                }
                _ if CAPS_SECTIONS.contains(&name) => reader.problem(
                    &key.span(),
                    format!("`{name}` must be a section: [caps.{name}]"),
                ),
                _ => self.caps.set(reader, "caps", key, value, &known),
            }
        }
    }
}

impl Reader<'_> {
    /// A section of sections that the user names.
    pub(super) fn entries<T>(
        &mut self,
        section: &str,
        table: &DeTable<'_>,
        read: impl Fn(&mut Self, &str, &DeTable<'_>) -> T,
    ) -> Vec<Entry<T>> {
        let mut entries = Vec::new();
        for (key, value) in in_file_order(table) {
            let name = key.get_ref().as_ref();
            let Some(table) = value.get_ref().as_table() else {
                let message = format!(
                    "`{}` stands in [{section}], which holds sections with names only: [{section}.NAME]",
                    shown(name)
                );
                self.problem(&key.span(), message);
                continue;
            };
            let inner = read(self, &named(section, &shown(name)), table);
            entries.push(Entry {
                name: name.to_owned(),
                line: self.line(&key.span()),
                section: inner,
            });
        }
        entries
    }
}
