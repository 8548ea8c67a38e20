//! What the user has asked for, with what follows from it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::agent::machine::Limits;
use crate::config::{Agent, AgentOptions, Config, Environment, Options};
use crate::provider::wire::Wire;

/// Longest task and longest system prompt, in bytes.
const MAX_TEXT: u64 = 4 << 20;

/// Flags of a run.
#[derive(Debug, Clone, Default, clap::Args, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Common {
    /// Configuration file with an [agent] section (or PREFIXGATE_CONFIG; else the usual one, if it exists)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Start a simulated provider and a gateway before it in this process: needs no account
    #[arg(long)]
    pub sim: bool,
    /// Show nothing but the final answer
    #[arg(short, long)]
    #[serde(skip)]
    pub quiet: bool,
    /// Print a line of JSON for everything that happens, the summary last
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
    /// OpenTelemetry collector or backend to send spans to: base URL of OTLP over HTTP (or PREFIXGATE_OTLP)
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// All that the configuration has too.
    #[command(flatten)]
    pub options: AgentOptions,
}

impl Common {
    /// These, and where one is not given that of a run as it was begun.
    pub fn or(self, begun: Self) -> Self {
        Self {
            config: self.config.or(begun.config),
            sim: self.sim || begun.sim,
            otlp: self.otlp.or(begun.otlp),
            options: self.options.or(begun.options),
            quiet: self.quiet,
            json: self.json,
        }
    }

    /// The same with paths that mean the same from everywhere, and with the directory that the tools
    /// see, whoever has named it. A simulated run has one of its own, unless another is named.
    pub fn anchored(mut self, resolved: &Agent) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.config = self.config.map(|path| absolute(&path));
        let options = &mut self.options;
        if !self.sim {
            options.root = Some(resolved.root.to_string_lossy().into_owned());
        }
        let paths = [&mut options.root, &mut options.mcp, &mut options.system];
        for text in paths.into_iter().flatten() {
            *text = absolute(Path::new(text)).to_string_lossy().into_owned();
        }
        for place in [&mut options.memory, &mut options.journal] {
            let directory = |text: &&mut String| text.as_str() != "none" && !text.contains(':');
            if let Some(text) = place.as_mut().filter(directory) {
                *text = absolute(Path::new(text)).to_string_lossy().into_owned();
            }
        }
        self
    }

    /// The whole configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self) -> anyhow::Result<Config> {
        let options = Options {
            config: self.config.clone(),
            otlp: self.otlp.clone(),
            agent: self.options.clone(),
            ..Options::default()
        };
        Ok(Config::load(&options)?)
    }
}

/// Who is asked, and with which credential.
#[derive(Clone)]
pub struct Whom {
    /// Base URL, without a slash at its end.
    pub base: String,
    /// The credential; empty where there is none.
    pub key: String,
    /// Where it was looked for.
    pub key_env: String,
    /// The model.
    pub model: String,
    /// Id in the price data.
    pub provider: &'static str,
}

impl Whom {
    /// It is the provider itself, and not a server that may want no key.
    pub fn is_own(&self) -> bool {
        let own = ["https://api.anthropic.com", "https://api.openai.com"];
        own.iter().any(|own| self.base.starts_with(own))
    }

    /// By the settings, else by the variables that the providers' own clients read, else the
    /// provider itself.
    pub fn of(settings: &Agent, environment: &Environment) -> Self {
        let text = |name: &str| {
            let value = environment.get(name)?;
            value
                .to_str()
                .map(|text| text.trim_end_matches('/').to_owned())
        };
        let (provider, own, variable, own_key, model) = match settings.api {
            Wire::Messages => (
                "anthropic",
                "https://api.anthropic.com",
                "ANTHROPIC_BASE_URL",
                "ANTHROPIC_API_KEY",
                "claude-sonnet-5",
            ),
            Wire::Chat | Wire::Responses => (
                "openai",
                "https://api.openai.com",
                "OPENAI_BASE_URL",
                "OPENAI_API_KEY",
                "gpt-5.6-sol",
            ),
        };
        let key_env = settings
            .key_env
            .clone()
            .unwrap_or_else(|| own_key.to_owned());
        let base = (settings.base_url.clone())
            .or_else(|| text(variable))
            .unwrap_or_else(|| own.to_owned());
        Self {
            key: environment
                .get(&key_env)
                .and_then(|key| key.to_str())
                .unwrap_or_default()
                .to_owned(),
            base,
            key_env,
            model: settings.model.clone().unwrap_or_else(|| model.to_owned()),
            provider,
        }
    }
}

/// What a run may use.
pub const fn limits(settings: &Agent) -> Limits {
    Limits {
        turns: settings.max_turns,
        tokens: settings.max_tokens_total,
        pico: settings.max_pico,
        wall_ms: settings.max_wall_ms,
        calls: settings.max_calls,
    }
}

/// The system prompt where the user has no other. It says nothing that changes: it is the head of
/// the prefix that the provider caches.
const SYSTEM: &str = "\
You are a careful agent that does a task with the tools you have, in a working directory.

Look before you change anything: read a file before you edit it, and search before you assume. \
Call several tools at once when none needs the result of another. When a call fails, read why and \
do something else; never repeat a call that failed for the same reason. Change only what the task \
needs. When the task is done, or cannot be done, say so in a few sentences: what you did, what you \
found, what is left.";

/// The system prompt.
///
/// # Errors
/// The file cannot be read.
pub fn system(settings: &Agent) -> anyhow::Result<String> {
    match &settings.system {
        Some(path) => text_of(path),
        None => Ok(SYSTEM.to_owned()),
    }
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let place = || path.display().to_string();
    let size = std::fs::metadata(path).with_context(place)?.len();
    anyhow::ensure!(size <= MAX_TEXT, "{} is larger than 4 MiB", place());
    let text = std::fs::read_to_string(path).with_context(place)?;
    anyhow::ensure!(!text.trim().is_empty(), "{} is empty", place());
    Ok(text)
}

/// The task, from stdin where it is `-`.
///
/// # Errors
/// There is none.
pub fn task(typed: Option<String>) -> anyhow::Result<Option<String>> {
    use std::io::Read as _;
    let Some(typed) = typed else { return Ok(None) };
    let task = if typed == "-" {
        let mut text = String::new();
        let mut input = std::io::stdin().lock().take(MAX_TEXT);
        input
            .read_to_string(&mut text)
            .context("the task on stdin")?;
        text
    } else {
        typed
    };
    anyhow::ensure!(!task.trim().is_empty(), "the task is empty");
    Ok(Some(task))
}
