use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::trace::{CallStatus, WriteError};

/// A store that does as it is told.
struct Scripted {
    seen: Arc<Mutex<Vec<Entry>>>,
    batches: Sender<usize>,
    /// Each write waits for a word from here, if there is such a gate.
    gate: Option<Receiver<()>>,
    /// Writes that fail before one succeeds.
    failures: usize,
    reason: DropReason,
    retained: Arc<Mutex<Vec<i64>>>,
    pieces: usize,
}

impl Sink for Scripted {
    fn write(&mut self, batch: &[Entry]) -> Result<(), WriteError> {
        let _ = self.batches.send(batch.len());
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        if self.failures > 0 {
            self.failures -= 1;
            return Err(WriteError {
                reason: self.reason,
                message: "scripted".into(),
            });
        }
        self.seen.lock().unwrap().extend_from_slice(batch);
        Ok(())
    }

    fn retain(&mut self, now_ms: i64, _keep: &Retention) -> Result<bool, WriteError> {
        self.retained.lock().unwrap().push(now_ms);
        self.pieces = self.pieces.saturating_sub(1);
        Ok(self.pieces > 0)
    }
}

fn scripted() -> (Scripted, Receiver<usize>) {
    let (batches, heard) = channel();
    let store = Scripted {
        seen: Arc::default(),
        batches,
        gate: None,
        failures: 0,
        reason: DropReason::DiskFull,
        retained: Arc::default(),
        pieces: 0,
    };
    (store, heard)
}

const KEEP: Retention = Retention {
    days: 30,
    bytes: 1 << 30,
};
const EAGER: Pace = Pace {
    linger: Duration::ZERO,
    retry_after: &[Duration::ZERO, Duration::ZERO],
};

fn result(n: u64) -> CallResult {
    CallResult {
        run_id: "run".into(),
        thread_id: "thread".into(),
        call_id: format!("call {n}"),
        status: CallStatus::Ok,
        latency_ms: Some(n),
        result_bytes: None,
        retries: 0,
    }
}

#[test]
fn what_is_handed_over_is_written_in_order_and_close_waits_for_it() {
    let (store, _heard) = scripted();
    let seen = Arc::clone(&store.seen);
    let (recorder, handle) = start(store, 10_000, KEEP).unwrap();
    for n in 0..2_500 {
        recorder.call_result(result(n));
    }
    handle.close();
    let expected: Vec<_> = (0..2_500)
        .map(|n| Entry::Result(Box::new(result(n))))
        .collect();
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!((recorder.written(), recorder.dropped()), (2_500, 0));
}

#[test]
fn a_full_queue_drops_and_counts_and_never_blocks() {
    let (mut store, heard) = scripted();
    let (open, gate) = channel();
    store.gate = Some(gate);
    let (recorder, handle) = start_paced(store, 4, KEEP, EAGER).unwrap();
    recorder.call_result(result(0));
    // The writer holds the first one inside the store; four more fit, the rest does not.
    assert_eq!(heard.recv().unwrap(), 1);
    for n in 1..=10 {
        recorder.call_result(result(n));
    }
    assert_eq!(recorder.dropped_for(DropReason::QueueFull), 6);
    drop(open);
    handle.close();
    assert_eq!((recorder.written(), recorder.dropped()), (5, 6));
}

#[test]
fn records_after_the_end_are_counted() {
    let (store, _heard) = scripted();
    let (recorder, handle) = start(store, 4, KEEP).unwrap();
    handle.close();
    recorder.call_result(result(1));
    assert_eq!(recorder.dropped_for(DropReason::Closed), 1);
    assert_eq!(recorder.written(), 0);
}

#[test]
fn flush_waits_for_what_came_before() {
    let (store, _heard) = scripted();
    let (recorder, handle) = start(store, 100, KEEP).unwrap();
    for n in 0..20 {
        recorder.call_result(result(n));
    }
    handle.flush();
    assert_eq!(recorder.written(), 20);
    handle.close();
}

#[test]
fn a_failed_write_is_tried_again_and_then_counted_with_its_reason() {
    let (mut store, heard) = scripted();
    store.failures = 2;
    let (recorder, handle) = start_paced(store, 4, KEEP, EAGER).unwrap();
    recorder.call_result(result(1));
    handle.close();
    assert_eq!((recorder.written(), recorder.dropped()), (1, 0));
    assert_eq!(heard.iter().count(), 3);

    let (mut store, heard) = scripted();
    store.failures = 3;
    let (recorder, handle) = start_paced(store, 4, KEEP, EAGER).unwrap();
    recorder.call_result(result(1));
    handle.flush();
    assert_eq!(recorder.dropped_for(DropReason::DiskFull), 1);
    // The store works again, and so do we.
    recorder.call_result(result(2));
    handle.close();
    assert_eq!((recorder.written(), recorder.dropped()), (1, 1));
    assert_eq!(heard.iter().count(), 4);
}

#[test]
fn nothing_accepted_is_lost_whatever_the_moment_of_the_end() {
    for _ in 0..50 {
        let (store, _heard) = scripted();
        let (recorder, handle) = start_paced(store, 16, KEEP, EAGER).unwrap();
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let recorder = recorder.clone();
                std::thread::spawn(move || (0..100).for_each(|n| recorder.call_result(result(n))))
            })
            .collect();
        handle.close();
        senders.into_iter().for_each(|s| s.join().unwrap());
        assert_eq!(recorder.written() + recorder.dropped(), 300);
    }
}

#[test]
fn retention_runs_by_the_clock_of_the_records_until_nothing_is_left_to_do() {
    let call = |asked_ms| ToolCallRecord {
        turn_id: uuid::Uuid::nil(),
        run_id: "r".into(),
        thread_id: "t".into(),
        call_id: "c".into(),
        name: "Bash".into(),
        input_hash: "h".into(),
        input_bytes: 2,
        asked_ms,
        status: CallStatus::Pending,
        latency_ms: None,
        result_bytes: None,
        wrong: None,
        retries: 0,
    };
    let (mut store, _heard) = scripted();
    store.pieces = 3;
    let retained = Arc::clone(&store.retained);
    let (recorder, handle) = start_paced(store, 16, KEEP, EAGER).unwrap();
    recorder.call(call(1_000));
    handle.flush();
    // The remaining pieces need no further record, only time; a later minute starts anew.
    while retained.lock().unwrap().len() < 3 {
        std::thread::yield_now();
    }
    recorder.call(call(2_000));
    handle.flush();
    recorder.call(call(61_000));
    handle.flush();
    handle.close();
    assert_eq!(*retained.lock().unwrap(), [1_000, 1_000, 1_000, 61_000]);
}
