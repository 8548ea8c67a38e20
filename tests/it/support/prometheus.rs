//! Debian's Prometheus and Alertmanager with the configuration that is shipped, on ports of the
//! system's choice, and what a webhook of theirs is told.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::Wire;
use super::server::Server;

/// A server of theirs, killed when dropped.
#[derive(Debug)]
struct Service {
    server: Server,
    addr: SocketAddr,
}

impl Service {
    /// Starts a program that logs where it listens.
    fn start(program: &str, dir: &Path, args: &[String]) -> Self {
        let log = dir.join(format!("{program}.log"));
        let child = Command::new(program)
            .arg("--web.listen-address=127.0.0.1:0")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; run tests/setup/install"));
        let mut service = Self {
            server: Server::new(child),
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let said = std::fs::read_to_string(&log).unwrap();
            let found = said
                .lines()
                .find_map(|line| line.split_once("Listening on\" address="));
            if let Some((_, addr)) = found {
                service.addr = addr.trim().parse().unwrap();
                return service;
            }
            let ended = service.server.child().try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "{said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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

/// A file of YAML, all of its documents' first.
pub fn yaml(path: &Path) -> Value {
    let script = "import sys, json, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let output = Command::new(installed("py/bin/python"))
        .args(["-c", script])
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", path.display());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A running Alertmanager.
#[derive(Debug)]
pub struct Alertmanager {
    service: Service,
    _dir: TempDir,
}

impl Alertmanager {
    /// Starts it with the shipped configuration, but for a webhook at another address and no
    /// patience.
    pub fn start(hook: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = root().join("config/alertmanager/alertmanager.yml");
        let shipped = std::fs::read_to_string(path).unwrap();
        let mut config = shipped.replace("127.0.0.1:9099", &hook.to_string());
        assert_ne!(config, shipped);
        for patience in ["group_wait: 30s", "group_wait: 10s"] {
            assert!(config.contains(patience), "{patience}");
            config = config.replace(patience, "group_wait: 100ms");
        }
        let file = dir.path().join("alertmanager.yml");
        std::fs::write(&file, config).unwrap();
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.path={}", dir.path().join("data").display()),
            "--cluster.listen-address=".to_owned(),
        ];
        Self {
            service: Service::start("prometheus-alertmanager", dir.path(), &args),
            _dir: dir,
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.service.addr
    }
}

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    service: Service,
    _dir: TempDir,
}

impl Prometheus {
    /// Starts it with the shipped configuration and rules, but for the targets and a second
    /// instead of fifteen.
    pub fn start(gateways: &[SocketAddr], alertmanager: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shipped = root().join("config/prometheus");
        let mut config = std::fs::read_to_string(shipped.join("prometheus.yml")).unwrap();
        for (slow, fast) in [
            ("scrape_interval: 15s", "scrape_interval: 1s"),
            ("scrape_timeout: 10s", "scrape_timeout: 1s"),
            ("evaluation_interval: 15s", "evaluation_interval: 1s"),
        ] {
            assert!(config.contains(slow), "{slow}");
            config = config.replace(slow, fast);
        }
        let file = dir.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        std::fs::copy(shipped.join("rules.yml"), dir.path().join("rules.yml")).unwrap();
        let targets = dir.path().join("targets");
        std::fs::create_dir(&targets).unwrap();
        let write = |name: &str, all: &[SocketAddr]| {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            let list = serde_json::json!([{ "targets": all }]);
            std::fs::write(targets.join(name), list.to_string()).unwrap();
        };
        write("gateways.yml", gateways);
        write("alertmanagers.yml", &[alertmanager]);
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", dir.path().join("data").display()),
        ];
        Self {
            service: Service::start("prometheus", dir.path(), &args),
            _dir: dir,
        }
    }

    /// What the API answers at a path; its `data`, or what is wrong.
    pub async fn api(&self, path: &str, arguments: &[(&str, &str)]) -> Result<Value, String> {
        let form: Vec<String> = arguments
            .iter()
            .map(|(name, value)| format!("{name}={}", escaped(value)))
            .collect();
        let mut wire = Wire::connect(self.service.addr).await;
        let head = format!(
            "GET /api/v1/{path}?{} HTTP/1.1\r\nhost: prometheus\r\nconnection: close\r\n\r\n",
            form.join("&")
        );
        wire.send(head.as_bytes()).await;
        let reply = wire.response().await;
        let answer: Value = serde_json::from_slice(&reply.body)
            .map_err(|error| format!("{}: {error}: {}", reply.status, reply.text()))?;
        if answer["status"] == "success" {
            Ok(answer["data"].clone())
        } else {
            Err(answer["error"].to_string())
        }
    }

    /// The values of an expression now, without what is no number.
    pub async fn values(&self, expr: &str) -> Result<Vec<f64>, String> {
        let data = self.api("query", &[("query", expr)]).await?;
        let value = |sample: &Value| sample["value"][1].as_str().map(str::to_owned);
        Ok(numbers(
            data["result"].as_array().into_iter().flatten(),
            |sample| value(sample).into_iter().collect(),
        ))
    }

    /// The values of an expression over the last half minute, without what is no number.
    pub async fn values_of_late(&self, expr: &str) -> Result<Vec<f64>, String> {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let (start, end) = ((now - 30).to_string(), now.to_string());
        let arguments = [
            ("query", expr),
            ("start", &start),
            ("end", &end),
            ("step", "1"),
        ];
        let data = self.api("query_range", &arguments).await?;
        Ok(numbers(
            data["result"].as_array().into_iter().flatten(),
            |series| {
                let values = series["values"].as_array().into_iter().flatten();
                values
                    .filter_map(|pair| pair[1].as_str().map(str::to_owned))
                    .collect()
            },
        ))
    }
}

fn numbers<'a>(
    all: impl Iterator<Item = &'a Value>,
    of: impl Fn(&Value) -> Vec<String>,
) -> Vec<f64> {
    all.flat_map(of)
        .map(|text| text.parse::<f64>().unwrap())
        .filter(|value| !value.is_nan())
        .collect()
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// A webhook: gives each body of JSON that is posted to it.
#[derive(Debug)]
pub struct Hook {
    pub addr: SocketAddr,
    pub told: mpsc::UnboundedReceiver<Value>,
}

impl Hook {
    pub async fn start() -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let addr = serve(move |request| {
            if let Some((_, body)) = request.split_once("\r\n\r\n") {
                let _ = tell.send(serde_json::from_str(body).unwrap());
            }
            String::new()
        })
        .await;
        Self { addr, told }
    }
}

/// Serves what is always the answer to a request; one request a connection.
pub async fn serve(answer: impl Fn(String) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answer = std::sync::Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while !whole(&seen) {
                    match stream.read_buf(&mut seen).await {
                        Ok(0) | Err(_) => return,
                        Ok(_) => {}
                    }
                }
                let text = answer(String::from_utf8(seen).unwrap());
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n\
                     connection: close\r\ncontent-length: {}\r\n\r\n",
                    text.len()
                );
                let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
            });
        }
    });
    addr
}

/// Whether a request has come to its end, by its content-length.
fn whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = super::client::header(head, "content-length");
    body.len() >= length.map_or(0, |n| n.parse().unwrap())
}
