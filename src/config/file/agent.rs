//! `[agent]`, as typed.

use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::value::{
    Api, BaseUrl, Limit, List, Money, Switch, Tokens, Tries, Unbounded, Wall,
};
use super::super::{Pattern, SyncEvents};
use super::{Key, Located, Reader, in_file_order};

section! {
    /// `[agent]`
    Agent {
        /// Wire format.
        api: Api,
        /// Base URL.
        base_url: BaseUrl,
        /// Variable with the key.
        key_env: String,
        /// Model.
        model: String,
        /// How hard it thinks.
        effort: String,
        /// Output limit of one answer.
        max_tokens: Tokens,
        /// Context window.
        window: Limit,
        /// Size from which on it is compacted.
        compact_at: Limit,
        /// Cap on answers.
        max_turns: Tokens,
        /// Cap on tokens.
        max_tokens_total: Limit,
        /// Cap on money, in USD.
        max_usd: Money,
        /// Cap on time.
        max_wall: Wall,
        /// Cap on calls.
        max_calls: Tokens,
        /// Equal calls that count as a loop.
        loop_threshold: Unbounded,
        /// Directory of the tools.
        root: PathBuf,
        /// Programs that may be run.
        allow: List,
        /// URLs may be fetched.
        fetch: Switch,
        /// What outlives a run.
        memory: String,
        /// MCP servers.
        mcp: PathBuf,
        /// Tools start early.
        eager_tools: Switch,
        /// System prompt.
        system: PathBuf,
        /// Way of working.
        pattern: Pattern,
        /// Check of success.
        check: String,
        /// Attempts.
        attempts: Tries,
        /// Where runs are kept.
        journal: String,
        /// Events are synced.
        fsync: SyncEvents,
        /// Application.
        app: String,
        /// Run.
        run: String,
        /// Agent.
        agent: String,
    }
}
