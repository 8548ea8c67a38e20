//! Measurements, run by hand in release: `cargo test --release --lib measure -- --ignored --nocapture`.

use std::time::Instant;

use super::*;
use crate::trace::{Retention, start};

/// Processor time of a thread so far: wall time would measure the neighbours.
fn cpu(task: &Path) -> Duration {
    let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

/// Processor time of the writer's thread.
fn writer_cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let name = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap();
    cpu(&tasks.find(|task| name(task) == "records\n").unwrap())
}

/// Budgets of a recorded turn: below 2 us for the request path, below 15 us for the writer.
#[test]
#[ignore = "a measurement: to be run by hand, in a release build"]
fn what_recording_a_turn_costs() {
    const TURNS: u32 = 100_000;
    let keep = Retention {
        days: 3_650,
        bytes: 1 << 40,
    };
    let (dir, store) = store();
    let (recorder, handle) = start(store, TURNS as usize, keep).unwrap();
    let turns: Vec<_> = (1..=TURNS)
        .map(|n| turn(&format!("run {}", n / 50), n))
        .collect();
    let before = cpu("/proc/thread-self".as_ref());
    for turn in turns {
        recorder.turn(turn);
    }
    let offer = (cpu("/proc/thread-self".as_ref()) - before) / TURNS;
    handle.flush();
    let write = writer_cpu() / TURNS;
    handle.close();
    assert_eq!(
        (recorder.written(), recorder.dropped()),
        (u64::from(TURNS), 0)
    );
    let asked = Instant::now();
    let reader = Sqlite::open_read(dir.path()).unwrap();
    let filter = Filter { limit: 50, ..ALL };
    assert_eq!(reader.runs(&filter).unwrap().len(), 50);
    let runs = asked.elapsed();
    println!(
        "request path {offer:?} a turn, writer {write:?} a turn, newest 50 runs of {TURNS} turns {runs:?}"
    );
    assert!(offer < Duration::from_micros(2) && write < Duration::from_micros(15));
}
