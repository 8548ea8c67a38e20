//! Appending: order, numbers, bounds, disks that fail.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn records_come_back_in_order_and_numbers_go_on_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut id = None;
    for round in 0..5 {
        let mut spool = open(dir.path(), ROOMY);
        let from = 1 + round * 40;
        assert_eq!(spool.append(&texts(from..from + 40)), 40);
        let claimed = spool.take(most(10, usize::MAX)).unwrap();
        assert_eq!(*id.get_or_insert(claimed.batch.spool), claimed.batch.spool);
        assert_eq!(numbered(&claimed), expected(from..from + 10));
        let token = format!("{}-{from}-10", claimed.batch.spool);
        assert_eq!(claimed.batch.token(), token);
        spool.ack(from + 10);
        assert_eq!(spool.drain(), expected(from + 10..from + 40));
        assert_eq!(spool.monitor().waiting().records, 0);
        spool.check();
        // An orderly end and a sudden one are alike.
        if round % 2 == 0 {
            spool.writer.close().unwrap();
        }
    }
    // What is delivered is gone, up to the segment that is written to.
    assert_eq!(segments(dir.path()).len(), 1);
}

#[test]
fn an_append_is_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), limits(1 << 20, Full::DropOldest, 1 << 18));
    let cursor_writes = spool.disk.0.lock().unwrap().cursor_writes;
    for round in 0..10 {
        assert_eq!(spool.append(&texts(round * 20..round * 20 + 20)), 20);
    }
    let faults = spool.disk.0.lock().unwrap();
    assert_eq!((faults.appends, faults.syncs), (10, 1));
    assert_eq!(faults.cursor_writes, cursor_writes);
}

#[test]
fn only_the_owner_can_read_a_spool_and_only_one_process_use_it() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("spool").join("clickhouse");
    let mut spool = open(&dir, ROOMY);
    spool.append(&texts(1..100));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert!(files.len() > 5);
    assert!(files.iter().all(|file| mode(file) == 0o600));
    let second = crate::spool::open(&dir, ROOMY).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    // Whoever only watches keeps it as well.
    let monitor = spool.monitor();
    drop(spool);
    assert!(crate::spool::open(&dir, ROOMY).is_err());
    drop(monitor);
    assert!(crate::spool::open(&dir, ROOMY).is_ok());
}

#[test]
fn e03_beyond_its_bound_the_oldest_records_go_and_are_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let bound = 40_000;
    let mut spool = open(dir.path(), limits(bound, Full::DropOldest, 2_000));
    for n in 1..=2_000 {
        assert_eq!(spool.append(&[text(n)]), 1);
        let disk: u64 = segments(dir.path())
            .iter()
            .map(|file| std::fs::metadata(file).unwrap().len())
            .sum();
        assert!(disk <= bound && spool.monitor().disk_bytes() == disk);
        spool.check();
    }
    let dropped = spool.dropped(Reason::Full);
    assert!((1_500..2_000).contains(&dropped), "{dropped}");
    assert_eq!(spool.drain(), expected(dropped + 1..2_001));
    spool.check();
}

#[test]
fn e03_beyond_its_bound_the_newest_records_go_if_that_is_the_choice() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), limits(40_000, Full::DropNewest, 2_000));
    let mut stored = 0;
    for n in 1..=2_000 {
        stored += spool.append(&[text(n)]) as u64;
        spool.check();
    }
    assert!((250..320).contains(&stored), "{stored}");
    // What was counted is known to a process that comes after a kill.
    drop(spool);
    let mut spool = open(dir.path(), limits(40_000, Full::DropNewest, 2_000));
    assert_eq!(spool.dropped(Reason::Full), 2_000 - stored);
    assert_eq!(spool.counted().accepted(), 2_000);
    assert_eq!(spool.drain(), expected(1..stored + 1));
    // There is room again, and no number is missing.
    assert_eq!(spool.append(&[text(stored + 1)]), 1);
    assert_eq!(spool.drain(), expected(stored + 1..stored + 2));
    spool.check();
}

#[test]
fn a_record_that_never_fits_is_dropped_and_one_larger_than_a_segment_is_not() {
    for full in [Full::DropOldest, Full::DropNewest] {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path(), limits(8_000, full, 1_000));
        let large = "l".repeat(5_000);
        let larger = "l".repeat(9_000);
        let records = ["a", &large, &larger, "b", "c"];
        assert_eq!(spool.append(&records), 4);
        assert_eq!(spool.dropped(Reason::Full), 1);
        let got: Vec<String> = spool.drain().into_iter().map(|(_, text)| text).collect();
        assert_eq!(got, ["a", &large, "b", "c"]);
        spool.check();
    }
}

#[test]
fn records_that_make_room_for_one_take_the_segment_with_them_that_is_being_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), limits(8_000, Full::DropOldest, 2_000));
    assert_eq!(spool.append(&texts(1..10)), 9);
    let large = "l".repeat(7_900);
    assert_eq!(spool.append(&[&large]), 1);
    assert_eq!(spool.dropped(Reason::Full), 9);
    assert_eq!(spool.drain(), [(10, large)]);
    spool.check();
}

#[test]
fn e03_a_full_disk_costs_counted_records_and_nothing_of_them_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), limits(1 << 20, Full::DropOldest, 1 << 18));
    assert_eq!(spool.append(&texts(1..6)), 5);
    // In the middle of a record; at the begin of a segment; not a byte.
    spool.disk.set(|faults| faults.room = Some(200));
    assert_eq!(spool.append(&texts(100..105)), 0);
    assert_eq!(spool.append(&texts(100..105)), 0);
    assert_eq!(spool.dropped(Reason::Disk), 10);
    spool.check();
    spool.disk.set(|faults| faults.room = None);
    assert_eq!(spool.append(&texts(6..11)), 5);
    assert_eq!(spool.drain(), expected(1..11));
    spool.check();
    drop(spool);
    let mut spool = open(dir.path(), ROOMY);
    assert_eq!(spool.dropped(Reason::Disk), 10);
    assert_eq!(spool.drain(), []);
    // The first write of a new segment fails.
    spool.disk.set(|faults| faults.room = Some(100));
    assert_eq!(spool.append(&["r".repeat(1_950)]), 0);
    spool.disk.set(|faults| faults.room = None);
    assert_eq!(spool.append(&texts(11..13)), 2);
    assert_eq!(spool.drain(), expected(11..13));
    assert_eq!(spool.dropped(Reason::Disk), 11);
    spool.check();
}

#[test]
fn e03_half_a_write_that_cannot_be_cut_off_is_read_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), limits(1 << 20, Full::DropOldest, 1 << 18));
    assert_eq!(spool.append(&texts(1..4)), 3);
    // Two whole records and a half one stay behind.
    spool.disk.set(|faults| {
        faults.room = Some(320);
        faults.cannot_truncate = true;
    });
    assert_eq!(spool.append(&texts(100..105)), 0);
    spool.disk.set(|faults| faults.room = None);
    assert_eq!(spool.append(&texts(4..8)), 4);
    let from_disk = copy(dir.path());
    assert_eq!(spool.drain(), expected(1..8));
    spool.check();
    let mut later = open(from_disk.path(), ROOMY);
    assert_eq!(later.drain(), expected(1..8));
    assert_eq!(later.dropped(Reason::Disk), 5);
    later.check();
}

#[test]
fn a_claim_that_cannot_be_noted_is_no_claim() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&texts(1..6));
    spool.disk.set(|faults| faults.cannot_write_cursor = true);
    let before = spool.monitor().waiting();
    assert!(spool.reader.blocking(|desk| desk.take(&ALL)).is_err());
    assert_eq!(spool.monitor().waiting(), before);
    spool.disk.set(|faults| faults.cannot_write_cursor = false);
    let claimed = spool.take(most(2, usize::MAX)).unwrap();
    assert_eq!(numbered(&claimed), expected(1..3));
    // An acknowledgement that is not noted is not forgotten by this process.
    spool.disk.set(|faults| faults.cannot_write_cursor = true);
    spool.ack(3);
    spool.disk.set(|faults| faults.cannot_write_cursor = false);
    assert_eq!(spool.drain(), expected(3..6));
    spool.check();
}
