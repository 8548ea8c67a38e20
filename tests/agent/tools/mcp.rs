//! MCP servers: a real one from npm, over stdio and over HTTP.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use prefixgate::agent::tools::mcp::{Config, How, ServerConfig, Servers};
use prefixgate::agent::tools::{Manners, Toolbox};
use prefixgate::proxy::upstream::{self, UpstreamClient};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{bad, good, one, toolbox};

/// The reference server that shows every feature of the protocol.
fn everything() -> String {
    let cache = std::env::var_os("PREFIXGATE_TEST_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/prefixgate-tests"),
        PathBuf::from,
    );
    let package = "npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let path = cache.join(package);
    assert!(
        path.exists(),
        "{} is missing: run tests/setup/install",
        path.display()
    );
    path.to_string_lossy().into_owned()
}

fn client() -> UpstreamClient {
    let config = prefixgate::config::Config::embedded(PathBuf::new());
    upstream::clients(&config).unwrap().pooled
}

fn config(name: &str, how: How) -> Config {
    Config {
        servers: vec![ServerConfig {
            name: name.to_owned(),
            how,
        }],
    }
}

fn stdio(command: &str, args: Vec<String>) -> How {
    How::Stdio {
        command: command.to_owned(),
        args,
        env: BTreeMap::from([("GIVEN".to_owned(), "by the file".to_owned())]),
        cwd: None,
    }
}

/// `mark` is an argument that the server does not look at, but by which it is found.
async fn over_stdio(mark: &str) -> (Servers, Arc<Toolbox>) {
    let how = stdio(
        "node",
        vec![everything(), "stdio".to_owned(), mark.to_owned()],
    );
    let servers = Servers::connect(config("all", how), client())
        .await
        .unwrap();
    let tools = toolbox(servers.tools());
    (servers, tools)
}

fn manners(tools: &Toolbox, name: &str) -> Manners {
    tools
        .get(name)
        .unwrap_or_else(|| panic!("no {name}"))
        .manners()
}

/// What both transports must do.
async fn works(tools: &Arc<Toolbox>) {
    let spec = tools
        .specs()
        .into_iter()
        .find(|spec| spec.name == "mcp__all__echo")
        .unwrap();
    assert_eq!(spec.description, "Echoes back the input string");
    let echo = good(tools, "mcp__all__echo", json!({"message": "é \"x\""})).await;
    assert_eq!(echo, "Echo: é \"x\"");
    let sum = good(tools, "mcp__all__get-sum", json!({"a": 2, "b": 40})).await;
    assert!(sum.contains("42"), "{sum}");
    // Checked here already, by the server's own schema.
    let wrong = bad(tools, "mcp__all__get-sum", json!({"a": "two", "b": 1})).await;
    assert_eq!(wrong["violations"][0]["path"], "/a");
    let image = good(tools, "mcp__all__get-tiny-image", json!({})).await;
    assert!(
        image.contains("[image left out: image/png, about "),
        "{image}"
    );
    let weather = json!({"location": "Chicago"});
    let structured = good(tools, "mcp__all__get-structured-content", weather).await;
    let structured: Value = serde_json::from_str(&structured).unwrap();
    assert!(structured["temperature"].is_number());
    let resource = json!({"resourceType": "Text", "resourceId": 1});
    let resource = good(tools, "mcp__all__get-resource-reference", resource).await;
    assert!(resource.contains("[resource demo://"), "{resource}");
    let links = good(tools, "mcp__all__get-resource-links", json!({"count": 2})).await;
    assert_eq!(links.matches("[link to ").count(), 2, "{links}");
}

#[tokio::test]
async fn a_server_over_stdio_is_used() {
    let (servers, tools) = over_stdio("used").await;
    assert!(servers.left_out().is_empty(), "{:?}", servers.left_out());
    works(&tools).await;
    assert_eq!(manners(&tools, "mcp__all__echo"), Manners::READS);
    assert_eq!(
        manners(&tools, "mcp__all__gzip-file-as-resource"),
        Manners::SETS
    );
    assert_eq!(
        manners(&tools, "mcp__all__toggle-simulated-logging"),
        Manners::CHANGES
    );
    let env: Value =
        serde_json::from_str(&good(&tools, "mcp__all__get-env", json!({})).await).unwrap();
    assert_eq!(env["GIVEN"], "by the file");
    let secret = |name: &String| name.contains("API_KEY") || name.contains("TOKEN");
    assert!(!env.as_object().unwrap().keys().any(secret));
    let calls = (0..10).map(|at| good(&tools, "mcp__all__get-sum", json!({"a": at, "b": 1000})));
    for (at, sum) in futures_util::future::join_all(calls)
        .await
        .iter()
        .enumerate()
    {
        assert!(sum.contains(&(1000 + at).to_string()), "{sum}");
    }
    servers.shutdown().await;
    assert!(
        children("used").is_empty(),
        "shutdown leaves nothing behind"
    );
    let gone = bad(&tools, "mcp__all__echo", json!({"message": "x"})).await;
    assert_eq!(gone["kind"], "server_gone");
}

/// Processes whose last argument this is.
fn children(mark: &str) -> Vec<String> {
    let mark = format!("\0{mark}\0");
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|at| at.file_name().into_string().ok());
    all.filter(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("server-everything") && line.ends_with(&mark)
    })
    .collect()
}

fn kill(pid: &str) {
    let killed = std::process::Command::new("kill")
        .args(["-9", pid])
        .status()
        .unwrap();
    assert!(killed.success());
}

#[tokio::test]
async fn a_server_that_crashes_fails_its_call_and_is_started_again_for_the_next() {
    let (servers, tools) = over_stdio("crashes").await;
    let [pid] = children("crashes").try_into().unwrap();
    let long = json!({"duration": 60, "steps": 2});
    let during = one(&tools, "mcp__all__trigger-long-running-operation", long);
    let crash = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        kill(&pid);
    };
    let (during, ()) = tokio::join!(during, crash);
    assert!(during.is_error);
    assert!(during.text.contains("server_gone"), "{}", during.text);
    let echo = good(&tools, "mcp__all__echo", json!({"message": "again"})).await;
    assert_eq!(echo, "Echo: again");
    let [new] = children("crashes").try_into().unwrap();
    assert_ne!(pid, new);
    drop((servers, tools));
    for _ in 0..500 {
        if children("crashes").is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("dropping the servers leaves {:?}", children("crashes"));
}

/// The same server over HTTP.
async fn served() -> (Child, String) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut child = Command::new("node")
        .args([everything(), "streamableHttp".to_owned()])
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("listening") {
            // Read on, so that the server never waits for a reader.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (child, format!("http://127.0.0.1:{port}/mcp"));
        }
    }
    panic!("the server did not start");
}

#[tokio::test]
async fn a_server_over_http_is_used() {
    let (mut child, url) = served().await;
    let how = How::Http {
        url,
        headers: vec![("x-test".parse().unwrap(), "1".parse().unwrap())],
    };
    let servers = Servers::connect(config("all", how), client())
        .await
        .unwrap();
    let tools = toolbox(servers.tools());
    works(&tools).await;
    child.kill().await.unwrap();
    let gone = one(&tools, "mcp__all__echo", json!({"message": "x"}));
    let gone = tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .unwrap();
    assert!(gone.is_error, "{}", gone.text);
    servers.shutdown().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_named_with_what_it_wrote() {
    let error = |how: How| async {
        let connected = Servers::connect(config("broken", how), client()).await;
        connected.err().expect("it is broken").to_string()
    };
    let missing = error(stdio("no-such-program", vec![])).await;
    assert!(
        missing.starts_with("MCP server broken: no-such-program cannot be started"),
        "{missing}"
    );
    let script = "echo the licence has expired >&2; exit 1".to_owned();
    let dead = error(stdio("sh", vec!["-c".to_owned(), script])).await;
    assert!(dead.contains("the licence has expired"), "{dead}");
    let url = "http://127.0.0.1:1/mcp".to_owned();
    let nowhere = error(How::Http {
        url,
        headers: vec![],
    })
    .await;
    assert!(nowhere.starts_with("MCP server broken: "), "{nowhere}");
}

fn parsed(text: &str) -> Result<Config, String> {
    let variable = |name: &str| (name == "TOKEN").then(|| "t0p".to_owned());
    Config::parse("mcp.json", text, &variable).map_err(|error| error.to_string())
}

#[test]
fn the_usual_file_is_read() {
    let config = parsed(
        r#"{"mcpServers": {
            "files": {"command": "npx", "args": ["-y", "${PACKAGE:-server}"], "env": {"A": "${TOKEN}"}},
            "remote": {"type": "http", "url": "https://example.com/mcp",
                       "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 5},
            "off": {"disabled": true, "anything": 1}
        }}"#,
    )
    .unwrap();
    let [files, remote] = config.servers.try_into().unwrap();
    assert_eq!(files.name, "files");
    let How::Stdio {
        command,
        args,
        env,
        cwd,
    } = &files.how
    else {
        panic!("{files:?}");
    };
    assert_eq!((command.as_str(), cwd), ("npx", &None));
    assert_eq!(args, &["-y", "server"]);
    assert_eq!(env["A"], "t0p");
    let How::Http { url, headers } = &remote.how else {
        panic!("{remote:?}");
    };
    assert_eq!(url, "https://example.com/mcp");
    assert_eq!(headers[0].1, "Bearer t0p");
    assert!(
        !format!("{files:?} {remote:?}").contains("t0p"),
        "no secrets in what is printed"
    );
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_place() {
    for (text, told) in [
        ("{", "mcp.json: it is not JSON"),
        ("[]", "mcp.json: expected an object, got a list"),
        ("{}", "mcp.json: mcpServers: it is missing"),
        (
            r#"{"mcpServers": []}"#,
            "mcp.json: mcpServers: expected an object, got a list",
        ),
        (
            r#"{"mcpServers": {"a": {}}}"#,
            "mcp.json: mcpServers.a: it has neither command nor url",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "url": "http://y"}}}"#,
            "mcp.json: mcpServers.a: it has both command and url",
        ),
        (
            r#"{"mcpServers": {"a": {"command": 5}}}"#,
            "mcp.json: mcpServers.a.command: expected a text, got a number",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "args": ["y", 5]}}}"#,
            "mcp.json: mcpServers.a.args[1]: expected a text, got a number",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "env": {"N": null}}}}"#,
            "mcp.json: mcpServers.a.env.N: expected a text, got null",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "agrs": []}}}"#,
            "mcp.json: mcpServers.a.agrs: unknown key; the nearest known one is args",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "${NOT_SET}"}}}"#,
            "mcp.json: mcpServers.a.command: the variable NOT_SET is not set",
        ),
        (
            r#"{"mcpServers": {"a": {"url": "ftp://x"}}}"#,
            "mcp.json: mcpServers.a.url: it is no URL with http:// or https://",
        ),
        (
            r#"{"mcpServers": {"a": {"url": "http://x", "headers": {"a b": "c"}}}}"#,
            "mcp.json: mcpServers.a.headers.a b: it cannot be sent as a header",
        ),
        (
            r#"{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}"#,
            "mcp.json: mcpServers.a.type: \"sse\" is not how this server is reached",
        ),
    ] {
        let error = parsed(text).unwrap_err();
        assert!(error.starts_with(told), "{error}\nnot {told}");
    }
    let missing = Config::read(&PathBuf::from("/no/such/mcp.json")).unwrap_err();
    assert!(
        missing.to_string().starts_with("/no/such/mcp.json: "),
        "{missing}"
    );
}
