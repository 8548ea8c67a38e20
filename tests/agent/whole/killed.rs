//! The program killed with SIGKILL, and `agent resume`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use prefixgate::agent::driver::INTERRUPTED;
use prefixgate::sim::Fault;
use serde_json::Value;

use super::world::{Ended, World};

const TASK: &str = "Read, run, read. [[plan:read,tool=run_command,read,end]]";

/// A program that writes down the key of each call, and does not end while `hold` is there.
fn program(dir: &Path) {
    let dir = dir.display();
    let script = format!(
        "#!/bin/sh\necho \"$PREFIXGATE_CALL_KEY\" >> '{dir}/made'\n\
         while [ -e '{dir}/hold' ]; do sleep 0.05; done\necho ran\n"
    );
    // The simulated model calls every program by this name.
    let path = std::path::PathBuf::from(format!("{dir}/bin/x"));
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
}

fn command(world: &World, args: &[&str]) -> Command {
    let mut command = world.agent(args);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}/bin:{path}", world.dir.path().display()));
    command
}

/// Starts it, and gives the process and its lines as they come.
fn start(mut command: Command) -> (Child, impl Iterator<Item = Value>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines = out
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    (child, lines)
}

fn kill(mut child: Child) {
    // SIGKILL: nothing of it can react.
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The tools that were called, by the lines.
fn called(ended: &Ended) -> Vec<String> {
    let lines = ended.lines();
    let began = lines.iter().filter(|line| line["type"] == "call_began");
    began
        .map(|line| line["tool"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_a_tool_it_goes_on_and_does_not_run_it_again() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let dir = world.dir.path();
    program(dir);
    std::fs::write(dir.join("hold"), "").unwrap();
    let (child, mut lines) = start(command(&world, &["--json", "--allow", "x", TASK]));
    let run = lines.find(|line| line["type"] == "began").unwrap()["run"].clone();
    let run = run.as_str().unwrap().to_owned();
    let began = |line: &Value| line["type"] == "call_began" && line["tool"] == "run_command";
    lines.find(began).unwrap();
    while std::fs::read_to_string(dir.join("made"))
        .unwrap_or_default()
        .is_empty()
    {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    kill(child);
    std::fs::remove_file(dir.join("hold")).unwrap();

    let asked = world.sim.seen();
    let on = command(&world, &["resume", &run, "--json"]);
    let on = super::world::ended(on).await;
    let summary = on.summary();
    assert_eq!(
        (on.code, &summary["outcome"]),
        (Some(0), &"end_turn".into()),
        "{on:?}"
    );
    assert_eq!(summary["turns"], 4);
    assert_eq!(
        called(&on),
        ["read_file"],
        "the first read and the command had begun before"
    );
    let made = std::fs::read_to_string(dir.join("made")).unwrap();
    let key = format!("{run}/main/2/");
    assert!(
        made.starts_with(&key) && made.lines().count() == 1,
        "{made}"
    );
    assert_eq!(world.sim.seen() - asked, 2, "no answer was asked for again");
    let requests = world.sim.requests();
    assert!(requests.iter().all(|request| request.status == Some(200)));
    let last = String::from_utf8(requests.last().unwrap().body.to_vec()).unwrap();
    assert_eq!(last.matches(INTERRUPTED).count(), 1, "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_a_stream_it_asks_for_that_answer_again() {
    let world = World::start(None).await;
    world.file("hello.txt", "hello\n");
    let plan = "Read. [[plan:read,read,end]]";
    let first = world.run(&["--json", "--max-turns", "1", plan]).await;
    let run = first.summary()["run"].as_str().unwrap().to_owned();

    // The answer begins, and does not end.
    world.sim.set_fault(Fault {
        stall_at: Some(900),
        ..Fault::default()
    });
    let args = ["resume", &run, "--json", "--max-turns", "9"];
    let (child, mut lines) = start(world.agent(&args));
    lines.find(|line| line["type"] == "text").unwrap();
    kill(child);
    world.sim.set_fault(Fault::default());

    let on = world
        .run(&["resume", &run, "--json", "--max-turns", "9"])
        .await;
    let summary = on.summary();
    assert_eq!(
        (on.code, &summary["outcome"]),
        (Some(0), &"end_turn".into()),
        "{on:?}"
    );
    assert_eq!(summary["answer"], "DONE after 2 tool turns.");
    assert_eq!((&summary["turns"], called(&on).len()), (&3.into(), 1));
    let bodies = world.sim.requests().into_iter().map(|request| request.body);
    let bodies: Vec<_> = bodies.collect();
    assert_eq!(bodies.len(), 4);
    assert_eq!(bodies[1], bodies[2], "the same request, byte for byte");
}
