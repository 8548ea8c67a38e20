//! Detectors and their actions, each with the configuration that its case names.

use serde_json::{Value, json};

use super::{Round, answering, body, failed, messages, said, send};
use crate::support::{Gateway, PRICES, Upstream, eventually};

const HEADER: &str = "x-prefixgate-loop";

async fn set_up(config: &str) -> (Upstream, Gateway) {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::with(&upstream.url(), &format!("{PRICES}{config}"), &[]);
    (upstream, gateway)
}

/// Sends the conversation as it grows, turn by turn; gives for each number of results what the
/// answer told of a loop.
async fn grow(gateway: &Gateway, run: &str, rounds: &[Round]) -> Vec<Option<String>> {
    let mut told = Vec::new();
    for n in 0..=rounds.len() {
        let reply = send(gateway, run, &body(messages(&rounds[..n]))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        told.push(reply.header(HEADER).map(str::to_owned));
    }
    told
}

/// The number of results with which it was told first.
fn first(told: &[Option<String>]) -> Option<usize> {
    told.iter().position(Option::is_some)
}

fn nope() -> Round {
    failed("read_file", json!({"path": "/nope"}), "ENOENT: /nope")
}

#[tokio::test]
async fn d01_block_stops_the_third_failure_of_the_same_call() {
    let (upstream, gateway) = set_up("[loops]\naction = \"block\"\n").await;
    let rounds = vec![nope(); 3];
    for n in 0..3 {
        let reply = send(&gateway, "d01", &body(messages(&rounds[..n]))).await;
        assert_eq!(reply.status, 200);
    }
    let reply = send(&gateway, "d01", &body(messages(&rounds))).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    let error = reply.json();
    assert_eq!(error["error"]["type"], "billing_error");
    let text = error["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("`read_file`") && text.contains("3 times"),
        "{text}"
    );
    assert!(
        text.contains("loops.action") && text.contains("same_call"),
        "{text}"
    );
    assert_eq!(upstream.seen().len(), 3);

    let turns = gateway.turns_of("d01", 4).await;
    let last = &turns[3];
    assert_eq!(last["outcome"], "refused");
    let finding = &last["guard"]["findings"][0];
    assert_eq!(finding["detector"], "same_call");
    assert_eq!(finding["tools"], json!(["read_file"]));
    assert_eq!(finding["count"], 3);
    assert_eq!(finding["turns"], 3);
    assert_eq!(last["guard"]["action"], "block");
    assert!(
        turns[..3]
            .iter()
            .all(|turn| turn["guard"]["findings"].is_null())
    );
    let labels = ["detector=\"same_call\"", "action=\"block\""];
    assert_eq!(gateway.metric("prefixgate_loops_total", &labels).await, 1.0);
    // The same once more is refused again, and is no further loop.
    let again = send(&gateway, "d01", &body(messages(&rounds))).await;
    assert_eq!(again.status, 400);
    assert_eq!(gateway.metric("prefixgate_loops_total", &[]).await, 1.0);
}

#[tokio::test]
async fn d01_a_loop_that_goes_on_at_its_last_step_is_told_each_time_it_has_doubled() {
    let rounds = vec![nope(); 13];
    let (_upstream, gateway) = set_up("").await;
    grow(&gateway, "on", &rounds).await;
    gateway.turns_of("on", 14).await;
    let loops = eventually("the third event", async || {
        let loops = gateway.report(&["loops"]);
        let told = loops.first().is_some_and(|found| found["steps"] == 3);
        told.then_some(loops)
    })
    .await;
    assert_eq!((loops.len(), &loops[0]["count"]), (1, &json!(12)));
    assert!(loops[0]["last"].as_str() > loops[0]["first"].as_str());
    // It is one loop all the same.
    assert_eq!(gateway.metric("prefixgate_loops_total", &[]).await, 1.0);
}

#[tokio::test]
async fn d01_warn_is_the_default_and_off_is_silent() {
    let rounds = vec![nope(); 5];
    let (upstream, gateway) = set_up("").await;
    let told = grow(&gateway, "w", &rounds).await;
    assert_eq!(told[..3], [None, None, None]);
    assert_eq!(
        told[3].as_deref(),
        Some("same_call; tools=read_file; count=3")
    );
    assert_eq!(
        told[5].as_deref(),
        Some("same_call; tools=read_file; count=5")
    );
    assert_eq!(upstream.seen().len(), 6);
    assert_eq!(gateway.metric("prefixgate_loops_total", &[]).await, 1.0);
    let turns = gateway.turns_of("w", 6).await;
    // Four answered turns stand behind the loop's fourth failure, each of 10 and 5 tokens.
    assert_eq!(turns[4]["guard"]["loop_cost_usd"], "0.00042");

    let (upstream, gateway) = set_up("[loops]\naction = \"off\"\n").await;
    assert_eq!(first(&grow(&gateway, "o", &rounds).await), None);
    assert_eq!(upstream.seen().len(), 6);
}

#[tokio::test]
async fn d01_a_user_text_starts_the_count_anew() {
    let (_upstream, gateway) = set_up("[loops]\naction = \"block\"\n").await;
    let mut talk = messages(&vec![nope(); 2]);
    talk.push(json!({"role": "assistant", "content": "It is not there."}));
    talk.push(json!({"role": "user", "content": "Try again."}));
    for number in 0..2 {
        let id = format!("toolu_later_{number}");
        talk.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "read_file", "input": {"path": "/nope"}},
        ]}));
        talk.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": "ENOENT: /nope", "is_error": true},
        ]}));
        let reply = send(&gateway, "d01", &body(talk.clone())).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn d03_polling_whose_output_changes_is_healthy() {
    let (_upstream, gateway) = set_up("").await;
    let handle = json!({"handle": "h1"});
    let mut polls: Vec<Round> = (1..12)
        .map(|n| said("read_output", handle.clone(), &format!("{}%", n * 10)))
        .collect();
    polls.push(said("read_output", handle.clone(), "exited (code 0)"));
    assert_eq!(first(&grow(&gateway, "poll", &polls).await), None);

    let naps: Vec<Round> = (0..12)
        .flat_map(|n| {
            [
                said("read_output", handle.clone(), &format!("line {n}")),
                said("sleep", json!({"seconds": 5}), ""),
            ]
        })
        .collect();
    assert_eq!(first(&grow(&gateway, "naps", &naps).await), None);

    for _ in 0..5 {
        polls.push(said("read_output", handle.clone(), "exited (code 0)"));
    }
    let told = grow(&gateway, "stuck", &polls).await;
    let at = first(&told).unwrap();
    assert!((12 + 4..=12 + 5).contains(&at), "{at}");
    assert!(
        told[at]
            .as_deref()
            .unwrap()
            .starts_with("no_progress; tools=read_output")
    );
}

#[tokio::test]
async fn d05_cycles_are_found_as_one_thing() {
    let (_upstream, gateway) = set_up("").await;
    let pair = [
        said("search", json!({"q": "k"}), "0 hits"),
        said("get", json!({"id": 7}), "not found"),
    ];
    let rounds: Vec<Round> = pair.iter().cycle().take(10).cloned().collect();
    let told = grow(&gateway, "pairs", &rounds).await;
    assert_eq!(first(&told), Some(6));
    let header = told[6].as_deref().unwrap();
    assert!(
        header.starts_with("cycle; tools=search,get; count=3"),
        "{header}"
    );
    let turns = gateway.turns_of("pairs", 11).await;
    assert_eq!(turns[6]["guard"]["findings"][0]["period"], 2);

    let triple = |output: &dyn Fn(usize) -> String| -> Vec<Round> {
        (0..4)
            .flat_map(|n| {
                [
                    said("read", json!({"file": "a.rs"}), "fn main() {}"),
                    said("edit", json!({"file": "a.rs", "to": "x"}), "done"),
                    said("test", json!({}), &output(n)),
                ]
            })
            .collect()
    };
    let same = triple(&|_| "1 test ran".to_owned());
    assert_eq!(first(&grow(&gateway, "triples", &same).await), Some(9));
    // Only a number differs, and that is progress.
    let changing = triple(&|n| format!("{n} tests passed"));
    assert_eq!(first(&grow(&gateway, "changing", &changing).await), None);
}

#[tokio::test]
async fn d05_a_block_holds_whichever_member_comes_next() {
    let (_upstream, gateway) = set_up("[loops]\naction = \"block\"\n").await;
    let pair = [
        said("search", json!({"q": "k"}), "0 hits"),
        said("get", json!({"id": 7}), "not found"),
    ];
    let rounds: Vec<Round> = pair.iter().cycle().take(8).cloned().collect();
    for (n, expected) in [(5, 200), (6, 400), (7, 400), (8, 400)] {
        let reply = send(&gateway, "pair", &body(messages(&rounds[..n]))).await;
        assert_eq!(reply.status, expected, "{n}");
    }
}

#[tokio::test]
async fn d06_the_same_error_with_other_arguments() {
    let (_upstream, gateway) = set_up("").await;
    let edit = |k: usize| json!({"file": "a.rs", "old": format!("variant {k}")});
    let miss = "search block not found in a.rs";
    let round = |k: usize| {
        [
            failed("edit", edit(k), miss),
            said("read", json!({"file": "a.rs"}), "fn main() {}"),
        ]
    };
    let rounds: Vec<Round> = (1..=8).flat_map(round).collect();
    let told = grow(&gateway, "edits", &rounds).await;
    // The fifth failure is the ninth result.
    assert_eq!(first(&told), Some(9));
    assert!(
        told[9]
            .as_deref()
            .unwrap()
            .starts_with("same_error; tools=edit; count=5")
    );

    let mut mended: Vec<Round> = (1..=4).flat_map(round).collect();
    mended.push(said("edit", edit(9), "replaced"));
    mended.extend((1..=4).flat_map(round));
    assert_eq!(first(&grow(&gateway, "mended", &mended).await), None);

    let tools = ["edit", "read", "search", "get", "test"];
    let others: Vec<Round> = tools
        .iter()
        .map(|tool| failed(tool, json!({"file": "a.rs"}), miss))
        .collect();
    assert_eq!(first(&grow(&gateway, "tools", &others).await), None);
    let errors = [
        "no such file",
        "no permission",
        "it is a directory",
        "not text",
        "too large",
    ];
    let others: Vec<Round> = errors
        .iter()
        .enumerate()
        .map(|(k, error)| failed("edit", edit(k), error))
        .collect();
    assert_eq!(first(&grow(&gateway, "errors", &others).await), None);
}

#[tokio::test]
async fn d11_a_failing_tool_is_a_loop_and_a_failing_upstream_is_not() {
    use crate::support::upstream::{Step, json as http_json, message};
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let usage = r#"{"input_tokens":10,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":5}"#;
    let upstream = Upstream::start(move |_, number| match number {
        2 => vec![Step::Reset],
        4 => vec![Step::write(http_json(200, &message("test-sonnet", usage)))],
        _ => vec![Step::write(http_json(529, overloaded))],
    })
    .await;
    // One turn only: an attempt that took one would leave none for the answer.
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--max-turns", "1"]);
    let request = body(messages(&[said("read", json!({"file": "a"}), "text")]));
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(send(&gateway, "out", &request).await.status);
    }
    assert_eq!(statuses, [529, 529, 502, 529, 200]);
    assert_eq!(gateway.metric("prefixgate_loops_total", &[]).await, 0.0);
    let turns = gateway.turns_of("out", 5).await;
    let numbers: Vec<(Value, Value)> = turns
        .iter()
        .map(|turn| (turn["turn"].clone(), turn["attempt"].clone()))
        .collect();
    let expected: Vec<(Value, Value)> = (1..=5).map(|n| (json!(1), json!(n))).collect();
    assert_eq!(numbers, expected);
    let costs: Vec<&Value> = turns.iter().map(|turn| &turn["cost_usd"]).collect();
    assert!(
        costs[..4].iter().all(|cost| cost.is_null()) && costs[4] == "0.000105",
        "{costs:?}"
    );
    assert_eq!(
        send(&gateway, "out", &body(messages(&[]))).await.status,
        400
    );

    let (_upstream, gateway) = set_up("").await;
    let rounds = vec![failed("get", json!({"url": "x"}), "HTTP 503 from api.example"); 3];
    assert_eq!(first(&grow(&gateway, "tool", &rounds).await), Some(3));
}

#[tokio::test]
async fn the_action_may_differ_by_detector_and_by_app() {
    let (_upstream, gateway) = set_up(
        "[loops]\naction = \"warn\"\nno_progress = 2\nno_progress_action = \"block\"\n\
         [app.ci]\nloops = \"block\"\nstatus = 403\n",
    )
    .await;
    let rounds = vec![nope(); 3];
    assert_eq!(first(&grow(&gateway, "a", &rounds).await), Some(3));
    let same = vec![said("get", json!({"id": 1}), "none"); 2];
    let reply = send(&gateway, "b", &body(messages(&same))).await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    let reply = super::send_with(
        &gateway,
        "c",
        &["x-prefixgate-app: ci"],
        &body(messages(&rounds)),
    )
    .await;
    assert_eq!(reply.status, 403);
    assert!(reply.text().contains("app.ci.loops"), "{}", reply.text());
    assert_eq!(reply.json()["error"]["type"], "billing_error");
}
