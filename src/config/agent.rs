//! `[agent]`: what `prefixgate agent` works with, and the flags that stand above it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::provider::wire::Wire;

/// How an agent goes about its task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Think, act, look, until the model has said all.
    #[default]
    React,
    /// Attempts that are checked, each after a written reflection on the one before.
    Reflexion,
    /// A plan first, then its steps one by one, each reviewed.
    PlanExecute,
}

/// When the events of a run are forced onto the disk itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SyncEvents {
    /// Each, before anything follows from it.
    #[default]
    Always,
    /// With each answer of the model.
    Turn,
    /// When the system likes.
    Never,
}

/// What `prefixgate agent` works with. `None` is what the command then chooses by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The wire format.
    pub api: Wire,
    /// Base URL of the provider, or of a gateway, without a slash at its end.
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub key_env: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// How hard it is to think, in the provider's word.
    pub effort: Option<String>,
    /// Output limit of one answer, in tokens.
    pub max_tokens: u32,
    /// Answers of the model.
    pub max_turns: u32,
    /// Tokens of all kinds, over the whole run.
    pub max_tokens_total: Option<u64>,
    /// Money, in pico-USD.
    pub max_pico: Option<u64>,
    /// Time at work, in milliseconds.
    pub max_wall_ms: Option<u64>,
    /// Calls of tools.
    pub max_calls: Option<u32>,
    /// The context window, in tokens.
    pub window: u64,
    /// The size from which on a conversation is compacted, in tokens.
    pub compact_at: Option<u64>,
    /// The directory that the tools see.
    pub root: PathBuf,
    /// Programs that may be run.
    pub allow: Vec<String>,
    /// URLs may be fetched.
    pub fetch: bool,
    /// Where what outlives a run is kept: a directory, `sqlite:FILE`, `redis://`, or `none`.
    pub memory: Option<String>,
    /// The file that names MCP servers.
    pub mcp: Option<PathBuf>,
    /// The file with the system prompt.
    pub system: Option<PathBuf>,
    /// How it goes about the task.
    pub pattern: Pattern,
    /// The command that tells whether the task is done.
    pub check: Option<String>,
    /// Attempts at the task.
    pub attempts: u32,
    /// Tools start while the answer still comes in.
    pub eager_tools: bool,
    /// Where journals are: a directory, `sqlite:FILE`, or `none`.
    pub journal: Option<String>,
    /// When events are forced onto the disk itself.
    pub fsync: SyncEvents,
    /// From how many equal calls on it is a loop; 0 looks for none.
    pub loop_threshold: u32,
    /// The application, as the gateway's records have it.
    pub app: Option<String>,
    /// The run, as the gateway's records have it.
    pub run: Option<String>,
    /// The outermost agent, as the gateway's records have it.
    pub agent: Option<String>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            api: Wire::Messages,
            base_url: None,
            key_env: None,
            model: None,
            effort: None,
            max_tokens: 8_192,
            max_turns: 40,
            max_tokens_total: None,
            max_pico: None,
            max_wall_ms: None,
            max_calls: None,
            window: 200_000,
            compact_at: None,
            root: PathBuf::from("."),
            allow: Vec::new(),
            fetch: false,
            memory: None,
            mcp: None,
            system: None,
            pattern: Pattern::React,
            check: None,
            attempts: 3,
            eager_tools: false,
            journal: None,
            fsync: SyncEvents::Always,
            loop_threshold: 3,
            app: None,
            run: None,
            agent: None,
        }
    }
}

/// The flags of `prefixgate agent`, as text: they are read together with the rest of the
/// configuration, so that everything wrong is reported at once. Each is a key of `[agent]`, and a
/// variable `PREFIXGATE_AGENT_` with that key in capitals.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentOptions {
    /// Wire format: messages, chat or responses [default: messages]
    #[arg(long, value_name = "FORMAT", help_heading = "Model")]
    pub api: Option<String>,
    /// Base URL of the provider or of a gateway [default: $ANTHROPIC_BASE_URL or $OPENAI_BASE_URL, else the provider's own]
    #[arg(long, value_name = "URL", help_heading = "Model")]
    pub base_url: Option<String>,
    /// Environment variable that holds the key [default: ANTHROPIC_API_KEY or OPENAI_API_KEY]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub key_env: Option<String>,
    /// Model to ask [default: claude-sonnet-5 or gpt-5.6-sol]
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub model: Option<String>,
    /// How hard the model is to think, in the provider's word
    #[arg(long, value_name = "WORD", help_heading = "Model")]
    pub effort: Option<String>,
    /// Output limit of one answer, in tokens [default: 8192]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub max_tokens: Option<String>,
    /// Context window of the model, in tokens [default: 200000]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub window: Option<String>,
    /// Size of the conversation from which on it is compacted, in tokens [default: four fifths of the window]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub compact_at: Option<String>,

    /// Answers of the model, of each agent [default: 40]
    #[arg(long, value_name = "N", help_heading = "Caps")]
    pub max_turns: Option<String>,
    /// Tokens of all kinds, of all agents together
    #[arg(long, value_name = "N", help_heading = "Caps")]
    pub max_tokens_total: Option<String>,
    /// Money in USD; refuses to start where the model's price is not known
    #[arg(long, value_name = "X", help_heading = "Caps")]
    pub max_usd: Option<String>,
    /// Time at work, such as 90s or 15m
    #[arg(long, value_name = "TIME", help_heading = "Caps")]
    pub max_wall: Option<String>,
    /// Calls of tools
    #[arg(long, value_name = "N", help_heading = "Caps")]
    pub max_calls: Option<String>,
    /// Equal calls with equal outcome from which on it is a loop; 0 looks for none [default: 3]
    #[arg(long, value_name = "N", help_heading = "Caps")]
    pub loop_threshold: Option<String>,

    /// Directory that the tools see [default: .]
    #[arg(long, value_name = "DIR", help_heading = "Tools")]
    pub root: Option<String>,
    /// Program that may be run, with any arguments; may be given several times, or with commas. Without it there is no tool for commands
    #[arg(long, value_name = "COMMAND", help_heading = "Tools")]
    pub allow: Vec<String>,
    /// URLs may be fetched
    #[arg(long, help_heading = "Tools")]
    pub fetch: bool,
    /// Where to keep what outlives a run: a directory, sqlite:FILE, redis://HOST, or none [default: one for each --root, in the data directory]
    #[arg(long, value_name = "PLACE", help_heading = "Tools")]
    pub memory: Option<String>,
    /// File with MCP servers
    #[arg(long, value_name = "FILE", help_heading = "Tools")]
    pub mcp: Option<String>,
    /// Tools start while the answer still comes in
    #[arg(long, help_heading = "Tools")]
    pub eager_tools: bool,

    /// File with the system prompt
    #[arg(long, value_name = "FILE", help_heading = "Way of working")]
    pub system: Option<String>,
    /// react, reflexion or plan-execute [default: react]
    #[arg(long, value_name = "PATTERN", help_heading = "Way of working")]
    pub pattern: Option<String>,
    /// Command that tells whether the task is done, by its exit code; what reflexion tries for
    #[arg(long, value_name = "COMMAND", help_heading = "Way of working")]
    pub check: Option<String>,
    /// Attempts at the task that reflexion makes [default: 3]
    #[arg(long, value_name = "N", help_heading = "Way of working")]
    pub attempts: Option<String>,

    /// Where runs are kept: a directory, sqlite:FILE, or none [default: the data directory]
    #[arg(long, value_name = "DIR", help_heading = "Journal and lineage")]
    pub journal: Option<String>,
    /// When events are forced onto the disk itself: always, turn or never [default: always]
    #[arg(long, value_name = "WHEN", help_heading = "Journal and lineage")]
    pub fsync: Option<String>,
    /// Application, for the gateway's records
    #[arg(long, value_name = "NAME", help_heading = "Journal and lineage")]
    pub app: Option<String>,
    /// Run, for the gateway's records [default: $PREFIXGATE_RUN, else the id of the run]
    #[arg(long, value_name = "NAME", help_heading = "Journal and lineage")]
    pub run: Option<String>,
    /// The outermost agent, for the gateway's records [default: main]
    #[arg(long, value_name = "NAME", help_heading = "Journal and lineage")]
    pub agent: Option<String>,
}

impl AgentOptions {
    /// These, and where one is not given that of `below`.
    #[must_use]
    pub fn or(mut self, below: Self) -> Self {
        let texts = [
            (&mut self.api, below.api),
            (&mut self.base_url, below.base_url),
            (&mut self.key_env, below.key_env),
            (&mut self.model, below.model),
            (&mut self.effort, below.effort),
            (&mut self.max_tokens, below.max_tokens),
            (&mut self.window, below.window),
            (&mut self.compact_at, below.compact_at),
            (&mut self.max_turns, below.max_turns),
            (&mut self.max_tokens_total, below.max_tokens_total),
            (&mut self.max_usd, below.max_usd),
            (&mut self.max_wall, below.max_wall),
            (&mut self.max_calls, below.max_calls),
            (&mut self.loop_threshold, below.loop_threshold),
            (&mut self.root, below.root),
            (&mut self.memory, below.memory),
            (&mut self.mcp, below.mcp),
            (&mut self.system, below.system),
            (&mut self.pattern, below.pattern),
            (&mut self.check, below.check),
            (&mut self.attempts, below.attempts),
            (&mut self.journal, below.journal),
            (&mut self.fsync, below.fsync),
            (&mut self.app, below.app),
            (&mut self.run, below.run),
            (&mut self.agent, below.agent),
        ];
        for (own, below) in texts {
            if own.is_none() {
                *own = below;
            }
        }
        if self.allow.is_empty() {
            self.allow = below.allow;
        }
        self.fetch |= below.fetch;
        self.eager_tools |= below.eager_tools;
        self
    }

    /// One of the caps is given.
    #[must_use]
    pub const fn has_caps(&self) -> bool {
        self.max_turns.is_some()
            || self.max_tokens_total.is_some()
            || self.max_usd.is_some()
            || self.max_wall.is_some()
            || self.max_calls.is_some()
    }
}
