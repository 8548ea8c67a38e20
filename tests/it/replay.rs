//! `prefixgate replay` through the real program, on traffic that is made here.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// Exit code, stdout and stderr.
fn replay(home: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    command.env_clear().env("HOME", home).current_dir(home);
    command.stdin(Stdio::null()).arg("replay").args(args);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn compared(home: &Path, args: &[&str]) -> Value {
    let args = [args, &["--json"]].concat();
    let (code, out, err) = replay(home, &args);
    assert_eq!(code, 0, "{err}");
    assert_eq!(replay(home, &args).1, out, "the same input, the same bytes");
    serde_json::from_str(&out).unwrap()
}

fn policy<'a>(compared: &'a Value, name: &str) -> &'a Value {
    let all = compared["policies"].as_array().unwrap();
    all.iter().find(|p| p["policy"] == name).unwrap()
}

fn hit_ratio(compared: &Value, name: &str) -> f64 {
    policy(compared, name)["hit_ratio"].as_f64().unwrap()
}

fn cost(sums: &Value) -> f64 {
    sums["cost_usd"].as_str().unwrap().parse().unwrap()
}

/// The optimum is the least of all, in all and in what it says of itself.
fn optimum_is_least(compared: &Value) {
    let least = cost(policy(compared, "optimum"));
    assert!(least > 0.0);
    let all = compared["policies"].as_array().unwrap();
    assert_eq!(all.len(), 7);
    for policy in all {
        assert!(least <= cost(policy), "{policy}");
        assert!(policy["over_optimum"].as_f64().unwrap() >= 0.0);
        assert_eq!(
            policy["tokens"]["prompt"], all[0]["tokens"]["prompt"],
            "every policy sends the same"
        );
        let runs: f64 = policy["runs"].as_array().unwrap().iter().map(cost).sum();
        assert!((runs - cost(policy)).abs() < 1e-9, "{policy}");
    }
}

fn text_of(words: usize, seed: usize) -> String {
    (0..words).fold(String::new(), |mut text, n| {
        let _ = write!(text, "word{} ", (n * 7 + seed * 13) % 1_000);
        text
    })
}

/// The bodies of an agent that works in a loop.
fn agent(turns: usize, system: impl Fn(usize) -> String) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": text_of(40, 1)})];
    let tools: Vec<Value> = (0..8)
        .map(|n| {
            let description = text_of(120, n);
            json!({"name": format!("tool{n}"), "description": description,
                "input_schema": {"type": "object"}})
        })
        .collect();
    let mut bodies = Vec::new();
    for turn in 0..turns {
        bodies.push(
            json!({"model": "claude-sonnet-5-5", "max_tokens": 1024, "tools": tools,
            "system": system(turn), "messages": messages}),
        );
        let id = format!("toolu_{turn}");
        messages.push(json!({"role": "assistant", "content": [
            {"type": "text", "text": text_of(10, turn)},
            {"type": "tool_use", "id": id, "name": "tool1", "input": {"n": turn}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": text_of(30, turn)}]}));
    }
    bodies
}

fn line(ts: f64, body: &Value) -> String {
    json!({"ts": ts, "path": "/v1/messages", "body": body.to_string()}).to_string() + "\n"
}

fn lines(bodies: &[Value], start: usize, gap: usize) -> String {
    let at = |turn: usize| (1_796_083_200 + start + turn * gap) as f64;
    let all = bodies.iter().enumerate();
    all.map(|(turn, body)| line(at(turn), body)).collect()
}

#[test]
fn a06_a_long_loop_is_read_and_costs_about_the_optimum() {
    let home = tempfile::tempdir().unwrap();
    let bodies = agent(60, |_| text_of(2_000, 3));
    std::fs::write(home.path().join("loop.jsonl"), lines(&bodies, 0, 20)).unwrap();
    let compared = compared(home.path(), &["loop.jsonl"]);
    assert_eq!(compared["requests"], 60);
    assert_eq!(compared["files"][0]["requests"], 60);
    assert_eq!(
        policy(&compared, "fill")["runs"].as_array().unwrap().len(),
        1
    );
    optimum_is_least(&compared);
    assert!(hit_ratio(&compared, "fill") >= 0.97, "{compared}");
    assert!(policy(&compared, "fill")["over_optimum"].as_f64().unwrap() < 0.03);
    // The client marks nothing.
    assert_eq!(policy(&compared, "client"), &{
        let mut same = policy(&compared, "none").clone();
        same["policy"] = "client".into();
        same
    });
    assert!(cost(policy(&compared, "fill")) * 3.0 < cost(policy(&compared, "as_sent")));
}

#[test]
fn a_clock_in_the_system_prompt_leaves_the_tools() {
    let home = tempfile::tempdir().unwrap();
    let bodies = agent(20, |turn| {
        format!("It is 12:00:{turn:02}. {}", text_of(2_000, 3))
    });
    std::fs::write(home.path().join("clock.jsonl"), lines(&bodies, 0, 20)).unwrap();
    let compared = compared(home.path(), &["clock.jsonl"]);
    optimum_is_least(&compared);
    assert_eq!(policy(&compared, "automatic")["tokens"]["read"], 0);
    // Only the tools stay what they are.
    let read = policy(&compared, "optimum")["tokens"]["read"]
        .as_u64()
        .unwrap();
    let prompt = policy(&compared, "optimum")["tokens"]["prompt"]
        .as_u64()
        .unwrap();
    assert!(read > 0 && read < prompt / 2, "{compared}");
}

#[test]
fn one_shots_are_best_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let shot = |n: usize| {
        json!({"model": "claude-sonnet-5-5", "max_tokens": 64,
            "messages": [{"role": "user", "content": text_of(3_000, n)}]})
    };
    let bodies: Vec<Value> = (0..12).map(shot).collect();
    std::fs::write(home.path().join("shots.jsonl"), lines(&bodies, 0, 30)).unwrap();
    let compared = compared(home.path(), &["shots.jsonl"]);
    optimum_is_least(&compared);
    let none = cost(policy(&compared, "none"));
    assert!((cost(policy(&compared, "optimum")) - none).abs() < 1e-12);
    assert!((cost(policy(&compared, "fill")) - none).abs() < 1e-12);
    assert!(cost(policy(&compared, "automatic")) > none * 1.2);
    assert_eq!(
        policy(&compared, "fill")["runs"].as_array().unwrap().len(),
        12
    );
}

#[test]
fn runs_are_told_apart_and_the_clients_markers_kept() {
    let home = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (start, name) in [(0, "a"), (5, "b")] {
        let mut bodies = agent(10, |_| text_of(1_500, 3));
        for body in &mut bodies {
            body["metadata"] = json!({"session_id": name});
            body["cache_control"] = json!({"type": "ephemeral"});
        }
        text += &lines(&bodies, start, 20);
    }
    // Out of order in the file; the time decides.
    let mut shuffled: Vec<&str> = text.lines().collect();
    shuffled.reverse();
    std::fs::write(home.path().join("two.jsonl"), shuffled.join("\n")).unwrap();
    let compared = compared(home.path(), &["two.jsonl"]);
    optimum_is_least(&compared);
    let runs = policy(&compared, "client")["runs"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(runs.iter().all(|run| run["requests"] == 10));
    assert_eq!(
        policy(&compared, "client")["cost_usd"],
        policy(&compared, "automatic")["cost_usd"],
        "the top-level marker is the automatic one"
    );
}

#[test]
fn damaged_lines_are_reported_and_the_rest_is_used() {
    let home = tempfile::tempdir().unwrap();
    let secret = "do not print me";
    let good = agent(3, |_| text_of(1_500, 3));
    let mut text = lines(&good, 0, 20);
    text += &format!("{{\"ts\":1,\"body\":\"{secret}\n");
    text += "\n";
    text += &json!({"ts": 2, "path": "/v1/messages", "body": secret}).to_string();
    text += "\n";
    text += &json!({"ts": 3, "path": "/v1/messages/count_tokens", "body": secret}).to_string();
    text += "\n\u{fffd}\u{0}\n";
    std::fs::write(home.path().join("bad.jsonl"), text).unwrap();
    let (code, out, err) = replay(home.path(), &["bad.jsonl", "--json"]);
    assert_eq!(code, 0, "{err}");
    let compared: Value = serde_json::from_str(&out).unwrap();
    let counts = ["requests", "skipped", "bad"].map(|what| compared[what].as_u64().unwrap());
    assert_eq!(counts, [3, 1, 3], "{err}");
    for place in ["bad.jsonl:4: ", "bad.jsonl:6: ", "bad.jsonl:8: "] {
        assert!(err.contains(place), "{err}");
    }
    assert!(!err.contains(secret) && !out.contains(secret));

    std::fs::write(home.path().join("none.jsonl"), "{}\n").unwrap();
    let (code, out, err) = replay(home.path(), &["none.jsonl"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("none.jsonl:1: ") && err.contains("nothing to replay"),
        "{err}"
    );
    let (code, _, err) = replay(home.path(), &["missing.jsonl"]);
    assert_eq!(code, 1);
    assert!(err.contains("missing.jsonl"), "{err}");
    let (code, _, err) = replay(home.path(), &["bad.jsonl", "--policy", "best"]);
    assert_eq!(code, 2);
    assert!(err.contains("as_sent"), "{err}");
    let (code, _, _) = replay(home.path(), &["bad.jsonl", "--model", "no-such-model"]);
    assert_eq!(code, 2);
}

#[test]
fn bare_bodies_and_a_single_one_are_taken() {
    let home = tempfile::tempdir().unwrap();
    let bodies = agent(4, |_| text_of(1_500, 3));
    let bare: String = bodies.iter().map(|body| format!("{body}\n")).collect();
    std::fs::write(home.path().join("bare.jsonl"), bare).unwrap();
    let (code, out, err) = replay(home.path(), &["bare.jsonl", "--policy", "as_sent,fill"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("4 requests in 1 run"), "{out}");
    assert!(
        out.contains("4 requests without `ts`") && out.contains("estimated"),
        "{out}"
    );
    assert!(out.contains("fill") && !out.contains("optimum"), "{out}");
    assert!(!out.contains("word1"), "{out}");

    let pretty = serde_json::to_string_pretty(&bodies[2]).unwrap();
    std::fs::write(home.path().join("one.json"), pretty).unwrap();
    let compared = compared(home.path(), &["one.json"]);
    assert_eq!(
        (&compared["requests"], &compared["bad"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn exact_usage_replaces_the_estimate() {
    let home = tempfile::tempdir().unwrap();
    let body = &agent(1, |_| text_of(1_500, 3))[0];
    let usage = json!({"input_tokens": 4, "cache_creation_input_tokens": 5_000,
        "cache_read_input_tokens": 0, "output_tokens": 9});
    let line = json!({"ts": 1_796_083_200, "path": "/v1/messages", "body": body.to_string(),
        "usage": usage, "run": "exact"});
    std::fs::write(home.path().join("exact.jsonl"), line.to_string()).unwrap();
    let compared = compared(home.path(), &["exact.jsonl"]);
    assert_eq!(compared["estimated"], 0);
    let none = policy(&compared, "none");
    assert_eq!(none["tokens"]["uncached"], 5_004);
    assert_eq!(none["runs"][0]["run"], "exact");
    // 2 USD a million.
    assert_eq!(none["cost_usd"], "0.010008");
}

#[test]
fn a_database_without_blocks_says_so() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    let (code, _, err) = replay(home.path(), &["--data-dir", dir.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(!err.is_empty() && !err.contains("panicked"), "{err}");
}
