//! The real program as a child process.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A running `prefixgate serve`; killed when dropped.
pub struct Gateway {
    child: Child,
    /// Where clients connect.
    pub proxy: SocketAddr,
    /// Metrics and health.
    pub admin: SocketAddr,
    dir: TempDir,
}

impl Gateway {
    /// Starts one in front of `upstream` with defaults.
    pub fn start(upstream: &str) -> Self {
        Self::with(upstream, "", &[])
    }

    /// ... with a configuration file and more arguments.
    pub fn with(upstream: &str, config: &str, args: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        Self::launch(dir, upstream, config, args)
    }

    /// Stops this one the hard way and starts another on the same data.
    pub fn restart(mut self, upstream: &str, config: &str, args: &[&str]) -> Self {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
        Self::launch(dir, upstream, config, args)
    }

    fn launch(dir: TempDir, upstream: &str, config: &str, args: &[&str]) -> Self {
        let file = dir.path().join("prefixgate.toml");
        std::fs::write(&file, config).unwrap();
        let stderr = std::fs::File::create(dir.path().join("stderr.log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_prefixgate"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--upstream", upstream])
            .arg("--config")
            .arg(&file)
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(args)
            .env_remove("PREFIXGATE_LOG")
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = |key: &str| {
            let found = line
                .split_whitespace()
                .find_map(|w| w.strip_prefix(key)?.strip_prefix("=http://"));
            let log = || std::fs::read_to_string(dir.path().join("stderr.log")).unwrap_or_default();
            found
                .unwrap_or_else(|| panic!("no {key} in {line:?}; {}", log()))
                .parse()
                .unwrap()
        };
        let (proxy, admin) = (address("proxy"), address("admin"));
        Self {
            child,
            proxy,
            admin,
            dir,
        }
    }

    /// `http://ADDR`.
    pub fn url(&self) -> String {
        format!("http://{}", self.proxy)
    }

    /// The data directory.
    pub fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// All that was logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr.log")).unwrap()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in kB.
    pub fn rss_kb(&self) -> u64 {
        self.status_kb("VmRSS:")
    }

    /// The most resident memory so far, in kB.
    pub fn peak_kb(&self) -> u64 {
        self.status_kb("VmHWM:")
    }

    fn status_kb(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Open file descriptors.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// The text of `/metrics`.
    pub async fn metrics(&self) -> String {
        let mut wire = super::Wire::connect(self.admin).await;
        wire.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await;
        wire.response().await.text()
    }

    /// The sum of a metric's samples whose line holds all of `labels`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.metrics().await;
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|r| r.starts_with(['{', ' ']))
                && labels.iter().all(|l| line.contains(l))
        });
        samples
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// `prefixgate report ARGS --json`, parsed.
    pub fn report(&self, args: &[&str]) -> Vec<Value> {
        report(&self.data(), args)
    }

    /// The turns of all runs, in the order of their start, once at least `n` are recorded.
    pub async fn turns(&self, n: usize) -> Vec<Value> {
        super::eventually(&format!("{n} turns in the report"), async || {
            let runs = self.report(&["runs"]);
            let mut turns: Vec<Value> = runs
                .iter()
                .flat_map(|run| self.report(&["turns", "--run", run["id"].as_str().unwrap()]))
                .collect();
            turns.sort_by_key(|t| t["id"].as_str().unwrap().to_owned());
            (turns.len() >= n).then_some(turns)
        })
        .await
    }

    /// All requests recorded for a run in the order of their start, once there are at least `n`.
    pub async fn turns_of(&self, run: &str, n: usize) -> Vec<Value> {
        let data = self.data();
        super::eventually(&format!("{n} records of {run}"), async || {
            let turns = turns_of(&data, run);
            (turns.len() >= n).then_some(turns)
        })
        .await
    }

    /// Waits until as many requests of this kind have ended in this way, and not one more.
    pub async fn ended_as(&self, kind: &str, outcome: &str, n: usize) {
        let labels = [format!("kind=\"{kind}\""), format!("outcome=\"{outcome}\"")];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        super::eventually(&format!("{n} x {kind} {outcome}"), async || {
            let count = self.metric("prefixgate_requests_total", &labels).await;
            assert!(count <= n as f64, "{count} instead of {n} {kind} {outcome}");
            (count == n as f64).then_some(())
        })
        .await;
    }

    /// Sends a signal by name (`TERM`, `STOP` ...).
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the process to end by itself.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        super::eventually("the process ends", async || self.child.try_wait().unwrap()).await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All requests recorded for a run so far, also the refused ones.
pub fn turns_of(data: &Path, run: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_prefixgate"))
        .args([
            "report",
            "turns",
            "--all",
            "--run",
            run,
            "--json",
            "--data-dir",
        ])
        .arg(data)
        .output()
        .unwrap();
    // A run without records is an error of that command.
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// `prefixgate report ARGS --json --data-dir DIR`, parsed; empty while there is no database.
pub fn report(data: &Path, args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_prefixgate"))
        .arg("report")
        .args(args)
        .args(["--json", "--data-dir"])
        .arg(data)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}
