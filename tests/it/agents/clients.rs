//! Starts the real agents, each with a clean environment, a fresh home and a bounded time.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// The longest run here (an agent that backs off twice) takes some seconds; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Has the shape of a real key, so that a leak can be looked for.
pub const KEY: &str = "sk-ant-api03-test-key-not-a-secret";

/// How a client's run ended, as far as it must be the same with and without the gateway.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub code: Option<i32>,
    pub said: Value,
}

/// An SDK.
#[derive(Debug, Clone, Copy)]
pub enum Sdk {
    Python,
    TypeScript,
}

impl Sdk {
    /// Runs the agent script of that SDK; `mode` as in tests/clients/agent.py.
    pub async fn run(self, base_url: &str, mode: &str, prompt: &str) -> Outcome {
        let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
        let mut command = match self {
            Self::Python => {
                let mut command = clean(installed("py/bin/python"));
                command.arg(scripts.join("agent.py"));
                command
            }
            Self::TypeScript => {
                let mut command = clean(PathBuf::from("node"));
                command
                    .arg(scripts.join("agent.cjs"))
                    .env("NODE_PATH", installed("npm/node_modules"));
                command
            }
        };
        command.env("BASE_URL", base_url);
        command.env("MODE", mode).env("PROMPT", prompt);
        let (code, stdout, stderr) = bounded(command, &Desk::new()).await;
        let said = serde_json::from_str(stdout.trim())
            .unwrap_or_else(|e| panic!("{e}: the client said `{stdout}` and `{stderr}`"));
        Outcome {
            code,
            said: steady(said),
        }
    }
}

/// Runs Claude Code headless on a prompt in a session of that id.
pub async fn claude_code(base_url: &str, session: &str, prompt: &str) -> Outcome {
    claude_code_at(&Desk::new(), base_url, &["--session-id", session], prompt).await
}

/// Runs it at a desk: what an earlier run there has kept can be resumed.
pub async fn claude_code_at(
    desk: &Desk,
    base_url: &str,
    session: &[&str],
    prompt: &str,
) -> Outcome {
    let program = "npm/node_modules/@anthropic-ai/claude-code-linux-x64/claude";
    let mut command = clean(installed(program));
    command
        .args(["-p", prompt])
        .args(session)
        .args(["--output-format", "json", "--dangerously-skip-permissions"])
        .env("ANTHROPIC_BASE_URL", base_url)
        .env("ANTHROPIC_API_KEY", KEY)
        // Says that the machine may be played with, without which it refuses to run as root.
        .env("IS_SANDBOX", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1");
    let (code, stdout, stderr) = bounded(command, desk).await;
    let said: Value = serde_json::from_str(stdout.trim())
        .unwrap_or_else(|e| panic!("{e}: Claude Code said `{stdout}` and `{stderr}`"));
    let said = json!({
        "subtype": said["subtype"],
        "is_error": said["is_error"],
        "result": said["result"],
        "num_turns": said["num_turns"],
        "session_id": said["session_id"],
    });
    Outcome {
        code,
        said: steady(said),
    }
}

/// A file that tests/setup/install has put there.
pub fn installed(path: &str) -> PathBuf {
    let cache = std::env::var_os("PREFIXGATE_TEST_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/prefixgate-tests"),
        PathBuf::from,
    );
    let path = cache.join(path);
    assert!(
        path.exists(),
        "{} is missing; run tests/setup/install",
        path.display()
    );
    path
}

pub fn clean(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb")
        .env("NO_COLOR", "1")
        .env("NO_PROXY", "127.0.0.1,localhost");
    command
}

/// A home and a directory to work in, both gone afterwards.
pub struct Desk {
    home: TempDir,
    work: TempDir,
}

impl Desk {
    pub fn new() -> Self {
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("hello.txt"), "hello from a file\n").unwrap();
        Self {
            home: tempfile::tempdir().unwrap(),
            work,
        }
    }

    /// The home of the client.
    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }
}

pub async fn bounded(mut command: Command, desk: &Desk) -> (Option<i32>, String, String) {
    command
        .env("HOME", desk.home.path())
        .env("TMPDIR", desk.work.path())
        .current_dir(desk.work.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await;
    let output = output.expect("the client did not end in time").unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Replaces what differs between any two runs: ids, and the ports of this machine.
pub fn steady(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(steady_text(&text)),
        Value::Array(all) => all.into_iter().map(steady).collect(),
        Value::Object(all) => all.into_iter().map(|(k, v)| (k, steady(v))).collect(),
        other => other,
    }
}

fn steady_text(text: &str) -> String {
    const IDS: [&str; 5] = ["req_", "msg_", "toolu_", "call_", "127.0.0.1:"];
    let mut out = String::new();
    let mut rest = text;
    while let Some((at, prefix)) = IDS
        .iter()
        .filter_map(|prefix| rest.find(prefix).map(|at| (at, prefix)))
        .min()
    {
        out.push_str(&rest[..at + prefix.len()]);
        out.push('*');
        rest = rest[at + prefix.len()..].trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    }
    out + rest
}

#[test]
fn ids_and_ports_are_made_alike() {
    let said = json!({"a": ["no", "x req_01Ab, y"], "b": "http://127.0.0.1:4711/v1"});
    let same = json!({"a": ["no", "x req_*, y"], "b": "http://127.0.0.1:*/v1"});
    assert_eq!(steady(said), same);
}
