//! B11: where requests go, and that nothing of their address is lost on the way.

use super::response;
use crate::support::upstream::json;
use crate::support::{Gateway, Step, Upstream, Wire, ask};

async fn bare(wire: &mut Wire, line: &str) -> String {
    wire.send(format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
        .await;
    let head = wire.head().await;
    if !line.starts_with("HEAD") {
        wire.body_of(head.clone()).await;
    }
    head
}

#[tokio::test]
async fn b11_method_path_and_query_arrive_exactly() {
    let lines = [
        "HEAD /",
        "HEAD /api/hello",
        "GET /v1/models?limit=1000",
        "OPTIONS /v1/messages",
        "GET /v1/unknown/path",
        "GET /v1/models/a%2Fb?x=%20+&y",
        "DELETE /v1/files/file_1",
        "PUT /a//b///c",
        "PATCH /x?",
        "BREW /pot",
        "GET /?beta=true",
        "GET /v1/./../x",
        "GET /%C3%A9?q=a%26b&&=",
        "GET /a;b=c,d/(e)!*'$@:~",
    ];
    for (base, prefix) in [
        ("", ""),
        ("/", ""),
        ("/prefix/", "/prefix"),
        ("/a/b", "/a/b"),
    ] {
        let upstream = Upstream::start(|seen, _| {
            let whole = response("404 Not Here", &["content-type: text/plain"], b"nope");
            let end = if seen.line().starts_with("HEAD") {
                whole.len() - 4
            } else {
                whole.len()
            };
            vec![Step::Write(whole[..end].to_vec())]
        })
        .await;
        let gateway = Gateway::start(&format!("{}{base}", upstream.url()));
        let mut wire = Wire::connect(gateway.proxy).await;
        for line in lines {
            let head = bare(&mut wire, line).await;
            assert!(
                head.starts_with("HTTP/1.1 404 Not Here\r\n"),
                "{line}: {head}"
            );
            let (method, path) = line.split_once(' ').unwrap();
            assert_eq!(upstream.last().line(), format!("{method} {prefix}{path}"));
        }
        for path in [
            "/v1/messages?beta=true&x=a%2Fb",
            "/v1/messages/count_tokens?beta=true",
        ] {
            let reply = Wire::exchange(
                gateway.proxy,
                path,
                &["x-prefixgate-run: r"],
                ask("m", false).as_bytes(),
            )
            .await;
            assert_eq!((reply.status, reply.text().as_str()), (404, "nope"));
            assert_eq!(upstream.last().line(), format!("POST {prefix}{path}"));
        }
        // Only one of all these is a turn of a run.
        let turns = gateway.turns_of("r", 1).await;
        assert_eq!(turns.len(), 1);
        gateway.ended_as("turn", "upstream_error", 1).await;
        gateway.ended_as("count_tokens", "upstream_error", 1).await;
        gateway.ended_as("models", "upstream_error", 2).await;
        let total = gateway.metric("prefixgate_requests_total", &[]).await;
        assert_eq!(total, (lines.len() + 2) as f64);
    }
}

#[tokio::test]
async fn b11_count_tokens_and_probes_raise_nothing() {
    let upstream = Upstream::start(|seen, _| {
        let body = if seen.line().contains("count_tokens") {
            r#"{"input_tokens":77}"#.to_owned()
        } else {
            crate::support::upstream::message("m", r#"{"input_tokens":5,"output_tokens":6}"#)
        };
        vec![Step::Write(json(200, &body))]
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let run = ["x-prefixgate-run: r"];
    let body = ask("m", false);
    for path in [
        "/v1/messages/count_tokens",
        "/v1/messages",
        "/v1/messages/count_tokens",
    ] {
        let reply = Wire::exchange(gateway.proxy, path, &run, body.as_bytes()).await;
        assert_eq!(reply.status, 200);
    }
    let turns = gateway.turns_of("r", 1).await;
    assert_eq!(turns.len(), 1);
    assert_eq!(
        (&turns[0]["turn"], &turns[0]["tokens"]["uncached"]),
        (&1.into(), &5.into())
    );
    let runs = gateway.report(&["runs"]);
    assert_eq!(
        (&runs[0]["turns"], &runs[0]["tokens"]["uncached"]),
        (&1.into(), &5.into())
    );
}

#[tokio::test]
async fn labels_and_names_in_the_path_lead_the_way_and_are_taken_off() {
    let one = Upstream::answering(json(200, "{\"at\":1}")).await;
    let two = Upstream::answering(json(200, "{\"at\":2}")).await;
    let config = format!(
        "[upstream.two]\nurl = \"{}/deep\"\nformat = \"anthropic\"\n",
        two.url()
    );
    let gateway = Gateway::with(&one.url(), &config, &[]);
    let body = ask("m", false);
    let get = async |path: &str| Wire::exchange(gateway.proxy, path, &[], body.as_bytes()).await;
    assert_eq!(
        get("/-/run=r%2D1,app=tests/v1/messages?beta=true")
            .await
            .json()["at"],
        1
    );
    assert_eq!(one.last().line(), "POST /v1/messages?beta=true");
    assert_eq!(get("/u/two/v1/messages").await.json()["at"], 2);
    assert_eq!(two.last().line(), "POST /deep/v1/messages");
    assert_eq!(
        get("/u/two/-/run=r2,agent=sub/v1/messages").await.json()["at"],
        2
    );
    let turn = &gateway.turns_of("r-1", 1).await[0];
    assert_eq!(
        (&turn["app"], &turn["upstream"]),
        (&"tests".into(), &"anthropic".into())
    );
    let turn = &gateway.turns_of("r2", 1).await[0];
    assert_eq!(
        (&turn["agent"], &turn["upstream"]),
        (&"sub".into(), &"two".into())
    );

    let (seen_one, seen_two) = (one.seen().len(), two.seen().len());
    for (path, says) in [
        ("/u/three/v1/messages", "anthropic"),
        ("/-/rum=1/v1/messages", "unknown label"),
    ] {
        let reply = get(path).await;
        assert_eq!(reply.status, 404);
        assert_eq!(reply.json()["type"], "error");
        assert!(reply.text().contains(says), "{}", reply.text());
    }
    assert_eq!((one.seen().len(), two.seen().len()), (seen_one, seen_two));
}

#[tokio::test]
async fn limits_of_a_request_go_no_further_and_wrong_ones_are_refused() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("m", false);
    let post = async |path: &str, headers: &[&str]| {
        Wire::exchange(gateway.proxy, path, headers, body.as_bytes()).await
    };
    let good = post(
        "/-/run=r,max-tokens=500000/v1/messages",
        &["x-prefixgate-max-turns: 9", "x-two: 2"],
    );
    assert_eq!(good.await.status, 200);
    let seen = upstream.last();
    assert_eq!(seen.line(), "POST /v1/messages");
    assert_eq!(seen.header("x-two"), Some("2"));
    let ours = |name: &String| name.starts_with("x-prefixgate");
    assert!(!seen.header_names().iter().any(ours));
    for (path, header, says) in [
        (
            "/v1/messages",
            "x-prefixgate-max-usd: $5",
            "header x-prefixgate-max-usd: must be USD",
        ),
        (
            "/v1/models",
            "x-prefixgate-max-money: 5",
            "header x-prefixgate-max-money: is not known",
        ),
        (
            "/-/max-turns=0/v1/messages",
            "x-two: 2",
            "label `max-turns` in the path: must be a whole number",
        ),
    ] {
        let reply = post(path, &[header]).await;
        assert_eq!(reply.status, 400, "{path} {header}");
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert!(reply.text().contains(says), "{}", reply.text());
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_proxy_request_is_understood_or_told_off() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    // The form that clients use towards a proxy: the host in it is not ours to obey.
    wire.send(
        b"GET http://elsewhere.example/v1/models?x=1 HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n",
    )
    .await;
    assert_eq!(wire.response().await.status, 200);
    assert_eq!(upstream.last().line(), "GET /v1/models?x=1");
    assert_eq!(
        upstream.last().header("host"),
        Some(upstream.addr.to_string().as_str())
    );
    // A tunnel would hide everything from us; it must not be opened, to anywhere.
    let before = upstream.connections();
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: api.anthropic.com:443\r\n\r\n")
        .await;
    let reply = wire.response().await;
    assert_eq!(reply.status, 405);
    assert!(reply.text().contains("BASE_URL"), "{}", reply.text());
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(upstream.connections(), before);
}
