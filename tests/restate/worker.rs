//! A worker as a process of its own: this test binary, told to be one.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use prefixgate::agent::machine::ToolSpec;
use prefixgate::agent::model::{Endpoint, format_of};
use prefixgate::agent::restate;
use prefixgate::agent::tools::{CallContext, Manners, Tool, ToolResult, Toolbox};
use prefixgate::clock::Clock;
use prefixgate::config::Config;
use prefixgate::provider::wire::Wire;
use prefixgate::proxy::upstream::clients;
use prefixgate::usage::PriceBook;
use serde_json::Value;

/// The file that calls are written to as they begin.
pub const MADE: &str = "made";
/// While this file is there, `charge` does not come to its end.
pub const HOLD: &str = "hold";

const DIR: &str = "PREFIXGATE_TEST_WORKER_DIR";
const PORT: &str = "PREFIXGATE_TEST_WORKER_PORT";
const PROVIDER: &str = "PREFIXGATE_TEST_WORKER_PROVIDER";

/// A worker that ends with this.
pub struct Worker {
    child: Child,
    pub port: u16,
}

impl Worker {
    pub fn start(dir: &Path, provider: &str, port: Option<u16>) -> Self {
        let port = port.unwrap_or_else(super::engine::free_port);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker_process", "--ignored", "--nocapture"])
            .env(DIR, dir)
            .env(PORT, port.to_string())
            .env(PROVIDER, provider)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, port }
    }

    /// SIGKILL. The port is free again.
    pub fn kill(mut self) -> u16 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.port
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the process does.
pub async fn run() {
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
        .await
        .unwrap();
    let endpoint = Endpoint {
        format: format_of(Wire::Messages),
        base: std::env::var(PROVIDER).unwrap(),
        key: "test".to_owned(),
        client: clients(&Config::embedded(PathBuf::new())).unwrap().pooled,
        prices: Arc::new(PriceBook::new(&[]).unwrap()),
        provider: "anthropic".to_owned(),
        silence: Duration::from_secs(30),
    };
    let worker = restate::Worker {
        endpoint: Arc::new(endpoint),
        toolbox: Arc::new(toolbox(&dir)),
        clock: Clock::Real,
        attempts: 3,
        headers: Vec::new(),
    };
    restate::serve(worker, listener).await;
}

/// One tool that only looks, and one that may not be called twice.
pub fn toolbox(dir: &Path) -> Toolbox {
    let beside = Manners {
        serial: false,
        ..Manners::CHANGES
    };
    let mut toolbox = Toolbox::new();
    for (name, manners) in [("look", Manners::READS), ("charge", beside)] {
        toolbox.add(Arc::new(Writing {
            name,
            manners,
            dir: dir.to_owned(),
        }));
    }
    toolbox
}

struct Writing {
    name: &'static str,
    manners: Manners,
    dir: PathBuf,
}

impl Tool for Writing {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            description: "For tests.".to_owned(),
            schema: r#"{"type":"object","properties":{}}"#.to_owned(),
        }
    }

    fn manners(&self) -> Manners {
        self.manners
    }

    fn call(&self, _input: Value, context: CallContext) -> BoxFuture<'static, ToolResult> {
        let (name, hold) = (self.name, self.dir.join(HOLD));
        let mut made = OpenOptions::new();
        let made = made.create(true).append(true).open(self.dir.join(MADE));
        Box::pin(async move {
            let line = format!("{name} {}\n", context.key);
            made.unwrap().write_all(line.as_bytes()).unwrap();
            while name == "charge" && fs::exists(&hold).unwrap() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(format!("{name}: done"))
        })
    }
}
