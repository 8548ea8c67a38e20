//! Pages.

use std::sync::Arc;

use prefixgate::agent::tools::{Fetch, Root, Toolbox, builtin, fetch_url};
use serde_json::json;

use super::model::{Canned, Origin};
use super::{bad, good, toolbox};

fn fetching(private: bool) -> Arc<Toolbox> {
    let fetch = Fetch {
        private,
        ..Fetch::default()
    };
    toolbox([fetch_url(&fetch).unwrap()])
}

fn text(body: &str) -> Canned {
    Canned::new(200, &[("content-type", "text/plain; charset=utf-8")], body)
}

fn to(location: &str) -> Canned {
    Canned::new(302, &[("location", location)], "")
}

#[test]
fn neither_pages_nor_commands_are_among_the_tools_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let tools = builtin(&Root::new(dir.path()).unwrap());
    let names: Vec<String> = tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(
        names,
        [
            "list_files",
            "search_files",
            "read_file",
            "edit_file",
            "write_file"
        ]
    );
}

#[tokio::test]
async fn private_addresses_are_refused_however_they_are_written() {
    let origin = Origin::start(vec![]).await;
    let port = origin.port();
    let tools = fetching(false);
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "[::ffff:127.0.0.1]",
        "[fd00::1]",
        "[fe80::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "2130706433",
        "0x7f.1",
        "127.1",
    ] {
        let told = bad(
            &tools,
            "fetch_url",
            json!({"url": format!("http://{host}:{port}/")}),
        )
        .await;
        assert_eq!(told["kind"], "not_allowed", "{host}: {told}");
    }
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_page_is_given_as_text() {
    let origin = Origin::start(vec![text("hello é")]).await;
    let tools = fetching(true);
    let page = good(
        &tools,
        "fetch_url",
        json!({"url": origin.url("/page#part")}),
    )
    .await;
    assert_eq!(page, "hello é");
    assert!(origin.requests()[0].head.starts_with("GET /page HTTP/1.1"));
}

#[tokio::test]
async fn only_pages_of_the_web_are_fetched() {
    let tools = fetching(true);
    for url in [
        "file:///etc/passwd",
        "ftp://host/x",
        "example.com",
        "http://",
        "http://me:pw@host/",
    ] {
        let told = bad(&tools, "fetch_url", json!({ "url": url })).await;
        assert_eq!(told["kind"], "invalid_url", "{url}");
    }
}

#[tokio::test]
async fn redirections_are_followed_looked_at_and_counted() {
    let origin = Origin::start(vec![to("/a/b?x=1"), to("c"), to("?y=2"), text("there")]).await;
    let tools = fetching(true);
    assert_eq!(
        good(&tools, "fetch_url", json!({"url": origin.url("/")})).await,
        "there"
    );
    let heads: Vec<String> = origin
        .requests()
        .into_iter()
        .map(|seen| seen.head)
        .collect();
    for (head, path) in heads.iter().zip(["/", "/a/b?x=1", "/a/c", "/a/c?y=2"]) {
        assert!(head.starts_with(&format!("GET {path} HTTP")), "{head}");
    }
    let away = Origin::start(vec![to("file:///etc/passwd")]).await;
    let told = bad(&tools, "fetch_url", json!({"url": away.url("/")})).await;
    assert_eq!(told["kind"], "invalid_url");
    let circle = Origin::start(vec![to("/"); 20]).await;
    let told = bad(&tools, "fetch_url", json!({"url": circle.url("/")})).await;
    assert_eq!(told["kind"], "too_many_redirects");
    assert_eq!(circle.requests().len(), 6);
}

#[tokio::test]
async fn what_is_no_text_too_large_or_an_error_is_said_to_be() {
    let image = Canned::new(200, &[("content-type", "image/png")], "png");
    let large = text(&"x".repeat(3 << 20));
    let missing = Canned::new(404, &[], "no");
    let busy = Canned::new(503, &[], "later");
    let json = Canned::new(200, &[("content-type", "application/problem+json")], "{}");
    let origin = Origin::start(vec![image, large, missing, busy, json]).await;
    let tools = fetching(true);
    let url = json!({"url": origin.url("/")});
    assert_eq!(
        bad(&tools, "fetch_url", url.clone()).await["kind"],
        "binary"
    );
    let large = good(&tools, "fetch_url", url.clone()).await;
    assert!(large.len() <= 30_000 && large.ends_with("only 2097152 bytes were read]"));
    let missing = bad(&tools, "fetch_url", url.clone()).await;
    assert_eq!(
        (&missing["kind"], &missing["retryable"]),
        (&json!("http_status"), &json!(false))
    );
    assert_eq!(
        bad(&tools, "fetch_url", url.clone()).await["retryable"],
        true
    );
    assert_eq!(good(&tools, "fetch_url", url.clone()).await, "{}");
    let told = bad(&tools, "fetch_url", json!({"url": "http://127.0.0.1:1/"})).await;
    assert_eq!(
        (&told["kind"], &told["retryable"]),
        (&json!("unreachable"), &json!(true))
    );
}
