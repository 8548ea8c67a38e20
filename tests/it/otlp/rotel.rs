//! Rotel, a collector that nobody here wrote, prints what it was sent.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;
use crate::support::eventually;

/// A running collector; killed when dropped.
struct Rotel {
    child: Child,
    dir: TempDir,
    port: u16,
}

impl Rotel {
    /// Starts one on ports that were free a moment ago; another one's luck is tried again.
    async fn start() -> Self {
        for _ in 0..5 {
            let dir = TempDir::new().unwrap();
            let [http, grpc] = free_ports();
            let output = std::fs::File::create(dir.path().join("out")).unwrap();
            let mut child = Command::new(program())
                .args(["start", "--exporter", "blackhole", "--debug-log", "traces"])
                .args(["--debug-log-verbosity", "detailed"])
                .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")])
                .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")])
                .current_dir(dir.path())
                .env_clear()
                .env("NO_COLOR", "1")
                .stdin(Stdio::null())
                .stdout(output.try_clone().unwrap())
                .stderr(output)
                .spawn()
                .unwrap();
            let up = eventually("rotel listens or ends", async || {
                if TcpStream::connect(("127.0.0.1", http)).is_ok() {
                    return Some(true);
                }
                child.try_wait().unwrap().map(|_| false)
            });
            if up.await {
                return Self {
                    child,
                    dir,
                    port: http,
                };
            }
        }
        panic!("rotel does not start");
    }

    /// What it has printed of spans, by their id.
    fn printed(&self) -> BTreeMap<String, Printed> {
        let text = std::fs::read_to_string(self.dir.path().join("out")).unwrap();
        let mut spans = Vec::<Printed>::new();
        for line in text.lines() {
            if line.starts_with("Span #") {
                spans.push(Printed::default());
            }
            let Some(span) = spans.last_mut() else {
                continue;
            };
            if let Some((key, value)) = line
                .trim()
                .strip_prefix("-> ")
                .and_then(|l| l.split_once(": "))
            {
                span.attributes.insert(key.to_owned(), value.to_owned());
            } else if let Some((key, value)) = line.split_once(':') {
                span.fields
                    .insert(key.trim().to_owned(), value.trim().to_owned());
            }
        }
        spans
            .into_iter()
            .map(|span| (span.field("ID").to_owned(), span))
            .collect()
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Default)]
struct Printed {
    fields: BTreeMap<String, String>,
    attributes: BTreeMap<String, String>,
}

impl Printed {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

fn free_ports() -> [u16; 2] {
    let listeners = [0; 2].map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn program() -> PathBuf {
    let cache = std::env::var_os("PREFIXGATE_TEST_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/prefixgate-tests"),
        PathBuf::from,
    );
    let python = std::fs::read_dir(cache.join("py-otlp/lib"))
        .expect("the collector is missing; run tests/setup/install")
        .next()
        .unwrap()
        .unwrap();
    python.path().join("site-packages/rotel/rotel-agent")
}

/// Name of the span and of its parents, the nearest first.
fn line(spans: &BTreeMap<String, Printed>, id: &str) -> Vec<String> {
    let mut line = Vec::new();
    let mut at = id.to_owned();
    while let Some(span) = spans.get(&at) {
        line.push(span.field("Name").to_owned());
        at = span.field("Parent ID").to_owned();
    }
    line
}

#[tokio::test]
async fn a_run_with_a_sub_agent_is_shown_as_a_tree_by_a_collector_of_others() {
    let rotel = Rotel::start().await;
    let (mut exporter, _) = exporter(&at(&format!("http://127.0.0.1:{}", rotel.port)));
    let mut entries = run_with_a_sub_agent("run-1");
    // In two batches, as they come.
    let late = entries.split_off(2);
    exporter.deliver_entries(entries).await.unwrap();
    exporter.deliver_entries(late).await.unwrap();
    exporter.idle(T, true).await;
    let spans = eventually("eight spans are printed", async || {
        Some(rotel.printed()).filter(|spans| {
            spans.len() == 8
                && spans
                    .values()
                    .all(|span| !span.field("End time").is_empty())
        })
    })
    .await;
    let mut lines: Vec<String> = spans
        .keys()
        .map(|id| line(&spans, id).join(" < "))
        .collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "chat claude-opus-5 < invoke_agent",
            "chat claude-opus-5 < invoke_agent",
            "chat claude-opus-5 < invoke_agent Explore < invoke_agent",
            "execute_tool Bash < chat claude-opus-5 < invoke_agent Explore < invoke_agent",
            "execute_tool Task < chat claude-opus-5 < invoke_agent",
            "invoke_agent",
            "invoke_agent Explore < invoke_agent",
            "loop same_error < chat claude-opus-5 < invoke_agent",
        ]
    );
    let traces: std::collections::BTreeSet<&str> =
        spans.values().map(|span| span.field("Trace ID")).collect();
    assert_eq!(traces.len(), 1);
    let of = |name: &str| {
        spans
            .values()
            .find(|span| span.field("Name") == name)
            .unwrap()
    };
    let chat = of("chat claude-opus-5");
    assert_eq!(chat.field("Kind"), "SPAN_KIND_CLIENT");
    for (key, value) in [
        ("gen_ai.operation.name", "Str(chat)"),
        ("gen_ai.provider.name", "Str(anthropic)"),
        ("gen_ai.usage.input_tokens", "Int(1200)"),
        ("gen_ai.usage.cache_read.input_tokens", "Int(900)"),
        ("gen_ai.usage.cache_write.input_tokens", "Int(100)"),
        ("prefixgate.cost_pico", "Int(4075000000)"),
        ("server.address", "Str(api.anthropic.com)"),
        ("server.port", "Int(443)"),
    ] {
        assert_eq!(
            chat.attributes.get(key).map(String::as_str),
            Some(value),
            "{chat:?}"
        );
    }
    assert_eq!(
        of("execute_tool Bash").field("Status code"),
        "STATUS_CODE_ERROR"
    );
    assert_eq!(
        of("execute_tool Bash").field("Start time"),
        "1796083202900000000"
    );
    assert_eq!(
        of("execute_tool Bash").field("End time"),
        "1796083203150000000"
    );
}
