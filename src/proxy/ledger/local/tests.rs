//! Books of one process under many tasks.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use tokio::sync::Barrier;

use super::*;
use crate::guard::caps::{Cap, Limits};
use crate::proxy::ledger::Ledger;
use crate::proxy::ledger::seeds::NoSeeds;

const AT: i64 = 1_796_083_200_000;
const LEVELS: [u32; 3] = [50, 80, 100];

/// Seeds that count how often they are asked, and may fail or be slow.
#[derive(Debug, Default)]
struct Counted {
    asked: AtomicUsize,
    /// So many first looks fail.
    fail: usize,
    /// So many looks after those panic.
    panic: usize,
    spent: Amounts,
    /// The first look ends when the other end is dropped.
    wait: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Seeds for Counted {
    fn seed(&self, _scope: &Scope) -> Result<Seed, String> {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        let wait = self.wait.lock().unwrap().take();
        if let Some(wait) = wait {
            wait.recv().unwrap_err();
        }
        if before < self.fail {
            return Err("the disk is away".into());
        }
        assert!(before >= self.fail + self.panic, "a broken look");
        Ok(Seed {
            spent: self.spent,
            first_ms: None,
        })
    }
}

fn dollars(pico: u64) -> Limits {
    Limits {
        usd_pico: Some(pico),
        ..Limits::default()
    }
}

fn ask(run: &str, limits: Limits, pico: u64) -> Ask {
    Ask {
        scopes: vec![(Scope::Run(run.into()), limits)],
        most: used(pico),
        agent: "main".into(),
        depth: 0,
        now_ms: AT,
    }
}

fn used(pico: u64) -> Amounts {
    Amounts {
        turns: 1,
        pico,
        ..Amounts::default()
    }
}

fn books(seeds: impl Seeds) -> LocalBooks {
    LocalBooks::new(Arc::new(seeds), LEVELS.to_vec())
}

fn figures(books: &LocalBooks, run: &str) -> (u64, u64) {
    let state = books.0.lock();
    state
        .books
        .figures(&Scope::Run(run.into()), Cap::Usd)
        .unwrap()
}

fn granted(reserved: Reserved) -> Option<Hold> {
    match reserved {
        Reserved::Granted { hold, .. } => Some(hold),
        Reserved::Denied { .. } => None,
        Reserved::Unavailable(why) => panic!("{why}"),
    }
}

/// Random enough, and the same in each run of the test.
fn dice(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn d08_many_tasks_at_once_never_pass_the_cap_and_leave_nothing_held() {
    const TASKS: u64 = 200;
    const CAP: u64 = 1_000;
    let books = Arc::new(books(NoSeeds));
    for round in 0..100 {
        let name: Arc<str> = format!("run {round}").into();
        let start = Arc::new(Barrier::new(TASKS as usize));
        let tasks: Vec<_> = (0..TASKS)
            .map(|n| {
                let (books, name, start) = (books.clone(), name.clone(), start.clone());
                tokio::spawn(async move {
                    start.wait().await;
                    let luck = dice(round * TASKS + n);
                    let most = luck % 40;
                    let asked = ask(&name, dollars(CAP), most);
                    let hold = granted(books.reserve(asked).await)?;
                    let (spent, held) = figures(&books, &name);
                    assert!(spent + held <= CAP, "{spent} + {held}");
                    if luck & 0x100 != 0 {
                        tokio::task::yield_now().await;
                    }
                    // Refused upstream, aborted on the way, or all of it.
                    let cost = match luck >> 9 & 3 {
                        0 => Amounts::default(),
                        1 => used(most / 3),
                        _ => used(most),
                    };
                    books.settle(&hold, &cost, luck & 0x1000 != 0, AT);
                    Some(cost.pico)
                })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap().unwrap_or(0);
        }
        assert_eq!(figures(&books, &name), (sum, 0), "round {round}");
        assert!(sum <= CAP);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_that_come_at_once_for_a_new_scope_share_one_look_and_lose_no_hold() {
    let seeds = Arc::new(Counted {
        spent: used(400),
        ..Counted::default()
    });
    let books = Arc::new(LocalBooks::new(seeds.clone(), LEVELS.to_vec()));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let books = books.clone();
            tokio::spawn(async move { granted(books.reserve(ask("r", dollars(1_000), 100)).await) })
        })
        .collect();
    let mut holds = Vec::new();
    for task in tasks {
        holds.extend(task.await.unwrap());
    }
    assert_eq!(holds.len(), 6);
    assert_eq!(figures(&books, "r"), (400, 600));
    assert_eq!(seeds.asked.load(Ordering::Relaxed), 1);
    assert!(books.0.lock().opening.is_empty());
}

#[tokio::test]
async fn who_leaves_during_the_look_does_not_end_it_for_the_others() {
    let (slow, wait) = mpsc::channel();
    let seeds = Arc::new(Counted {
        wait: Mutex::new(Some(wait)),
        ..Counted::default()
    });
    let books = Arc::new(LocalBooks::new(seeds.clone(), LEVELS.to_vec()));
    let first = {
        let books = books.clone();
        tokio::spawn(async move { books.reserve(ask("r", dollars(10), 1)).await })
    };
    let second = {
        let books = books.clone();
        tokio::spawn(async move { granted(books.reserve(ask("r", dollars(10), 1)).await) })
    };
    while seeds.asked.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    drop(slow);
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(second.await.unwrap().is_some());
    assert_eq!(figures(&books, "r"), (0, 1));
    assert_eq!(seeds.asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_look_that_fails_refuses_and_the_next_request_looks_again() {
    let books = books(Counted {
        fail: 1,
        panic: 1,
        ..Counted::default()
    });
    let refused = books.reserve(ask("r", dollars(10), 1)).await;
    let Reserved::Unavailable(why) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(why, "the disk is away");
    assert!(books.0.warned.load(Ordering::Relaxed));
    let refused = books.reserve(ask("r", dollars(10), 1)).await;
    assert!(matches!(refused, Reserved::Unavailable(_)), "{refused:?}");
    assert!(granted(books.reserve(ask("r", dollars(10), 1)).await).is_some());
    assert!(!books.0.warned.load(Ordering::Relaxed));
    assert!(books.0.lock().opening.is_empty());
}

#[tokio::test]
async fn more_scopes_than_there_is_room_for_are_refused_while_the_others_are_in_use() {
    let books = LocalBooks::with_room(Arc::new(NoSeeds), LEVELS.to_vec(), 2);
    let mut holds = Vec::new();
    for run in ["a", "b"] {
        holds.extend(granted(books.reserve(ask(run, dollars(10), 1)).await));
    }
    let refused = books.reserve(ask("c", dollars(10), 1)).await;
    assert!(matches!(refused, Reserved::Unavailable(_)), "{refused:?}");
    // What has no limits needs no book.
    let free = ask("c", Limits::default(), 1);
    holds.extend(granted(books.reserve(free).await));
    assert_eq!(holds.len(), 3);
    for hold in &holds {
        books.settle(hold, &used(1), true, AT);
    }
    let mut later = ask("c", dollars(10), 1);
    later.now_ms += 600_000;
    assert!(granted(books.reserve(later).await).is_some());
}

#[tokio::test]
async fn the_ledger_tells_levels_at_once_and_only_once() {
    let ledger = Ledger::local(Arc::new(NoSeeds), LEVELS.to_vec());
    let mut levels = Vec::new();
    for _ in 0..4 {
        let hold = granted(ledger.reserve(ask("r", dollars(100), 25)).await).unwrap();
        let (tell, told) = mpsc::channel();
        ledger.settle(hold, used(25), false, AT, move |crossings| {
            tell.send(crossings).unwrap();
        });
        let told: Vec<u32> = told.try_recv().unwrap().iter().map(|c| c.level).collect();
        levels.push(told);
    }
    assert_eq!(levels, [vec![], vec![50], vec![], vec![80, 100]]);
    let denied = ledger.reserve(ask("r", dollars(100), 1)).await;
    let Reserved::Denied { denied, crossings } = denied else {
        panic!("{denied:?}");
    };
    assert_eq!((denied.spent, denied.limit, crossings.len()), (100, 100, 0));
}
