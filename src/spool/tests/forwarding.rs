//! Stores that are down, slow, overloaded, hostile to single records, and up again.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::*;
use crate::spool::{
    Batch, Change, Deliver, Failure, Forwarder, Hooks, Jitter, Progress, Settings, forward,
};

/// What a store does with an attempt.
#[derive(Debug, Clone)]
enum Answer {
    Take,
    Fail(Option<u64>),
    /// Takes it and says that it has not.
    TakeAndFail,
    Hang,
}

#[derive(Debug, Default)]
struct Store {
    /// What is answered first, in turn.
    script: VecDeque<Answer>,
    down: bool,
    /// Texts of which each batch that holds one is refused.
    poison: Vec<String>,
    /// Attempts: when, which token, how many records.
    attempts: Vec<(Duration, String, usize)>,
    /// What was taken: by token.
    taken: Vec<(String, Vec<(u64, String)>)>,
    idle: Vec<bool>,
    idle_hangs: bool,
}

#[derive(Debug, Clone)]
struct Stub(Arc<Mutex<Store>>, Instant);

impl Default for Stub {
    fn default() -> Self {
        Self(Arc::default(), Instant::now())
    }
}

impl Stub {
    fn with<T>(&self, look: impl FnOnce(&mut Store) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// Records as a store has them that knows the tokens it has seen.
    fn records(&self) -> Vec<(u64, String)> {
        let mut seen = std::collections::HashSet::new();
        let taken = self.with(|store| store.taken.clone());
        let fresh = taken
            .into_iter()
            .filter(|(token, _)| seen.insert(token.clone()));
        fresh.flat_map(|(_, records)| records).collect()
    }
}

impl Deliver for Stub {
    async fn deliver(&mut self, batch: &Batch) -> Result<(), Failure> {
        let records = numbered(&Claimed {
            batch: batch.clone(),
            from: batch.first,
        });
        let answer = self.with(|store| {
            let attempt = (self.1.elapsed(), batch.token(), records.len());
            store.attempts.push(attempt);
            let scripted = store.script.pop_front();
            if let Some(bad) = records.iter().find(|(_, text)| store.poison.contains(text)) {
                let why = format!("cannot parse record {}", bad.0);
                return Err(Failure::Refused { why });
            }
            let otherwise = if store.down {
                Answer::Fail(None)
            } else {
                Answer::Take
            };
            let answer = scripted.unwrap_or(otherwise);
            if matches!(answer, Answer::Take | Answer::TakeAndFail) {
                store.taken.push((batch.token(), records));
            }
            Ok(answer)
        })?;
        match answer {
            Answer::Take => Ok(()),
            Answer::Fail(after) => Err(Failure::Later {
                why: "connection refused".into(),
                after: after.map(Duration::from_millis),
            }),
            Answer::TakeAndFail => Err(Failure::Later {
                why: "connection reset".into(),
                after: None,
            }),
            Answer::Hang => std::future::pending().await,
        }
    }

    async fn idle(&mut self, ending: bool) {
        let hangs = self.with(|store| {
            store.idle.push(ending);
            store.idle_hangs
        });
        if hangs {
            std::future::pending().await
        }
    }
}

fn settings(records: usize) -> Settings {
    Settings {
        store: "stub".into(),
        most: Most {
            records,
            bytes: 1 << 20,
            wait: Duration::from_secs(2),
        },
        attempt: Duration::from_secs(10),
    }
}

/// No chance, and every change noted.
fn hooks(changes: &Arc<Mutex<Vec<Change>>>) -> Hooks {
    let changes = Arc::clone(changes);
    Hooks {
        clock: Clock::Real,
        jitter: Jitter(Arc::new(|| u32::MAX)),
        changed: Some(Arc::new(move |change| {
            changes.lock().unwrap().push(change.clone())
        })),
    }
}

fn start(reader: Reader, stub: &Stub, records: usize) -> Forwarder {
    let changes = Arc::default();
    forward(reader, stub.clone(), settings(records), hooks(&changes))
}

async fn until(progress: &Progress, waiting: u64) {
    while progress.view().waiting.records != waiting {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn e03_after_ten_minutes_of_outage_everything_arrives_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Spool {
        mut writer, reader, ..
    } = open(dir.path(), limits(1 << 26, Full::DropOldest, 1 << 20));
    let stub = Stub::default();
    stub.with(|store| store.down = true);
    let changes = Arc::default();
    let forwarder = forward(reader, stub.clone(), settings(500), hooks(&changes));
    let progress = forwarder.progress();
    for n in 1..=6_000 {
        assert_eq!(writer.append(&[text(n).as_bytes()]).stored, 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let view = progress.view();
    assert_eq!((view.waiting.records, view.counted.delivered), (6_000, 0));
    assert!(view.down_since_ms.is_some() && view.last_error.unwrap().1 == "connection refused");
    let attempts = stub.with(|store| std::mem::take(&mut store.attempts));
    // Always the same batch: 250 ms, doubled to 30 s, then every 30 s.
    assert!(attempts.iter().all(|(_, token, _)| *token == attempts[0].1));
    assert!((25..30).contains(&attempts.len()), "{}", attempts.len());
    assert_eq!(view.failures.later, attempts.len() as u64);
    stub.with(|store| store.down = false);
    until(&progress, 0).await;
    assert_eq!(stub.records(), expected(1..6_001));
    let view = progress.view();
    assert_eq!(
        (view.counted.delivered, view.counted.dropped_total()),
        (6_000, 0)
    );
    assert_eq!((view.down_since_ms, view.waiting.oldest_ms), (None, None));
    let changes = changes.lock().unwrap().clone();
    let [Change::Down { why }, Change::Up { after, waiting }] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(why, "connection refused");
    assert!((598..=632).contains(&after.as_secs()) && *waiting >= 6_000);
    forwarder.finish(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn e03_with_a_dead_store_disk_and_memory_stay_bounded_and_the_rest_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let bound = 1 << 20;
    let Spool {
        mut writer, reader, ..
    } = open(dir.path(), limits(bound, Full::DropOldest, 1 << 16));
    let stub = Stub::default();
    stub.with(|store| store.down = true);
    let forwarder = start(reader, &stub, 500);
    let progress = forwarder.progress();
    // 200 MB of rows of 20 kB.
    for n in 1..=10_000_u64 {
        let record = format!("{n:06} {}", "x".repeat(20_000));
        assert_eq!(writer.append(&[record.as_bytes()]).stored, 1);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(progress.view().disk_bytes <= bound);
    }
    let listed = {
        let state = writer.shared().state();
        (state.segments.len(), state.segments.capacity())
    };
    assert!(listed.0 <= 20 && listed.1 <= 64, "{listed:?}");
    stub.with(|store| store.down = false);
    until(&progress, 0).await;
    let records = stub.records();
    let counted = progress.view().counted;
    assert_eq!(counted.delivered, records.len() as u64);
    assert_eq!(
        counted.delivered + counted.dropped_for(Reason::Full),
        10_000
    );
    assert!(records.is_sorted_by(|one, next| one.0 < next.0));
    assert!(
        records
            .iter()
            .all(|(n, text)| text.starts_with(&format!("{n:06} ")))
    );
    forwarder.finish(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn e06_what_was_taken_without_an_answer_comes_again_under_the_same_token() {
    let dir = tempfile::tempdir().unwrap();
    let Spool {
        mut writer, reader, ..
    } = open(dir.path(), ROOMY);
    let stub = Stub::default();
    stub.with(|store| store.script = [Answer::TakeAndFail, Answer::Hang].into());
    let forwarder = start(reader, &stub, 100);
    let progress = forwarder.progress();
    let records = texts(1..101);
    writer.append(&records.iter().map(String::as_bytes).collect::<Vec<_>>());
    until(&progress, 0).await;
    let (attempts, taken) = stub.with(|store| (store.attempts.clone(), store.taken.clone()));
    assert_eq!(attempts.len(), 3);
    assert_eq!(taken.len(), 2);
    assert_eq!(taken[0], taken[1]);
    assert_eq!(stub.records(), expected(1..101));
    // The one that hung was cut off after its ten seconds.
    assert_eq!((attempts[2].0 - attempts[1].0).as_millis(), 10_500);
    let failures = progress.view().failures;
    assert_eq!((failures.later, failures.timeout), (1, 1));
    forwarder.finish(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn e05_back_pressure_is_waited_for_as_the_store_asks() {
    let dir = tempfile::tempdir().unwrap();
    let Spool {
        mut writer, reader, ..
    } = open(dir.path(), ROOMY);
    let stub = Stub::default();
    stub.with(|store| {
        store.script = [Answer::Fail(Some(7_000)), Answer::Fail(Some(900_000))].into()
    });
    let forwarder = start(reader, &stub, 1);
    writer.append(&[b"a"]);
    until(&forwarder.progress(), 0).await;
    let at = stub.with(|store| {
        store
            .attempts
            .iter()
            .map(|a| a.0.as_millis())
            .collect::<Vec<_>>()
    });
    assert_eq!([at[1] - at[0], at[2] - at[1]], [7_000, 60_000]);
    forwarder.finish(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn e05_a_burst_makes_few_batches_and_a_trickle_is_not_held_back() {
    let dir = tempfile::tempdir().unwrap();
    let Spool {
        mut writer, reader, ..
    } = open(dir.path(), ROOMY);
    let stub = Stub::default();
    let forwarder = start(reader, &stub, 10_000);
    for n in 1..=1_000 {
        writer.append(&[text(n).as_bytes()]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    until(&forwarder.progress(), 0).await;
    let batches = stub.with(|store| std::mem::take(&mut store.attempts)).len();
    assert!(batches <= 6, "{batches}");
    for n in 1_001..=1_005 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let start = Instant::now();
        writer.append(&[text(n).as_bytes()]);
        until(&forwarder.progress(), 0).await;
        assert!((2_000..=2_100).contains(&start.elapsed().as_millis()));
    }
    assert_eq!(stub.with(|store| store.attempts.len()), 5);
    // The end does not wait for company.
    for n in 1_006..=1_010 {
        writer.append(&[text(n).as_bytes()]);
    }
    let start = Instant::now();
    forwarder.finish(Duration::from_secs(5)).await;
    assert_eq!(start.elapsed().as_millis(), 0);
    assert_eq!(stub.records(), expected(1..1_011));
}

/// Records of the file of those set aside: number and text.
fn set_aside(dir: &Path) -> Vec<(u64, String)> {
    let lines = std::fs::read_to_string(dir.join("set_aside.jsonl")).unwrap();
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            line["error"],
            format!("cannot parse record {}", line["sequence"])
        );
        let text = line["record"].as_str().unwrap().to_owned();
        (line["sequence"].as_u64().unwrap(), text)
    };
    lines.lines().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn a_poisoned_batch_is_split_down_to_the_bad_records_which_are_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let Spool {
        mut writer, reader, ..
    } = open(dir.path(), ROOMY);
    let stub = Stub::default();
    let bad = [1, 50, 51, 100];
    stub.with(|store| store.poison = bad.map(text).to_vec());
    let forwarder = start(reader, &stub, 100);
    let progress = forwarder.progress();
    let records = texts(1..151);
    writer.append(&records.iter().map(String::as_bytes).collect::<Vec<_>>());
    until(&progress, 0).await;
    let good = |n: &u64| !bad.contains(n);
    let expected: Vec<_> = (1..151).filter(good).map(|n| (n, text(n))).collect();
    assert_eq!(stub.records(), expected);
    assert_eq!(set_aside(dir.path()), bad.map(|n| (n, text(n))));
    let view = progress.view();
    assert_eq!(view.counted.dropped_for(Reason::Refused), 4);
    assert_eq!((view.counted.delivered, view.down_since_ms), (146, None));
    // Far fewer attempts than records.
    assert!(stub.with(|store| store.attempts.len()) < 60);
    forwarder.finish(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn e06_a_split_goes_on_alike_in_the_next_process() {
    let records = texts(1..65);
    let bad = [20, 41];
    let tokens = |stub: &Stub| stub.with(|store| store.taken.clone());
    // As it goes undisturbed, and with an end after each number of attempts.
    let mut undisturbed = Vec::new();
    for after in (1..30).rev() {
        let dir = tempfile::tempdir().unwrap();
        let stub = Stub::default();
        stub.with(|store| store.poison = bad.map(text).to_vec());
        let mut spool = open(dir.path(), ROOMY);
        spool.append(&records);
        let forwarder = start(spool.reader, &stub, 64);
        let cut = stub.clone();
        loop {
            let (attempts, waiting) = (
                cut.with(|s| s.attempts.len()),
                spool.writer.monitor().waiting().records,
            );
            if attempts >= after || waiting == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(spool.writer);
        drop(forwarder);
        // The lock goes with the last call that still runs.
        let spool = loop {
            let opened = open_on(dir.path(), ROOMY, Clock::Real, Arc::new(spool.disk.clone()));
            match opened {
                Ok(opened) => break opened,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let forwarder = start(spool.1, &stub, 64);
        until(&forwarder.progress(), 0).await;
        forwarder.finish(Duration::ZERO).await;
        let mut taken = tokens(&stub);
        // A delivery whose acknowledgement was cut off comes again under its token.
        taken.dedup();
        if undisturbed.is_empty() {
            undisturbed = taken.clone();
        }
        let counted = spool.0.counters().now();
        assert_eq!(
            (counted.delivered, counted.dropped_for(Reason::Refused)),
            (62, 2)
        );
        let good = |n: &u64| !bad.contains(n);
        let expected: Vec<_> = (1..65).filter(good).map(|n| (n, text(n))).collect();
        assert_eq!(stub.records(), expected, "ended after {after}");
        let mut aside = set_aside(dir.path());
        aside.dedup();
        assert_eq!(aside, bad.map(|n| (n, text(n))));
        let names = |taken: &[(String, Vec<(u64, String)>)]| -> Vec<String> {
            let name = |token: &String| token.splitn(6, '-').last().unwrap().to_owned();
            taken.iter().map(|(token, _)| name(token)).collect()
        };
        assert_eq!(names(&taken), names(&undisturbed), "ended after {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_delivers_what_it_can_within_its_grace_and_leaves_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::default();
    for (answers, grace, took, left) in [
        // Up: everything goes, without waiting for company.
        (Vec::new(), 5, 0, 0),
        // Hangs: cut off.
        (vec![Answer::Hang], 3, 3, 10),
        // Fails twice: tried until it works.
        (vec![Answer::Fail(None), Answer::Fail(None)], 5, 0, 0),
        // Down: until the grace is over.
        (vec![Answer::Fail(None); 99], 5, 5, 10),
    ] {
        let mut spool = open(dir.path(), ROOMY);
        let before = spool.monitor().waiting().records;
        let from = spool.writer.shared().state().next;
        let records = texts(from..from + 10 - before);
        spool.append(&records);
        stub.with(|store| store.script = answers.into());
        let forwarder = start(spool.reader, &stub, 10_000);
        let start = Instant::now();
        forwarder.finish(Duration::from_secs(grace)).await;
        assert_eq!(start.elapsed().as_secs(), took);
        assert_eq!(spool.writer.monitor().waiting().records, left);
        assert_eq!(stub.with(|store| store.idle.last().copied()), Some(true));
        spool.writer.close().unwrap();
    }
    stub.with(|store| store.script.clear());
    let mut spool = open(dir.path(), ROOMY);
    let next = spool.writer.shared().state().next;
    spool.append(&[text(next)]);
    let forwarder = start(spool.reader, &stub, 10_000);
    forwarder.finish(Duration::from_secs(5)).await;
    assert_eq!(stub.records(), expected(1..next + 1));
}

#[tokio::test(start_paused = true)]
async fn the_end_is_heard_in_the_middle_of_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    spool.append(&[text(1)]);
    let stub = Stub::default();
    stub.with(|store| store.down = true);
    let forwarder = start(spool.reader, &stub, 1);
    // Somewhere within a pause of 30 s.
    tokio::time::sleep(Duration::from_secs(100)).await;
    stub.with(|store| store.down = false);
    let start = Instant::now();
    forwarder.finish(Duration::from_secs(1)).await;
    assert_eq!(start.elapsed().as_millis(), 0);
    assert_eq!(stub.records(), expected(1..2));
}

#[tokio::test(start_paused = true)]
async fn a_deliverer_hears_that_time_goes_by_and_cannot_stop_it() {
    let dir = tempfile::tempdir().unwrap();
    let Spool {
        mut writer, reader, ..
    } = open(dir.path(), ROOMY);
    let stub = Stub::default();
    let forwarder = start(reader, &stub, 10);
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    assert_eq!(stub.with(|store| store.idle.clone()), [false; 10]);
    // Also under load.
    for n in 1..=100 {
        writer.append(&[text(n).as_bytes()]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let idle = stub.with(|store| store.idle.len());
    assert!((19..=21).contains(&idle), "{idle}");
    // Dropped without a word: it ends, and the spool is free.
    drop(forwarder);
    let monitor = writer.monitor();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&monitor.0), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deliverer_that_hangs_while_nothing_waits_holds_up_neither_records_nor_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), ROOMY);
    let stub = Stub::default();
    stub.with(|store| store.idle_hangs = true);
    let forwarder = start(spool.reader, &stub, 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(spool.writer.append(&[text(1).as_bytes()]).stored, 1);
    let start = Instant::now();
    until(&forwarder.progress(), 0).await;
    // The attempt's ten seconds, of which one was over.
    assert!((8..=10).contains(&start.elapsed().as_secs()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let start = Instant::now();
    forwarder.finish(Duration::from_secs(3)).await;
    assert!(
        start.elapsed() <= Duration::from_millis(3_250),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(stub.with(|store| store.idle.last().copied()), Some(true));
    assert_eq!(stub.records(), expected(1..2));
}
