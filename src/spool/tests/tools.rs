//! The status, and what a person does to a spool.

use super::*;
use crate::spool::{Requeued, discard, requeue, status};

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

/// Refuses records as a forwarder does.
fn refuse(spool: &mut Spool, sequence: u64, record: &[u8], why: &str) {
    let (record, why) = (bytes::Bytes::copy_from_slice(record), why.to_owned());
    let refusing = spool.reader.refuse(sequence, record, why);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(refusing);
}

#[test]
fn the_status_tells_what_waits_beside_a_live_process_and_after_it() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        kind(status(&dir.path().join("none"))),
        io::ErrorKind::NotFound
    );
    let nothing = status(dir.path()).unwrap();
    assert_eq!(
        (nothing.spool, nothing.in_use, nothing.waiting.records),
        (None, false, 0)
    );
    let (clock, hand) = Clock::manual();
    let start = clock.utc_ms();
    let mut spool = open_with(dir.path(), ROOMY, clock);
    for n in 1..=40 {
        spool.append(&[text(n)]);
        hand.advance(1_000);
    }
    let claimed = spool.take(most(10, usize::MAX)).unwrap();
    spool.ack(5);
    refuse(&mut spool, 5, text(5).as_bytes(), "no such column");
    let waiting = spool.monitor().waiting();
    let mut before = None;
    for in_use in [true, false] {
        let now = status(dir.path()).unwrap();
        assert_eq!(now.spool, Some(claimed.batch.spool));
        assert_eq!(now.in_use, in_use);
        assert_eq!((now.waiting.records, now.claimed), (35, 5));
        assert_eq!(now.waiting.records, waiting.records);
        let frame = (super::super::format::FRAME + text(1).len()) as u64;
        assert_eq!(now.waiting.bytes, 35 * frame);
        assert_eq!(now.waiting.oldest_ms, Some(start + 5_000));
        assert_eq!(now.newest_ms, Some(start + 39_000));
        assert_eq!((now.counted.appended, now.counted.delivered), (40, 4));
        assert_eq!(now.counted.dropped_for(Reason::Refused), 1);
        assert_eq!(now.set_aside.0, 1);
        assert_eq!(
            (now.segments.0, now.unreadable),
            (segments(dir.path()).len(), 0)
        );
        before.get_or_insert(now);
        // Looking changes nothing; the second time nobody is there.
        if in_use {
            let files = copy(dir.path());
            drop(spool);
            let same = |name: &str| {
                std::fs::read(dir.path().join(name)).unwrap()
                    == std::fs::read(files.path().join(name)).unwrap()
            };
            assert!(same("cursor") && same("set_aside.jsonl"));
            spool = open(files.path(), ROOMY);
        }
    }
}

#[test]
fn what_waits_can_be_discarded_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        kind(discard(&dir.path().join("none"))),
        io::ErrorKind::NotFound
    );
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&texts(1..41));
    spool.take(most(10, usize::MAX)).unwrap();
    spool.ack(5);
    assert_eq!(kind(discard(dir.path())), io::ErrorKind::WouldBlock);
    drop(spool);
    assert_eq!(discard(dir.path()).unwrap(), 36);
    assert_eq!(discard(dir.path()).unwrap(), 0);
    assert_eq!(segments(dir.path()), [] as [PathBuf; 0]);
    let mut spool = open(dir.path(), ROOMY);
    assert_eq!(spool.dropped(Reason::Discarded), 36);
    spool.check();
    // Numbers go on.
    spool.append(&[text(41)]);
    assert_eq!(spool.drain(), expected(41..42));
    spool.check();
}

#[test]
fn records_that_were_set_aside_can_be_tried_again_each_once() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        kind(requeue(&dir.path().join("none"), ROOMY)),
        io::ErrorKind::NotFound
    );
    let mut spool = open(dir.path(), ROOMY);
    let raw: &[u8] = &[0xff, 0, 0x80, b'"'];
    let quoted = "{\"a\":\"line\\nline\"}";
    spool.writer.append(&[quoted.as_bytes(), raw, b"third"]);
    spool.take(ALL).unwrap();
    refuse(&mut spool, 1, quoted.as_bytes(), "no such \"column\"\n");
    refuse(&mut spool, 2, raw, "not text");
    let aside = dir.path().join("set_aside.jsonl");
    let lines = std::fs::read_to_string(&aside).unwrap();
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["sequence"], &first["record"]),
        (&1.into(), &quoted.into())
    );
    assert_eq!(first["error"], "no such \"column\"\n");
    assert!(first["time_ms"].as_i64().unwrap() > 0);
    assert_eq!(kind(requeue(dir.path(), ROOMY)), io::ErrorKind::WouldBlock);
    drop(spool);
    // A kill between setting aside and counting, and a line that somebody has spoilt.
    let twice = format!("{lines}{}\n{{spoilt\n", lines.lines().next().unwrap());
    std::fs::write(&aside, twice).unwrap();
    let done = requeue(dir.path(), ROOMY).unwrap();
    assert_eq!(
        done,
        Requeued {
            appended: 2,
            left: 1
        }
    );
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), "{spoilt\n");
    let mut spool = open(dir.path(), ROOMY);
    let rest = spool.take(ALL).unwrap();
    assert_eq!(rest.batch.records, [&b"third"[..]]);
    spool.ack(4);
    let again = spool.take(ALL).unwrap();
    assert_eq!(again.batch.first, 4);
    assert_eq!(again.batch.records, [quoted.as_bytes(), raw]);
    assert_eq!(spool.dropped(Reason::Refused), 2);
    spool.check();
    drop(spool);
    // Without room they stay where they are, and nothing that waits is given up.
    std::fs::write(&aside, &lines).unwrap();
    let tight = limits(300, Full::DropOldest, 300);
    assert_eq!(
        requeue(dir.path(), tight).unwrap(),
        Requeued {
            appended: 0,
            left: 2
        }
    );
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), lines);
    std::fs::write(&aside, "").unwrap();
    assert_eq!(requeue(dir.path(), ROOMY).unwrap(), Requeued::default());
    assert!(!aside.exists());
}

#[test]
fn what_is_set_aside_is_bounded_and_what_does_not_fit_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    let large = "l".repeat(5 << 20);
    for _ in 0..5 {
        spool.append(&[&large]);
    }
    spool.take(ALL).unwrap();
    for n in 1..=5 {
        refuse(&mut spool, n, large.as_bytes(), &"w".repeat(10_000));
    }
    assert_eq!(spool.dropped(Reason::Refused), 5);
    let now = status(dir.path()).unwrap();
    assert_eq!(now.set_aside.0, 3);
    assert!(now.set_aside.1 < 16 << 20);
    spool.check();
}
