//! The loop client on a real workflow engine (`@restatedev/restate-server`): workers are processes
//! of their own, and are killed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod engine;
mod worker;

use std::fs;
use std::time::Duration;

use prefixgate::agent::driver::INTERRUPTED;
use prefixgate::agent::machine::{Limits, Outcome, Setup};
use prefixgate::agent::restate::{Order, Report};
use prefixgate::provider::wire::Wire;
use prefixgate::sim::{Options, Sim};

use engine::{Engine, until};
use worker::Worker;

fn order(task: &str) -> Order {
    Order {
        setup: Setup {
            run: String::new(),
            agent: "main".to_owned(),
            parent: None,
            depth: 0,
            wire: Wire::Messages,
            model: "claude-sonnet-5".to_owned(),
            system: "You are a test.".to_owned(),
            tools: worker::toolbox("".as_ref()).specs(),
            max_tokens: 4096,
            effort: None,
            window: 200_000,
            compact_at: 150_000,
            limits: Limits::default(),
            loop_threshold: 3,
        },
        task: task.to_owned(),
    }
}

/// The lines that tools have written: one for each call that they made, its tool and its key.
fn made(dir: &std::path::Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join(worker::MADE)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_calls_it_goes_on_and_repeats_nothing() {
    let sim = Sim::start(Options::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::start().await;
    let first = Worker::start(dir.path(), &sim.base_url(), None);
    engine.register(first.port).await;

    fs::write(dir.path().join(worker::HOLD), "").unwrap();
    let task = "Go. [[plan:tool=look,tool=charge+tool=look,tool=charge,end]]";
    engine.begin("r1", &order(task)).await;
    // The call that hangs has begun, and all before it is on record.
    until("the calls", async || {
        made(dir.path()).len() == 2 && engine.recorded("r1").await >= 5
    })
    .await;
    let port = first.kill();
    fs::remove_file(dir.path().join(worker::HOLD)).unwrap();
    let _second = Worker::start(dir.path(), &sim.base_url(), Some(port));
    let report: Report = engine.outcome("r1", Duration::from_secs(60)).await;

    assert_eq!(report.outcome, Outcome::EndTurn);
    assert_eq!(report.turns, 4);
    let mut made = made(dir.path());
    let names: Vec<&str> = made
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        names.iter().filter(|name| **name == "charge").count(),
        2,
        "{made:?}"
    );
    assert_eq!(
        names.iter().filter(|name| **name == "look").count(),
        2,
        "{made:?}"
    );
    assert!(
        made.iter().all(|line| line.contains(" r1/main/")),
        "{made:?}"
    );
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 4, "each call was made once");

    let requests = sim.requests();
    assert_eq!(requests.len(), 4, "each answer was asked for once");
    assert!(requests.iter().all(|request| request.status == Some(200)));
    let last = String::from_utf8(requests[3].body.to_vec()).unwrap();
    assert_eq!(last.matches(INTERRUPTED).count(), 1, "{last}");
}

/// Not a test of its own: the process that the test above starts and kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the worker, started by the test"]
async fn worker_process() {
    worker::run().await;
}
