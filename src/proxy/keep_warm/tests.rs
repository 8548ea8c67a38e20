mod simulated;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri};
use http_body_util::BodyExt;
use tokio::sync::watch;
use uuid::Uuid;

use super::*;
use crate::clock::ManualClock;
use crate::provider::view::Ttl;
use crate::trace::{RequestKind, TurnRecord};
use crate::usage::Rates;

const SECRET: &str = "sk-test-credential";
const PREFIX: u64 = 100_000;
/// What one ping costs: 0.10 USD per million tokens read.
const PING_PICO: u64 = 10_000_000_000;

fn pause() -> Pause {
    Pause {
        rates: Rates {
            input_pico: 2_000_000,
            output_pico: 10_000_000,
            read_pico: 100_000,
            write_5m_pico: 2_500_000,
            write_1h_pico: 4_000_000,
        },
        ttl: Ttl::M5,
        prefix_tokens: PREFIX,
        returns_milli: 1000,
        outlasts_milli: 370,
        ceiling_micro_usd: 1_000_000,
    }
}

fn body() -> &'static [u8] {
    br#"{"model":"m","max_tokens":9,"stream":true,"messages":[]}"#
}

fn held_of(body: &'static [u8]) -> Option<Held> {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_static(SECRET));
    headers.insert("idempotency-key", HeaderValue::from_static("once"));
    headers.insert("content-length", HeaderValue::from_static("1"));
    let mut turn = TurnRecord::begin(Uuid::new_v4(), RequestKind::Turn, "anthropic", 5);
    turn.run_id = "run-1".into();
    turn.thread_id = "agent".into();
    turn.turn = 3;
    let pieces = [
        Bytes::from_static(&body[..10]),
        Bytes::from_static(&body[10..]),
    ];
    let uri = Uri::from_static("https://upstream.test/v1/messages?beta=true");
    Held::new(uri, headers, &pieces, &turn)
}

fn thread(name: &str) -> ThreadKey {
    ("run-1".into(), name.into())
}

/// What the upstream does with the pings, and what it saw.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Option<Sent>>>,
    seen: Mutex<Vec<(i64, Request, TurnRecord)>>,
    hangs: AtomicBool,
}

/// Method, URI, headers and body of a ping.
type Request = (Method, Uri, HeaderMap, Bytes);

fn read(tokens: u64, cost_pico: Option<u64>) -> Option<Sent> {
    Some(Sent {
        usage: Usage {
            read: Some(tokens),
            write_5m: Some(0),
            write_1h: Some(0),
            ..Usage::default()
        },
        cost_pico,
    })
}

impl Sender for Script {
    async fn send(&self, ping: Ping) -> Option<Sent> {
        let (parts, body) = ping.request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let request = (parts.method, parts.uri, parts.headers, body);
        let started = ping.record.started_ms;
        self.seen
            .lock()
            .unwrap()
            .push((started, request, *ping.record));
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let next = self.answers.lock().unwrap().pop_front();
        next.unwrap_or(read(PREFIX, Some(PING_PICO)))
    }
}

/// A keeper at work, under a clock moved by hand together with the runtime's.
struct World {
    keeper: Arc<Keeper>,
    script: Arc<Script>,
    hand: ManualClock,
    start: i64,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl World {
    fn new(max_bytes: usize) -> Self {
        let (clock, hand) = Clock::manual();
        let start = clock.utc_ms();
        let keeper = Arc::new(Keeper::new(max_bytes, clock));
        let script = Arc::new(Script::default());
        let (stop, mut told) = watch::channel(false);
        let until = async move {
            let _closed = told.wait_for(|stop| *stop).await;
        };
        let task = tokio::spawn(keeper.clone().run(script.clone(), until));
        Self {
            keeper,
            script,
            hand,
            start,
            stop,
            task,
        }
    }

    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.hand.advance(1000);
            tokio::time::advance(Duration::from_secs(1)).await;
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn paused(&self, name: &str) -> Result<i64, Declined> {
        let now = self.keeper.clock.utc_ms();
        self.keeper
            .paused(thread(name), pause(), now, || held_of(body()))
    }

    /// Seconds after the start at which pings were sent.
    fn sent(&self) -> Vec<i64> {
        let seen = self.script.seen.lock().unwrap();
        seen.iter()
            .map(|(at, ..)| (at - self.start) / 1000)
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pausing_thread_is_pinged_until_it_goes_on() {
    let world = World::new(1 << 20);
    assert_eq!(world.paused("agent"), Ok(world.start + 280_000));
    world.pass(279).await;
    assert_eq!(world.sent(), [] as [i64; 0]);
    world.pass(600).await;
    let sent = world.sent();
    assert_eq!(sent.len(), 3);
    for (at, due) in sent.iter().zip([280, 560, 840]) {
        assert!((due..due + 12).contains(at), "{sent:?}");
    }
    let resumed = world.keeper.resumed(&thread("agent")).unwrap();
    let expected = Resumed {
        pings: 3,
        cost_pico: Some(3 * PING_PICO),
    };
    assert_eq!(resumed, expected);
    assert_eq!(world.keeper.size(), (0, 0));
    world.pass(900).await;
    assert_eq!(world.sent().len(), 3, "nothing after the thread went on");
    assert_eq!(world.keeper.resumed(&thread("agent")), None);
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_the_turn_that_generates_nothing() {
    let world = World::new(1 << 20);
    world.paused("agent").unwrap();
    world.pass(600).await;
    let seen = world.script.seen.lock().unwrap();
    let (at, (method, uri, headers, body), record) = &seen[0];
    assert_eq!(*method, Method::POST);
    assert_eq!(*uri, "https://upstream.test/v1/messages?beta=true");
    let expected = br#"{"model":"m","max_tokens":0,"stream":false,"messages":[]}"#;
    assert_eq!(&body[..], expected);
    assert_eq!(headers["content-length"], expected.len().to_string());
    assert_eq!(headers["x-api-key"], SECRET);
    assert!(!headers.contains_key("idempotency-key"));
    assert_eq!(record.kind, RequestKind::KeepWarm);
    assert_eq!(
        (record.run_id.as_str(), record.thread_id.as_str()),
        ("run-1", "agent")
    );
    assert_eq!((record.turn, record.started_ms), (0, *at));
    assert_eq!(record.cache.helper, Some("keep_warm"));
    assert_ne!(record.id, seen[1].2.id, "each ping has a record of its own");
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_not_tried_again() {
    for answer in [None, read(0, Some(1))] {
        let world = World::new(1 << 20);
        let answers = [read(PREFIX, Some(PING_PICO)), answer];
        world.script.answers.lock().unwrap().extend(answers);
        world.paused("agent").unwrap();
        world.pass(1500).await;
        assert_eq!(world.sent().len(), 2);
        // The request is let go; what was spent is still told.
        assert_eq!(world.keeper.size(), (1, 0));
        let resumed = world.keeper.resumed(&thread("agent")).unwrap();
        assert_eq!(resumed.pings, 1 + u32::from(answer.is_some()));
        let spent = PING_PICO + u64::from(answer.is_some());
        assert_eq!(resumed.cost_pico, Some(spent));
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_a_rewrite_is_cheaper() {
    let world = World::new(1 << 20);
    world.paused("agent").unwrap();
    world.pass(30 * 300).await;
    assert_eq!(world.sent().len(), 24);
    assert_eq!(world.keeper.size(), (1, 0));
    // One that had to write all of it again is the last.
    let world = World::new(1 << 20);
    let mut wrote = read(0, Some(25 * PING_PICO)).unwrap();
    wrote.usage.write_5m = Some(PREFIX);
    world.script.answers.lock().unwrap().push_back(Some(wrote));
    world.paused("agent").unwrap();
    world.pass(1500).await;
    assert_eq!(world.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_cost_stays_unknown() {
    let world = World::new(1 << 20);
    world
        .script
        .answers
        .lock()
        .unwrap()
        .push_back(read(PREFIX, None));
    world.paused("agent").unwrap();
    world.pass(600).await;
    let resumed = world.keeper.resumed(&thread("agent")).unwrap();
    assert_eq!((resumed.pings, resumed.cost_pico), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_ping_under_way_belongs_to_its_own_pause() {
    let world = World::new(1 << 20);
    world.script.hangs.store(true, Ordering::Relaxed);
    world.paused("agent").unwrap();
    world.pass(300).await;
    assert_eq!(world.sent().len(), 1);
    let resumed = world.keeper.resumed(&thread("agent")).unwrap();
    assert_eq!((resumed.pings, resumed.cost_pico), (1, None));
    // The thread pauses anew; the old ping times out and ends nothing but itself.
    world.script.hangs.store(false, Ordering::Relaxed);
    world.paused("agent").unwrap();
    world.pass(400).await;
    assert_eq!(world.sent().len(), 2);
    let resumed = world.keeper.resumed(&thread("agent")).unwrap();
    assert_eq!((resumed.pings, resumed.cost_pico), (1, Some(PING_PICO)));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_sends_nothing() {
    let world = World::new(1 << 20);
    world.paused("agent").unwrap();
    world.pass(100).await;
    world.hand.advance(3_600_000);
    world.pass(60).await;
    assert_eq!(world.sent(), [] as [i64; 0]);
    assert_eq!(world.keeper.size(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn when_the_process_ends_nothing_is_sent_and_nothing_is_held() {
    let world = World::new(1 << 20);
    world.paused("agent").unwrap();
    world.pass(275).await;
    world.stop.send(true).unwrap();
    world.pass(60).await;
    assert!(world.task.is_finished());
    assert_eq!(world.sent(), [] as [i64; 0]);
    assert_eq!(world.keeper.size(), (0, 0));
    assert_eq!(world.paused("agent"), Err(Declined::Ended));
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_given_back() {
    let one = held_of(body()).unwrap().bytes();
    let world = World::new(3 * one);
    for name in ["a", "b", "c"] {
        world.paused(name).unwrap();
    }
    assert_eq!(world.paused("d"), Err(Declined::Full));
    world.paused("c").unwrap();
    assert_eq!(world.keeper.size(), (3, 3 * one));
    assert_eq!(world.keeper.resumed(&thread("a")), None);
    world.paused("d").unwrap();
    world.pass(300).await;
    assert_eq!(world.sent().len(), 3);
    assert_eq!(world.keeper.size(), (3, 3 * one));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_threads_is_bounded() {
    let world = World::new(usize::MAX);
    for n in 0..MAX_THREADS {
        world.paused(&n.to_string()).unwrap();
    }
    assert_eq!(world.paused("more"), Err(Declined::Full));
    // A pause that is over but for its report gives way.
    {
        let mut state = world.keeper.lock();
        let over = state.threads.get_mut(&thread("7")).unwrap();
        over.so_far.pings = 1;
        state.end(&thread("7"));
    }
    world.paused("more").unwrap();
    assert_eq!(world.keeper.size().0, MAX_THREADS);
    assert_eq!(world.keeper.resumed(&thread("7")), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_a_ping_is_declined_and_what_does_not_pay_is_not_even_built() {
    let world = World::new(1 << 20);
    let unfit = br#"{"model":"m","max_tokens":9,"thinking":{"type":"adaptive"}}"#;
    let declined = world
        .keeper
        .paused(thread("a"), pause(), world.start, || held_of(unfit));
    assert_eq!(declined, Err(Declined::Unfit));
    let seldom = Pause {
        outlasts_milli: 7,
        ..pause()
    };
    let declined = world
        .keeper
        .paused(thread("a"), seldom, world.start, || panic!("not asked for"));
    assert_eq!(declined, Err(Declined::Stop(Stop::ShortPauses)));
    assert_eq!(world.keeper.size(), (0, 0));
}

#[test]
fn nothing_that_is_held_is_printed() {
    let held = held_of(body()).unwrap();
    let keeper = Keeper::new(1 << 20, Clock::Real);
    let now = keeper.clock.utc_ms();
    keeper
        .paused(thread("a"), pause(), now, || held_of(body()))
        .unwrap();
    for printed in [
        format!("{held:?}"),
        format!("{keeper:?}"),
        format!("{:?}", held.ping(1)),
    ] {
        assert!(
            !printed.contains(SECRET) && !printed.contains("max_tokens"),
            "{printed}"
        );
    }
}
