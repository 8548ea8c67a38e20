//! The file that names servers.
//!
//! ```json
//! {"mcpServers": {
//!   "files": {"command": "npx", "args": ["-y", "some-server"], "env": {"LEVEL": "3"}},
//!   "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
//! }}
//! ```
//!
//! `${NAME}` and `${NAME:-default}` stand for variables of the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// Largest file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Servers of one file.
const MAX_SERVERS: usize = 64;
/// Keys that other clients write and that mean nothing here.
const FOREIGN: &[&str] = &["timeout", "description", "autoApprove", "alwaysAllow"];

/// The servers that a file names, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// They.
    pub servers: Vec<ServerConfig>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub how: How,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum How {
    /// A program that is started and spoken to over its input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables beside those of this process; of those it gets none that looks like a
        /// secret.
        env: BTreeMap<String, String>,
        /// Where it runs.
        cwd: Option<PathBuf>,
    },
    /// Over HTTP (the streamable transport).
    Http {
        /// Where.
        url: String,
        /// Headers of every request.
        headers: Vec<(HeaderName, HeaderValue)>,
    },
}

// Values of variables and headers are often secrets.
impl std::fmt::Debug for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdio { command, .. } => write!(f, "Stdio({command})"),
            Self::Http { url, .. } => write!(f, "Http({url})"),
        }
    }
}

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {key}{what}")]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// The place in it, with a colon and a space behind it; empty for all of it.
    pub key: String,
    /// What.
    pub what: String,
}

impl Config {
    /// Reads a file; variables come from the environment.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let trouble = |what: String| ConfigError {
            file: file.clone(),
            key: String::new(),
            what,
        };
        let about = std::fs::metadata(path).map_err(|error| trouble(error.to_string()))?;
        if about.len() > MAX_FILE {
            return Err(trouble("the file is too large".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| trouble(error.to_string()))?;
        Self::parse(&file, &text, &|name| std::env::var(name).ok())
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// Something in it is wrong.
    pub fn parse(
        file: &str,
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let at = Place {
            file,
            key: String::new(),
            variable,
        };
        let all: Value = serde_json::from_str(text)
            .map_err(|error| at.wrong(format!("it is not JSON: {error}")))?;
        let all = at.object(&all)?;
        let at = at.below("mcpServers");
        let Some(servers) = all.get("mcpServers") else {
            return Err(at.wrong("it is missing".to_owned()));
        };
        let servers = at.object(servers)?;
        if servers.len() > MAX_SERVERS {
            return Err(at.wrong(format!("more than {MAX_SERVERS} servers")));
        }
        let servers = servers
            .iter()
            .map(|(name, value)| server(&at.below(name), name, value));
        let servers: Result<Vec<Option<ServerConfig>>, _> = servers.collect();
        Ok(Self {
            servers: servers?.into_iter().flatten().collect(),
        })
    }
}

/// `None` for one that is switched off.
fn server(at: &Place<'_>, name: &str, value: &Value) -> Result<Option<ServerConfig>, ConfigError> {
    let server = at.object(value)?;
    if server.get("disabled") == Some(&Value::Bool(true)) {
        return Ok(None);
    }
    let kind = server
        .get("type")
        .map(|kind| at.below("type").text(kind))
        .transpose()?;
    let (known, how): (&[&str], _) = match (server.get("command"), server.get("url")) {
        (Some(command), None) => (
            &["command", "args", "env", "cwd"],
            stdio(at, server, command)?,
        ),
        (None, Some(url)) => (&["url", "headers"], remote(at, server, url)?),
        (Some(_), Some(_)) => return Err(at.wrong("it has both command and url".to_owned())),
        (None, None) => return Err(at.wrong("it has neither command nor url".to_owned())),
    };
    let wanted = matches!(
        (kind.as_deref(), &how),
        (None, _)
            | (Some("stdio"), How::Stdio { .. })
            | (
                Some("http" | "streamable-http" | "streamableHttp"),
                How::Http { .. }
            )
    );
    if !wanted {
        let kind = kind.unwrap_or_default();
        let what = format!("{kind:?} is not how this server is reached; stdio and http are known");
        return Err(at.below("type").wrong(what));
    }
    for key in server.keys() {
        let general = ["type", "disabled"];
        let all = known.iter().chain(&general).chain(FOREIGN);
        if !all.clone().any(|known| known == key) {
            let near = known
                .iter()
                .min_by_key(|known| strsim::damerau_levenshtein(known, key));
            let near = near.copied().unwrap_or_default();
            return Err(at
                .below(key)
                .wrong(format!("unknown key; the nearest known one is {near}")));
        }
    }
    Ok(Some(ServerConfig {
        name: name.to_owned(),
        how,
    }))
}

fn stdio(at: &Place<'_>, server: &Map<String, Value>, command: &Value) -> Result<How, ConfigError> {
    let command = at.below("command").filled(command)?;
    let args = match server.get("args") {
        None => Vec::new(),
        Some(Value::Array(args)) => {
            let args = args.iter().enumerate();
            let args = args.map(|(index, arg)| at.below(&format!("args[{index}]")).filled(arg));
            args.collect::<Result<_, _>>()?
        }
        Some(other) => return Err(at.below("args").expected("a list", other)),
    };
    let env = at.texts(server, "env")?.into_iter().collect();
    let cwd = server
        .get("cwd")
        .map(|cwd| at.below("cwd").filled(cwd))
        .transpose()?;
    Ok(How::Stdio {
        command,
        args,
        env,
        cwd: cwd.map(PathBuf::from),
    })
}

fn remote(at: &Place<'_>, server: &Map<String, Value>, url: &Value) -> Result<How, ConfigError> {
    let place = at.below("url");
    let url = place.filled(url)?;
    let scheme = url
        .parse::<http::Uri>()
        .ok()
        .and_then(|uri| uri.scheme_str().map(str::to_owned));
    if !matches!(scheme.as_deref(), Some("http" | "https")) {
        return Err(place.wrong("it is no URL with http:// or https://".to_owned()));
    }
    let headers = at
        .texts(server, "headers")?
        .into_iter()
        .map(|(name, value)| {
            let place = at.below("headers").below(&name);
            let wrong = || place.wrong("it cannot be sent as a header".to_owned());
            let name = name.parse().map_err(|_| wrong())?;
            let value = value.parse().map_err(|_| wrong())?;
            Ok((name, value))
        });
    Ok(How::Http {
        url,
        headers: headers.collect::<Result<_, ConfigError>>()?,
    })
}

/// A place in the file, and what is needed to read it.
struct Place<'a> {
    file: &'a str,
    key: String,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Place<'_> {
    fn below(&self, key: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self {
            key: format!("{}{dot}{key}", self.key),
            ..*self
        }
    }

    fn wrong(&self, what: String) -> ConfigError {
        let colon = if self.key.is_empty() { "" } else { ": " };
        ConfigError {
            file: self.file.to_owned(),
            key: format!("{}{colon}", self.key),
            what,
        }
    }

    fn expected(&self, what: &str, value: &Value) -> ConfigError {
        let got = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.wrong(format!("expected {what}, got {got}"))
    }

    fn object<'v>(&self, value: &'v Value) -> Result<&'v Map<String, Value>, ConfigError> {
        value
            .as_object()
            .ok_or_else(|| self.expected("an object", value))
    }

    fn text(&self, value: &Value) -> Result<String, ConfigError> {
        let text = value
            .as_str()
            .ok_or_else(|| self.expected("a text", value))?;
        Ok(text.to_owned())
    }

    /// An object of texts, variables filled in.
    fn texts(
        &self,
        server: &Map<String, Value>,
        key: &str,
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let Some(value) = server.get(key) else {
            return Ok(Vec::new());
        };
        let place = self.below(key);
        let all = place.object(value)?.iter();
        all.map(|(name, value)| Ok((name.clone(), place.below(name).filled(value)?)))
            .collect()
    }

    /// A text with its variables filled in.
    fn filled(&self, value: &Value) -> Result<String, ConfigError> {
        let text = self.text(value)?;
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, beyond)) = after.split_once('}') else {
                return Err(self.wrong("a ${ is not closed".to_owned()));
            };
            let (name, default) = match name.split_once(":-") {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (name, None),
            };
            let value = (self.variable)(name)
                .filter(|value| !value.is_empty())
                .or(default);
            let Some(value) = value else {
                return Err(self.wrong(format!("the variable {name} is not set")));
            };
            out.push_str(before);
            out.push_str(&value);
            rest = beyond;
        }
        out.push_str(rest);
        Ok(out)
    }
}
