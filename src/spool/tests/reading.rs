//! Claiming: borders that last, company, a writer beside it.

use std::os::unix::fs::FileExt as _;

use tokio::time::Instant;

use super::*;

#[test]
fn e06_a_claimed_batch_is_claimed_again_alike_until_it_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&texts(1..60));
    let first = spool.take(most(25, usize::MAX)).unwrap();
    assert_eq!(numbered(&first), expected(1..26));
    for others in [1, 10, 1_000] {
        // Kills, more records, other limits of a batch.
        drop(spool);
        spool = open(dir.path(), ROOMY);
        spool.append(&[text(0)]);
        assert_eq!(spool.take(most(others, others)).unwrap(), first);
        assert_eq!(spool.take(most(others, others)).unwrap(), first);
        spool.check();
    }
    spool.ack(26);
    drop(spool);
    spool = open(dir.path(), ROOMY);
    let next = spool.take(most(3, usize::MAX)).unwrap();
    assert_eq!(numbered(&next), expected(26..29));
    spool.check();
}

#[test]
fn e06_a_batch_that_was_settled_in_part_comes_again_with_where_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&texts(1..40));
    let whole = spool.take(most(20, usize::MAX)).unwrap();
    spool.ack(8);
    spool.check();
    drop(spool);
    let mut spool = open(dir.path(), ROOMY);
    let rest = spool.take(ALL).unwrap();
    assert_eq!((whole.from, rest.from), (1, 1));
    assert_eq!(numbered(&rest), expected(8..21));
    assert_eq!(spool.counted().delivered, 7);
    spool.check();
    spool.ack(21);
    assert_eq!(spool.drain(), expected(21..40));
    spool.check();
}

#[test]
fn a_batch_is_bounded_in_records_and_bytes_and_holds_one_record_at_least() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    let records = [
        "a".repeat(100),
        "b".repeat(100),
        "c".repeat(5_000),
        "d".into(),
    ];
    spool.append(&records);
    let mut sizes = Vec::new();
    while let Some(claimed) = spool.take(most(10, 250)) {
        sizes.push(claimed.batch.records.len());
        spool.ack(claimed.batch.end());
    }
    assert_eq!(sizes, [2, 1, 1]);
}

#[test]
fn e03_the_claimed_batch_may_be_dropped_from_the_disk_and_still_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let tight = limits(10_000, Full::DropOldest, 2_000);
    let mut spool = open(dir.path(), tight);
    spool.append(&texts(1..30));
    let claimed = spool.take(most(20, usize::MAX)).unwrap();
    spool.append(&texts(30..300));
    spool.check();
    let from_disk = copy(dir.path());
    // Delivered in the end: it was in the hands of the reader.
    spool.ack(claimed.batch.end());
    assert_eq!(spool.counted().delivered, 20);
    let left = spool.drain();
    let dropped = spool.dropped(Reason::Full);
    assert_eq!(left, expected(20 + dropped + 1..300));
    spool.check();
    // A later process has lost it, for want of room.
    let mut later = open(from_disk.path(), tight);
    later.check();
    assert_eq!(later.drain(), left);
    assert_eq!(later.dropped(Reason::Full), dropped + 20);
    assert_eq!(later.dropped(Reason::Damaged), 0);
    later.check();
}

#[test]
fn what_waits_is_told_with_the_age_of_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, hand) = Clock::manual();
    let start = clock.utc_ms();
    let mut spool = open_with(dir.path(), ROOMY, clock);
    for n in 1..=30 {
        spool.append(&[text(n)]);
        hand.advance(1_000);
    }
    let frame = (super::super::format::FRAME + text(1).len()) as u64;
    let waiting = spool.monitor().waiting();
    assert_eq!((waiting.records, waiting.bytes), (30, 30 * frame));
    assert_eq!(waiting.oldest_ms, Some(start));
    // Claimed is still waiting, until it is settled.
    spool.take(most(20, usize::MAX)).unwrap();
    assert_eq!(spool.monitor().waiting(), waiting);
    spool.ack(21);
    let waiting = spool.monitor().waiting();
    assert_eq!((waiting.records, waiting.bytes), (10, 10 * frame));
    assert_eq!(waiting.oldest_ms, Some(start + 20_000));
    drop(spool);
    let mut spool = open(dir.path(), ROOMY);
    assert_eq!(spool.monitor().waiting(), waiting);
    spool.drain();
    assert_eq!(spool.monitor().waiting(), super::super::Waiting::default());
}

#[test]
fn a_segment_that_somebody_removes_costs_its_records_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&texts(1..61));
    let files = segments(dir.path());
    std::fs::remove_file(&files[1]).unwrap();
    let got = spool.drain();
    let lost = spool.dropped(Reason::Damaged);
    assert!((10..20).contains(&lost));
    assert_eq!(got.len() as u64, 60 - lost);
    assert!(got.is_sorted() && got.iter().all(|(n, record)| *record == text(*n)));
    spool.check();
}

#[test]
fn what_is_damaged_while_it_waits_is_skipped_in_the_same_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&texts(1..61));
    let file = File::options()
        .write(true)
        .open(&segments(dir.path())[1])
        .unwrap();
    file.write_all_at(b"?", 700).unwrap();
    assert_eq!(spool.drain().len(), 59);
    assert_eq!(spool.dropped(Reason::Damaged), 1);
    spool.check();
}

#[tokio::test(start_paused = true)]
async fn e05_the_first_record_waits_for_company_but_not_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    let most = Most {
        records: 5,
        bytes: 10_000,
        wait: Duration::from_secs(2),
    };
    // Nothing: nobody is woken.
    let start = Instant::now();
    let waited = tokio::time::timeout(Duration::from_secs(60), spool.reader.claim(&most)).await;
    assert!(waited.is_err());
    // A lone record: after the wait.
    let start = {
        assert_eq!(start.elapsed().as_secs(), 60);
        Instant::now()
    };
    spool.append(&[text(1)]);
    let claimed = spool.reader.claim(&most).await.unwrap();
    assert_eq!(
        (claimed.batch.records.len(), start.elapsed().as_secs()),
        (1, 2)
    );
    spool.reader.ack(2).await;
    // Enough of them: at once, also when they come while the reader waits.
    let start = Instant::now();
    let (mut writer, mut reader) = (spool.writer, spool.reader);
    let (claimed, ()) = tokio::join!(reader.claim(&most), async {
        for n in 2..8 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            writer.append(&[text(n).as_bytes()]);
        }
    });
    assert_eq!(numbered(&claimed.unwrap()), expected(2..7));
    assert_eq!(start.elapsed().as_millis(), 600);
    reader.ack(7).await;
    // Being asked again does not make it wait longer.
    let start = Instant::now();
    for _ in 0..3 {
        let ready = reader.ready(&most);
        let _ = tokio::time::timeout(Duration::from_millis(900), ready).await;
    }
    assert_eq!(start.elapsed().as_millis(), 2_000);
    // Bytes are enough as well.
    writer.append(&["b".repeat(20_000).as_bytes()]);
    let start = Instant::now();
    reader.ready(&most).await;
    assert_eq!(start.elapsed().as_millis(), 0);
}

#[tokio::test]
async fn a_writer_on_its_own_thread_and_a_reader_lose_nothing_between_them() {
    const RECORDS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), limits(1 << 30, Full::DropOldest, 50_000));
    let (mut writer, mut reader) = (spool.writer, spool.reader);
    let writing = std::thread::spawn(move || {
        for from in (1..=RECORDS).step_by(8) {
            let records = texts(from..from + 8);
            let records: Vec<&[u8]> = records.iter().map(String::as_bytes).collect();
            assert_eq!(writer.append(&records).stored, 8);
        }
        writer
    });
    let most = Most {
        wait: Duration::from_millis(1),
        ..most(500, 1 << 20)
    };
    let mut expect = 1;
    while expect <= RECORDS {
        let claimed = reader.claim(&most).await.unwrap();
        for (n, record) in numbered(&claimed) {
            assert_eq!((n, record), (expect, text(expect)));
            expect += 1;
        }
        reader.ack(expect).await;
    }
    let writer = writing.join().unwrap();
    assert_eq!(writer.counters().now().delivered, RECORDS);
    assert_eq!(writer.monitor().waiting().records, 0);
    assert!(segments(dir.path()).len() <= 2);
}
