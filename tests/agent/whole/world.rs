//! A simulated provider that refuses whatever the real one refuses, a real gateway before it, and
//! the real program.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use prefixgate::config::{Config, Format, Otlp, Upstream};
use prefixgate::provider::dialect::Dialect;
use prefixgate::server::Gateway;
use prefixgate::sim::{Options, Sim};
use serde_json::Value;
use tempfile::TempDir;

/// A provider, a gateway, and a directory for each that needs one.
pub struct World {
    pub sim: Sim,
    pub gateway: Gateway,
    pub dir: TempDir,
}

impl World {
    pub async fn start(otlp: Option<Otlp>) -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let sim = Sim::start(Options::default()).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::embedded(dir.path().join("records"));
        config.listen = any;
        config.admin = any;
        config.otlp = otlp;
        config.upstreams = vec![Upstream {
            name: "sim".to_owned(),
            base: sim.base_url().parse().unwrap(),
            format: Format::Anthropic,
            price_provider: "anthropic".to_owned(),
            dialect: Dialect::default(),
        }];
        let gateway = Gateway::start(config).await.unwrap();
        Self { sim, gateway, dir }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.gateway.proxy_addr())
    }

    /// Puts a file where the tools see it.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join("work").join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// `prefixgate agent` on this world, from an empty home.
    pub fn agent(&self, args: &[&str]) -> Command {
        let mut command = agent(self.dir.path());
        command.args(args);
        command
            .env("ANTHROPIC_BASE_URL", self.url())
            .env("ANTHROPIC_API_KEY", "sk-ant-api03-not-a-key")
            .env("PREFIXGATE_AGENT_ROOT", self.dir.path().join("work"));
        command
    }

    pub async fn run(&self, args: &[&str]) -> Ended {
        ended(self.agent(args)).await
    }
}

/// `prefixgate agent` with nothing but a home.
pub fn agent(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    command
        .arg("agent")
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TMPDIR", home)
        .stdin(Stdio::null());
    command
}

/// How a command has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Its lines, each of which is JSON.
    pub fn lines(&self) -> Vec<Value> {
        let parsed = self
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        parsed.collect()
    }

    /// The last of them.
    pub fn summary(&self) -> Value {
        let last = self.lines().pop().unwrap();
        assert_eq!(last["type"], "summary", "{self:?}");
        last
    }
}

/// Runs a command to its end, beside the provider and the gateway of this process.
pub async fn ended(mut command: Command) -> Ended {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    Ended::of(output.await.unwrap())
}
