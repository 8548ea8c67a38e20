use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::trace::{CallStatus, WriteError};

/// A store that does as it is told.
struct Scripted {
    seen: Arc<Mutex<Vec<Entry>>>,
    /// The calls that each batch is said to have brought up to date.
    calls: Vec<ToolCallRecord>,
    batches: Sender<usize>,
    /// Each write waits for a word from here, if there is such a gate.
    gate: Option<Receiver<()>>,
    /// Writes that fail before one succeeds.
    failures: usize,
    reason: DropReason,
    /// They fail when everything was told.
    late: bool,
    retained: Arc<Mutex<Vec<i64>>>,
    pieces: usize,
}

impl Sink for Scripted {
    fn write_and_tell(
        &mut self,
        batch: &[Entry],
        pass_on: &mut dyn FnMut(&[ToolCallRecord]),
    ) -> Result<(), WriteError> {
        let _ = self.batches.send(batch.len());
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        if self.late || self.failures == 0 {
            pass_on(&self.calls);
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
        calls: Vec::new(),
        batches,
        gate: None,
        failures: 0,
        reason: DropReason::DiskFull,
        late: false,
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

fn pending(asked_ms: i64) -> ToolCallRecord {
    ToolCallRecord {
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
    }
}

#[test]
fn what_is_handed_over_is_written_in_order_and_close_waits_for_it() {
    let (store, _heard) = scripted();
    let seen = Arc::clone(&store.seen);
    let (recorder, handle) = start(store, vec![], 10_000, KEEP).unwrap();
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
    let (recorder, handle) = start_paced(store, vec![], 4, KEEP, EAGER).unwrap();
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
    let (recorder, handle) = start(store, vec![], 4, KEEP).unwrap();
    handle.close();
    recorder.call_result(result(1));
    assert_eq!(recorder.dropped_for(DropReason::Closed), 1);
    assert_eq!(recorder.written(), 0);
}

#[test]
fn flush_waits_for_what_came_before() {
    let (store, _heard) = scripted();
    let (recorder, handle) = start(store, vec![], 100, KEEP).unwrap();
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
    let (recorder, handle) = start_paced(store, vec![], 4, KEEP, EAGER).unwrap();
    recorder.call_result(result(1));
    handle.close();
    assert_eq!((recorder.written(), recorder.dropped()), (1, 0));
    assert_eq!(heard.iter().count(), 3);

    let (mut store, heard) = scripted();
    store.failures = 3;
    let (recorder, handle) = start_paced(store, vec![], 4, KEEP, EAGER).unwrap();
    recorder.call_result(result(1));
    handle.flush();
    assert_eq!(recorder.dropped_for(DropReason::DiskFull), 1);
    // The store works again, and so do we.
    recorder.call_result(result(2));
    handle.close();
    assert_eq!((recorder.written(), recorder.dropped()), (1, 1));
    assert_eq!(heard.iter().count(), 4);
}

/// Keeps what it is given.
struct Listening(Arc<Mutex<Vec<Entry>>>);

impl Outlet for Listening {
    fn take(&mut self, records: &[&[u8]]) {
        let records = records.iter().map(|r| Entry::decode(r).unwrap());
        self.0.lock().unwrap().extend(records);
    }
}

/// What two outlets hear of a call and a result in one batch, with a store that fails so often.
fn heard_beside(failures: usize, late: bool) -> Vec<Entry> {
    let (mut store, _heard) = scripted();
    let (open, gate) = channel();
    (store.failures, store.late, store.gate) = (failures, late, Some(gate));
    let mut answered = pending(1_000);
    answered.status = CallStatus::Ok;
    store.calls = vec![answered];
    let (one, two) = (Arc::default(), Arc::default());
    let outlets: Vec<Box<dyn Outlet>> = vec![
        Box::new(Listening(Arc::clone(&one))),
        Box::new(Listening(Arc::clone(&two))),
    ];
    let (recorder, handle) = start_paced(store, outlets, 16, KEEP, EAGER).unwrap();
    recorder.call(pending(1_000));
    recorder.call_result(result(1));
    drop(open);
    handle.close();
    let heard = one.lock().unwrap().clone();
    assert_eq!(heard, *two.lock().unwrap());
    heard
}

#[test]
fn what_lies_beside_the_store_hears_each_record_once_however_often_the_store_is_tried() {
    let asked = Entry::Call(Box::new(pending(1_000)));
    let told = Entry::Result(Box::new(result(1)));
    for (failures, late) in [(0, false), (2, false), (2, true), (3, true)] {
        let heard = heard_beside(failures, late);
        // The store may have been given both in one batch or in two.
        assert!(heard.contains(&asked) && !heard.contains(&told));
        assert_eq!(heard.iter().filter(|e| **e == asked).count(), 1);
        let answered = heard.iter().filter(|e| **e != asked);
        assert!(answered.clone().count() > 0);
        for entry in answered {
            let Entry::Call(call) = entry else {
                panic!("{entry:?}")
            };
            assert_eq!(call.status, CallStatus::Ok);
        }
    }
    // What the store has not taken is passed on as it came.
    assert_eq!(heard_beside(usize::MAX, false), [asked, told]);
}

#[test]
fn nothing_accepted_is_lost_whatever_the_moment_of_the_end() {
    for _ in 0..50 {
        let (store, _heard) = scripted();
        let (recorder, handle) = start_paced(store, vec![], 16, KEEP, EAGER).unwrap();
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
    let (mut store, _heard) = scripted();
    store.pieces = 3;
    let retained = Arc::clone(&store.retained);
    let (recorder, handle) = start_paced(store, vec![], 16, KEEP, EAGER).unwrap();
    recorder.call(pending(1_000));
    handle.flush();
    // The remaining pieces need no further record, only time; a later minute starts anew.
    while retained.lock().unwrap().len() < 3 {
        std::thread::yield_now();
    }
    recorder.call(pending(2_000));
    handle.flush();
    recorder.call(pending(61_000));
    handle.flush();
    handle.close();
    assert_eq!(*retained.lock().unwrap(), [1_000, 1_000, 1_000, 61_000]);
}
