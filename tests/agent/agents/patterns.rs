//! Three tasks, each done by one pattern: a scripted model on a socket, real tools, a real
//! directory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prefixgate::agent::machine::{Outcome, Setup};
use prefixgate::agent::memory::{Files, Memory};
use prefixgate::agent::pattern::{Check, Pattern, PlanExecute, Reflexion, Report};
use prefixgate::agent::tools::{Commands, Root, Tool, builtin, run_command};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::play::setup;
use super::scripted::{Asked, Model, Says};
use super::site::Site;
use crate::whole::world::{agent, ended};

fn put(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn get(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

fn real_tools(dir: &Path) -> Vec<Arc<dyn Tool>> {
    let root = Root::new(dir).unwrap();
    let mut tools = builtin(&root);
    tools.push(run_command(&root, Commands::allowing(["*"])));
    tools
}

async fn work(site: &Site, pattern: &Pattern, setup: &Setup, task: &str) -> Report {
    let crew = site.crew();
    if site.journals.agents_of("r") > 0 {
        crew.recall("r").unwrap();
    }
    let report = pattern
        .work(&crew, setup, task, &site.cancelled)
        .await
        .unwrap();
    let journals: &dyn prefixgate::agent::journal::Journals = &site.journals;
    assert_eq!(
        crew.budget.spent(),
        journals.spent("r").unwrap(),
        "all of it is on the books"
    );
    report
}

trait AgentsOf {
    fn agents_of(&self, run: &str) -> usize;
}

impl AgentsOf for prefixgate::agent::journal::Scratch {
    fn agents_of(&self, run: &str) -> usize {
        use prefixgate::agent::journal::Journals as _;
        self.agents(run).unwrap().len()
    }
}

const TEST: &str = "#!/bin/sh\n[ \"$(sh sum.sh 2 3)\" = 5 ] || { echo 'sum 2 3 is wrong'; exit 1; }\n\
                    [ \"$(sh sum.sh 2 -3)\" = -1 ] || { echo 'sum 2 -3 is wrong'; exit 1; }\n";

fn broken_project() -> TempDir {
    let dir = TempDir::new().unwrap();
    put(dir.path(), "sum.sh", "echo $(($1 * $2))\n");
    put(dir.path(), "test.sh", TEST);
    dir
}

/// The first attempt mends one case only; the second one has read why that was wrong.
fn mends(asked: &Asked<'_>) -> Says {
    if asked.last().contains("This attempt at the task has failed") {
        assert!(
            asked.last().contains("sum 2 -3 is wrong"),
            "it is told what the check said"
        );
        return Says::text("A constant was written in. Add the two arguments instead.");
    }
    let edit = |old: &str, new: &str| {
        Says::call(
            "edit_file",
            json!({"path": "sum.sh", "old": old, "new": new}),
        )
    };
    match (asked.agent, asked.turn) {
        (_, 0) => Says::call("read_file", json!({"path": "sum.sh"})),
        ("main", 1) => edit("echo $(($1 * $2))", "echo 5"),
        (_, 1) => {
            assert!(
                asked.first().contains("Add the two arguments instead"),
                "{}",
                asked.first()
            );
            edit("echo 5", "echo $(($1 + $2))")
        }
        (_, 2) => Says::call("run_command", json!({"command": "sh test.sh"})),
        _ => Says::text("It is mended."),
    }
}

fn reflexion(dir: &Path, memory: &Path, attempts: u32) -> Pattern {
    Pattern::Reflexion(Reflexion {
        attempts,
        check: Some(Check {
            command: "sh test.sh".into(),
            dir: dir.to_owned(),
            limit: Duration::from_secs(20),
        }),
        memory: Arc::new(Files::open(memory).unwrap()),
    })
}

const MEND: &str = "Make the test pass: sh test.sh";

#[tokio::test]
async fn a_failing_test_is_fixed_by_reflexion() {
    let dir = broken_project();
    let notes = TempDir::new().unwrap();
    let model = Model::start(mends).await;
    let site = Site::new(&model.upstream.url(), real_tools(dir.path()));
    let pattern = reflexion(dir.path(), notes.path(), 3);
    let report = work(&site, &pattern, &setup(), MEND).await;
    assert!(report.passed, "{report:?} {:?}", site.heard.all());
    assert_eq!(report.outcome, Outcome::EndTurn);
    assert_eq!(get(dir.path(), "sum.sh"), "echo $(($1 + $2))\n");
    assert_eq!(model.agents(), ["main", "attempt-2"]);
    model.check(true);
    assert_eq!(site.heard.of("judged false").len(), 1);
    assert_eq!(site.heard.of("judged true").len(), 1);
    assert_eq!(site.heard.of("reflected ").len(), 1);

    // The reflection was asked for over the whole attempt, and is kept for later runs.
    let asked = model.bodies("main").pop().unwrap();
    assert_eq!(asked["messages"].as_array().unwrap().len(), 9);
    let memory = Files::open(notes.path()).unwrap();
    let note = memory.list().await.unwrap().pop().unwrap();
    let text = memory.read(&note.name).await.unwrap();
    assert!(
        text.starts_with("## r main\n") && text.contains("A constant was written in"),
        "{text}"
    );

    // Killed now and started again, it finds all of it done and asks nobody anything.
    let seen = model.upstream.seen().len();
    let again = work(&site, &pattern, &setup(), MEND).await;
    assert_eq!(again, report);
    assert_eq!(model.upstream.seen().len(), seen);
}

#[tokio::test]
async fn reflexion_ends_with_its_last_attempt_and_with_what_no_attempt_would_change() {
    let dir = broken_project();
    let notes = TempDir::new().unwrap();
    let model = Model::start(|asked| match asked.last().contains("has failed") {
        true => Says::text("I did nothing."),
        false => Says::text("Done."),
    })
    .await;
    let site = Site::new(&model.upstream.url(), real_tools(dir.path()));
    let report = work(
        &site,
        &reflexion(dir.path(), notes.path(), 2),
        &setup(),
        MEND,
    )
    .await;
    assert!(!report.passed && report.why.unwrap().contains("sum 2 3 is wrong"));
    assert_eq!(model.agents(), ["main", "attempt-2"]);
    assert_eq!(
        site.heard.of("reflected ").len(),
        1,
        "nobody would read a second one"
    );

    // A cap that all attempts share ends it.
    let site = Site::new(&model.upstream.url(), real_tools(dir.path()));
    let mut capped = setup();
    capped.limits.tokens = Some(60);
    let report = work(
        &site,
        &reflexion(dir.path(), notes.path(), 5),
        &capped,
        MEND,
    )
    .await;
    assert!(!report.passed);
    assert_eq!(report.outcome, Outcome::MaxTokensTotal);
    assert_eq!(site.journals.agents_of("r"), 1);
}

#[tokio::test]
async fn a_question_is_answered_from_files_with_two_sub_agents() {
    let dir = TempDir::new().unwrap();
    put(dir.path(), "north/stock.txt", "apples 12\npears 3\n");
    put(dir.path(), "south/stock.txt", "apples 30\nplums 9\n");
    let model = Model::start(|asked| {
        let task = |place: &str| {
            json!({"description": format!("count {place}"), "name": place, "tools": ["read_file", "search_files"],
                "task": format!("How many apples does {place}/stock.txt name? Give the number only.")})
        };
        let place = asked.agent.split('-').next().unwrap();
        match (place, asked.turn) {
            ("main", 0) => Says::Calls(vec![("spawn_agent", task("north")), ("spawn_agent", task("south"))]),
            ("main", _) => {
                let counts = asked.last();
                let sum: u32 = counts.lines().map(|count| count.trim().parse::<u32>().unwrap()).sum();
                Says::text(format!("There are {sum} apples."))
            }
            (place, 0) => {
                assert!(asked.first().contains(place));
                Says::call("read_file", json!({"path": format!("{place}/stock.txt")}))
            }
            _ => {
                let read = asked.last();
                let line = read.lines().find(|line| line.contains("apples")).unwrap();
                Says::text(line.split_whitespace().last().unwrap())
            }
        }
    })
    .await;
    let site = Site::new(&model.upstream.url(), real_tools(dir.path()));
    let report = work(
        &site,
        &Pattern::React,
        &setup(),
        "How many apples are in stock?",
    )
    .await;
    assert!(report.passed, "{report:?} {:?}", site.heard.all());
    assert_eq!(report.answer.as_deref(), Some("There are 42 apples."));
    assert_eq!(model.agents().len(), 3);
    model.check(false);
}

fn plan(steps: &[(&str, &str)]) -> String {
    let steps = steps.iter().map(|(title, task)| {
        json!({"title": title, "task": task, "done_when": "grep finds no other name"})
    });
    let plan = json!({"steps": steps.collect::<Vec<_>>()});
    format!("Here it is:\n```json\n{plan}\n```")
}

/// Renames `fetch` to `load` in two files. The first plan leaves one out, which the review of its
/// last step finds; the second plan has what is left.
fn renames(asked: &Asked<'_>) -> Says {
    let edit = |path: &str| {
        Says::call(
            "edit_file",
            json!({"path": path, "old": "fetch", "new": "load", "replace_all": true}),
        )
    };
    let review = asked.last().contains("Review the step");
    match (asked.agent, asked.turn) {
        ("main", 0) => Says::call("search_files", json!({"pattern": "fetch"})),
        ("main", 1) => Says::text(r#"{"steps": [{"title": "rename"}], "why": "short"}"#),
        ("main", _) => {
            let last = asked.last();
            for wrong in ["task", "done_when", "why"] {
                assert!(last.contains(wrong), "every violation is told: {last}");
            }
            Says::text(plan(&[
                ("lib", "Rename in lib.sh."),
                ("verify", "Look for the old name."),
            ]))
        }
        ("plan-2", _) => {
            let first = asked.first();
            assert!(first.contains("lib: renamed in lib.sh"), "{first}");
            assert!(first.contains("main.sh still calls fetch"), "{first}");
            Says::text(plan(&[("main", "Rename in main.sh.")]))
        }
        ("step-1-1", 0) => edit("lib.sh"),
        ("step-1-1", _) if review => {
            Says::text(r#"{"done": true, "summary": "renamed in lib.sh"}"#)
        }
        ("step-1-2", 0) => Says::call("run_command", json!({"command": "grep -n fetch *.sh"})),
        ("step-1-2", 2) if review => Says::text("It is not done."),
        ("step-1-2", _) if review => {
            assert!(asked.last().contains("Your last answer was not that"));
            Says::text(r#"{"done": false, "summary": "main.sh still calls fetch"}"#)
        }
        ("step-2-1", 0) => {
            assert!(
                asked.first().contains("Rename fetch to load"),
                "the whole task is told"
            );
            edit("main.sh")
        }
        ("step-2-1", 1) => Says::call("run_command", json!({"command": "sh main.sh"})),
        ("step-2-1", _) if review => {
            Says::text(r#"{"done": true, "summary": "renamed, and it runs"}"#)
        }
        _ => Says::text(asked.last()),
    }
}

const RENAME: &str = "Rename fetch to load in all files, so that main.sh still runs.";

fn project() -> TempDir {
    let dir = TempDir::new().unwrap();
    put(dir.path(), "lib.sh", "fetch() { echo \"got $1\"; }\n");
    put(dir.path(), "main.sh", ". ./lib.sh\nfetch one\nfetch two\n");
    dir
}

#[tokio::test]
async fn a_rename_across_files_is_planned_and_executed() {
    let dir = project();
    let model = Model::start(renames).await;
    let site = Site::new(&model.upstream.url(), real_tools(dir.path()));
    let pattern = Pattern::PlanExecute(PlanExecute::default());
    let report = work(&site, &pattern, &setup(), RENAME).await;
    assert!(report.passed, "{report:?} {:?}", site.heard.all());
    assert!(
        report.answer.as_ref().unwrap().contains("got one\ngot two"),
        "{report:?}"
    );
    assert_eq!(get(dir.path(), "lib.sh"), "load() { echo \"got $1\"; }\n");
    assert_eq!(
        get(dir.path(), "main.sh"),
        ". ./lib.sh\nload one\nload two\n"
    );
    assert_eq!(
        model.agents(),
        ["main", "step-1-1", "step-1-2", "plan-2", "step-2-1"]
    );
    model.check(true);
    assert_eq!(site.heard.of("planned "), ["1: lib, verify", "2: main"]);
    let judged = site.heard.of("judged ");
    assert_eq!(
        judged,
        [
            "true: renamed in lib.sh",
            "false: main.sh still calls fetch",
            "true: renamed, and it runs"
        ]
    );

    // Started again, it is found done.
    let seen = model.upstream.seen().len();
    assert_eq!(work(&site, &pattern, &setup(), RENAME).await, report);
    assert_eq!(model.upstream.seen().len(), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_shows_each_plan_and_what_became_of_its_steps() {
    let dir = project();
    let home = TempDir::new().unwrap();
    let model = Model::start(renames).await;
    let mut command = agent(home.path());
    command
        .env("ANTHROPIC_API_KEY", "test")
        .env("ANTHROPIC_BASE_URL", model.upstream.url())
        .env("PREFIXGATE_AGENT_ROOT", dir.path())
        .args(["--json", "--pattern", "plan-execute"])
        .args(["--allow", "grep,sh", RENAME]);
    let run = ended(command).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let of = |kind: &str| -> Vec<Value> {
        let lines = run.lines().into_iter();
        lines.filter(|line| line["type"] == kind).collect()
    };
    let planned = of("planned");
    assert_eq!(planned.len(), 2, "{planned:?}");
    let judged: Vec<_> = of("judged")
        .iter()
        .map(|line| line["passed"].clone())
        .collect();
    assert_eq!(judged, [true, false, true]);
    let summary = run.summary();
    assert_eq!(summary["passed"], true, "{summary}");
    assert_eq!(get(dir.path(), "lib.sh"), "load() { echo \"got $1\"; }\n");
    assert_eq!(model.agents().len(), 5);
}

/// Killed at every request in turn: what had been done is not done again, and the end is the same.
#[test]
fn a_plan_that_is_killed_at_any_request_goes_on_where_it_was() {
    let whole = {
        let runtime = runtime();
        let dir = project();
        runtime.block_on(async {
            let model = Model::start(renames).await;
            let site = Site::new(&model.upstream.url(), real_tools(dir.path()));
            let pattern = Pattern::PlanExecute(PlanExecute::default());
            assert!(work(&site, &pattern, &setup(), RENAME).await.passed);
            model.upstream.seen().len()
        })
    };
    for killed_at in 1..whole {
        let outer = runtime();
        let dir = project();
        let hangs = AtomicUsize::new(0);
        let model = outer.block_on(Model::start(move |asked| {
            match hangs.fetch_add(1, Ordering::SeqCst) == killed_at {
                true => Says::Nothing,
                false => renames(asked),
            }
        }));
        let mut site = Site::new(&model.upstream.url(), real_tools(dir.path()));
        let pattern = Pattern::PlanExecute(PlanExecute::default());
        let first = runtime();
        let given = setup();
        first.block_on(async {
            let kill = async {
                while model.upstream.seen().len() <= killed_at {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                report = work(&site, &pattern, &given, RENAME) => panic!("{report:?}"),
                () = kill => {}
            }
        });
        drop(first);
        site.heard = Arc::default();
        let second = runtime();
        let report = second.block_on(work(&site, &pattern, &setup(), RENAME));
        assert!(
            report.passed,
            "killed at {killed_at}: {report:?} {:?}",
            site.heard.all()
        );
        assert_eq!(
            get(dir.path(), "main.sh"),
            ". ./lib.sh\nload one\nload two\n"
        );
        assert_eq!(
            model.upstream.seen().len(),
            whole + 1,
            "killed at {killed_at}"
        );
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_plan_that_nobody_can_make_is_given_up_with_the_reason() {
    let model = Model::start(|_| Says::text("I would rather not.")).await;
    let site = Site::new(&model.upstream.url(), []);
    let pattern = Pattern::PlanExecute(PlanExecute::default());
    let report = work(&site, &pattern, &setup(), "Do it.").await;
    assert!(!report.passed && report.why.unwrap().contains("no JSON object"));
    assert_eq!(model.bodies("main").len(), 3);
    model.check(true);
}

#[tokio::test]
async fn steps_and_plans_are_capped() {
    let model = Model::start(|asked| {
        if asked.last().contains("Review the step") {
            let done = asked.agent != "step-2-1";
            return Says::text(json!({"done": done, "summary": "seen"}).to_string());
        }
        match asked.agent.starts_with("step") {
            true => Says::text("done"),
            false => Says::text(plan(&[("a", "a"), ("b", "b"), ("c", "c")])),
        }
    })
    .await;
    let capped = |steps, replans| Pattern::PlanExecute(PlanExecute { steps, replans });
    let site = Site::new(&model.upstream.url(), []);
    let report = work(&site, &capped(2, 9), &setup(), "Do it.").await;
    assert!(!report.passed && report.why.unwrap().contains("no more steps"));
    assert_eq!(model.agents(), ["main", "step-1-1", "step-1-2"]);

    let fails = Model::start(|asked| match asked.agent.starts_with("step") {
        true if asked.last().contains("Review") => {
            Says::text(json!({"done": false, "summary": "it cannot be"}).to_string())
        }
        true => Says::text("tried"),
        false => Says::text(plan(&[("a", "a")])),
    })
    .await;
    let site = Site::new(&fails.upstream.url(), []);
    let report = work(&site, &capped(30, 2), &setup(), "Do it.").await;
    assert!(!report.passed && report.why.unwrap().contains("it cannot be"));
    let plans = site.heard.of("planned ").len();
    assert_eq!((plans, fails.agents().len()), (3, 6));
    fails.check(true);
}

#[tokio::test]
async fn a_check_tells_how_it_ended_and_does_not_run_for_ever() {
    let dir = TempDir::new().unwrap();
    let check = |command: &str| Check {
        command: command.into(),
        dir: dir.path().into(),
        limit: Duration::from_millis(300),
    };
    let passed = check("echo fine").run().await;
    assert!(
        passed.passed && passed.told.ends_with("succeeded\nfine"),
        "{passed:?}"
    );
    let failed = check("echo out; echo bad >&2; exit 3").run().await;
    assert!(!failed.passed && failed.told.contains('3') && failed.told.ends_with("out\nbad"));
    let long = check("i=0; while [ $i -lt 9000 ]; do echo x$i; i=$((i+1)); done; exit 1")
        .run()
        .await;
    assert!(
        long.told.len() < 5000 && long.told.ends_with("x8999"),
        "{}",
        long.told.len()
    );
    let hung = check("sleep 100").run().await;
    assert!(
        !hung.passed && hung.told.contains("did not end within"),
        "{hung:?}"
    );
}
