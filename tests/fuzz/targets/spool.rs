//! A spool's segment with anything done to it: no panic, and every record that is read is one of those
//! written, under its number, in order and once. The bytes are edits of a sound segment, three each
//! (place and value), then what is appended to it.
#![no_main]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;

use libfuzzer_sys::fuzz_target;
use prefixgate::spool::{Full, Limits, Most, discard, format, open, status};

const RECORDS: u64 = 12;

fn record(n: u64) -> Vec<u8> {
    // Some with the bytes that a frame begins with.
    let mut record = format!("{n} ").into_bytes().repeat(n as usize * 3);
    if n.is_multiple_of(3) {
        record.extend_from_slice(&format::FRAME_MAGIC);
    }
    record
}

fuzz_target!(|input: (Vec<(u16, u8)>, Vec<u8>, bool)| {
    let (edits, tail, closed) = input;
    let dir = std::env::temp_dir().join(format!("prefixgate-fuzz-spool-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let limits = Limits::new(1 << 20, Full::DropOldest);
    let Ok((mut writer, reader)) = open(&dir, limits) else { return };
    let written: BTreeMap<u64, Vec<u8>> = (1..=RECORDS).map(|n| (n, record(n))).collect();
    for record in written.values() {
        assert_eq!(writer.append(&[record]).stored, 1);
    }
    if closed {
        assert!(writer.close().is_ok());
    } else {
        drop(writer);
    }
    drop(reader);
    let segment = dir.join(format!("{:020}.seg", 1));
    let Ok(file) = std::fs::File::options().read(true).write(true).open(&segment) else {
        panic!("there is a segment")
    };
    let len = file.metadata().map_or(0, |file| file.len());
    for (place, value) in edits {
        let _ = file.write_all_at(&[value], u64::from(place) % len.max(1));
    }
    let _ = file.write_all_at(&tail, len);
    let told = status(&dir).map(|told| told.waiting.records);
    let Ok((mut writer, mut reader)) = open(&dir, limits) else {
        panic!("a damaged segment is no reason not to open")
    };
    assert_eq!(told.ok(), Some(writer.monitor().waiting().records));
    assert_eq!(writer.append(&[b"new"]).stored, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    let most = Most { records: 5, bytes: 1 << 20, wait: std::time::Duration::ZERO };
    let mut last = 0;
    let mut newest = Vec::new();
    while let Ok(Some(claimed)) = runtime.block_on(reader.take(&most)) {
        for (n, record) in (claimed.batch.first..).zip(&claimed.batch.records) {
            assert!(n > last, "in order and once");
            last = n;
            newest = record.to_vec();
            assert!(record == "new" || written.get(&n).is_some_and(|was| was == record));
        }
        runtime.block_on(reader.ack(claimed.batch.end()));
    }
    assert_eq!(newest, b"new");
    let counted = writer.counters().now();
    assert_eq!(counted.appended, counted.delivered + counted.dropped_total());
    drop((writer, reader, runtime));
    assert_eq!(discard(&dir).ok(), Some(0));
    let _ = std::fs::remove_dir_all(&dir);
});
