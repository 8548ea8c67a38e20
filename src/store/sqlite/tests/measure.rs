//! Measurements, run by hand in release: `cargo test --release --lib measure -- --ignored --nocapture`.

use std::time::Instant;

use super::*;
use crate::trace::{Retention, start};

/// Budgets of a recorded turn: below 2 us for the request path, below 15 us for the writer.
#[test]
#[ignore = "a measurement: needs a release build and a quiet machine"]
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
    let begun = Instant::now();
    let mut offering = Duration::ZERO;
    for turn in turns {
        let before = Instant::now();
        recorder.turn(turn);
        offering += before.elapsed();
    }
    handle.close();
    let writing = begun.elapsed();
    assert_eq!(
        (recorder.written(), recorder.dropped()),
        (u64::from(TURNS), 0)
    );
    let (offer, write) = (offering / TURNS, writing / TURNS);
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
