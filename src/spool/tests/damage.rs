//! Files that a kill, a loss of power or a bad disk has left.

use super::super::format::{FRAME, HEADER};
use super::*;

/// A spool of two segments.
fn filled() -> (TempDir, Spool) {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), limits(1 << 20, Full::DropOldest, 1_000));
    assert_eq!(spool.append(&texts(1..11)), 10);
    assert_eq!(segments(dir.path()).len(), 2);
    (dir, spool)
}

/// After an orderly end: the cursor knows how many records there are.
fn closed() -> TempDir {
    let (dir, spool) = filled();
    spool.writer.close().unwrap();
    dir
}

/// After a kill.
fn killed() -> TempDir {
    filled().0
}

/// Records that came, in order, each as it was, without a number twice.
fn check(got: &[(u64, String)]) {
    assert!(got.is_sorted_by(|one, next| one.0 < next.0), "{got:?}");
    assert!(got.iter().all(|(n, record)| *record == text(*n)), "{got:?}");
}

#[test]
fn a_torn_last_record_is_cut_off_wherever_it_was_torn() {
    let dir = killed();
    let last = segments(dir.path()).pop().unwrap();
    let len = std::fs::metadata(&last).unwrap().len();
    let frame = (FRAME + text(10).len()) as u64;
    for cut in len - frame..len {
        let dir = copy(dir.path());
        let last = dir.path().join(last.file_name().unwrap());
        File::options()
            .write(true)
            .open(&last)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let mut spool = open(dir.path(), ROOMY);
        // The number of a record that nobody had seen is given again.
        assert_eq!(spool.append(&[text(10)]), 1);
        assert_eq!(spool.drain(), expected(1..11), "cut at {cut}");
        assert_eq!(spool.counted().dropped_total(), 0);
        assert_eq!(segments(dir.path()).len(), 1);
        spool.check();
    }
}

#[test]
fn after_an_orderly_end_nothing_can_be_cut_off_unnoticed() {
    let dir = closed();
    let last = segments(dir.path()).pop().unwrap();
    let len = std::fs::metadata(&last).unwrap().len();
    for cut in 0..len {
        let dir = copy(dir.path());
        let last = dir.path().join(last.file_name().unwrap());
        File::options()
            .write(true)
            .open(&last)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let mut spool = open(dir.path(), ROOMY);
        spool.check();
        assert_eq!(spool.append(&[text(11)]), 1);
        let got = spool.drain();
        check(&got);
        assert_eq!(got.last().unwrap().0, 11, "cut at {cut}");
        assert!(spool.dropped(Reason::Damaged) >= 1, "cut at {cut}");
        assert_eq!(got.len() as u64 + spool.dropped(Reason::Damaged), 11);
        spool.check();
    }
}

#[test]
fn a_flipped_byte_costs_one_record_at_most_wherever_it_is() {
    for (ending, dir) in [("closed", closed()), ("killed", killed())] {
        for (n, segment) in segments(dir.path()).iter().enumerate() {
            let bytes = std::fs::read(segment).unwrap();
            for place in 0..bytes.len() {
                let dir = copy(dir.path());
                let mut bytes = bytes.clone();
                bytes[place] ^= 0x55;
                std::fs::write(dir.path().join(segment.file_name().unwrap()), bytes).unwrap();
                let mut spool = open(dir.path(), ROOMY);
                spool.check();
                spool.append(&["one more"]);
                let mut got = spool.drain();
                let at = format!("{ending}, segment {n}, byte {place}");
                assert_eq!(
                    got.pop().map(|(_, text)| text),
                    Some("one more".into()),
                    "{at}"
                );
                check(&got);
                let in_header = place < HEADER;
                assert_eq!(got.len(), if in_header { 10 } else { 9 }, "{at}");
                let damaged = spool.dropped(Reason::Damaged);
                // A length that leads beyond the end of the last segment looks like a torn write.
                let may_look_torn = ending == "killed" && n == 1;
                let right = damaged == u64::from(!in_header) || (may_look_torn && damaged == 0);
                assert!(right, "{at}: {damaged}");
                spool.check();
            }
        }
    }
}

#[test]
fn a_stretch_of_zeros_costs_the_records_under_it() {
    let dir = closed();
    let first = &segments(dir.path())[0];
    let mut bytes = std::fs::read(first).unwrap();
    // From within the second record into the fourth.
    bytes[HEADER + 200..HEADER + 450].fill(0);
    std::fs::write(first, bytes).unwrap();
    let mut spool = open(dir.path(), ROOMY);
    let numbers: Vec<u64> = spool.drain().iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, [1, 5, 6, 7, 8, 9, 10]);
    assert_eq!(spool.dropped(Reason::Damaged), 3);
    spool.check();
}

#[test]
fn a_record_that_holds_frames_is_never_taken_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&["first"]);
    // A record that is the copy of a segment of another spool.
    let other = closed();
    let hostile = std::fs::read(&segments(other.path())[0]).unwrap();
    spool.append(&[hostile]);
    spool.append(&["third"]);
    drop(spool);
    let mine = segments(dir.path()).remove(0);
    let mut bytes = std::fs::read(&mine).unwrap();
    bytes[HEADER + FRAME + 5 + 6] ^= 1;
    std::fs::write(&mine, bytes).unwrap();
    let mut spool = open(dir.path(), ROOMY);
    let got = spool.drain();
    assert_eq!(got, [(1, "first".to_owned()), (3, "third".to_owned())]);
    assert_eq!(spool.dropped(Reason::Damaged), 1);
    spool.check();
}

#[test]
fn a_segment_of_another_version_is_set_aside_and_the_rest_read() {
    let dir = closed();
    let first = &segments(dir.path())[0];
    let mut bytes = std::fs::read(first).unwrap();
    bytes[8] = 9;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..40]);
    bytes[40..48].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(first, &bytes).unwrap();
    let lost = spool_numbers(&dir);
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&[text(11)]);
    let got = spool.drain();
    check(&got);
    assert_eq!(got.len() as u64 + lost, 11);
    assert_eq!(spool.dropped(Reason::Damaged), lost);
    spool.check();
    let aside = std::fs::read_dir(dir.path()).unwrap();
    let aside: Vec<_> = aside
        .map(|file| file.unwrap().path())
        .filter(|file| file.to_str().unwrap().contains(".seg.aside-"))
        .collect();
    assert_eq!(std::fs::read(&aside[0]).unwrap(), bytes);
}

/// Records of the first of two segments.
fn spool_numbers(dir: &TempDir) -> u64 {
    let second = segments(dir.path()).remove(1);
    let name = second.file_stem().unwrap().to_str().unwrap();
    name.parse::<u64>().unwrap() - 1
}

#[test]
fn half_a_cursor_is_the_one_before_and_none_begins_at_the_oldest_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&texts(1..11));
    let claimed = spool.take(most(4, usize::MAX)).unwrap();
    drop(spool);
    let cursor = dir.path().join("cursor");
    let bytes = std::fs::read(&cursor).unwrap();
    assert_eq!(bytes.len(), 8_192);
    let mut survived = Vec::new();
    for slot in [0, 4_096] {
        let dir = copy(dir.path());
        let mut torn = bytes.clone();
        torn[slot + 100..slot + 4_096].fill(0xff);
        std::fs::write(dir.path().join("cursor"), torn).unwrap();
        let mut spool = open(dir.path(), ROOMY);
        let again = spool.take(most(5, usize::MAX)).unwrap();
        survived.push(again.batch.records.len());
        assert_eq!(again.batch.spool, claimed.batch.spool);
        spool.check();
    }
    survived.sort_unstable();
    // The newest slot holds the claim, the other one what was before it.
    assert_eq!(survived, [4, 5]);
    for gone in [true, false] {
        let dir = copy(dir.path());
        let cursor = dir.path().join("cursor");
        if gone {
            std::fs::remove_file(cursor).unwrap();
        } else {
            std::fs::write(cursor, [7; 8_192]).unwrap();
        }
        let mut spool = open(dir.path(), ROOMY);
        spool.append(&[text(11)]);
        let first = spool.take(most(1, 1)).unwrap();
        assert_eq!(first.batch.spool == claimed.batch.spool, gone);
        assert_eq!(spool.drain(), expected(1..12));
        spool.check();
    }
}

#[test]
fn files_that_are_none_of_ours_are_left_alone() {
    let dir = closed();
    for name in ["notes.txt", "1.seg", "0000000000000000000x.seg"] {
        std::fs::write(dir.path().join(name), "?").unwrap();
    }
    let mut spool = open(dir.path(), ROOMY);
    assert_eq!(spool.drain(), expected(1..11));
    assert!(dir.path().join("notes.txt").exists() && dir.path().join("1.seg").exists());
    // An empty segment, as a kill between making and writing it leaves it.
    drop(spool);
    std::fs::write(dir.path().join(super::super::survey::segment_name(11)), "").unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&[text(11)]);
    assert_eq!(spool.drain(), expected(11..12));
    spool.check();
}
