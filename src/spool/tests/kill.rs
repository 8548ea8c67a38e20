//! A process that really is killed, at moments that nobody has chosen.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use super::*;

const DIR: &str = "PREFIXGATE_TEST_SPOOL";
const CHILD: &str = "spool::tests::kill::a_process_to_be_killed";
const ROUNDS: u64 = 20;

/// Appends without end, claims and settles beside it, and reports each step once it is done.
#[test]
#[ignore = "started by the test below, to be killed"]
fn a_process_to_be_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    // The real disk: what survives is what the page cache has.
    let limits = limits(1 << 30, Full::DropOldest, 20_000);
    let (mut writer, reader) = crate::spool::open(dir.as_ref(), limits).unwrap();
    let say = |line: String| std::io::stdout().write_all(line.as_bytes()).unwrap();
    std::thread::spawn(move || {
        loop {
            let Some(claimed) = reader
                .blocking(|desk| desk.take(&most(37, 1 << 20)))
                .unwrap()
            else {
                std::thread::yield_now();
                continue;
            };
            for (n, record) in numbered(&claimed) {
                assert_eq!(record, text(n));
            }
            let (first, end) = (claimed.batch.first, claimed.batch.end());
            say(format!("\nclaimed {first} {end}\n"));
            reader.blocking(|desk| desk.settle(end, crate::spool::Counters::add_delivered));
            say(format!("\nsettled {first} {end}\n"));
        }
    });
    let mut next = writer.shared().state().next;
    loop {
        let records: Vec<String> = texts(next..next + 1 + next % 5);
        let bytes: Vec<&[u8]> = records.iter().map(String::as_bytes).collect();
        next += writer.append(&bytes).stored as u64;
        say(format!("\nappended {next}\n"));
    }
}

fn numbers(line: &str, word: &str) -> Option<Vec<u64>> {
    let numbers = line.strip_prefix(word)?.split_whitespace();
    numbers.map(|number| number.parse().ok()).collect()
}

#[test]
fn e03_e06_after_twenty_kills_each_reported_record_is_read_once_and_batches_come_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let mut appended = 1;
    // First and end of batches, in the order in which they were claimed.
    let mut batches: Vec<(u64, u64)> = Vec::new();
    let mut settled = 1;
    for _ in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([CHILD, "--exact", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moment = getrandom::u32().unwrap() % 400;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut steps = 0;
        for line in lines {
            // The last line may be torn.
            let Ok(line) = line else { break };
            if let Some([next]) = numbers(&line, "appended ").as_deref() {
                appended = appended.max(*next);
                steps += 1;
            } else if let Some([first, end]) = numbers(&line, "claimed ").as_deref() {
                if batches.last() != Some(&(*first, *end)) {
                    assert_eq!(*first, batches.last().map_or(1, |batch| batch.1));
                    batches.push((*first, *end));
                } else {
                    assert!(settled <= *first, "a settled batch came again");
                }
            } else if let Some([_, end]) = numbers(&line, "settled ").as_deref() {
                settled = *end;
            }
            if steps == moment {
                // SIGKILL. What the pipe still holds is read on.
                child.kill().unwrap();
            }
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(steps >= moment, "it ended by itself after {steps} steps");
    }
    let mut spool = open(dir.path(), ROOMY);
    let counted = spool.counted();
    assert!(counted.delivered + 1 >= settled);
    let first = counted.delivered + 1;
    let left = spool.drain();
    let end = first + left.len() as u64;
    assert_eq!(left, expected(first..end));
    assert!(
        end >= appended,
        "{end} {appended}: reported records are missing"
    );
    assert_eq!(spool.counted().dropped_total(), 0);
    spool.check();
    assert!(batches.len() > 20, "{}", batches.len());
}
