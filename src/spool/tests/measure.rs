//! A measurement, run by hand in release: `cargo test --release --lib measure -- --ignored --nocapture`.

use std::time::Instant;

use super::*;

/// Processor time of this thread so far: wall time would measure the neighbours.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

/// Budget: 2,000 records of 2 kB a second for less than 2 % of a core, which is 10 us each.
#[test]
#[ignore = "a measurement: to be run by hand, in a release build"]
fn what_appending_a_record_costs() {
    const RECORDS: u32 = 100_000;
    let record = vec![b'r'; 2_000];
    for together in [1, 10, 100] {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits::new(1 << 30, Full::DropOldest);
        let (mut writer, reader) = crate::spool::open(dir.path(), limits).unwrap();
        let records = vec![record.as_slice(); together as usize];
        let (before, start) = (cpu(), Instant::now());
        for _ in 0..RECORDS / together {
            assert_eq!(writer.append(&records).dropped, 0);
        }
        let (each, wall) = ((cpu() - before) / RECORDS, start.elapsed() / RECORDS);
        let (before, start) = (cpu(), Instant::now());
        let mut read = 0;
        reader.blocking(|desk| {
            while let Some(claimed) = desk.take(&most(10_000, 16 << 20)).unwrap() {
                read += claimed.batch.records.len();
                desk.settle(claimed.batch.end(), crate::spool::Counters::add_delivered);
            }
        });
        assert_eq!(read, RECORDS as usize);
        let (out, out_wall) = ((cpu() - before) / RECORDS, start.elapsed() / RECORDS);
        println!(
            "{together} records together: append {each:?} of processor time each ({wall:?} with the \
             disk), claim and settle {out:?} ({out_wall:?})"
        );
        assert!(each < Duration::from_micros(10));
    }
}
