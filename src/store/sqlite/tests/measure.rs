//! Measurements, run by hand in release: `cargo test --release --lib measure -- --ignored --nocapture`.

use std::time::Instant;

use jiff::tz::TimeZone;

use super::*;
use crate::store::CulpritBy;
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
    let (recorder, handle) = start(store, vec![], TURNS as usize, keep).unwrap();
    let mut turns: Vec<_> = (1..=TURNS)
        .map(|n| turn(&format!("run {}", n / 50), n))
        .collect();
    // Each turn reads what the one before it wrote; every tenth breaks.
    let mut previous = None;
    for one in &mut turns {
        one.usage.write_5m = Some(500);
        one.cache.policy = Some("fill");
        one.cache.read_of = previous.replace(one.id);
        one.cache.premium_pico = Some(375_000_000);
        one.cache.trail = vec![7; 100];
        let path = (one.turn % 10 == 0).then_some("messages[7].content[0]");
        let (status, lost) = if path.is_some() {
            (Status::Partial, 1_000)
        } else {
            (Status::Extended, 0)
        };
        one.cache.verdict = Some(Verdict {
            lost_tokens: Some(lost),
            ..verdict(status, Reason::Messages, path)
        });
    }
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
    let asked = Instant::now();
    let broken = reader
        .culprits(CulpritBy::Culprit, &ALL, &TimeZone::UTC)
        .unwrap();
    assert_eq!(broken.losses[0].count, u64::from(TURNS) / 10);
    let culprits = asked.elapsed();
    let asked = Instant::now();
    let end = NOON + i64::from(TURNS) * 1_000 + 3_600_000;
    assert_eq!(reader.unread(&ALL, end).unwrap().turns, 1);
    let unread = asked.elapsed();
    println!("culprits {culprits:?}, written and never read {unread:?}");
    println!(
        "request path {offer:?} a turn, writer {write:?} a turn, newest 50 runs of {TURNS} turns {runs:?}"
    );
    assert!(offer < Duration::from_micros(2) && write < Duration::from_micros(15));
}
