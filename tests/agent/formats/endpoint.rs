//! Where requests go, and what becomes of refusals.

use std::path::PathBuf;
use std::time::Duration;

use prefixgate::agent::model::{Attempt, Failure, address};
use prefixgate::config::Config;
use prefixgate::provider::wire::Wire;
use prefixgate::sim::{Options, Sim};

use super::support::{Step, Upstream, agent, endpoint, endpoint_with, secure, stopping, streamed};

#[test]
fn base_urls_are_taken_as_people_have_them() {
    let check = |base: &str, path: &str, expected: &str| {
        assert_eq!(address(base, path).as_deref(), Ok(expected), "{base}");
    };
    let (messages, chat) = ("/v1/messages", "/v1/chat/completions");
    check(
        "https://api.anthropic.com",
        messages,
        "https://api.anthropic.com/v1/messages",
    );
    check(
        "https://api.anthropic.com/v1/",
        messages,
        "https://api.anthropic.com/v1/messages",
    );
    check("https://a/v1/messages", messages, "https://a/v1/messages");
    check(
        "https://a/anthropic",
        messages,
        "https://a/anthropic/v1/messages",
    );
    check(
        " http://127.0.0.1:8787 ",
        messages,
        "http://127.0.0.1:8787/v1/messages",
    );
    check(
        "https://api.openai.com/v1",
        chat,
        "https://api.openai.com/v1/chat/completions",
    );
    check(
        "https://openrouter.ai/api",
        chat,
        "https://openrouter.ai/api/v1/chat/completions",
    );
    check(
        "https://openrouter.ai/api/v1",
        chat,
        "https://openrouter.ai/api/v1/chat/completions",
    );
    check(
        "https://a/api/paas/v4",
        chat,
        "https://a/api/paas/v4/chat/completions",
    );
    check(
        "https://a/v1beta/openai/",
        chat,
        "https://a/v1beta/openai/chat/completions",
    );
    check(
        "https://a/chat/completions",
        chat,
        "https://a/chat/completions",
    );
    check(
        "https://v1.example",
        "/v1/responses",
        "https://v1.example/v1/responses",
    );
    check("https://a/vx", "/v1/responses", "https://a/vx/v1/responses");
    for wrong in [
        "api.openai.com",
        "",
        "ftp://a",
        "https://a/v1?x=1",
        "localhost:1234",
    ] {
        assert!(address(wrong, chat).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_base_url_without_scheme_is_the_callers_fault() {
    let endpoint = endpoint(Wire::Chat, "api.openai.com/v1");
    let attempt = endpoint
        .ask("m", Vec::new(), &Vec::new(), &mut |_| {})
        .await
        .unwrap_err();
    assert_eq!(attempt.failure, Failure::Final);
    assert!(attempt.reason.contains("needs https://"), "{attempt}");
}

/// What an answer of this head and body comes to.
async fn answered(status: &str, headers: &str, body: &str) -> Attempt {
    let answer = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let upstream = Upstream::answering(answer).await;
    let endpoint = endpoint(Wire::Messages, &upstream.url());
    endpoint
        .ask("m", b"{}".to_vec(), &Vec::new(), &mut |_| {})
        .await
        .unwrap_err()
}

#[tokio::test]
async fn refusals_are_told_by_what_can_be_done_about_them() {
    let error = |kind: &str, message: &str| {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
    };
    let check = async |status: &str, headers: &str, body: &str, failure: Failure| {
        let attempt = answered(status, headers, body).await;
        assert_eq!(attempt.failure, failure, "{status} {headers}: {attempt}");
    };
    let again = |ms: u64| Failure::Again(Some(Duration::from_millis(ms)));
    let overloaded = error("overloaded_error", "Overloaded");
    for status in [
        "408 X", "409 X", "429 X", "500 X", "502 X", "503 X", "504 X", "529 X",
    ] {
        check(status, "", &overloaded, Failure::Again(None)).await;
    }
    for status in [
        "400 X", "401 X", "402 X", "403 X", "404 X", "405 X", "422 X", "302 X",
    ] {
        check(status, "", &error("x_error", "no"), Failure::Final).await;
    }
    check("429 X", "retry-after: 2\r\n", &overloaded, again(2000)).await;
    check("429 X", "retry-after: 1.5\r\n", &overloaded, again(1500)).await;
    check(
        "429 X",
        "retry-after-ms: 20\r\nretry-after: 9\r\n",
        &overloaded,
        again(20),
    )
    .await;
    check(
        "429 X",
        "retry-after: 0\r\n",
        &overloaded,
        Failure::Again(None),
    )
    .await;
    check(
        "429 X",
        "retry-after: soon\r\n",
        &overloaded,
        Failure::Again(None),
    )
    .await;
    // Nobody waits for an hour.
    check(
        "429 X",
        "retry-after: 3600\r\n",
        &overloaded,
        Failure::Final,
    )
    .await;
    let past = "retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n";
    check("503 X", past, &overloaded, Failure::Again(None)).await;
    let far = "retry-after: Wed, 21 Oct 2099 07:28:00 GMT\r\n";
    check("503 X", far, &overloaded, Failure::Final).await;
    // A server that says so itself is believed.
    check(
        "529 X",
        "x-should-retry: false\r\n",
        &overloaded,
        Failure::Final,
    )
    .await;
    check(
        "400 X",
        "x-should-retry: true\r\n",
        &error("x", "no"),
        Failure::Again(None),
    )
    .await;
    // A spent budget is no limit of rate, though it looks like one.
    let spent = r#"{"type":"error","error":{"type":"rate_limit_error","message":"no","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
    check("429 X", "", spent, Failure::Final).await;
    let quota =
        r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"no"}}"#;
    check("429 X", "", quota, Failure::Final).await;
}

#[tokio::test]
async fn conversations_that_do_not_fit_are_recognised() {
    for (status, words) in [
        (
            "400 X",
            "prompt is too long: 208310 tokens > 200000 maximum",
        ),
        (
            "400 X",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        ),
        (
            "400 X",
            "This model's maximum context length is 128000 tokens.",
        ),
        (
            "400 X",
            "Your input exceeds the context window of this model.",
        ),
        ("400 X", "This model's maximum prompt length is 131072"),
        ("400 X", "the request exceeds the available context size"),
        ("413 X", "Request exceeds the maximum size"),
        ("413 X", "<html>"),
    ] {
        let body = format!(r#"{{"error":{{"type":"invalid_request_error","message":"{words}"}}}}"#);
        assert_eq!(
            answered(status, "", &body).await.failure,
            Failure::TooLong,
            "{words}"
        );
    }
    let code = r#"{"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"no"}}"#;
    assert_eq!(answered("400 X", "", code).await.failure, Failure::TooLong);
    let rate =
        r#"{"error":{"type":"tokens","message":"too many tokens for the context window per min"}}"#;
    assert_eq!(
        answered("429 X", "", rate).await.failure,
        Failure::Again(None)
    );
}

#[tokio::test]
async fn refusals_say_whose_fault_it_is_and_what_to_do() {
    let body = r#"{"error":{"type":"authentication_error","message":"invalid key"}}"#;
    let attempt = answered("401 Unauthorized", "", body).await;
    for word in [
        "http://127.0.0.1",
        "401",
        "authentication_error",
        "invalid key",
        "the key is",
    ] {
        assert!(attempt.reason.contains(word), "{word}: {attempt}");
    }
    assert!(
        answered("404 X", "", "{}")
            .await
            .reason
            .contains("check base URL")
    );
    let moved = answered("308 X", "location: https://b.example/v1\r\n", "").await;
    assert!(moved.reason.contains("https://b.example/v1"), "{moved}");
    let page = answered(
        "502 Bad Gateway",
        "content-type: text/html\r\n",
        "<html>nginx</html>",
    )
    .await;
    assert!(page.reason.contains("nginx"), "{page}");
    let waits = answered("429 X", "retry-after: 3600\r\n", "{}").await;
    assert!(waits.reason.contains("3600 s"), "{waits}");
}

#[tokio::test]
async fn requests_carry_key_and_version_and_ask_for_no_encoding() {
    for wire in [Wire::Messages, Wire::Chat, Wire::Responses] {
        let upstream = Upstream::answering("HTTP/1.1 400 X\r\ncontent-length: 0\r\n\r\n").await;
        let mut endpoint = endpoint(wire, &upstream.url());
        let ask = async |endpoint: &prefixgate::agent::model::Endpoint| {
            let _ = endpoint
                .ask("m", b"{}".to_vec(), &Vec::new(), &mut |_| {})
                .await;
            upstream.last()
        };
        let seen = ask(&endpoint).await;
        assert_eq!(seen.header("authorization"), Some("Bearer k"));
        assert_eq!(seen.header("accept-encoding"), Some("identity"));
        assert_eq!(
            seen.header("anthropic-version").is_some(),
            wire == Wire::Messages
        );
        endpoint.key = String::new();
        assert_eq!(
            ask(&endpoint).await.header("authorization"),
            None,
            "servers without keys"
        );
    }
}

#[tokio::test]
async fn one_connection_serves_all_turns() {
    let call = |id: usize| {
        format!(r#"{{"type":"tool_use","id":"t{id}","name":"search","input":{{"q":"x"}}}}"#)
    };
    let upstream = Upstream::start(move |_, number| match number {
        0..4 => streamed(&stopping(&[&call(number)], "tool_use")),
        _ => streamed(&stopping(&[r#"{"type":"text","text":"so"}"#], "end_turn")),
    })
    .await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, _| {});
    world.agent.go().await.unwrap();
    assert_eq!((upstream.seen().len(), upstream.connections()), (5, 1));
}

#[tokio::test]
async fn a_refused_turn_is_asked_again_after_the_wait() {
    let upstream = Upstream::start(|_, number| match number {
        0 => vec![Step::write(
            "HTTP/1.1 529 X\r\nretry-after-ms: 10\r\ncontent-length: 2\r\n\r\n{}",
        )],
        _ => streamed(&stopping(&[r#"{"type":"text","text":"so"}"#], "end_turn")),
    })
    .await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, options| {
        options.attempts = 2;
    });
    assert_eq!(world.agent.go().await.unwrap().as_str(), "end_turn");
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn http_2_is_spoken_where_it_is_offered() {
    let sim = Sim::start(Options::default()).unwrap();
    let server = sim.addr();
    let (acceptor, authority) = secure::acceptor(&[b"h2"]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(stream).await.unwrap();
                let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let mut config = Config::embedded(PathBuf::new());
    config.extra_ca = Some(authority.path().to_owned());
    let endpoint = endpoint_with(
        Wire::Messages,
        &format!("https://localhost:{port}"),
        &config,
    );
    let body = br#"{"model":"claude-sonnet-5","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}"#;
    let reply = endpoint
        .ask("m", body.to_vec(), &Vec::new(), &mut |_| {})
        .await
        .unwrap();
    assert_eq!(reply.whole.answer.text(), "ok");
    assert_eq!(sim.requests()[0].version, "HTTP/2.0");
}
