//! Group A as far as markers are placed, against an upstream that shows the exact bytes.

use serde_json::{Value, json};

use super::{
    OURS, agent_body, count_markers, filler, only_turn, plain, post, warnings, without_ours,
};
use crate::support::upstream::{json as http_json, message};
use crate::support::{Gateway, PRICES, Step, Upstream};

/// A marker as a client of these tests writes it, told from ours by its blank.
const THEIRS: &str = r#""cache_control": {"type":"ephemeral"}"#;

async fn answering() -> Upstream {
    Upstream::answering(http_json(200, &message("test-sonnet", &plain(10, 10)))).await
}

/// Tools, system and messages of one request; each block may be marked.
struct Parts {
    tools: [bool; 2],
    system: [bool; 2],
    message: bool,
    top: bool,
}

fn body(parts: &Parts) -> String {
    let mark = |on: bool| {
        if on {
            format!(",{THEIRS}")
        } else {
            String::new()
        }
    };
    let text = filler(2500);
    format!(
        r#"{{"model":"test-sonnet","max_tokens":9{top},"tools":[{{"name":"a","description":"{text}","input_schema":{{"type":"object"}}{t0}}},{{"name":"b","input_schema":{{"type":"object"}}{t1}}}],"system":[{{"type":"text","text":"{text}"{s0}}},{{"type":"text","text":"{text}"{s1}}}],"messages":[{{"role":"user","content":[{{"type":"text","text":"task"}}]}},{{"role":"assistant","content":[{{"type":"text","text":"well"}}]}},{{"role":"user","content":[{{"type":"text","text":"go on"{m}}}]}}]}}"#,
        top = mark(parts.top),
        t0 = mark(parts.tools[0]),
        t1 = mark(parts.tools[1]),
        s0 = mark(parts.system[0]),
        s1 = mark(parts.system[1]),
        m = mark(parts.message),
    )
}

#[tokio::test]
async fn a06_never_a_fifth_breakpoint() {
    let upstream = answering().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    // (i) four on blocks, (ii) three and the automatic one.
    let four = Parts {
        tools: [false, true],
        system: [true, true],
        message: true,
        top: false,
    };
    let with_top = Parts {
        tools: [false, true],
        system: [true, true],
        message: false,
        top: true,
    };
    for parts in [four, with_top] {
        let body = body(&parts);
        assert_eq!(count_markers(body.as_bytes()), 4);
        post(&gateway, &[], &body).await;
        assert_eq!(upstream.last().body, body.as_bytes());
    }
    // (iii) two of the client's leave two, wherever they stand.
    for (tools, system, message, top) in [
        ([false, true], [false, true], false, false),
        ([false, false], [true, true], false, false),
        ([false, false], [false, true], true, false),
        ([true, false], [false, false], true, false),
        ([false, false], [false, true], false, true),
    ] {
        let body = body(&Parts {
            tools,
            system,
            message,
            top,
        });
        post(&gateway, &[], &body).await;
        let seen = upstream.last();
        let added = String::from_utf8(seen.body.clone())
            .unwrap()
            .matches(OURS)
            .count();
        assert!((1..=2).contains(&added), "{added} added");
        assert!(count_markers(&seen.body) <= 4);
        assert_eq!(
            without_ours(&seen),
            body,
            "the client's markers are where they were"
        );
    }
    let turns = gateway.turns(7).await;
    assert!(
        turns[..2]
            .iter()
            .all(|t| t["markers"]["client"] == 4 && t["markers"]["added"] == 0)
    );
    for turn in &turns[2..] {
        assert_eq!(turn["markers"]["client"], 2);
        assert!((1..=2).contains(&turn["markers"]["added"].as_u64().unwrap()));
    }
    assert!(
        turns.iter().all(|turn| warnings(turn).is_empty()),
        "{turns:?}"
    );
}

#[tokio::test]
async fn a06_five_of_the_clients_own_are_the_clients_error() {
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"A maximum of 4 blocks with cache_control may be provided. Found 5."}}"#;
    let upstream = Upstream::answering(http_json(400, refusal)).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let parts = Parts {
        tools: [true, true],
        system: [true, true],
        message: true,
        top: false,
    };
    let body = body(&parts);
    let reply = post(&gateway, &[], &body).await;
    assert_eq!((reply.status, reply.text().as_str()), (400, refusal));
    assert_eq!(
        upstream.seen().len(),
        1,
        "nothing of ours is in it, so nothing is sent again"
    );
    assert_eq!(upstream.last().body, body.as_bytes());
    let turn = only_turn(&gateway).await;
    assert!(
        warnings(&turn).contains(&"more_than_4_breakpoints"),
        "{turn}"
    );
    assert_eq!(
        (&turn["outcome"], &turn["error_type"]),
        (&json!("upstream_error"), &json!("invalid_request_error"))
    );
    assert_eq!(turn["markers"]["client"], 5);
}

/// A conversation whose last messages are given.
fn ending_in(last: &str) -> String {
    let text = filler(3000);
    format!(
        r#"{{"model":"test-sonnet","max_tokens":9,"tools":[{{"name":"a","input_schema":{{"type":"object"}}}}],"system":[{{"type":"text","text":"{text}"}}],"messages":[{{"role":"user","content":[{{"type":"text","text":"task"}}]}},{last}]}}"#
    )
}

/// The forwarded body, checked to be the client's with markers of ours, and their paths.
/// Each is the first request of an app of its own: what one has shown must not decide the next.
async fn sent(gateway: &Gateway, upstream: &Upstream, body: &str) -> (Value, Vec<String>) {
    let number = upstream.seen().len();
    let (app, run) = (
        format!("x-prefixgate-app: a{number}"),
        format!("x-prefixgate-run: r{number}"),
    );
    let reply = post(gateway, &[&app, &run], body).await;
    assert_eq!(reply.status, 200);
    let seen = upstream.last();
    assert_eq!(without_ours(&seen), body);
    let value = seen.json();
    let mut paths = Vec::new();
    marked(&value, String::new(), &mut paths);
    (value, paths)
}

/// Paths of everything that has a marker.
fn marked(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if members.contains_key("cache_control") {
                found.push(path.clone());
            }
            for (key, member) in members {
                marked(member, format!("{path}.{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                marked(item, format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn a08_no_marker_on_empty_text_or_reasoning() {
    let upstream = answering().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"toolu_9","name":"a","input":{}}]}"#;
    for empty in ["", " ", r"\n\t ", "\\u0020\\n"] {
        // (i) the marker goes on the result before it.
        let body = ending_in(&format!(
            r#"{call},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_9","content":"42"}},{{"type":"text","text":"{empty}"}}]}}"#
        ));
        let (_, paths) = sent(&gateway, &upstream, &body).await;
        assert!(
            paths.contains(&".messages[2].content[0]".into()),
            "{empty:?}: {paths:?}"
        );
        assert!(
            !paths.contains(&".messages[2].content[1]".into()),
            "{empty:?}: {paths:?}"
        );
        // (iii) a message with nothing else gets none.
        let body = ending_in(&format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"well"}}]}},{{"role":"user","content":[{{"type":"text","text":"{empty}"}}]}}"#
        ));
        let (_, paths) = sent(&gateway, &upstream, &body).await;
        assert!(
            !paths.iter().any(|p| p.starts_with(".messages[2]")),
            "{empty:?}: {paths:?}"
        );
        assert!(!paths.is_empty(), "an earlier block is marked instead");
    }
    // (ii), (iv) a prefill that ends in reasoning.
    for reasoning in [
        r#"{"type":"thinking","thinking":"..","signature":"sig"}"#,
        r#"{"type":"redacted_thinking","data":"xx"}"#,
    ] {
        let body = ending_in(&format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"well"}},{reasoning}]}}"#
        ));
        let (_, paths) = sent(&gateway, &upstream, &body).await;
        assert!(
            !paths.contains(&".messages[1].content[1]".into()),
            "{paths:?}"
        );
        assert!(
            paths.iter().any(|p| p.starts_with(".messages")),
            "{paths:?}"
        );
        // Alone in its message.
        let body = ending_in(&format!(
            r#"{{"role":"assistant","content":[{reasoning}]}}"#
        ));
        let (_, paths) = sent(&gateway, &upstream, &body).await;
        assert!(
            !paths.iter().any(|p| p.starts_with(".messages[1]")),
            "{paths:?}"
        );
    }
}

#[tokio::test]
async fn a10_no_marker_on_a_deferred_tool() {
    let upstream = answering().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let text = filler(3000);
    let with_tools = |deferred: [bool; 3]| {
        let tool = |name: &str, text: &str, deferred: bool| {
            let flag = if deferred {
                r#","defer_loading":true"#
            } else {
                ""
            };
            format!(
                r#"{{"name":"{name}","description":"{text}"{flag},"input_schema":{{"type":"object"}}}}"#
            )
        };
        format!(
            r#"{{"model":"test-sonnet","max_tokens":9,"tools":[{},{},{}],"messages":[{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}]}}"#,
            tool("read", &text, deferred[0]),
            tool("edit", "e", deferred[1]),
            tool("mcp__x__q", &text, deferred[2]),
        )
    };
    let (_, paths) = sent(&gateway, &upstream, &with_tools([false, false, true])).await;
    assert!(paths.contains(&".tools[1]".into()), "{paths:?}");
    assert!(!paths.contains(&".tools[2]".into()), "{paths:?}");
    let (_, paths) = sent(&gateway, &upstream, &with_tools([true; 3])).await;
    assert!(!paths.iter().any(|p| p.starts_with(".tools")), "{paths:?}");
    assert!(!paths.is_empty(), "the message is long enough");
}

#[tokio::test]
async fn a15_nothing_is_added_below_the_minimum() {
    let config = format!(
        "{PRICES}\n[[price]]\nmodel = \"test-small\"\ninput = 1\noutput = 5\nread = \"0.1\"\nwrite_5m = \"1.25\"\nwrite_1h = 2\nmin_cache_tokens = 4096\n"
    );
    let upstream = Upstream::start(|seen, n| {
        let model = seen.json()["model"].as_str().unwrap().to_owned();
        let usage = match (model.as_str(), n) {
            ("test-sonnet", 2) => r#"{"input_tokens":10,"cache_read_input_tokens":0,"cache_creation_input_tokens":3000,"output_tokens":5}"#,
            ("test-sonnet", _) => r#"{"input_tokens":10,"cache_read_input_tokens":3000,"cache_creation_input_tokens":0,"output_tokens":5}"#,
            _ => r#"{"input_tokens":3010,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":5}"#,
        };
        vec![crate::support::Step::Write(http_json(200, &message(&model, usage)))]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    let body = |model: &str| {
        let mut body = agent_body(model, "hello");
        body["system"][0]["text"] = filler(2900).into();
        body.to_string()
    };
    let run = ["x-session-id: session-a15"];
    for model in ["test-small", "test-small", "test-sonnet", "test-sonnet"] {
        let body = body(model);
        post(&gateway, &run, &body).await;
        let added = count_markers(&upstream.last().body);
        assert_eq!(added > 0, model == "test-sonnet", "{model}: {added}");
    }
    // A model without a known minimum and without a price: passed on, no error, no guess.
    post(&gateway, &run, &body("test-unknown")).await;
    assert_eq!(count_markers(&upstream.last().body), 0);
    let turns = gateway.turns(5).await;
    assert!(turns.iter().all(|t| t["outcome"] == "ok"));
    // Over all requests: 3000 of three prompts of 3010 without a read and two of 3010 with a cache.
    let ratio = gateway.report(&["runs"])[0]["hit_ratio"].as_f64().unwrap();
    assert!((ratio - 3000.0 / (5.0 * 3010.0)).abs() < 1e-12, "{ratio}");
    assert!(
        gateway
            .metric("prefixgate_cache_plan_skipped_total", &["below_minimum"])
            .await
            >= 2.0
    );
}

#[tokio::test]
async fn the_policy_decides_and_the_report_says_what_was_done() {
    let body = agent_body("test-sonnet", "hello").to_string();
    for (policy, dry_run) in [("off", false), ("dry-run", true), ("fill", false)] {
        let upstream = answering().await;
        let gateway = Gateway::with(&upstream.url(), PRICES, &["--cache", policy]);
        post(&gateway, &[], &body).await;
        let seen = upstream.last();
        let turn = only_turn(&gateway).await;
        let markers = &turn["markers"];
        let added = markers["added"].as_u64().unwrap();
        assert_eq!(
            (markers["client"].as_u64(), &markers["dry_run"]),
            (Some(0), &json!(dry_run))
        );
        let placed = markers["placed"].as_array().unwrap();
        assert_eq!(placed.len() as u64, added);
        assert_eq!(added > 0, policy != "off", "{policy}");
        if policy == "fill" {
            assert_eq!(count_markers(&seen.body) as u64, added);
            assert_eq!(without_ours(&seen), body);
            assert_eq!(turn["sent_bytes"], seen.body.len());
            for place in placed {
                // An offset in the client's body: behind it stands what was put in.
                let end = usize::try_from(place["offset"].as_u64().unwrap()).unwrap();
                assert_eq!(&body[end - 1..end], "}", "{place}");
            }
            assert_eq!(
                gateway
                    .metric("prefixgate_cache_markers_total", &["by=\"added\""])
                    .await,
                added as f64
            );
        } else {
            assert_eq!(seen.body, body.as_bytes(), "{policy}");
            assert_eq!(turn["sent_bytes"], body.len());
            assert_eq!(
                gateway
                    .metric("prefixgate_cache_markers_total", &["by=\"added\""])
                    .await,
                0.0
            );
        }
        if dry_run {
            assert_eq!(
                gateway
                    .metric("prefixgate_cache_markers_total", &["by=\"planned\""])
                    .await,
                added as f64
            );
        }
        assert_eq!(turn["request_bytes"], body.len());
    }
}

/// Refuses every request with a marker of ours, and answers the others.
async fn allergic() -> Upstream {
    Upstream::start(|seen, _| {
        let text = String::from_utf8_lossy(&seen.body);
        let answer = if text.contains(OURS) {
            http_json(400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"cache_control is not allowed here"}}"#)
        } else {
            http_json(200, &message("test-sonnet", &plain(10, 10)))
        };
        vec![crate::support::Step::Write(answer)]
    })
    .await
}

#[tokio::test]
async fn the_fuse_sends_the_clients_bytes_and_stays_off_for_the_thread() {
    let upstream = allergic().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let mut body = agent_body("test-sonnet", "hello");
    let thread = ["x-session-id: session-one"];
    let first = body.to_string();
    let reply = post(&gateway, &thread, &first).await;
    assert_eq!(reply.status, 200, "the client sees the success");
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2);
    assert!(count_markers(&seen[0].body) > 0);
    assert_eq!(seen[1].body, first.as_bytes());
    assert_eq!(
        seen[1].header("content-length").unwrap(),
        first.len().to_string()
    );

    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "hi"}]}));
    messages.push(json!({"role": "user", "content": [{"type": "text", "text": "and now"}]}));
    let second = body.to_string();
    assert_eq!(post(&gateway, &thread, &second).await.status, 200);
    assert_eq!(
        upstream.seen().len(),
        3,
        "insertion is off for later turns of this thread"
    );
    assert_eq!(upstream.last().body, second.as_bytes());

    let turns = gateway.turns(2).await;
    assert_eq!(
        turns.len(),
        2,
        "one record for the turn that was sent twice"
    );
    assert_eq!(warnings(&turns[0]), ["markers_refused"]);
    assert_eq!(
        turns[0]["markers"]["added"], 0,
        "none is in what was answered"
    );
    assert_eq!(turns[0]["sent_bytes"], first.len());
    assert_eq!(
        (&turns[0]["outcome"], &turns[0]["attempt"]),
        (&json!("ok"), &json!(1))
    );
    assert!(warnings(&turns[1]).is_empty());
    let refused = gateway
        .metric("prefixgate_cache_markers_total", &["by=\"refused\""])
        .await;
    assert_eq!(refused, count_markers(&seen[0].body) as f64);
    assert_eq!(
        gateway
            .metric("prefixgate_warnings_total", &["markers_refused"])
            .await,
        1.0
    );
    assert!(
        gateway
            .log()
            .contains("the upstream refused a request with edits of ours")
    );

    // Another thread is tried on its own.
    post(&gateway, &["x-session-id: session-two"], &first).await;
    assert_eq!(upstream.seen().len(), 5);
}

#[tokio::test]
async fn a_refusal_of_the_clients_own_bytes_is_passed_on_once() {
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages: roles must alternate"}}"#;
    let upstream = Upstream::start(move |_, number| {
        let answer = if number < 4 {
            http_json(400, refusal)
        } else {
            http_json(200, &message("test-sonnet", &plain(10, 10)))
        };
        vec![crate::support::Step::Write(answer)]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    // Nothing is added to a lone question.
    let reply = post(&gateway, &[], &crate::support::ask("test-sonnet", false)).await;
    assert_eq!((reply.status, reply.text().as_str()), (400, refusal));
    assert_eq!(upstream.seen().len(), 1);

    // With markers of ours it is tried once without, and that answer counts.
    let body = agent_body("test-sonnet", "hello").to_string();
    let reply = post(&gateway, &["x-session-id: session-three"], &body).await;
    assert_eq!((reply.status, reply.text().as_str()), (400, refusal));
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!(upstream.last().body, body.as_bytes());
    let turns = gateway.turns(2).await;
    assert!(
        turns
            .iter()
            .all(|t| t["outcome"] == "upstream_error" && t["status"] == 400)
    );
    // Nothing is known of the markers: no try is sent twice again until one has been answered, and
    // then the thread has them back.
    assert_eq!(warnings(&turns[1]), ["markers_suspended"]);
    let thread = ["x-session-id: session-three"];
    for (text, requests, marked) in [
        ("refused", 4, false),
        ("answered", 5, false),
        ("marked", 6, true),
    ] {
        post(&gateway, &thread, &body).await;
        assert_eq!(upstream.seen().len(), requests, "{text}");
        assert_eq!(count_markers(&upstream.last().body) > 0, marked, "{text}");
    }
}

/// Under `replace` the client's own breakpoint was taken out; what is sent the second time has it.
#[tokio::test]
async fn after_the_fuse_the_verdict_knows_the_clients_own_breakpoint() {
    let upstream = Upstream::start(|_, number| {
        let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#;
        vec![Step::Write(match number {
            0 => http_json(400, refusal),
            _ => http_json(200, &message("test-sonnet", &plain(9_000, 5))),
        })]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--cache", "replace"]);
    let mut body = agent_body("test-sonnet", "hello");
    body["system"][0]["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
    let body = body.to_string();
    let reply = post(&gateway, &[], &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].body, body.as_bytes(), "the breakpoint was replaced");
    assert_eq!(seen[1].body, body.as_bytes());
    let turn = only_turn(&gateway).await;
    assert_eq!(turn["verdict"]["status"], "not_cacheable", "{turn:#}");
    assert_eq!(turn["verdict"]["reason"], "not_written", "{turn:#}");
}
