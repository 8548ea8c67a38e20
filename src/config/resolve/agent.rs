//! `[agent]`: flags above variables above the file.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::super::agent::{Agent, AgentOptions};
use super::super::file;
use super::super::value::{BaseUrl, List, Value};
use super::{Config, Picked, Resolver};

/// Declares, for each key, the flag and the variable that stand above it.
macro_rules! names {
    ($($key:ident: $flag:literal, $variable:literal;)+) => {
        $(#[allow(non_upper_case_globals, reason = "named as the key")]
        const $key: Name = Name {
            key: concat!("agent.", stringify!($key)),
            flag: $flag,
            variable: concat!("PREFIXGATE_AGENT_", $variable),
        };)+
    };
}

/// A setting by its three names.
#[derive(Clone, Copy)]
struct Name {
    key: &'static str,
    flag: &'static str,
    variable: &'static str,
}

names! {
    api: "--api", "API";
    base_url: "--base-url", "BASE_URL";
    key_env: "--key-env", "KEY_ENV";
    model: "--model", "MODEL";
    effort: "--effort", "EFFORT";
    max_tokens: "--max-tokens", "MAX_TOKENS";
    window: "--window", "WINDOW";
    compact_at: "--compact-at", "COMPACT_AT";
    max_turns: "--max-turns", "MAX_TURNS";
    max_tokens_total: "--max-tokens-total", "MAX_TOKENS_TOTAL";
    max_usd: "--max-usd", "MAX_USD";
    max_wall: "--max-wall", "MAX_WALL";
    max_calls: "--max-calls", "MAX_CALLS";
    loop_threshold: "--loop-threshold", "LOOP_THRESHOLD";
    root: "--root", "ROOT";
    allow: "--allow", "ALLOW";
    fetch: "--fetch", "FETCH";
    memory: "--memory", "MEMORY";
    mcp: "--mcp", "MCP";
    eager_tools: "--eager-tools", "EAGER_TOOLS";
    system: "--system", "SYSTEM";
    pattern: "--pattern", "PATTERN";
    check: "--check", "CHECK";
    attempts: "--attempts", "ATTEMPTS";
    journal: "--journal", "JOURNAL";
    fsync: "--fsync", "FSYNC";
    app: "--app", "APP";
    run: "--run", "RUN";
    agent: "--agent", "AGENT";
}

impl Resolver<'_> {
    pub(super) fn agent(&mut self, config: &mut Config, flags: &AgentOptions, typed: file::Agent) {
        let mut to = Agent::default();
        let yes = |given: bool| given.then(|| "true".to_owned());
        let joined = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
        if let Some(format) = self.named(api, &flags.api, typed.api) {
            to.api = format.value.0;
        }
        let url = self.named(base_url, &flags.base_url, typed.base_url);
        to.base_url = url.map(|url| BaseUrl::spelled(&url.value.0));
        to.key_env = self.word(key_env, &flags.key_env, typed.key_env);
        to.model = self.word(model, &flags.model, typed.model);
        to.effort = self.word(effort, &flags.effort, typed.effort);
        if let Some(limit) = self.named(max_tokens, &flags.max_tokens, typed.max_tokens) {
            to.max_tokens = limit.value.0;
        }
        if let Some(limit) = self.named(window, &flags.window, typed.window) {
            to.window = limit.value.0;
        }
        if let Some(size) = self.named(compact_at, &flags.compact_at, typed.compact_at) {
            if size.value.0 > to.window {
                let allowed = format!("must not be above the window of {} tokens", to.window);
                self.wrong(&size.origin, compact_at.key, &size.shown, &allowed);
            }
            to.compact_at = Some(size.value.0);
        }
        if let Some(limit) = self.named(max_turns, &flags.max_turns, typed.max_turns) {
            to.max_turns = limit.value.0;
        }
        let limit = self.named(
            max_tokens_total,
            &flags.max_tokens_total,
            typed.max_tokens_total,
        );
        to.max_tokens_total = limit.map(|limit| limit.value.0);
        let money = self.named(max_usd, &flags.max_usd, typed.max_usd);
        to.max_pico = money.map(|money| money.value.0);
        let wall = self.named(max_wall, &flags.max_wall, typed.max_wall);
        to.max_wall_ms = wall.map(|wall| wall.value.0);
        let calls = self.named(max_calls, &flags.max_calls, typed.max_calls);
        to.max_calls = calls.map(|calls| calls.value.0);
        let threshold = self.named(loop_threshold, &flags.loop_threshold, typed.loop_threshold);
        if let Some(threshold) = threshold {
            to.loop_threshold = threshold.value.0;
        }
        if let Some(path) = self.named_path(root, &flags.root, typed.root) {
            to.root = path;
        }
        if let Some(names) = self.named::<List>(allow, &joined(&flags.allow), typed.allow) {
            to.allow = names.value.0;
        }
        let switch = self.named(fetch, &yes(flags.fetch), typed.fetch);
        to.fetch = switch.is_some_and(|switch| switch.value.0);
        to.memory = self.place(memory, &flags.memory, typed.memory);
        to.mcp = self.named_path(mcp, &flags.mcp, typed.mcp);
        let switch = self.named(eager_tools, &yes(flags.eager_tools), typed.eager_tools);
        to.eager_tools = switch.is_some_and(|switch| switch.value.0);
        to.system = self.named_path(system, &flags.system, typed.system);
        if let Some(way) = self.named(pattern, &flags.pattern, typed.pattern) {
            to.pattern = way.value;
        }
        to.check = self.word(check, &flags.check, typed.check);
        if let Some(tries) = self.named(attempts, &flags.attempts, typed.attempts) {
            to.attempts = tries.value.0;
        }
        to.journal = self.place(journal, &flags.journal, typed.journal);
        if let Some(when) = self.named(fsync, &flags.fsync, typed.fsync) {
            to.fsync = when.value;
        }
        to.app = self.word(app, &flags.app, typed.app);
        to.run = self.word(run, &flags.run, typed.run);
        to.agent = self.word(agent, &flags.agent, typed.agent);
        config.agent = to;
    }

    fn named<T: Value>(
        &mut self,
        name: Name,
        flag: &Option<String>,
        typed: Option<file::Located<T>>,
    ) -> Option<Picked<T>> {
        let flag = flag.as_deref().map(OsStr::new);
        self.above(name.key, typed, (name.flag, flag), name.variable)
    }

    fn word(
        &mut self,
        name: Name,
        flag: &Option<String>,
        typed: Option<file::Located<String>>,
    ) -> Option<String> {
        self.named(name, flag, typed).map(|picked| picked.value)
    }

    fn named_path(
        &mut self,
        name: Name,
        flag: &Option<String>,
        typed: Option<file::Located<PathBuf>>,
    ) -> Option<PathBuf> {
        let picked = self.named(name, flag, typed)?;
        self.path(name.key, &picked)
    }

    /// A directory, or a word or URL that says something else.
    fn place(
        &mut self,
        name: Name,
        flag: &Option<String>,
        typed: Option<file::Located<String>>,
    ) -> Option<String> {
        let picked = self.named(name, flag, typed)?;
        if picked.value == "none" || picked.value.contains(':') {
            return Some(picked.value);
        }
        let picked = Picked {
            value: PathBuf::from(picked.value),
            origin: picked.origin,
            shown: picked.shown,
        };
        let path = self.path(name.key, &picked)?;
        Some(path.to_string_lossy().into_owned())
    }
}
