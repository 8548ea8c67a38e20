//! `check`, `doctor` and `run` through the real program: exit codes, outputs, environment.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The program with nothing of the surrounding environment but PATH, in a home of its own.
fn prefixgate(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    command.env_clear().env("HOME", home).current_dir(home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Answers every request on every connection with `respond(first line)`, until the test ends.
fn serve(respond: impl Fn(&str, SocketAddr) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, |line| respond(line, address));
        }
    });
    address
}

/// One request, one answer, close: enough for probes.
fn answer(mut stream: TcpStream, respond: impl Fn(&str) -> String) {
    let mut lines = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    for line in lines {
        if line.is_empty() {
            break;
        }
    }
    let _ = stream.write_all(respond(&first).as_bytes());
}

fn http(head: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Both faces of a running gateway on one address.
fn running_gateway() -> SocketAddr {
    serve(|line, address| match line {
        "GET /healthz HTTP/1.1" => {
            let body =
                format!(r#"{{"service":"prefixgate","version":"0","proxy":"http://{address}"}}"#);
            http("200 OK", &body)
        }
        _ => http("404 Not Found", ""),
    })
}

#[test]
fn check_prints_what_is_in_force_and_who_said_so() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("p.toml"), "[cache]\npolicy = \"off\"\n").unwrap();
    let mut command = prefixgate(home.path());
    command
        .args(["check", "--config", "p.toml", "--admin", "127.0.0.1:1"])
        .env("PREFIXGATE_LISTEN", "127.0.0.1:2");
    let (code, out, err) = run(&mut command);
    assert_eq!((code, err.as_str()), (0, ""));
    let row = |key: &str| {
        let line = out
            .lines()
            .find(|line| line.split_whitespace().next() == Some(key))
            .unwrap();
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(row("cache.policy"), "\"off\" p.toml:2");
    assert_eq!(row("server.listen"), "\"127.0.0.1:2\" PREFIXGATE_LISTEN");
    assert_eq!(row("server.admin"), "\"127.0.0.1:1\" --admin");
    assert_eq!(row("timeouts.drain"), "\"30s\" default");
    assert!(out.ends_with("\nok\n"), "{out}");
    // Nothing was made.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn what_check_prints_is_a_configuration() {
    let home = tempfile::tempdir().unwrap();
    let flags = [
        "--cache",
        "dry-run",
        "--data-dir",
        "d",
        "--upstream",
        "http://127.0.0.1:9/x/",
    ];
    let (code, printed, _) = run(prefixgate(home.path())
        .args(["check", "--print"])
        .args(flags));
    assert_eq!(code, 0);
    let data_dir = format!("data_dir = \"{}/d\"\n", home.path().display());
    assert!(
        printed.contains(&data_dir) && printed.contains("url = \"http://127.0.0.1:9/x\"\n"),
        "{printed}"
    );
    std::fs::write(home.path().join("p.toml"), &printed).unwrap();
    let (code, again, _) =
        run(prefixgate(home.path()).args(["check", "--print", "--config", "p.toml"]));
    assert_eq!((code, again), (0, printed));
}

#[test]
fn wrong_configuration_is_exit_code_2_everywhere_and_lists_all() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join("p.toml"),
        "[cache]\npolcy = 1\n[timeouts]\nidle = 5\n",
    )
    .unwrap();
    let expected = "p.toml:2: unknown key `polcy` in [cache]; did you mean `policy`? (known keys: policy, holdout_percent, memory, native_diagnostics, excerpts, stable_tool_order, warm_first, keep_warm_max_usd)\n\
                    p.toml:4: timeouts.idle = 5: must be a whole number with a unit, such as \"10s\" or \"15m\" \
                    (units: ms, s, m, h) (in quotes, not an integer)\n\
                    --cache: cache.policy = \"full\": must be one of \"off\", \"dry-run\", \"fill\", \"replace\"\n";
    let flags = ["--config", "p.toml", "--cache", "full"];
    for (subcommand, tail) in [("check", &[][..]), ("run", &["--", "true"])] {
        let (code, out, err) = run(prefixgate(home.path())
            .arg(subcommand)
            .args(flags)
            .args(tail));
        assert_eq!(
            (code, out.as_str(), err.as_str()),
            (2, "", expected),
            "{subcommand}"
        );
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["check", "--nonsense"][..],
        &["run"],
        &["run", "--nonsense", "true"],
        &["run", "--run", "a b", "--", "true"],
        &["doctor", "--gateway", "nonsense"],
        &["check", "--config", "missing.toml"],
    ] {
        let (code, out, err) = run(prefixgate(home.path()).args(arguments));
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        assert!(!err.is_empty(), "{arguments:?}");
    }
}

/// The status and detail of a check.
fn finding<'a>(report: &'a Value, check: &str) -> (&'a str, &'a str) {
    let all = report["checks"].as_array().unwrap();
    let found = all
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap_or_else(|| panic!("{check} in {report:#}"));
    (
        found["status"].as_str().unwrap(),
        found["detail"].as_str().unwrap(),
    )
}

fn doctor(
    home: &Path,
    admin: SocketAddr,
    upstream: &str,
    change: impl FnOnce(&mut Command),
) -> (i32, Value) {
    // The second built-in upstream would be looked up in the network.
    let config = "[upstream.openai]\nurl = \"http://127.0.0.1:9\"\n";
    std::fs::write(home.join("p.toml"), config).unwrap();
    let mut command = prefixgate(home);
    command.args([
        "doctor",
        "--json",
        "--config",
        "p.toml",
        "--upstream",
        upstream,
    ]);
    command.args(["--listen", "127.0.0.1:0", "--admin", &admin.to_string()]);
    change(&mut command);
    let (code, out, _) = run(&mut command);
    (code, serde_json::from_str(&out).unwrap())
}

#[test]
fn doctor_is_content_with_a_set_up_that_works() {
    let home = tempfile::tempdir().unwrap();
    let upstream = serve(|_, _| http("404 Not Found\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT", ""));
    let gateway = running_gateway();
    let (code, report) = doctor(
        home.path(),
        gateway,
        &format!("http://{upstream}"),
        |command| {
            command.env(
                "ANTHROPIC_BASE_URL",
                format!("http://localhost:{}", gateway.port()),
            );
        },
    );
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["ok"], true);
    for check in [
        "configuration",
        "data directory",
        "proxy port",
        "admin port",
        "upstream anthropic",
        "gateway",
    ] {
        assert_eq!(finding(&report, check).0, "ok", "{check}");
    }
    assert_eq!(finding(&report, "ANTHROPIC_BASE_URL").0, "ok");
    // The upstream's clock stands in 1994, and the other upstream does not answer.
    let (status, detail) = finding(&report, "clock");
    assert!(
        status == "warn" && detail.ends_with(" s ahead of the upstream's"),
        "{detail}"
    );
    assert_eq!(
        finding(&report, "upstream openai"),
        (
            "warn",
            "http://127.0.0.1:9: port 9 of 127.0.0.1 refuses connections"
        )
    );
}

#[test]
fn doctor_names_what_is_broken() {
    let home = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let stranger = serve(|_, _| http("200 OK", "hello"));
    let (code, report) = doctor(home.path(), stranger, &format!("http://{gone}"), |_| {});
    assert_eq!((code, &report["ok"]), (1, &Value::Bool(false)));
    let refused = format!(
        "http://{gone}: port {} of 127.0.0.1 refuses connections",
        gone.port()
    );
    assert_eq!(
        finding(&report, "upstream anthropic"),
        ("fail", refused.as_str())
    );
    assert_eq!(finding(&report, "admin port").0, "fail");
    assert_eq!(
        finding(&report, "gateway"),
        (
            "warn",
            "not running; its port is chosen anew at each start, so clients cannot be checked"
        )
    );
    assert_eq!(finding(&report, "clients").0, "warn");

    // An invalid configuration is a failed check like any other.
    let (code, report) = doctor(home.path(), stranger, "nonsense", |_| {});
    assert_eq!(code, 1);
    assert!(
        finding(&report, "configuration")
            .1
            .starts_with("--upstream: upstream.anthropic.url = \"nonsense\": ")
    );
}

#[test]
fn doctor_explains_tls() {
    use std::sync::Arc;
    let home = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(home.path().join("ca.pem"), made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let server = Arc::new(server);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut session = rustls::ServerConnection::new(server.clone()).unwrap();
            let mut tls = rustls::Stream::new(&mut session, &mut stream);
            let mut head = [0; 4096];
            if tls.read(&mut head).is_ok_and(|read| read > 0) {
                let _ = tls.write_all(http("200 OK", "").as_bytes());
            }
        }
    });
    let nobody = "127.0.0.1:0".parse().unwrap();
    let (code, report) = doctor(home.path(), nobody, &format!("https://{address}"), |_| {});
    let (status, detail) = finding(&report, "upstream anthropic");
    assert_eq!((code, status), (1, "fail"), "{report:#}");
    assert_eq!(
        detail,
        format!("https://{address}: TLS failed: invalid peer certificate: UnknownIssuer")
    );
    let advice = report["checks"].to_string();
    assert!(
        advice.contains("name the company's CA in [tls] extra_ca"),
        "{advice}"
    );

    let (code, report) = doctor(home.path(), nobody, &format!("https://{address}"), |_| {
        let config =
            "[upstream.openai]\nurl = \"http://127.0.0.1:9\"\n[tls]\nextra_ca = \"ca.pem\"\n";
        std::fs::write(home.path().join("p.toml"), config).unwrap();
    });
    assert_eq!(
        (code, finding(&report, "upstream anthropic").0),
        (0, "ok"),
        "{report:#}"
    );

    // TLS to a port that speaks plain HTTP.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let read = stream.read(&mut [0; 4096]);
            if read.is_ok_and(|read| read > 0) {
                let _ = stream.write_all(http("400 Bad Request", "").as_bytes());
            }
        }
    });
    let (code, report) = doctor(home.path(), nobody, &format!("https://{plain}"), |_| {});
    let (status, detail) = finding(&report, "upstream anthropic");
    assert!(
        code == 1 && status == "fail" && detail.contains("TLS failed"),
        "{report:#}"
    );
}

#[test]
fn doctor_tries_a_gateway_elsewhere() {
    let home = tempfile::tempdir().unwrap();
    let broken = serve(|_, _| http("502 Bad Gateway", ""));
    for (gateway, code, status) in [(running_gateway(), 0, "ok"), (broken, 1, "fail")] {
        let url = format!("http://{gateway}");
        let (exit, out, _) =
            run(prefixgate(home.path()).args(["doctor", "--json", "--gateway", &url]));
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (exit, finding(&report, "gateway").0),
            (code, status),
            "{report:#}"
        );
    }
}

#[test]
fn run_points_the_command_to_a_running_gateway_and_ends_as_it_did() {
    let home = tempfile::tempdir().unwrap();
    let gateway = running_gateway();
    let script =
        "echo \"$ANTHROPIC_BASE_URL $OPENAI_BASE_URL $PREFIXGATE_RUN $NO_PROXY $1\"; cat; exit 7";
    let mut command = prefixgate(home.path());
    command.args([
        "run",
        "--admin",
        &gateway.to_string(),
        "--run",
        "r1",
        "--app",
        "ci.x",
        "--",
    ]);
    command
        .args(["sh", "-c", script, "sh", "--flag"])
        .env("HTTP_PROXY", "http://proxy.example");
    let (code, out, err) = run(&mut command);
    let base = format!("http://{gateway}/-/run=r1,app=ci.x");
    assert_eq!(out, format!("{base} {base}/v1 r1 127.0.0.1 --flag\n"));
    assert_eq!(code, 7);
    assert_eq!(
        err,
        format!("prefixgate: run r1 through the running gateway at http://{gateway}\n")
    );
}

#[test]
fn run_makes_up_a_name_and_tells_it() {
    let home = tempfile::tempdir().unwrap();
    let gateway = running_gateway().to_string();
    let (code, out, err) = run(prefixgate(home.path()).args([
        "run",
        "--admin",
        &gateway,
        "printenv",
        "PREFIXGATE_RUN",
    ]));
    assert_eq!(code, 0);
    assert!(out.starts_with("printenv-"), "{out}");
    assert!(
        err.contains(&format!("prefixgate: run {} through", out.trim_end())),
        "{err}"
    );
}

#[test]
fn run_tells_a_missing_command_from_a_failing_one() {
    let home = tempfile::tempdir().unwrap();
    let gateway = running_gateway().to_string();
    std::fs::write(home.path().join("plain"), "no program").unwrap();
    for (command, expected) in [("no-such-program", 127), ("./plain", 126), ("false", 1)] {
        let (code, _, _) =
            run(prefixgate(home.path()).args(["run", "--admin", &gateway, "--", command]));
        assert_eq!(code, expected, "{command}");
    }
}

#[cfg(unix)]
#[test]
fn run_passes_sigterm_on_and_waits() {
    let home = tempfile::tempdir().unwrap();
    let gateway = running_gateway().to_string();
    let script =
        "trap 'echo stopped; exit 9' TERM; echo ready; while read line; do :; done; exit 3";
    let mut child = prefixgate(home.path())
        .args(["run", "--admin", &gateway, "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let killed = Command::new("kill")
        .args(["-s", "TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(lines.next().unwrap().unwrap(), "stopped");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[cfg(unix)]
#[test]
fn run_tells_death_by_a_signal_as_shells_do() {
    let home = tempfile::tempdir().unwrap();
    let gateway = running_gateway().to_string();
    let (code, _, _) = run(prefixgate(home.path()).args([
        "run",
        "--admin",
        &gateway,
        "--",
        "sh",
        "-c",
        "kill -KILL $$",
    ]));
    assert_eq!(code, 137);
}

/// Caps and loops cannot be asked of a gateway that runs already, so the command gets its own.
#[test]
fn run_takes_caps_for_its_command_and_then_has_a_gateway_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let running = running_gateway().to_string();
    let upstream = serve(|_, _| http("500 Internal Server Error", "{}"));
    let upstream = format!("http://{upstream}");
    let script = r#"
import os, urllib.error, urllib.request
body = b'{"model":"claude-sonnet-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
try:
    urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}))
except urllib.error.HTTPError as error:
    print(error.code, b"cap reached: tokens" in error.read())
"#;
    let mut command = prefixgate(home.path());
    command.env("PREFIXGATE_ADMIN", &running);
    command.args(["run", "--upstream", &upstream, "--max-tokens", "1"]);
    command.args(["--", "python3", "-c", script]);
    let (code, out, err) = run(&mut command);
    assert!(!err.contains("running gateway"), "{err}");
    // Whatever it costs, it is more than a token.
    assert_eq!((code, out.as_str()), (0, "400 True\n"), "{err}");

    let (code, _, err) =
        run(prefixgate(home.path()).args(["run", "--max-usd", "much", "--", "true"]));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("--max-usd"), "{err}");
}
