//! What stands above the file: flags and environment, and where the file is looked for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::agent::AgentOptions;
use super::file;

/// The flags that every command that needs a configuration takes.
///
/// Addresses, the URL and the policy are kept as text: they are read together with the rest of the
/// configuration, so that everything wrong is reported at once.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Configuration file (or PREFIXGATE_CONFIG; else $XDG_CONFIG_HOME/prefixgate/prefixgate.toml if it exists)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where clients connect, IP:PORT; port 0 lets the system choose (or PREFIXGATE_LISTEN)
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Metrics and health, IP:PORT (or PREFIXGATE_ADMIN)
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Base URL of the default upstream (or PREFIXGATE_UPSTREAM)
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Where the trace database lives (or PREFIXGATE_DATA_DIR)
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// What the prompt-cache planner may do: off, dry-run or fill (or PREFIXGATE_CACHE)
    #[arg(long, value_name = "POLICY")]
    pub cache: Option<String>,
    /// ClickHouse to write traces to as well: URL of its HTTP interface, http://HOST:PORT, or with user, password and database as in http://USER:PASSWORD@HOST:PORT/DATABASE (or PREFIXGATE_CLICKHOUSE)
    #[arg(long, value_name = "URL")]
    pub clickhouse: Option<String>,
    /// OpenTelemetry collector or backend to send spans to: base URL of OTLP over HTTP (or PREFIXGATE_OTLP)
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Flags of `serve` and `run`.
    #[arg(skip)]
    pub guards: GuardOptions,
    /// Flags of `agent`.
    #[arg(skip)]
    pub agent: AgentOptions,
}

/// The flags for caps and loops, of the commands that traffic goes through.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct GuardOptions {
    /// Answered turns that a run may have (or PREFIXGATE_MAX_TURNS)
    #[arg(long, value_name = "N")]
    pub max_turns: Option<String>,
    /// What a run may cost, in USD (or PREFIXGATE_MAX_USD)
    #[arg(long, value_name = "X")]
    pub max_usd: Option<String>,
    /// Input and output tokens that a run may use together (or PREFIXGATE_MAX_TOKENS)
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<String>,
    /// What is done about loops: off, warn, hint, block, answer, or up to three of them with commas between (or PREFIXGATE_LOOPS)
    #[arg(long, value_name = "ACTION")]
    pub loops: Option<String>,
}

/// The variables that mean something, each a flag's name.
pub(super) const VARIABLES: [&str; 13] = [
    "PREFIXGATE_CONFIG",
    "PREFIXGATE_LISTEN",
    "PREFIXGATE_ADMIN",
    "PREFIXGATE_UPSTREAM",
    "PREFIXGATE_DATA_DIR",
    "PREFIXGATE_CACHE",
    "PREFIXGATE_MAX_TURNS",
    "PREFIXGATE_MAX_USD",
    "PREFIXGATE_MAX_TOKENS",
    "PREFIXGATE_LOOPS",
    "PREFIXGATE_CLICKHOUSE",
    "PREFIXGATE_CLICKHOUSE_PASSWORD",
    "PREFIXGATE_OTLP",
];

/// What the variables of `[agent]` begin with; then comes the key in capitals.
pub(super) const AGENT_PREFIX: &str = "PREFIXGATE_AGENT_";

/// Not settings of the configuration, but not misspelt either: the log filter, and what
/// `prefixgate run` sets for its command.
const OTHERS: [&str; 3] = ["PREFIXGATE_LOG", "PREFIXGATE_URL", "PREFIXGATE_RUN"];

/// The variables of a process that the configuration looks at. An empty variable counts as unset.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// Of this process.
    #[must_use]
    pub fn process() -> Self {
        let named =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        named.collect()
    }

    /// The value of a variable, unless it is unset or empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(name).filter(|value| !value.is_empty())
    }

    /// An absolute directory from a variable. (A relative one is to be ignored by the XDG rules.)
    fn directory(&self, name: &str) -> Option<&Path> {
        self.get(name)
            .map(Path::new)
            .filter(|path| path.is_absolute())
    }

    /// Variables with our prefix that mean nothing.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        let ours = |name: &&str| name.starts_with("PREFIXGATE_");
        // Those of the agent are named by its keys.
        let agent = |name: &str| {
            let key = name.strip_prefix(AGENT_PREFIX).map(str::to_lowercase);
            key.is_some_and(|key| file::Agent::KEYS.contains(&key.as_str()))
        };
        let known =
            move |name: &&str| VARIABLES.contains(name) || OTHERS.contains(name) || agent(name);
        self.0
            .keys()
            .map(String::as_str)
            .filter(ours)
            .filter(move |name| !known(name))
    }

    /// `$XDG_STATE_HOME/prefixgate`, else `$HOME/.local/state/prefixgate`, else `./prefixgate-data`.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        if let Some(state) = self.directory("XDG_STATE_HOME") {
            return state.join("prefixgate");
        }
        self.directory("HOME").map_or_else(
            || PathBuf::from("./prefixgate-data"),
            |home| home.join(".local/state/prefixgate"),
        )
    }

    /// Where a file is read from without being named: `$XDG_CONFIG_HOME/prefixgate/prefixgate.toml`,
    /// else the same under `$HOME/.config`.
    #[must_use]
    pub fn usual_file(&self) -> Option<PathBuf> {
        let base = self.directory("XDG_CONFIG_HOME").map(Path::to_owned);
        let base = base.or_else(|| Some(self.directory("HOME")?.join(".config")))?;
        Some(base.join("prefixgate/prefixgate.toml"))
    }

    /// `~/x` under `$HOME`; every other path as it is.
    pub(super) fn expand(&self, path: &Path) -> Option<PathBuf> {
        match path.strip_prefix("~") {
            Ok(rest) => self.directory("HOME").map(|home| home.join(rest)),
            Err(_) => Some(path.to_owned()),
        }
    }
}

impl<K: Into<String>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// The data directory of this process's user: `$XDG_STATE_HOME/prefixgate`, else
/// `$HOME/.local/state/prefixgate`, else `./prefixgate-data`.
#[must_use]
pub fn default_data_dir() -> PathBuf {
    Environment::process().data_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_dir_follows_xdg() {
        let with =
            |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Environment>().data_dir();
        assert_eq!(with(&[]), Path::new("./prefixgate-data"));
        assert_eq!(
            with(&[("HOME", "/h")]),
            Path::new("/h/.local/state/prefixgate")
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]),
            Path::new("/s/prefixgate")
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_STATE_HOME", "rel")]),
            Path::new("/h/.local/state/prefixgate")
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_STATE_HOME", "")]),
            Path::new("/h/.local/state/prefixgate")
        );
    }

    #[test]
    fn unknown_variables_are_found() {
        let environment: Environment = [
            ("PREFIXGATE_LISTN", "x"),
            ("PREFIXGATE_URL", "x"),
            ("PREFIXGATE_CACHE", "x"),
            ("HOME", "/h"),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            environment.unknown().collect::<Vec<_>>(),
            ["PREFIXGATE_LISTN"]
        );
    }
}
