use std::convert::Infallible;
use std::sync::Mutex;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::tz::TimeZone;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::super::Kind;
use super::super::samples::{START, digest, level, of_event, of_turn};
use super::*;
use crate::config::{Alerts, Form, Webhook};
use crate::trace::AlertSender;

const SECOND: Duration = Duration::from_secs(1);

/// What was counted and recorded.
#[derive(Clone, Default)]
struct Books {
    counted: Arc<Mutex<Vec<&'static str>>>,
    recorded: Arc<Mutex<Vec<EventRecord>>>,
}

impl Books {
    fn hooks(&self) -> Hooks {
        let (counted, recorded) = (self.counted.clone(), self.recorded.clone());
        Hooks {
            counted: Arc::new(move |result| counted.lock().unwrap().push(result)),
            recorded: Arc::new(move |record| recorded.lock().unwrap().push(record)),
        }
    }

    fn counts(&self, result: &str) -> usize {
        let counted = self.counted.lock().unwrap();
        counted.iter().filter(|r| **r == result).count()
    }
}

fn answered(status: u16, retry_after: Option<u64>) -> Reply {
    Reply::Answered {
        status: StatusCode::from_u16(status).unwrap(),
        retry_after: retry_after.map(Duration::from_secs),
    }
}

/// A way that gives these replies in turn, the last one for ever, and says when it was tried.
#[derive(Clone)]
struct Script {
    replies: Vec<Reply>,
    tried: Arc<Mutex<Vec<(Instant, Alert)>>>,
    takes: Duration,
}

impl Script {
    fn new(replies: &[Reply]) -> Self {
        Self {
            replies: replies.to_vec(),
            tried: Arc::default(),
            takes: Duration::ZERO,
        }
    }

    fn taking(takes: Duration) -> Self {
        Self {
            takes,
            ..Self::new(&[answered(200, None)])
        }
    }

    fn seconds_since(&self, start: Instant) -> Vec<u64> {
        let tried = self.tried.lock().unwrap();
        tried
            .iter()
            .map(|(at, _)| (*at - start).as_secs())
            .collect()
    }
}

impl Way for Script {
    async fn send(&self, alert: &Alert) -> Reply {
        let number = {
            let mut tried = self.tried.lock().unwrap();
            tried.push((Instant::now(), alert.clone()));
            tried.len()
        };
        tokio::time::sleep(self.takes).await;
        self.replies[number.min(self.replies.len()) - 1]
    }
}

fn sending(ways: Vec<(&str, Script)>, books: &Books) -> (AlertSender, Sending) {
    let (sender, receiver) = AlertSender::channel();
    let watch = Watch::new(&Alerts::default(), TimeZone::UTC);
    let ways = ways.into_iter().map(|(name, way)| (name.to_owned(), way));
    let sending = spawn(
        watch,
        ways.collect(),
        receiver,
        Clock::manual().0,
        books.hooks(),
        Pace::default(),
    );
    (sender, sending)
}

#[tokio::test(start_paused = true)]
async fn what_can_pass_later_is_tried_again_at_growing_distances() {
    let script = Script::new(&[
        answered(503, None),
        Reply::Refused,
        answered(429, Some(30)),
        answered(200, None),
    ]);
    let books = Books::default();
    let (sender, sending) = sending(vec![("ops", script.clone())], &books);
    let start = Instant::now();
    assert!(sender.send(of_event(level("nightly", 50))));
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!(script.seconds_since(start), [0, 1, 3, 33]);
    assert_eq!(*books.counted.lock().unwrap(), ["sent"]);
    sending.finish().await;
    assert_eq!(books.counted.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tries_end_and_a_refusal_for_good_ends_them_at_once() {
    let down = Script::new(&[answered(500, None)]);
    let gone = Script::new(&[answered(404, None)]);
    let books = Books::default();
    let ways = vec![("down", down.clone()), ("gone", gone.clone())];
    let (sender, _sending) = sending(ways, &books);
    let start = Instant::now();
    sender.send(of_event(level("nightly", 50)));
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(down.seconds_since(start), [0, 1, 3, 7, 15, 31]);
    assert_eq!(gone.seconds_since(start), [0]);
    assert_eq!(*books.counted.lock().unwrap(), ["failed", "failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_webhook_delays_no_other_and_what_it_cannot_hold_is_dropped() {
    let slow = Script::taking(3600 * SECOND);
    let fast = Script::taking(Duration::ZERO);
    let books = Books::default();
    let ways = vec![("slow", slow.clone()), ("fast", fast.clone())];
    let (sender, sending) = sending(ways, &books);
    let start = Instant::now();
    for n in 0..300 {
        assert!(sender.send(of_event(level(&format!("run-{n}"), 50))));
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(SECOND).await;
    let tried = fast.seconds_since(start);
    assert_eq!((tried.len(), tried.iter().max()), (300, Some(&0)));
    // One is under way, the queue is full.
    let over = 300 - QUEUE - 1;
    assert_eq!((books.counts("sent"), books.counts("dropped")), (300, over));
    // At the end what was not sent counts as dropped too: every alert counts once a webhook.
    sending.finish().await;
    assert_eq!(start.elapsed(), SECOND + FAREWELL);
    assert_eq!((books.counts("sent"), books.counts("dropped")), (300, 300));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_waits_is_tried_once_more_and_at_once() {
    let script = Script::new(&[
        answered(503, None),
        answered(503, Some(60)),
        answered(200, None),
    ]);
    let books = Books::default();
    let (sender, sending) = sending(vec![("ops", script.clone())], &books);
    let start = Instant::now();
    sender.send(of_event(level("a", 50)));
    tokio::time::sleep(10 * SECOND).await;
    // These two are still in the queues.
    sender.send(of_event(level("b", 50)));
    sender.send(of_event(level("c", 50)));
    sending.finish().await;
    assert_eq!(script.seconds_since(start), [0, 1, 10, 10, 10]);
    assert_eq!(*books.counted.lock().unwrap(), ["sent", "sent", "sent"]);
    assert!(
        !sender.send(of_event(level("d", 50))),
        "nobody listens any more"
    );
}

#[tokio::test(start_paused = true)]
async fn own_alerts_are_recorded_also_where_nobody_is_told() {
    let books = Books::default();
    let (sender, sending) = sending(Vec::new(), &books);
    let unpriced = crate::trace::Digest {
        unpriced: true,
        ..digest(START)
    };
    sender.send(of_turn(unpriced));
    sender.send(of_event(level("nightly", 50)));
    sending.finish().await;
    let recorded = books.recorded.lock().unwrap();
    let names: Vec<&str> = recorded.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(names, [Kind::Unpriced.as_str()]);
    assert_eq!(books.counted.lock().unwrap().len(), 0);
}

/// A webhook on a real socket: answers with these statuses in turn, the last one for ever.
struct Hook {
    url: String,
    seen: mpsc::UnboundedReceiver<(String, HeaderMap, Bytes)>,
}

impl Hook {
    async fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks/s3cret", listener.local_addr().unwrap());
        let (sender, seen) = mpsc::unbounded_channel();
        let number = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, number) = (sender.clone(), number.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (sender, number) = (sender.clone(), number.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let n = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let status = statuses[n.min(statuses.len() - 1)];
                        let line = format!("{} {}", parts.method, parts.uri.path());
                        sender.send((line, parts.headers, body)).unwrap();
                        let answer = Response::builder().status(status);
                        Ok::<_, Infallible>(answer.body(Empty::<Bytes>::new()).unwrap())
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Self { url, seen }
    }

    fn webhook(&self, name: &str, form: Form) -> Webhook {
        Webhook {
            name: name.to_owned(),
            url: self.url.parse().unwrap(),
            form,
        }
    }

    async fn next(&mut self) -> (String, HeaderMap, Value) {
        let (line, headers, body) = self.seen.recv().await.unwrap();
        (line, headers, serde_json::from_slice(&body).unwrap())
    }
}

#[tokio::test]
async fn d13_webhooks_get_run_cap_value_and_limit_over_http_each_in_its_form() {
    let mut json = Hook::start(&[500, 200]).await;
    let mut slack = Hook::start(&[200]).await;
    let mut gone = Hook::start(&[404]).await;
    let mut config = Config::embedded("unused".into());
    config.webhooks = vec![
        json.webhook("ops", Form::Json),
        slack.webhook("chat", Form::Slack),
        gone.webhook("old", Form::Json),
    ];
    let books = Books::default();
    let (sender, receiver) = AlertSender::channel();
    let pace = Pace {
        first_wait: Duration::from_millis(1),
        ..Pace::default()
    };
    let sending = start_paced(&config, receiver, Clock::Real, books.hooks(), pace).unwrap();
    sender.send(of_event(level("<nightly>", 80)));

    let (line, headers, first) = json.next().await;
    assert_eq!(line, "POST /hooks/s3cret");
    assert_eq!(headers["content-type"], "application/json");
    let (_, _, second) = json.next().await;
    assert_eq!(first, second, "the same alert again, with the same id");
    for (key, value) in [
        ("kind", "cap_level"),
        ("run", "<nightly>"),
        ("cap", "usd"),
        ("value", "4"),
        ("limit", "5"),
    ] {
        assert_eq!(second[key], value, "{key}");
    }
    let (_, _, message) = slack.next().await;
    let text = "Run &lt;nightly&gt; has used 80 % of the cap usd: 4 of 5 USD";
    assert_eq!(message["text"], text);
    assert_eq!(message["blocks"][0]["text"]["type"], "mrkdwn");
    gone.next().await;

    sending.finish().await;
    assert_eq!((books.counts("sent"), books.counts("failed")), (2, 1));
    assert_eq!(books.counts("dropped"), 0);
    assert!(gone.seen.try_recv().is_err(), "tried once only");
    assert!(slack.seen.try_recv().is_err() && json.seen.try_recv().is_err());
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = Webhook {
        name: "ops".to_owned(),
        url: format!("http://{}/", listener.local_addr().unwrap())
            .parse()
            .unwrap(),
        form: Form::Json,
    };
    let client = upstream::clients(&Config::embedded("unused".into()))
        .unwrap()
        .pooled;
    let post = Post::new(client, &webhook).within(Duration::from_millis(20));
    assert_eq!(post.once(&Alert::test(0)).await, Reply::TimedOut);
    assert!(
        !format!("{post:?}").contains("127.0.0.1"),
        "the URL is a secret"
    );
}

#[tokio::test]
async fn what_does_not_speak_tls_is_told_apart_from_what_cannot_be_reached() {
    let hook = Hook::start(&[200]).await;
    let mut webhook = hook.webhook("ops", Form::Json);
    webhook.url = hook.url.replace("http:", "https:").parse().unwrap();
    let client = upstream::clients(&Config::embedded("unused".into()))
        .unwrap()
        .pooled;
    assert_eq!(
        Post::new(client.clone(), &webhook)
            .once(&Alert::test(0))
            .await,
        Reply::Tls
    );
    webhook.url = "/no/host".parse().unwrap();
    assert_eq!(
        Post::new(client, &webhook).once(&Alert::test(0)).await,
        Reply::BadUrl
    );
}
