//! Redis is away, hangs, comes back, or has forgotten everything.

use super::*;

/// Longer than an answer is waited for, by what a busy machine may take.
const SOON: Duration = Duration::from_millis(1_500);

async fn unavailable(books: &SharedBooks) -> String {
    let began = Instant::now();
    match books.reserve(ask(usd(100), pico(10))).await {
        Reserved::Unavailable(why) => {
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            why
        }
        other => panic!("{other:?}"),
    }
}

async fn back(books: &SharedBooks) -> Hold {
    eventually("Redis is back", async || {
        match books.reserve(ask(usd(100), pico(10))).await {
            Reserved::Granted { hold, .. } => Some(hold),
            _ => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_repeating_it() {
    for url in ["http://:secret@127.0.0.1", "redis://:secret@", "secret"] {
        let error = SharedBooks::connect(url, Vec::new()).await.unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_redis_that_is_not_there_at_the_start_is_found_later() {
    let mut redis = Redis::stopped();
    let books = books(&redis).await;
    unavailable(&books).await;
    // When it is known, nobody waits.
    eventually("it is known", async || {
        let began = Instant::now();
        unavailable(&books).await;
        (began.elapsed() < Duration::from_millis(100)).then_some(())
    })
    .await;
    redis.run();
    let held = back(&books).await;
    settle(&books, held, pico(10)).await;
    assert_eq!(sum(&redis, "r", "spent.pico"), "10");
}

#[tokio::test]
async fn settlements_wait_until_redis_is_back_even_if_it_has_forgotten_everything() {
    let mut redis = Redis::start();
    let books = books(&redis).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(hold(&books, ask(usd(100), pico(10))).await);
    }
    redis.kill();
    for (hold, used) in held.into_iter().zip([1, 2, 4]) {
        settle_only(&books, hold, pico(used));
    }
    unavailable(&books).await;
    // What was asked may have been granted, and is to be given back too.
    assert!((3..=4).contains(&books.waiting()));
    assert!(!books.flush(Duration::from_millis(50)).await);
    redis.run();
    assert!(books.flush(Duration::from_secs(10)).await);
    assert_eq!(sum(&redis, "r", "spent.pico"), "7");
    let held = back(&books).await;
    settle(&books, held, pico(10)).await;
    assert_eq!(sum(&redis, "r", "spent.pico"), "17");
    assert_eq!(books.lost(), 0);
}

#[tokio::test]
async fn a_redis_that_hangs_books_what_it_was_sent_twice_once() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let first = hold(&books, ask(usd(100), pico(10))).await;
    let second = hold(&books, ask(usd(100), pico(10))).await;
    redis.freeze();
    // Sent, not answered, and sent once more on another connection; so is what is given back.
    settle_only(&books, first, pico(3));
    let why = unavailable(&books).await;
    assert!(why.contains("500 ms") || why.contains("Redis"), "{why}");
    settle_only(&books, second, pico(4));
    redis.thaw();
    assert!(books.flush(Duration::from_secs(10)).await);
    // The old connection's bytes are still read by Redis, before or after.
    eventually("nothing is held", async || {
        (sum(&redis, "r", "held.pico") == "0").then_some(())
    })
    .await;
    assert_eq!(sum(&redis, "r", "spent.pico"), "7");
    assert_eq!(books.lost(), 0);
}

#[tokio::test]
async fn who_does_not_wait_for_the_answer_holds_nothing() {
    let redis = Redis::start();
    let books = Arc::new(books(&redis).await);
    // Whoever was answered in time has had its turn.
    let mut turns = 1;
    for patience in [0, 0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000] {
        let asker = Arc::clone(&books);
        let asking = tokio::spawn(async move { asker.reserve(ask(usd(100), pico(100))).await });
        for _ in 0..patience {
            tokio::task::yield_now().await;
        }
        asking.abort();
        if let Ok(Reserved::Granted { hold, .. }) = asking.await {
            settle_only(&books, hold, pico(0));
            turns += 1;
        }
    }
    let held = hold(&books, ask(usd(100), pico(100))).await;
    settle(&books, held, pico(0)).await;
    assert_eq!(holds(&redis, "r"), 0);
    assert_eq!(sum(&redis, "r", "spent.turns"), turns.to_string());
}

#[tokio::test]
async fn a_request_is_not_refused_because_an_idle_connection_or_the_scripts_are_gone() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let mut held = hold(&books, ask(usd(100), pico(10))).await;
    for _ in 0..5 {
        redis.command::<()>(&["SCRIPT", "FLUSH"]);
        settle_only(&books, held, pico(1));
        held = hold(&books, ask(usd(100), pico(10))).await;
        redis.command::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
        settle_only(&books, held, pico(1));
        held = hold(&books, ask(usd(100), pico(10))).await;
    }
    settle(&books, held, pico(1)).await;
    assert_eq!(sum(&redis, "r", "spent.pico"), "11");
    assert_eq!(sum(&redis, "r", "held.pico"), "0");
}

#[tokio::test]
async fn settlements_beyond_the_room_are_counted_and_told_nothing() {
    let mut redis = Redis::start();
    let books = books(&redis).await;
    let told = Arc::new(AtomicU64::new(0));
    let held = hold(&books, ask(usd(100), pico(10))).await;
    redis.kill();
    unavailable(&books).await;
    // What was asked may have been granted, and is to be given back.
    let given_back = books.waiting() as u64;
    assert!(given_back <= 1);
    for n in 0..10_005_u128 {
        let told = Arc::clone(&told);
        let hold = Hold {
            ask: Arc::clone(&held.ask),
            id: n,
            local: false,
        };
        let tell = move |crossings: Vec<Crossing>| {
            assert!(crossings.is_empty());
            told.fetch_add(1, Ordering::SeqCst);
        };
        books.settle(hold, pico(1), false, 0, Box::new(tell));
    }
    assert_eq!((books.lost(), books.waiting()), (5 + given_back, 10_000));
    assert_eq!(told.load(Ordering::SeqCst), books.lost());
}
