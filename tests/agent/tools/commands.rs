//! Programs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prefixgate::agent::tools::{Batch, CALL_KEY, Commands, Root, Toolbox, run_command};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{a_call, bad, good, one, toolbox};

fn shell() -> (TempDir, Arc<Toolbox>) {
    with(Commands::allowing(["*"]))
}

fn with(commands: Commands) -> (TempDir, Arc<Toolbox>) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path()).unwrap();
    (dir, toolbox([run_command(&root, commands)]))
}

#[tokio::test]
async fn what_a_command_writes_is_its_result() {
    let (dir, tools) = shell();
    let run = |command: &str| json!({ "command": command });
    assert_eq!(
        good(&tools, "run_command", run("echo hello")).await,
        "hello\n"
    );
    let both = good(&tools, "run_command", run("echo out; echo err >&2")).await;
    assert_eq!(both, "out\n\n[stderr]\nerr\n");
    assert_eq!(
        good(&tools, "run_command", run("true")).await,
        "(no output)"
    );
    let here = good(&tools, "run_command", run("pwd -P")).await;
    assert_eq!(Path::new(here.trim()), dir.path().canonicalize().unwrap());
    fs::create_dir(dir.path().join("sub")).unwrap();
    let there = json!({"command": "pwd -P", "cwd": "sub"});
    assert!(good(&tools, "run_command", there).await.ends_with("/sub\n"));
    let argv = json!({"argv": ["printf", "%s|", "a b", "$HOME", ";"]});
    assert_eq!(good(&tools, "run_command", argv).await, "a b|$HOME|;|");
    assert_eq!(
        good(&tools, "run_command", run("cat")).await,
        "(no output)",
        "no input"
    );
}

#[tokio::test]
async fn a_command_that_fails_is_an_error_in_its_own_words() {
    let (_dir, tools) = shell();
    let failed = one(&tools, "run_command", json!({"command": "echo no; exit 3"})).await;
    assert!(failed.is_error);
    assert_eq!(failed.text, "exit code 3\nno\n");
    let killed = one(&tools, "run_command", json!({"command": "kill -9 $$"})).await;
    assert!(killed.text.starts_with("signal: 9"), "{}", killed.text);
    let missing = bad(&tools, "run_command", json!({"argv": ["no-such-program"]})).await;
    assert_eq!(missing["kind"], "not_found");
    for neither in [
        json!({}),
        json!({"argv": []}),
        json!({"command": "x", "argv": ["y"]}),
    ] {
        assert_eq!(
            bad(&tools, "run_command", neither).await["kind"],
            "invalid_input"
        );
    }
}

#[tokio::test]
async fn long_output_keeps_its_head_and_its_tail() {
    let (_dir, tools) = shell();
    let command =
        "echo first; i=0; while [ $i -lt 20000 ]; do echo é$i; i=$((i+1)); done; echo last";
    let text = good(&tools, "run_command", json!({ "command": command })).await;
    assert!(text.starts_with("first\né0\n") && text.ends_with("é19999\nlast\n"));
    assert!(text.contains("bytes left out") && text.len() < 20 << 10);
    assert!(!text.contains('\u{FFFD}'), "characters are not parted");
}

/// Whether a process is alive, zombies not counted.
fn alive(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    state.is_ok_and(|state| {
        !state
            .rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('Z')
    })
}

async fn gone(pid: &str) -> bool {
    for _ in 0..200 {
        if !alive(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Starts a program of a program, and waits for it.
const FAMILY: &str =
    "sh -c 'sleep 600 & echo $! > grandchild; wait' & echo $! > child; echo begun; wait";

async fn written(dir: &Path, name: &str) -> String {
    for _ in 0..500 {
        match fs::read_to_string(dir.join(name)) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    panic!("{name} was never written");
}

#[tokio::test]
async fn a_command_whose_time_is_up_is_killed_with_all_that_it_started() {
    let (dir, tools) = shell();
    let begun = Instant::now();
    let input = json!({"command": FAMILY, "timeout_s": 1});
    let result = one(&tools, "run_command", input).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(result.is_error);
    let told =
        "timed out after 1 s; it was killed with what it had started, outcome unknown\nbegun\n";
    assert_eq!(result.text, told);
    for name in ["child", "grandchild"] {
        let pid = written(dir.path(), name).await;
        assert!(gone(&pid).await, "{name} lives");
    }
}

#[tokio::test]
async fn a_command_that_is_cancelled_or_dropped_is_killed_with_all_that_it_started() {
    for dropped in [false, true] {
        let (dir, tools) = shell();
        let cancelled = CancellationToken::new();
        let mut batch = Batch::new(tools, cancelled.clone());
        let input = json!({ "command": FAMILY }).to_string();
        batch.start(a_call("1", "run_command", &input), "key".to_owned());
        let mut batch = Some(batch);
        let pids = {
            let waiting = async {
                (
                    written(dir.path(), "child").await,
                    written(dir.path(), "grandchild").await,
                )
            };
            waiting.await
        };
        let begun = Instant::now();
        if dropped {
            batch = None;
        } else {
            cancelled.cancel();
        }
        if let Some(mut batch) = batch {
            let end = batch.next().await.unwrap();
            assert!(end.result.text.contains("cancelled"), "{}", end.result.text);
            assert!(begun.elapsed() < Duration::from_millis(200));
        }
        assert!(
            gone(&pids.0).await && gone(&pids.1).await,
            "dropped: {dropped}"
        );
    }
}

#[tokio::test]
async fn what_a_command_leaves_running_is_ended_with_it() {
    let (dir, tools) = shell();
    let begun = Instant::now();
    let command = "sleep 600 & echo $! > left; echo done";
    assert_eq!(
        good(&tools, "run_command", json!({ "command": command })).await,
        "done\n"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "nobody waits for it"
    );
    assert!(gone(&written(dir.path(), "left").await).await);
}

#[tokio::test]
async fn only_allowed_programs_run_and_no_shell_is_among_them() {
    let (_dir, tools) = with(Commands::allowing(["echo", "print*"]));
    let schema = tools.specs()[0].schema.clone();
    assert!(!schema.contains("\"command\""), "{schema}");
    assert!(
        tools.specs()[0]
            .description
            .ends_with("Allowed programs: echo, print*.")
    );
    assert_eq!(
        good(&tools, "run_command", json!({"argv": ["echo", "hi"]})).await,
        "hi\n"
    );
    assert_eq!(
        good(&tools, "run_command", json!({"argv": ["printf", "x"]})).await,
        "x"
    );
    for program in ["cat", "sh", "/bin/echo", "./echo", "../echo"] {
        let told = bad(&tools, "run_command", json!({"argv": [program]})).await;
        assert_eq!(told["kind"], "not_allowed", "{program}");
        assert_eq!(told["hint"], "allowed are: echo, print*");
    }
    let line = bad(&tools, "run_command", json!({"command": "echo hi"})).await;
    assert_eq!(line["kind"], "invalid_input");
    let (_dir, none) = with(Commands::allowing(Vec::<String>::new()));
    assert_eq!(
        bad(&none, "run_command", json!({"argv": ["echo"]})).await["kind"],
        "not_allowed"
    );
}

#[tokio::test]
async fn a_command_knows_the_key_of_its_call() {
    let (_dir, tools) = shell();
    let command = json!({"command": format!("echo ${CALL_KEY}")});
    assert_eq!(
        good(&tools, "run_command", command).await,
        "run/main/1/c1\n"
    );
}

/// Runs itself in an environment with secrets.
#[tokio::test]
async fn secrets_of_the_environment_are_not_handed_on() {
    const INNER: &str = "PREFIXGATE_TEST_INNER";
    if std::env::var_os(INNER).is_some() {
        let (_dir, tools) = shell();
        let env = good(&tools, "run_command", json!({"command": "env"})).await;
        assert!(!env.contains("hush"), "{env}");
        assert!(
            env.contains("HARMLESS=seen") && env.contains("PLAIN_URL=https://host/x@y"),
            "{env}"
        );
        return;
    }
    let name = "tools::commands::secrets_of_the_environment_are_not_handed_on";
    let inner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(INNER, "1")
        .envs([
            ("ANTHROPIC_API_KEY", "hush"),
            ("ANTHROPIC_BASE_URL", "hush"),
            ("github_token", "hush"),
            ("DB_PASSWORD", "hush"),
            ("AWS_SECRET_ACCESS", "hush"),
            ("DATABASE_URL", "postgres://me:hush@host/db"),
            ("PLAIN_URL", "https://host/x@y"),
            ("HARMLESS", "seen"),
        ])
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&inner.stdout);
    assert!(inner.status.success() && out.contains("1 passed"), "{out}");
}
