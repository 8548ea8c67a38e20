//! Before servers of a few lines, on real sockets.

use std::sync::mpsc;

use http::Method;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::config::Config;
use crate::proxy::upstream::{self, Clients};

/// What a server has seen of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Opened,
    Request(String),
    Closed,
}

/// Answers every request that ends with `!`; `answer` is given its number on the connection, and
/// `None` closes instead.
async fn server<A>(answer: A) -> (u16, mpsc::Receiver<Seen>)
where
    A: Fn(usize) -> Option<&'static str> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (told, seen) = mpsc::channel();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (told, answer) = (told.clone(), answer.clone());
            told.send(Seen::Opened).unwrap();
            tokio::spawn(async move {
                let (mut held, mut number) = (Vec::new(), 0);
                while stream.read_buf(&mut held).await.is_ok_and(|n| n > 0) {
                    if held.ends_with(b"!") {
                        let text = String::from_utf8(std::mem::take(&mut held)).unwrap();
                        told.send(Seen::Request(text)).unwrap();
                        let Some(answer) = answer(number) else { break };
                        stream.write_all(answer.as_bytes()).await.unwrap();
                        number += 1;
                    }
                }
                // Nobody may listen any more.
                let _ = told.send(Seen::Closed);
            });
        }
    });
    (port, seen)
}

fn clients() -> Clients {
    upstream::clients(&Config::embedded("unused".into())).unwrap()
}

fn request(port: u16) -> Request<SendBody> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://127.0.0.1:{port}/v1/messages?beta=true"))
        .header("X-Api-Key", "k")
        .body(SendBody::pieces(vec!["hel".into(), "lo!".into()]))
        .unwrap()
}

async fn text(
    answer: Response<impl http_body::Body<Data = Bytes, Error = hyper::Error>>,
) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Lets the server and the watcher do what they can do.
async fn until(mut reached: impl FnMut() -> bool) {
    while !reached() {
        tokio::task::yield_now().await;
    }
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n3\r\nay.\r\n0\r\n\r\n";

fn idle(clients: &Clients) -> usize {
    clients.plain.pool.lock().idle.values().map(Vec::len).sum()
}

#[tokio::test]
async fn a_request_is_the_same_on_the_wire_as_hyper_s_client_writes_it() {
    let (port, seen) = server(|_| Some(WHOLE)).await;
    let clients = clients();
    let mut requests = Vec::new();
    for _ in 0..2 {
        text(clients.plain.request(request(port)).await.unwrap()).await;
        text(clients.pooled.request(request(port)).await.unwrap()).await;
        requests.extend(seen.try_iter().filter(|seen| *seen != Seen::Opened));
    }
    assert_eq!(requests.len(), 4);
    assert!(
        requests.iter().all(|one| *one == requests[0]),
        "{requests:?}"
    );
    let Seen::Request(first) = &requests[0] else {
        panic!("{requests:?}");
    };
    let expected = format!(
        "POST /v1/messages?beta=true HTTP/1.1\r\nx-api-key: k\r\nhost: 127.0.0.1:{port}\r\n\
         content-length: 6\r\n\r\nhello!"
    );
    assert_eq!(*first, expected);
}

#[test]
fn a_host_names_its_port_unless_that_is_understood() {
    for (authority, expected) in [
        ("model.example:8080", "model.example:8080"),
        ("model.example:80", "model.example"),
        ("model.example", "model.example"),
        ("[::1]:11434", "[::1]:11434"),
        ("me:secret@model.example:8080", "model.example:8080"),
    ] {
        let authority = Authority::from_static(authority);
        assert_eq!(host(&authority).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_connection_is_used_again_when_its_answer_has_been_read() {
    let (port, seen) = server(|number| Some([WHOLE, CHUNKED][number % 2])).await;
    let clients = clients();
    for expected in ["ok", "okay.", "ok", "okay."] {
        let answer = clients.request(request(port)).await.unwrap();
        assert_eq!(text(answer).await, expected);
        assert_eq!(idle(&clients), 1);
    }
    let opened = seen.try_iter().filter(|seen| *seen == Seen::Opened);
    assert_eq!(opened.count(), 1);
}

#[tokio::test]
async fn requests_at_the_same_time_have_a_connection_each() {
    let (port, seen) = server(|_| Some(CHUNKED)).await;
    let clients = clients();
    let all = (0..8).map(|_| async { text(clients.request(request(port)).await.unwrap()).await });
    let texts = futures_util::future::join_all(all).await;
    assert_eq!(texts, ["okay."; 8]);
    assert_eq!(idle(&clients), 8);
    let opened = seen.try_iter().filter(|seen| *seen == Seen::Opened);
    assert_eq!(opened.count(), 8);
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_takes_its_connection_along() {
    let (port, seen) = server(|_| Some("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")).await;
    let clients = clients();
    let mut answer = clients.request(request(port)).await.unwrap();
    let frame = answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "ok");
    drop(answer);
    assert_eq!(idle(&clients), 0);
    until(|| seen.try_iter().any(|seen| seen == Seen::Closed)).await;
}

#[tokio::test]
async fn an_early_answer_does_not_cut_the_request_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let clients = clients();
    let mut large = request(port);
    *large.body_mut() = SendBody::pieces(vec![vec![b'a'; 16 << 20].into(), "!".into()]);
    let asked = async { text(clients.request(large).await.unwrap()).await };
    let answered = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut held = vec![0; 64 << 10];
        stream.read_exact(&mut held).await.unwrap();
        stream.write_all(CHUNKED.as_bytes()).await.unwrap();
        stream
    };
    let (mut stream, answer) = tokio::join!(answered, asked);
    assert_eq!(answer, "okay.");
    assert_eq!(idle(&clients), 0, "most of the request is still to be sent");
    let mut rest = vec![0; 64 << 10];
    while !rest.ends_with(b"!") {
        rest.clear();
        assert_ne!(stream.read_buf(&mut rest).await.unwrap(), 0);
    }
    until(|| idle(&clients) == 1).await;
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_closes_its_connection() {
    let (port, seen) = server(|_| Some("")).await;
    let clients = clients();
    let mut sending = Box::pin(clients.request(request(port)));
    tokio::select! {
        biased;
        _ = &mut sending => panic!("nothing was answered"),
        () = until(|| seen.try_iter().any(|seen| matches!(seen, Seen::Request(_)))) => {}
    }
    drop(sending);
    until(|| seen.try_iter().any(|seen| seen == Seen::Closed)).await;
}

#[tokio::test]
async fn a_connection_that_the_upstream_closes_is_let_go_of_and_never_used() {
    let (port, seen) = server(|number| [Some(WHOLE), None].into_iter().nth(number).flatten()).await;
    let closing = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    let (other, _seen) = server(move |_| Some(closing)).await;
    let clients = clients();
    assert_eq!(
        text(clients.request(request(other)).await.unwrap()).await,
        "ok"
    );
    assert_eq!(idle(&clients), 0, "it said that it would close");

    // The second request breaks, since it was written: nobody knows what became of it.
    assert_eq!(
        text(clients.request(request(port)).await.unwrap()).await,
        "ok"
    );
    let error = clients.request(request(port)).await.unwrap_err();
    assert!(!error.is_connect() && !error.client_broke(), "{error:?}");
    assert_eq!(idle(&clients), 0);
    assert_eq!(
        text(clients.request(request(port)).await.unwrap()).await,
        "ok"
    );
    let opened = seen.try_iter().filter(|seen| *seen == Seen::Opened);
    assert_eq!(opened.count(), 2);
}

#[tokio::test]
async fn an_idle_connection_that_ends_is_noticed_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let clients = clients();
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut held = Vec::new();
        while !held.ends_with(b"!") {
            stream.read_buf(&mut held).await.unwrap();
        }
        stream.write_all(WHOLE.as_bytes()).await.unwrap();
        stream
    };
    let asked = async { text(clients.request(request(port)).await.unwrap()).await };
    let (stream, _) = tokio::join!(served, asked);
    assert_eq!(idle(&clients), 1);
    drop(stream);
    until(|| idle(&clients) == 0).await;
}

#[tokio::test]
async fn an_idle_connection_is_kept_for_its_time() {
    let (port, seen) = server(|_| Some(WHOLE)).await;
    let clients = clients();
    let limit = clients.plain.pool.idle_limit;
    text(clients.request(request(port)).await.unwrap()).await;
    until(|| clients.plain.pool.lock().watcher.waits).await;
    tokio::time::pause();
    tokio::time::advance(limit / 2).await;
    tokio::task::yield_now().await;
    assert_eq!(idle(&clients), 1);
    tokio::time::advance(limit).await;
    until(|| idle(&clients) == 0).await;
    until(|| seen.try_iter().any(|seen| seen == Seen::Closed)).await;
}

/// A task may do so much at once before the runtime sends it to the back of the queue. Whatever is left
/// of that, an answer is not lost.
#[tokio::test]
async fn an_answer_is_noticed_at_the_end_of_a_task_s_turn_too() {
    let (port, _seen) = server(|_| Some(CHUNKED)).await;
    let clients = clients();
    text(clients.request(request(port)).await.unwrap()).await;
    for spent in 100..=127 {
        let mut asked =
            Box::pin(async { text(clients.request(request(port)).await.unwrap()).await });
        let tired = poll_fn(|cx| {
            for _ in 0..spent {
                let _ = std::pin::pin!(tokio::task::consume_budget()).poll(cx);
            }
            asked.as_mut().poll(cx)
        });
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_secs(5)) => panic!("nothing woke it: {spent}"),
            answer = tired => assert_eq!(answer, "okay."),
        }
    }
}

#[tokio::test]
async fn nothing_listens_there() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let error = clients().request(request(port)).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
}

#[tokio::test]
async fn the_watcher_ends_with_its_pool() {
    let (port, _seen) = server(|_| Some(WHOLE)).await;
    let clients = clients();
    text(clients.request(request(port)).await.unwrap()).await;
    let pool = Arc::downgrade(&clients.plain.pool);
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    drop(clients);
    assert!(pool.upgrade().is_none());
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    until(|| alive() < tasks).await;
}
