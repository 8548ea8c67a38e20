//! The engine: Restate's own server, from npm (`tests/setup/restate`).

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use prefixgate::agent::restate::{Order, Report};
use prefixgate::config::Config;
use prefixgate::proxy::upstream::{SendBody, UpstreamClient, clients};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// A running server with a directory of its own.
pub struct Engine {
    child: Child,
    client: UpstreamClient,
    admin: u16,
    ingress: u16,
    dir: TempDir,
}

fn binary() -> PathBuf {
    let cache = std::env::var_os("PREFIXGATE_TEST_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/prefixgate-tests"),
        PathBuf::from,
    );
    let package = "npm-restate/node_modules/@restatedev/restate-server-linux-x64";
    let binary = cache.join(package).join("bin/restate-server");
    assert!(
        binary.is_file(),
        "no restate-server: run tests/setup/install"
    );
    binary
}

/// A port that was free a moment ago: the server cannot be asked which one it took.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Waits for a condition.
pub async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "still waiting for {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

impl Engine {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [node, admin, ingress] = [free_port(), free_port(), free_port()];
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new(binary())
            .env("RESTATE_LISTEN_MODE", "tcp")
            .env("RESTATE_BASE_DIR", dir.path())
            .env("RESTATE_NODE_NAME", "n1")
            .env("RESTATE_AUTO_PROVISION", "true")
            .env("RESTATE_DISABLE_TELEMETRY", "true")
            .env("RESTATE_BIND_ADDRESS", format!("127.0.0.1:{node}"))
            .env("RESTATE_ADMIN__BIND_ADDRESS", format!("127.0.0.1:{admin}"))
            .env(
                "RESTATE_INGRESS__BIND_ADDRESS",
                format!("127.0.0.1:{ingress}"),
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let engine = Self {
            child,
            client: clients(&Config::embedded(PathBuf::new())).unwrap().pooled,
            admin,
            ingress,
            dir,
        };
        until("the engine", async || {
            let admin = engine.ask(Method::GET, admin, "/health", None).await;
            let ingress = engine
                .ask(Method::GET, ingress, "/restate/health", None)
                .await;
            admin.is_some() && ingress.is_some()
        })
        .await;
        engine
    }

    /// The body of a good answer.
    async fn ask(
        &self,
        method: Method,
        port: u16,
        path: &str,
        body: Option<Value>,
    ) -> Option<Bytes> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let request = Request::builder()
            .method(method)
            .uri(format!("http://127.0.0.1:{port}{path}"))
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(SendBody::pieces(body.into_iter().collect()))
            .unwrap();
        let answer = self.client.request(request).await.ok()?;
        let good = answer.status().is_success();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        if !good {
            eprintln!("{path}: {}", String::from_utf8_lossy(&body));
        }
        good.then_some(body)
    }

    /// Tells it of a worker, once that listens.
    pub async fn register(&self, worker: u16) {
        until("the worker", async || {
            let uri = json!({"uri": format!("http://127.0.0.1:{worker}")});
            self.ask(Method::POST, self.admin, "/deployments", Some(uri))
                .await
                .is_some()
        })
        .await;
    }

    pub async fn begin(&self, run: &str, order: &Order) {
        let order = serde_json::to_value(order).unwrap();
        let path = format!("/Agent/{run}/run/send");
        let sent = self
            .ask(Method::POST, self.ingress, &path, Some(order))
            .await;
        assert!(sent.is_some(), "{}", self.log());
    }

    /// How many steps of a run are on record with what they gave.
    pub async fn recorded(&self, run: &str) -> usize {
        let query = format!(
            "SELECT j.index FROM sys_journal j JOIN sys_invocation i ON i.id = j.id \
             WHERE i.target_service_key = '{run}' AND j.entry_type LIKE 'Notification%Run%'"
        );
        let rows = self
            .ask(
                Method::POST,
                self.admin,
                "/query",
                Some(json!({"query": query})),
            )
            .await;
        let rows: Value = serde_json::from_slice(&rows.unwrap()).unwrap();
        rows["rows"].as_array().map_or(0, Vec::len)
    }

    /// Waits for what becomes of a run.
    pub async fn outcome(&self, run: &str, limit: Duration) -> Report {
        let path = format!("/restate/workflow/Agent/{run}/attach");
        let outcome = self.ask(Method::GET, self.ingress, &path, None);
        let outcome = tokio::time::timeout(limit, outcome).await;
        let outcome = outcome
            .ok()
            .flatten()
            .unwrap_or_else(|| panic!("{}", self.log()));
        serde_json::from_slice(&outcome).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
