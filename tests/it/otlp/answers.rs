//! What an answer means.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::*;

fn later(failure: Failure) -> (String, Option<Duration>) {
    match failure {
        Failure::Later { why, after } => (why, after),
        Failure::Refused { why } => panic!("refused: {why}"),
    }
}

fn refused(failure: Failure) -> String {
    match failure {
        Failure::Refused { why } => why,
        Failure::Later { why, .. } => panic!("later: {why}"),
    }
}

#[tokio::test]
async fn a_post_is_compressed_protobuf_with_the_headers_of_the_settings() {
    let receiver = Upstream::start(|_, _| answer("200 OK", "", b"")).await;
    let mut settings = at(&receiver.url());
    settings.headers = vec![(
        "x-honeycomb-team".parse().unwrap(),
        "hunter2".parse().unwrap(),
    )];
    settings.resource.push(("team".into(), "r&d".into()));
    let (mut exporter, _) = exporter(&settings);
    exporter
        .deliver_entries(vec![of(&turn("run-1", "main", 1, 0))])
        .await
        .unwrap();
    exporter.deliver_entries(vec![]).await.unwrap();
    exporter
        .deliver_entries(vec![of(&turn("run-1", "main", 2, 3))])
        .await
        .unwrap();
    let seen = receiver.seen();
    assert_eq!(seen.len(), 2, "nothing to send is no post");
    assert_eq!(receiver.connections(), 1, "the connection is used again");
    let first = &seen[0];
    assert_eq!(first.line(), "POST /v1/traces");
    assert_eq!(first.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(first.header("content-encoding"), Some("gzip"));
    assert_eq!(first.header("x-honeycomb-team"), Some("hunter2"));
    let request = ExportTraceServiceRequest::decode(body(first).as_slice()).unwrap();
    let resource = format!("{:?}", request.resource_spans[0].resource);
    assert!(
        resource.contains("service.name") && resource.contains("r&d"),
        "{resource}"
    );
    assert_eq!(spans(first).len(), 1);
    let shown = format!("{exporter:?} {settings:?}");
    assert!(!shown.contains("hunter2"), "{shown}");

    settings.gzip = false;
    let (mut plain, _) = super::exporter(&settings);
    // On a task of its own, as it is run.
    let batch = vec![of(&turn("run-1", "main", 3, 0))];
    let task = tokio::spawn(async move { plain.deliver_entries(batch).await });
    task.await.unwrap().unwrap();
    let last = receiver.last();
    assert_eq!(last.header("content-encoding"), None);
    assert_eq!(spans(&last).len(), 1);
}

#[tokio::test]
async fn a_partial_success_is_taken_and_counted() {
    let partial = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: 1,
            error_message: "too old".into(),
        }),
    };
    let partial = partial.encode_to_vec();
    let receiver = Upstream::start(move |_, _| answer("200 OK", "", &partial)).await;
    let (mut exporter, _) = exporter(&at(&receiver.url()));
    let counts = exporter.counts();
    let batch = vec![
        of(&turn("run-1", "main", 1, 0)),
        of(&turn("run-2", "main", 1, 0)),
    ];
    exporter.deliver_entries(batch).await.unwrap();
    assert_eq!(counts.spans.load(Ordering::Relaxed), 1);
    assert_eq!(counts.rejected.load(Ordering::Relaxed), 1);
    let stats = counts.stats();
    assert_eq!((stats.sent, stats.rejected, stats.posts), (1, 1, 1));
    assert_eq!((stats.failed_posts, stats.failed_metric_posts), (0, 0));
}

#[tokio::test]
async fn outages_are_for_later_and_a_receivers_wait_is_kept() {
    let status = Arc::new(Mutex::new(("429 Too Many Requests", "retry-after: 7\r\n")));
    let script = status.clone();
    let receiver = Upstream::start(move |_, _| {
        let (status, headers) = *script.lock().unwrap();
        answer(status, headers, b"")
    })
    .await;
    let (mut exporter, _) = exporter(&at(&receiver.url()));
    let batch = vec![of(&turn("run-1", "main", 1, 0))];
    let failure = exporter.deliver_entries(batch.clone()).await.unwrap_err();
    assert_eq!(
        later(failure),
        ("answered 429".into(), Some(Duration::from_secs(7)))
    );
    for code in [
        "502 Bad Gateway",
        "503 Service Unavailable",
        "504 Gateway Timeout",
    ] {
        *status.lock().unwrap() = (code, "");
        let failure = exporter.deliver_entries(batch.clone()).await.unwrap_err();
        assert_eq!(later(failure).1, None, "{code}");
    }
    *status.lock().unwrap() = ("200 OK", "");
    exporter.deliver_entries(batch).await.unwrap();
    let seen = receiver.seen();
    assert_eq!(
        spans(&seen[0]),
        spans(&seen[4]),
        "the same spans under the same ids"
    );
}

#[tokio::test]
async fn what_is_about_the_post_is_refused_and_what_is_about_the_settings_waits() {
    let status = Arc::new(Mutex::new(""));
    let script = status.clone();
    let receiver =
        Upstream::start(move |_, _| answer(*script.lock().unwrap(), "", b"\x12\x07bad tag")).await;
    let (mut exporter, _) = exporter(&at(&receiver.url()));
    let batch = vec![of(&turn("run-1", "main", 1, 0))];
    for code in [
        "400 Bad Request",
        "413 Content Too Large",
        "415 Unsupported Media Type",
    ] {
        *status.lock().unwrap() = code;
        let why = refused(exporter.deliver_entries(batch.clone()).await.unwrap_err());
        assert_eq!(why, format!("answered {}: bad tag", &code[..3]));
    }
    for code in [
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "302 Found",
    ] {
        *status.lock().unwrap() = code;
        let (why, after) = later(exporter.deliver_entries(batch.clone()).await.unwrap_err());
        assert!(why.ends_with("check the endpoint and its headers"), "{why}");
        assert_eq!(after, Some(Duration::from_secs(60)));
    }
}

#[tokio::test]
async fn a_failure_of_the_receiver_is_told_from_a_post_that_makes_it_fail() {
    let ill = Arc::new(Mutex::new(true));
    let script = ill.clone();
    let receiver = Upstream::start(move |seen, _| {
        // The poisoned post fails always, an empty one only while the receiver is ill.
        let fails = *script.lock().unwrap() || !seen.body.is_empty();
        let status = if fails {
            "500 Internal Server Error"
        } else {
            "200 OK"
        };
        answer(status, "", b"")
    })
    .await;
    let (mut exporter, _) = exporter(&at(&receiver.url()));
    let batch = vec![of(&turn("run-1", "main", 1, 0))];
    later(exporter.deliver_entries(batch.clone()).await.unwrap_err());
    *ill.lock().unwrap() = false;
    assert_eq!(
        refused(exporter.deliver_entries(batch).await.unwrap_err()),
        "answered 500"
    );
}

#[tokio::test]
async fn nobody_there_and_no_answer_are_for_later() {
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let batch = vec![of(&turn("run-1", "main", 1, 0))];
    let (mut exporter, _) = exporter(&at(&format!("http://{nobody}")));
    let (why, _) = later(exporter.deliver_entries(batch.clone()).await.unwrap_err());
    assert_eq!(why, "connection refused");

    let silent = Upstream::start(|_, _| vec![Step::AwaitClose]).await;
    let mut settings = at(&silent.url());
    settings.timeout = Duration::from_millis(50);
    let (mut exporter, _) = super::exporter(&settings);
    let (why, _) = later(exporter.deliver_entries(batch).await.unwrap_err());
    assert_eq!(why, "no answer in time");
}

#[tokio::test]
async fn the_span_of_a_run_follows_when_it_is_silent_and_at_the_end() {
    let up = Arc::new(Mutex::new(true));
    let script = up.clone();
    let receiver = Upstream::start(move |_, _| {
        let status = if *script.lock().unwrap() {
            "200 OK"
        } else {
            "503 Service Unavailable"
        };
        answer(status, "", b"")
    })
    .await;
    let (mut exporter, hand) = exporter(&at(&receiver.url()));
    exporter
        .deliver_entries(vec![of(&turn("run-1", "main", 1, 0))])
        .await
        .unwrap();
    exporter.idle(T + 59_000, false).await;
    assert_eq!(receiver.seen().len(), 1);
    *up.lock().unwrap() = false;
    exporter.idle(T + 60_000, false).await;
    exporter.idle(T + 61_000, false).await;
    assert_eq!(
        receiver.seen().len(),
        2,
        "a receiver that is down is left alone for a while"
    );
    *up.lock().unwrap() = true;
    exporter.idle(T + 71_000, false).await;
    assert_eq!(spans(&receiver.last())[0].name, "invoke_agent");
    exporter.idle(T + 200_000, false).await;
    assert_eq!(receiver.seen().len(), 3, "once");
    hand.advance(300_000);
    exporter
        .deliver_entries(vec![of(&turn("run-2", "main", 1, 300))])
        .await
        .unwrap();
    exporter.idle(T + 300_000, true).await;
    let last = spans(&receiver.last());
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].start_time_unix_nano, 1_000_000 * 1_796_083_500_000);
}

#[tokio::test]
async fn metrics_are_posted_at_their_interval_with_headers_of_their_own() {
    let receiver = Upstream::start(|_, _| answer("200 OK", "", b"")).await;
    let mut settings = at(&receiver.url());
    settings.metrics = Some(format!("{}/v1/metrics", receiver.url()).parse().unwrap());
    settings.headers = vec![("x-key".parse().unwrap(), "traces".parse().unwrap())];
    settings.metrics_headers = Some(vec![("x-key".parse().unwrap(), "metrics".parse().unwrap())]);
    let (mut exporter, _) = exporter(&settings);
    exporter
        .deliver_entries(run_with_a_sub_agent("run-1"))
        .await
        .unwrap();
    exporter.idle(T + 59_999, false).await;
    let metrics = || -> Vec<Seen> {
        let seen = receiver.seen().into_iter();
        seen.filter(|seen| seen.line() == "POST /v1/metrics")
            .collect()
    };
    assert!(metrics().is_empty());
    exporter.idle(T + 60_000, false).await;
    exporter.idle(T + 61_000, false).await;
    exporter.idle(T + 62_000, true).await;
    let posts = metrics();
    assert_eq!(posts.len(), 2, "at the interval and at the end");
    assert_eq!(posts[0].header("x-key"), Some("metrics"));
    let request = ExportMetricsServiceRequest::decode(body(&posts[0]).as_slice()).unwrap();
    let names: Vec<String> = request.resource_metrics[0].scope_metrics[0]
        .metrics
        .iter()
        .map(|metric| metric.name.clone())
        .collect();
    for name in [
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "gen_ai.client.inference.duration",
        "gen_ai.execute_tool.duration",
        "prefixgate.cost",
    ] {
        assert!(
            names.iter().any(|known| known == name),
            "{name} in {names:?}"
        );
    }
}
