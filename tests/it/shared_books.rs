//! Books of caps in a real Redis that several gateways share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prefixgate::guard::caps::{Amounts, Ask, Cap, Crossing, Denied, Left, Limits, Scope};
use prefixgate::proxy::ledger::redis::{SharedBooks, Timing};
use prefixgate::proxy::ledger::{Hold, Reserved};
use tokio::sync::oneshot;

use crate::support::{Redis, eventually};

mod caps;
mod outage;
mod same;

const LEVELS: [u32; 3] = [50, 80, 100];
const USD: u64 = 1_000_000_000_000;

async fn books(redis: &Redis) -> SharedBooks {
    SharedBooks::connect(&redis.url(), LEVELS.to_vec())
        .await
        .unwrap()
}

fn short_leases(redis: &Redis) -> SharedBooks {
    let timing = Timing {
        lease: Duration::from_millis(300),
        renew: Duration::from_millis(75),
        ..Timing::default()
    };
    SharedBooks::connect_timed(&redis.url(), LEVELS.to_vec(), timing).unwrap()
}

fn run(id: &str) -> Scope {
    Scope::Run(id.into())
}

fn pico(pico: u64) -> Amounts {
    Amounts {
        turns: 1,
        pico,
        ..Amounts::default()
    }
}

fn usd(limit: u64) -> Limits {
    Limits {
        usd_pico: Some(limit),
        ..Limits::default()
    }
}

fn ask(limits: Limits, most: Amounts) -> Ask {
    Ask {
        scopes: vec![(run("r"), limits)],
        most,
        agent: "main".into(),
        depth: 0,
        now_ms: 0,
    }
}

fn granted(reserved: Reserved) -> (Hold, Vec<(Scope, Left)>, Vec<Crossing>) {
    match reserved {
        Reserved::Granted {
            hold,
            left,
            crossings,
        } => (hold, left, crossings),
        other => panic!("{other:?}"),
    }
}

fn denied(reserved: Reserved) -> (Denied, Vec<Crossing>) {
    match reserved {
        Reserved::Denied { denied, crossings } => (*denied, crossings),
        other => panic!("{other:?}"),
    }
}

async fn hold(books: &SharedBooks, ask: Ask) -> Hold {
    granted(books.reserve(ask).await).0
}

async fn denial(books: &SharedBooks, ask: Ask) -> Denied {
    denied(books.reserve(ask).await).0
}

/// Settles and waits until that has been booked.
async fn settle(books: &SharedBooks, hold: Hold, used: Amounts) -> Vec<Crossing> {
    settle_at(books, hold, used, false, 0).await
}

async fn settle_at(
    books: &SharedBooks,
    hold: Hold,
    used: Amounts,
    ended: bool,
    now_ms: i64,
) -> Vec<Crossing> {
    let (tell, told) = oneshot::channel();
    let tell = Box::new(move |crossings| tell.send(crossings).unwrap());
    books.settle(hold, used, ended, now_ms, tell);
    told.await.unwrap()
}

/// Settles and goes on.
fn settle_only(books: &SharedBooks, hold: Hold, used: Amounts) {
    books.settle(hold, used, false, 0, Box::new(|_| {}));
}

/// A sum of a run, as Redis keeps it.
fn sum(redis: &Redis, run: &str, field: &str) -> String {
    redis.command(&["HGET", &format!("prefixgate:{{run:{run}}}"), field])
}

fn holds(redis: &Redis, run: &str) -> usize {
    redis.command(&["HLEN", &format!("prefixgate:{{run:{run}}}:holds")])
}

#[tokio::test]
async fn d08_ten_requests_at_once_over_two_gateways_stay_below_the_cap() {
    let redis = Redis::start();
    let (one, two) = (books(&redis).await, books(&redis).await);
    let worst = || ask(usd(USD), pico(300_000_000_000));
    let wave = async || {
        let (one, two) = (&one, &two);
        let (a, b, c, d, e, f, g, h, i, j) = tokio::join!(
            one.reserve(worst()),
            two.reserve(worst()),
            one.reserve(worst()),
            two.reserve(worst()),
            one.reserve(worst()),
            two.reserve(worst()),
            one.reserve(worst()),
            two.reserve(worst()),
            one.reserve(worst()),
            two.reserve(worst()),
        );
        let mut held = Vec::new();
        for reserved in [a, b, c, d, e, f, g, h, i, j] {
            match reserved {
                Reserved::Granted { hold, .. } => held.push(hold),
                other => assert_eq!(denied(other).0.cap, Cap::Usd),
            }
        }
        held
    };
    let first = wave().await;
    assert_eq!(first.len(), 3);
    let refused = denial(&one, worst()).await;
    assert_eq!(refused.scope, run("r"));
    assert_eq!((refused.spent, refused.held), (0, 900_000_000_000));
    assert_eq!((refused.asked, refused.limit), (300_000_000_000, USD));
    assert_eq!(refused.after_ms, None);
    // Whichever gateway settles.
    for hold in first {
        settle(&two, hold, pico(99_990_000_000)).await;
    }
    assert_eq!(sum(&redis, "r", "spent.pico"), "299970000000");
    assert_eq!(sum(&redis, "r", "held.pico"), "0");
    let second = wave().await;
    assert_eq!(second.len(), 2, "a third would exceed");
    for hold in second {
        settle(&one, hold, pico(99_990_000_000)).await;
    }
    // One that the upstream refuses, and one that the client aborts.
    let (refused, aborted) = (hold(&one, worst()).await, two.reserve(worst()).await);
    settle(&one, refused, Amounts::default()).await;
    if let Reserved::Granted { hold, .. } = aborted {
        settle(&two, hold, Amounts::default()).await;
    }
    assert_eq!(sum(&redis, "r", "spent.pico"), "499950000000");
    assert_eq!(sum(&redis, "r", "held.pico"), "0");
    assert_eq!(holds(&redis, "r"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_asks_over_two_gateways_are_never_above_the_cap_together() {
    const LIMIT: u64 = 4_000;
    let redis = Redis::start();
    let gateways = [Arc::new(books(&redis).await), Arc::new(books(&redis).await)];
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for round in 0..30 {
        let id = format!("round {round}");
        // At most what Redis has: less is taken off before Redis does, more added after.
        let (all, used_up) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for n in 0..200 {
            let books = Arc::clone(&gateways[n % 2]);
            let (all, used_up) = (Arc::clone(&all), Arc::clone(&used_up));
            let most = 1 + random(100);
            // A third is aborted; the others use something.
            let used = if random(3) == 0 { 0 } else { random(most + 1) };
            let yields = random(20);
            let mut asking = ask(usd(LIMIT), pico(most));
            asking.scopes = vec![(run(&id), usd(LIMIT))];
            tasks.push(tokio::spawn(async move {
                match books.reserve(asking).await {
                    Reserved::Granted { hold, .. } => {
                        let now = all.fetch_add(most, Ordering::SeqCst) + most;
                        assert!(now <= LIMIT, "{now}");
                        for _ in 0..yields {
                            tokio::task::yield_now().await;
                        }
                        all.fetch_sub(most - used, Ordering::SeqCst);
                        used_up.fetch_add(used, Ordering::SeqCst);
                        settle_only(&books, hold, pico(used));
                    }
                    other => assert_eq!(denied(other).0.cap, Cap::Usd),
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        for books in &gateways {
            assert!(books.flush(Duration::from_secs(5)).await);
        }
        let used = used_up.load(Ordering::SeqCst);
        assert!(used > 0 && used <= LIMIT);
        assert_eq!(sum(&redis, &id, "spent.pico"), used.to_string());
        assert_eq!(sum(&redis, &id, "held.pico"), "0");
        assert_eq!(holds(&redis, &id), 0);
    }
    assert_eq!(gateways[0].lost() + gateways[1].lost(), 0);
}

#[tokio::test]
async fn a_settlement_takes_effect_before_what_the_gateway_asks_later() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let mut held = hold(&books, ask(usd(100), pico(100))).await;
    for _ in 0..200 {
        settle_only(&books, held, pico(0));
        held = hold(&books, ask(usd(100), pico(100))).await;
    }
}

#[tokio::test]
async fn money_beyond_what_a_double_holds_is_exact() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let (limit, spent) = (20_000 * USD, 9_007_199_254_740_993);
    let first = hold(&books, ask(usd(limit), pico(spent))).await;
    settle(&books, first, pico(spent)).await;
    let rest = limit - spent;
    let one_more = denial(&books, ask(usd(limit), pico(rest + 1))).await;
    assert_eq!((one_more.spent, one_more.asked), (spent, rest + 1));
    let (_second, left, _) = granted(books.reserve(ask(usd(limit), pico(rest - 1))).await);
    assert_eq!(left[0].1.usd_pico, Some(1));
    let third = hold(&books, ask(usd(limit), pico(1))).await;
    let full = denial(&books, ask(usd(limit), pico(1))).await;
    assert_eq!((full.spent, full.held), (spent, rest));
    settle(&books, third, pico(0)).await;
    assert_eq!(sum(&redis, "r", "held.pico"), (rest - 1).to_string());

    // Whatever fits into an amount can be added up.
    let all = || {
        let mut all = ask(usd(u64::MAX), pico(u64::MAX));
        all.scopes[0].0 = run("all");
        all
    };
    let first = hold(&books, all()).await;
    let beside = denial(&books, all()).await;
    assert_eq!((beside.held, beside.asked), (u64::MAX, u64::MAX));
    settle(&books, first, pico(u64::MAX - 1)).await;
    assert_eq!(denial(&books, all()).await.spent, u64::MAX - 1);
    assert_eq!(sum(&redis, "all", "spent.pico"), (u64::MAX - 1).to_string());
}

#[tokio::test]
async fn holds_of_a_gateway_that_died_are_given_back_when_their_leases_end() {
    let redis = Redis::start();
    let (dies, lives) = (short_leases(&redis), short_leases(&redis));
    let limits = Limits {
        concurrency: Some(2),
        ..usd(100)
    };
    let kept = hold(&lives, ask(limits, pico(40))).await;
    let _left_behind = hold(&dies, ask(limits, pico(60))).await;
    drop(dies);
    assert_eq!(denial(&lives, ask(limits, pico(60))).await.held, 100);
    let began = Instant::now();
    let taken_over = eventually("the hold ends", async || {
        match lives.reserve(ask(limits, pico(60))).await {
            Reserved::Granted { hold, .. } => Some(hold),
            _ => None,
        }
    })
    .await;
    // The one that is renewed has outlived its first lease by now, and more.
    tokio::time::sleep(Duration::from_millis(500).saturating_sub(began.elapsed())).await;
    let full = denial(&lives, ask(limits, pico(1))).await;
    assert_eq!((full.cap, full.held), (Cap::Usd, 100));
    settle(&lives, kept, pico(40)).await;
    settle(&lives, taken_over, pico(60)).await;
    assert_eq!(sum(&redis, "r", "spent.pico"), "100");
    assert_eq!(sum(&redis, "r", "held.pico"), "0");
}

#[tokio::test]
async fn what_is_settled_after_its_lease_counts_and_is_not_given_back_twice() {
    let redis = Redis::start();
    let timing = Timing {
        lease: Duration::from_millis(50),
        renew: Duration::from_secs(600),
        ..Timing::default()
    };
    let books = SharedBooks::connect_timed(&redis.url(), LEVELS.to_vec(), timing).unwrap();
    let late = hold(&books, ask(usd(100), pico(70))).await;
    tokio::time::sleep(Duration::from_millis(80)).await;
    let (other, left, _) = granted(books.reserve(ask(usd(100), pico(50))).await);
    assert_eq!(left[0].1.usd_pico, Some(50), "the lease had ended");
    settle(&books, late, pico(30)).await;
    assert_eq!(sum(&redis, "r", "spent.pico"), "30");
    assert_eq!(sum(&redis, "r", "held.pico"), "50");
    settle(&books, other, pico(50)).await;
    assert_eq!(sum(&redis, "r", "spent.pico"), "80");
    assert_eq!(sum(&redis, "r", "held.pico"), "0");
}

#[tokio::test]
async fn a_hold_that_its_owner_has_forgotten_is_not_renewed() {
    let redis = Redis::start();
    let books = short_leases(&redis);
    drop(hold(&books, ask(usd(100), pico(100))).await);
    eventually("the hold ends", async || {
        match books.reserve(ask(usd(100), pico(100))).await {
            Reserved::Granted { hold, .. } => Some(hold),
            _ => None,
        }
    })
    .await;
}

#[tokio::test]
async fn books_are_kept_for_as_long_as_their_scope_may_be_used() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let mut asking = ask(usd(100), pico(1));
    // An id may hold anything.
    let odd = "}:holds \r\n{";
    asking.scopes = vec![
        (run(odd), usd(100)),
        (Scope::Unnamed("ab12".into(), "2026-11-30".into()), usd(100)),
        (Scope::Key("ab12".into(), "2026-11-30".into()), usd(100)),
    ];
    let held = hold(&books, asking).await;
    let day = 86_400;
    for (name, days) in [
        (format!("run:{odd}"), 35),
        ("unnamed:ab12:2026-11-30".to_owned(), 3),
        ("key:ab12:2026-11-30".to_owned(), 3),
    ] {
        for suffix in ["", ":holds", ":leases"] {
            let key = format!("prefixgate:{{{name}}}{suffix}");
            let left: u64 = redis.command(&["TTL", &key]);
            assert!((days * day - 60..=days * day).contains(&left), "{key}");
        }
    }
    settle(&books, held, pico(1)).await;
    let keys: Vec<String> = redis.command(&["KEYS", "*"]);
    for key in keys {
        let left: i64 = redis.command(&["TTL", &key]);
        assert!(left > 0, "{key} would stay for ever");
    }
}
