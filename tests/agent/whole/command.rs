//! The command: exit codes, output, caps, a key press in the middle, the first minute of a newcomer.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use prefixgate::agent::machine::Outcome;
use tempfile::TempDir;

use super::world::{Ended, World, agent, ended};

const PLAN: &str = "Read the files. [[plan:read,read,read,end]]";

/// Runs each way to end with its flags, and what the summary says.
async fn ends(world: &World, args: &[&str], outcome: &str, code: u8) -> Ended {
    let run = world.run(&[&["--json"], args].concat()).await;
    let summary = run.summary();
    assert_eq!(summary["outcome"], outcome, "{args:?} {run:?}");
    assert_eq!(summary["exit_code"], code);
    assert_eq!(run.code, Some(i32::from(code)), "{args:?}");
    let run_id = summary["run"].as_str().unwrap();
    let resume = summary["resume"].as_str();
    if outcome == "end_turn" {
        assert_eq!(resume, None);
    } else {
        let begin = format!("prefixgate agent resume {run_id}");
        assert!(resume.unwrap().starts_with(&begin), "{summary}");
    }
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_has_its_exit_code() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    ends(&world, &[PLAN], "end_turn", 0).await;
    ends(&world, &["--max-turns", "2", PLAN], "max_turns", 10).await;
    let args = ["--max-tokens-total", "10", PLAN];
    ends(&world, &args, "max_tokens_total", 11).await;
    ends(&world, &["--max-usd", "0.000001", PLAN], "max_usd", 12).await;
    let slow = format!("{PLAN} [[delay:1100]]");
    ends(&world, &["--max-wall", "1s", &slow], "max_wall_time", 13).await;
    ends(&world, &["--max-calls", "1", PLAN], "max_tool_calls", 14).await;
    let refused = "Go. [[plan:read,end]] [[inject:synth_refusal x9]]";
    ends(&world, &[refused], "refusal", 20).await;
    let cut = "Go. [[plan:read,end]] [[inject:synth_max x9]]";
    ends(&world, &[cut], "truncated", 21).await;
    let again = format!("Go. [[plan:{}end]]", "read_missing,".repeat(30));
    ends(&world, &[&again], "loop_detected", 23).await;
    let failing = "Go. [[plan:read,end]] [[inject:400bill x99]]";
    let run = ends(&world, &[failing], "provider_error", 30).await;
    let detail = run.summary()["detail"].to_string();
    assert!(detail.contains("billing_error"), "the reason: {detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_decides_whether_reflexion_tries_again() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let task = "Read it. [[plan:read,end]]";
    let tried = async |check: &str| {
        let args = ["--json", "--pattern", "reflexion", "--attempts", "2"];
        let run = world
            .run(&[&args[..], &["--check", check, task]].concat())
            .await;
        let agents: std::collections::BTreeSet<String> = (run.lines().iter())
            .filter(|line| line["type"] == "answered")
            .map(|line| line["agent"].to_string())
            .collect();
        (run.code, run.summary()["passed"].clone(), agents.len())
    };
    assert_eq!(tried("test -f hello.txt").await, (Some(0), true.into(), 1));
    assert_eq!(
        tried("test -f other.txt").await,
        (Some(25), false.into(), 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_alone_is_on_stdout_and_the_reason_of_a_failure_on_stderr() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let run = world.run(&["--quiet", "[[plan:read,end]]"]).await;
    assert_eq!(
        (run.code, run.out.as_str()),
        (Some(0), "DONE after 1 tool turns.\n")
    );
    assert_eq!(run.err, "");

    let run = world.run(&["[[plan:read,end]]"]).await;
    assert_eq!(run.out, "DONE after 1 tool turns.\n");
    for part in [
        "> read_file",
        "< read_file",
        "hit ratio",
        "cost $",
        "[2]",
        "end_turn",
    ] {
        assert!(run.err.contains(part), "{part}: {}", run.err);
    }
    assert!(
        !run.err.contains('\x1b'),
        "no colours in a pipe: {:?}",
        run.err
    );

    for quiet in [&[][..], &["--quiet"]] {
        let task = "Go. [[plan:read,end]] [[inject:400bill x99]]";
        let run = world.run(&[quiet, &[task]].concat()).await;
        assert_eq!((run.code, run.out.as_str()), (Some(30), ""));
        assert!(run.err.contains("provider_error: http://"), "{}", run.err);
        assert!(run.err.contains("billing_error"), "{}", run.err);
        assert!(
            run.err.contains("to go on: prefixgate agent resume "),
            "{}",
            run.err
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_is_json_and_the_summary_adds_up() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let run = world.run(&["--json", PLAN]).await;
    let lines = run.lines();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!(
        (of("answered"), of("call_began"), of("call_ended")),
        (4, 3, 3)
    );
    let text: String = (lines.iter().filter(|line| line["type"] == "text"))
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    assert!(text.ends_with("DONE after 3 tool turns."), "{text}");
    let summary = run.summary();
    let sum = |kind: &str| -> u64 {
        let bills = lines.iter().filter(|line| line["type"] == "answered");
        bills.map(|line| line["bill"][kind].as_u64().unwrap()).sum()
    };
    for kind in ["uncached", "cache_read", "cache_write", "output"] {
        assert_eq!(summary["tokens"][kind], sum(kind), "{kind}");
    }
    assert_eq!(summary["turns"], 4);
    assert_eq!(summary["answer"], "DONE after 3 tool turns.");
    assert!(summary["cost_usd"].as_str().unwrap().starts_with("0."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_press_stops_it_and_resume_goes_on() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let task = "Slowly. [[plan:read,read,read,end]] [[delay:300]]";
    let mut child = world
        .agent(&["--json", task])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("\"call_ended\"") {
        assert_ne!(out.read_line(&mut text).unwrap(), 0, "{text}");
    }
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(kill.unwrap().success());
    out.read_to_string(&mut text).unwrap();
    let run = Ended {
        code: child.wait().unwrap().code(),
        out: text,
        err: String::new(),
    };
    let summary = run.summary();
    assert_eq!(
        (run.code, &summary["outcome"]),
        (Some(130), &"cancelled".into())
    );
    let id = summary["run"].as_str().unwrap().to_owned();
    let told = summary["resume"].as_str().unwrap();
    assert_eq!(told, format!("prefixgate agent resume {id}"));

    let calls = world.sim.seen();
    let on = world.run(&["resume", &id, "--json"]).await;
    let summary = on.summary();
    assert_eq!(
        (on.code, &summary["outcome"]),
        (Some(0), &"end_turn".into())
    );
    assert_eq!(summary["answer"], "DONE after 3 tool turns.");
    assert_eq!(
        (summary["run"].as_str(), &summary["turns"]),
        (Some(&*id), &4.into())
    );
    assert!(world.sim.seen() - calls <= 4, "nothing was asked again");
    // The one that was cancelled may have no answer.
    let taken = |status: Option<u16>| status.is_none_or(|status| status == 200);
    assert!(world.sim.requests().iter().all(|seen| taken(seen.status)));

    let over = world.run(&["resume", &id]).await;
    assert!(
        over.code == Some(1) && over.err.contains("--say"),
        "{over:?}"
    );
    let more = world
        .run(&["resume", &id, "--say", "More. [[plan:read,end]]", "--quiet"])
        .await;
    assert_eq!(
        (more.code, more.out.as_str()),
        (Some(0), "DONE after 1 tool turns.\n")
    );

    let list = world.run(&["list"]).await;
    assert!(
        list.out.contains(&id) && list.out.contains("end_turn"),
        "{list:?}"
    );
    let list = world.run(&["list", "--json"]).await;
    assert_eq!(list.lines()[0]["run"], *id);
    let show = world.run(&["show", &id]).await;
    assert!(
        show.out.contains("ended: cancelled") && show.out.contains("goes on"),
        "{show:?}"
    );
    let show = world.run(&["show", &id, "--json"]).await;
    assert_eq!(show.lines()[0]["event"], "began");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_can_be_raised_and_a_run_forked() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let first = world
        .run(&["--json", "--max-turns", "2", PLAN])
        .await
        .summary();
    let id = first["run"].as_str().unwrap();
    let fork = world.run(&["fork", id, "--at", "1"]).await;
    assert_eq!(fork.code, Some(0), "{fork:?}");
    let forked = fork.out.trim().to_owned();
    assert_ne!(forked, id);
    for (run, said) in [(id, "3"), (&*forked, "3")] {
        let on = world
            .run(&["resume", run, "--max-turns", "40", "--quiet"])
            .await;
        let answer = format!("DONE after {said} tool turns.\n");
        assert_eq!((on.code, on.out), (Some(0), answer));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_needs_one_command_and_no_account() {
    let home = TempDir::new().unwrap();
    let mut command = agent(home.path());
    command.arg("--sim");
    let run = ended(command).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.starts_with("DONE"), "{run:?}");
    assert!(run.err.contains("the gateway saw"), "{}", run.err);
    assert!(run.err.contains("end_turn\n"), "{}", run.err);
    let mut command = agent(home.path());
    command.args([
        "--sim",
        "--journal",
        "none",
        "--json",
        "[[plan:tool=list_files,read,end]]",
    ]);
    let run = ended(command).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let failed = run
        .lines()
        .into_iter()
        .find(|line| line["is_error"] == true);
    assert_eq!(failed, None);
    assert!(run.summary()["tokens"]["cache_read"].as_u64().unwrap() > 0);
    let left = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert!(
        left.into_iter().all(|name| name == ".local"),
        "nothing else is left behind"
    );
}

#[test]
fn help_names_every_outcome() {
    let home = TempDir::new().unwrap();
    let help = Ended::of(agent(home.path()).arg("--help").output().unwrap());
    let outcomes = [
        Outcome::EndTurn,
        Outcome::MaxTurns,
        Outcome::MaxTokensTotal,
        Outcome::MaxUsd,
        Outcome::MaxWallTime,
        Outcome::MaxToolCalls,
        Outcome::Refusal(None),
        Outcome::Truncated,
        Outcome::ContextWindow,
        Outcome::LoopDetected(Vec::new()),
        Outcome::UnknownStop(String::new()),
        Outcome::ProviderError(String::new()),
        Outcome::ToolException(String::new()),
        Outcome::Cancelled,
    ];
    for outcome in outcomes {
        let line = format!(" {}  {} ", outcome.exit_code(), outcome.as_str());
        assert!(help.out.contains(&line), "{line:?} in {}", help.out);
    }
    assert!(help.out.contains("prefixgate agent --sim"));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let home = TempDir::new().unwrap();
    let file = "[agent]\nmodel = \"claude-sonnet-5\"\nmax_turns = \"many\"\nmodell = \"x\"\n";
    std::fs::write(home.path().join("agent.toml"), file).unwrap();
    let mut command = agent(home.path());
    command
        .args(["--config", "agent.toml", "--pattern", "zen", "Go"])
        .env("PREFIXGATE_AGENT_MAX_USD", "much");
    let run = Ended::of(command.output().unwrap());
    assert_eq!(run.code, Some(2), "{run:?}");
    for place in [
        "agent.toml:3: agent.max_turns = \"many\": must be a whole number",
        "agent.toml:4: unknown key `modell` in [agent]; did you mean `model`?",
        "PREFIXGATE_AGENT_MAX_USD: agent.max_usd = ",
        "--pattern: agent.pattern = \"zen\": must be one of \"react\", \"reflexion\"",
    ] {
        assert!(run.err.contains(place), "{place}\n{}", run.err);
    }

    let mut command = agent(home.path());
    command.args(["--max-usd", "1", "--model", "nobodys-model", "--base-url"]);
    command.args(["http://127.0.0.1:9", "Go"]);
    let run = Ended::of(command.output().unwrap());
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(
        run.err.contains("[[price]]") && run.err.contains("--max-tokens-total"),
        "{run:?}"
    );

    let mut command = agent(home.path());
    let run = Ended::of(command.arg("Go").output().unwrap());
    assert_eq!(run.code, Some(1));
    assert!(
        run.err.contains("ANTHROPIC_API_KEY") && run.err.contains("--sim"),
        "{run:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_go_before_variables_and_variables_before_the_file() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let file = world.dir.path().join("agent.toml");
    std::fs::write(
        &file,
        "[agent]\nmax_turns = 1\nmodel = \"claude-haiku-5-5\"\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let turns = async |flags: &[&str], variable: Option<&str>| {
        let mut command = world.agent(&[&["--json", "--config", file], flags, &[PLAN]].concat());
        if let Some(value) = variable {
            command.env("PREFIXGATE_AGENT_MAX_TURNS", value);
        }
        let run = ended(command).await;
        assert_eq!(run.lines()[0]["model"], "claude-haiku-5-5");
        run.summary()["turns"].as_u64().unwrap()
    };
    assert_eq!(turns(&[], None).await, 1);
    assert_eq!(turns(&[], Some("2")).await, 2);
    assert_eq!(turns(&["--max-turns", "3"], Some("2")).await, 3);
}
