//! The real programs around an agent: the simulated provider, the gateway, and the relays that
//! write down what passes between them.
//!
//! client -> relay -> gateway -> relay -> simulated provider

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::relay::Relay;

/// A program that does not come up or go down in this time is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program under test; `PREFIXGATE_TEST_BIN` names another build of it (an installed package).
pub fn program() -> PathBuf {
    std::env::var_os("PREFIXGATE_TEST_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_prefixgate")),
        PathBuf::from,
    )
}

/// A running subcommand of the program; killed when dropped.
pub struct Running {
    child: Child,
    ready: String,
    log: PathBuf,
}

impl Running {
    /// Starts it and waits for its line `listening name=url ...`.
    pub async fn start(args: &[&str], log: PathBuf) -> Self {
        let errors = std::fs::File::create(&log).unwrap();
        let mut child = Command::new(program())
            .args(args)
            .env("NO_COLOR", "1")
            // Settings of whoever runs the tests.
            .env_remove("PREFIXGATE_CONFIG")
            .env_remove("PREFIXGATE_LOG")
            .env_remove("PREFIXGATE_TEST_CACHE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = loop {
            let line = timeout(PATIENCE, lines.next_line()).await;
            match line.expect("no `listening` line in time").unwrap() {
                Some(line) if line.starts_with("listening ") => break line,
                Some(_) => {}
                None => panic!(
                    "`{}` ended before it listened: {}",
                    args.join(" "),
                    std::fs::read_to_string(&log).unwrap_or_default()
                ),
            }
        };
        // A program whose output nobody reads must not stall or die of it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, ready, log }
    }

    /// The address that it gave under that name.
    pub fn address(&self, name: &str) -> SocketAddr {
        let key = format!("{name}=http://");
        let url = self.ready.split(' ').find_map(|w| w.strip_prefix(&key));
        let url = url.unwrap_or_else(|| panic!("no {name} in `{}`", self.ready));
        url.parse().unwrap()
    }

    /// What it wrote to stderr so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    pub async fn stop(&mut self) {
        let pid = self.child.id().expect("it has ended by itself").to_string();
        let sent = Command::new("kill").arg(&pid).status().await.unwrap();
        assert!(sent.success());
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let status = ended.expect("it did not drain in time").unwrap();
        assert!(status.success(), "ended with {status}: {}", self.log());
    }
}

/// A simulated provider behind a relay: what a client talks to when there is no gateway.
pub struct Direct {
    _sim: Running,
    pub relay: Relay,
    _dir: TempDir,
}

impl Direct {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sim, relay) = provider(dir.path()).await;
        Self {
            _sim: sim,
            relay,
            _dir: dir,
        }
    }
}

async fn provider(dir: &Path) -> (Running, Relay) {
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0"], dir.join("sim.log")).await;
    let relay = Relay::start(sim.address("sim")).await;
    (sim, relay)
}

/// The gateway between two relays.
pub struct Gateway {
    _sim: Running,
    running: Running,
    /// Between client and gateway.
    pub front: Relay,
    /// Between gateway and provider.
    pub back: Relay,
    dir: TempDir,
}

impl Gateway {
    /// With a cache policy and, where given, a configuration file of that content.
    pub async fn start(policy: &str, config: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sim, back) = provider(dir.path()).await;
        let data = dir.path().join("data").display().to_string();
        let upstream = back.url();
        let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        args.extend([
            "--upstream",
            &upstream,
            "--data-dir",
            &data,
            "--cache",
            policy,
        ]);
        let file = dir.path().join("prefixgate.toml").display().to_string();
        if let Some(config) = config {
            std::fs::write(&file, config).unwrap();
            args.extend(["--config", &file]);
        }
        let running = Running::start(&args, dir.path().join("gateway.log")).await;
        let front = Relay::start(running.address("proxy")).await;
        Self {
            _sim: sim,
            running,
            front,
            back,
            dir,
        }
    }

    /// Stops the gateway, so that every record is written, and lets its files be asked.
    pub async fn finish(mut self) -> Finished {
        self.running.stop().await;
        Finished { gateway: self }
    }
}

/// A gateway that has stopped in order.
pub struct Finished {
    gateway: Gateway,
}

impl Finished {
    /// All runs as `report` shows them.
    pub async fn runs(&self) -> Vec<Value> {
        self.report(&["runs"]).await
    }

    /// The run of that id as `report` shows it.
    pub async fn run(&self, id: &str) -> Value {
        let runs = self.report(&["runs"]).await;
        let found = runs.iter().find(|run| run["id"] == id);
        found
            .cloned()
            .unwrap_or_else(|| panic!("no run `{id}` in {runs:?}\n{}", self.log()))
    }

    /// The turns of a run as `report` shows them.
    pub async fn turns(&self, run: &str) -> Vec<Value> {
        self.report(&["turns", "--run", run]).await
    }

    async fn report(&self, what: &[&str]) -> Vec<Value> {
        let output = Command::new(program())
            .arg("report")
            .args(what)
            .arg("--json")
            .arg("--data-dir")
            .arg(self.gateway.dir.path().join("data"))
            .output()
            .await
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "report failed: {errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What the gateway logged.
    pub fn log(&self) -> String {
        self.gateway.running.log()
    }

    /// The log and what the relays saw, for the message of a failed test.
    pub fn story(&self) -> String {
        let mut story = format!("log: {}", self.log());
        for (name, relay) in [("front", self.front()), ("back", self.back())] {
            story += &format!("{name} relay: troubles {:?}\n", relay.troubles());
            for exchange in relay.exchanges() {
                let answer = exchange.response.as_ref();
                let answer = answer.map(|r| (r.status(), r.body.len(), r.complete));
                let request = &exchange.request;
                story += &format!(
                    "  {} ({} bytes) -> {answer:?}\n",
                    request.start,
                    request.body.len()
                );
            }
        }
        story
    }

    /// The relay between client and gateway.
    pub fn front(&self) -> &Relay {
        &self.gateway.front
    }

    /// The relay between gateway and provider.
    pub fn back(&self) -> &Relay {
        &self.gateway.back
    }

    /// Whether a file of the data directory or the log has those bytes in it.
    pub fn stored_anywhere(&self, secret: &str) -> bool {
        let mut files: Vec<PathBuf> = vec![self.gateway.dir.path().join("gateway.log")];
        let data = std::fs::read_dir(self.gateway.dir.path().join("data")).unwrap();
        files.extend(data.map(|entry| entry.unwrap().path()));
        files.iter().filter(|path| path.is_file()).any(|path| {
            let bytes = std::fs::read(path).unwrap();
            memchr::memmem::find(&bytes, secret.as_bytes()).is_some()
        })
    }
}
