//! Answers on a connection: what is recorded of them, and how they end.

use prefixgate::sim::{End, Fault};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use super::*;

#[tokio::test]
async fn two_turns_on_one_socket_are_turns_of_one_thread() {
    let bench = Bench::new("");
    let mut line = Line::open(&bench.gateway).await;
    let asked = create(&"a word ".repeat(2_000));
    let first = line.ask(&asked).await;
    assert_eq!(first[0]["type"], "response.created");
    let id = first.last().unwrap()["response"]["id"].clone();
    let next = with(create("and more"), "previous_response_id", id.clone());
    let second = line.end(&next).await;
    assert_eq!(second["type"], "response.completed");

    let sent: Vec<Vec<u8>> = [&asked, &next]
        .iter()
        .map(|e| e.to_string().into_bytes())
        .collect();
    assert_eq!(bench.asked(), sent);
    let upgrade = &bench.sim.requests()[0];
    assert_eq!(
        (
            upgrade.method.as_str(),
            upgrade.header("sec-websocket-extensions")
        ),
        ("GET", None)
    );

    let turns = bench.gateway.turns_of("r", 2).await;
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(
            (&turn["kind"], &turn["turn"], &turn["attempt"]),
            (&json!("turn"), &json!(n + 1), &json!(1)),
            "{turn}"
        );
        assert_eq!(
            (&turn["method"], &turn["path"], &turn["status"]),
            (&json!("WS"), &json!("/v1/responses"), &json!(200))
        );
        assert_eq!(
            (&turn["outcome"], &turn["usage_complete"], &turn["streamed"]),
            (&json!("ok"), &json!(true), &json!(true))
        );
        assert_eq!(turn["request_bytes"], sent[n].len());
        assert_eq!(turn["sent_bytes"], sent[n].len());
        assert_eq!(turn["warnings"], json!([]), "{turn}");
        assert!(
            turn["cost_usd"].is_string() && turn["first_token_us"].is_u64(),
            "{turn}"
        );
    }
    assert_eq!(turns[0]["thread"], turns[1]["thread"]);
    assert_eq!(turns[0]["response_id"], id);
    let told = &second["response"]["usage"];
    assert_eq!(
        turns[1]["tokens"]["read"],
        told["input_tokens_details"]["cached_tokens"]
    );
    assert!(turns[1]["tokens"]["read"].as_u64().unwrap() > 1_000);
    assert_eq!(turns[1]["tokens"]["output"], told["output_tokens"]);

    line.socket.close(None).await.unwrap();
    while line.message().await.is_some() {}
    bench.gateway.ended_as("other", "ok", 1).await;
    assert_eq!(
        bench
            .gateway
            .metric("prefixgate_requests_in_flight", &[])
            .await,
        0.0
    );
}

#[tokio::test]
async fn what_only_prepares_is_no_turn_and_can_be_continued() {
    let bench = Bench::new("");
    let mut line = Line::open(&bench.gateway).await;
    let asked = with(create(&"a word ".repeat(2_000)), "generate", false);
    let prepared = line.end(&asked).await;
    let id = prepared["response"]["id"].clone();
    line.end(&with(create("b"), "previous_response_id", id))
        .await;
    let records = bench.gateway.turns_of("r", 2).await;
    let [prepared, turn] = &records[..] else {
        panic!("{records:?}");
    };
    assert_eq!(
        (&prepared["kind"], &turn["kind"]),
        (&json!("other"), &json!("turn"))
    );
    assert_eq!(
        (&turn["turn"], &turn["attempt"], &turn["warnings"]),
        (&json!(1), &json!(1), &json!([]))
    );
    assert_eq!(prepared["thread"], turn["thread"]);
    // It is no turn, and has cost something all the same.
    assert!(prepared["cost_usd"].is_string(), "{prepared}");
    assert_eq!(bench.gateway.report(&["turns", "--run", "r"]).len(), 1);
}

#[tokio::test]
async fn lanes_are_answered_side_by_side_each_in_its_own_account() {
    let bench = Bench::with(
        Options {
            event_delay: Duration::from_millis(2),
            ..Options::default()
        },
        "",
    );
    let mut line = Line::open(&bench.gateway).await;
    for (lane, words) in [("a", "one"), ("b", "two and more"), ("a", "three")] {
        line.send(&with(create(words), "stream_id", lane)).await;
    }
    let mut ends = Vec::new();
    let mut lanes = Vec::new();
    while ends.len() < 3 {
        let event = line.next().await.unwrap();
        let lane = event["stream_id"].as_str().unwrap().to_owned();
        lanes.push(lane.clone());
        if event["type"] == "response.completed" {
            ends.push((
                event["response"]["id"].clone(),
                event["response"]["usage"]["output_tokens"].clone(),
            ));
        }
    }
    lanes.dedup();
    assert!(lanes.len() > 3, "they came one after another: {lanes:?}");
    let turns = bench.gateway.turns_of("r", 3).await;
    let told = |turn: &Value| {
        (
            turn["response_id"].clone(),
            turn["tokens"]["output"].clone(),
        )
    };
    for turn in &turns {
        assert_eq!(
            (&turn["outcome"], &turn["warnings"]),
            (&json!("ok"), &json!([]))
        );
        assert!(ends.contains(&told(turn)), "{turn}");
    }
    assert_ne!(told(&turns[0]), told(&turns[2]));
}

#[tokio::test]
async fn an_error_of_the_upstream_ends_the_answer_and_not_the_connection() {
    let bench = Bench::new("");
    let mut line = Line::open(&bench.gateway).await;
    let limited = line.end(&create("[[inject:429ra]] [[inject-any]]")).await;
    assert_eq!(limited["status"], 429);
    let unknown = line
        .end(&with(create("x"), "previous_response_id", "resp_gone"))
        .await;
    assert_eq!(unknown["error"]["code"], "previous_response_not_found");
    assert_eq!(line.end(&create("x")).await["type"], "response.completed");
    let turns = bench.gateway.turns_of("r", 3).await;
    let ends: Vec<_> = turns
        .iter()
        .map(|t| {
            (
                t["outcome"].as_str().unwrap(),
                t["status"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        ends,
        [
            ("upstream_error", 429),
            ("upstream_error", 400),
            ("ok", 200)
        ]
    );
    assert!(turns[0]["cost_usd"].is_null());
}

#[tokio::test]
async fn an_upstream_that_dies_inside_an_answer_is_a_cut() {
    for (fault, why) in [
        (
            Fault {
                cut_at: Some(600),
                ..Fault::default()
            },
            "ended the connection",
        ),
        (
            Fault {
                end_at: Some(600),
                ..Fault::default()
            },
            "closed the connection",
        ),
    ] {
        let ends = fault.end_at.is_some();
        let bench = Bench::with(
            Options {
                fault,
                ..Options::default()
            },
            "",
        );
        let mut line = Line::open(&bench.gateway).await;
        line.send(&create("x")).await;
        let mut last = None;
        while let Some(message) = line.message().await {
            last = Some(message);
        }
        // The client is told by a close where the upstream closed, and by none where it broke.
        assert_eq!(matches!(last, Some(Message::Close(_))), ends, "{last:?}");
        let turns = bench.gateway.turns_of("r", 1).await;
        assert_eq!(
            (&turns[0]["outcome"], &turns[0]["usage_complete"]),
            (&json!("upstream_cut"), &json!(false))
        );
        let told = turns[0]["error_message"].as_str().unwrap();
        assert!(told.contains(why), "{told}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_answer_upstream() {
    let bench = Bench::new("");
    let mut line = Line::open(&bench.gateway).await;
    line.send(&create("[[inject:stall]] [[inject-any]]")).await;
    bench.sim.wait_for(|all| all.len() == 2).await;
    drop(line);
    let left = bench
        .sim
        .wait_for(|all| all[0].end == End::ClientGone)
        .await;
    assert_eq!(left.len(), 2);
    let turns = bench.gateway.turns_of("r", 1).await;
    assert_eq!(turns[0]["outcome"], "client_abort");
}

#[tokio::test]
async fn a_silent_upstream_is_given_up_only_while_it_owes_an_answer() {
    let bench = Bench::new("[timeouts]\nidle = \"1s\"\n");
    let mut idle = Line::open(&bench.gateway).await;
    let mut line = Line::open(&bench.gateway).await;
    line.send(&create("[[inject:stall]] [[inject-any]]")).await;
    while line.next().await.is_some() {}
    let turns = bench.gateway.turns_of("r", 1).await;
    assert_eq!(turns[0]["outcome"], "upstream_cut");
    assert!(
        turns[0]["error_message"]
            .as_str()
            .unwrap()
            .contains("silent")
    );
    // That took longer than the other one has been idle for.
    assert_eq!(idle.end(&create("x")).await["type"], "response.completed");
}

#[tokio::test]
async fn a_large_request_in_many_frames_is_one_request() {
    let bench = Bench::new("");
    let mut line = Line::open(&bench.gateway).await;
    let event = create(&"many words ".repeat(40_000)).to_string();
    let pieces: Vec<&[u8]> = event.as_bytes().chunks(1_000).collect();
    for (n, piece) in pieces.iter().enumerate() {
        let opcode = if n == 0 { Data::Text } else { Data::Continue };
        let last = n + 1 == pieces.len();
        let frame = Frame::message(piece.to_vec(), OpCode::Data(opcode), last);
        line.socket.feed(Message::Frame(frame)).await.unwrap();
        if n == pieces.len() / 2 {
            line.socket
                .send(Message::Ping("in between".into()))
                .await
                .unwrap();
            // It is answered, though the message is held.
            assert_eq!(
                line.message().await,
                Some(Message::Pong("in between".into()))
            );
            assert!(bench.asked().is_empty());
        }
    }
    line.socket.flush().await.unwrap();
    assert_eq!(
        line.answer().await.last().unwrap()["type"],
        "response.completed"
    );
    assert_eq!(bench.asked(), [event.as_bytes()]);
    let turns = bench.gateway.turns_of("r", 1).await;
    assert_eq!(turns[0]["request_bytes"], event.len());
}

#[tokio::test]
async fn a_close_passes_with_its_code() {
    let bench = Bench::new("");
    let mut line = Line::open(&bench.gateway).await;
    line.socket.send(Message::Ping("p".into())).await.unwrap();
    assert_eq!(line.message().await, Some(Message::Pong("p".into())));
    let frame = CloseFrame {
        code: CloseCode::Library(4_242),
        reason: "enough".into(),
    };
    line.socket.close(Some(frame.clone())).await.unwrap();
    let Some(Message::Close(Some(echoed))) = line.message().await else {
        panic!("no close");
    };
    assert_eq!(echoed.code, frame.code);
    assert_eq!(line.message().await, None);
    bench.gateway.ended_as("other", "ok", 1).await;
}

#[tokio::test]
async fn content_is_captured_with_the_answer_whole() {
    let bench = Bench::new("[capture]\nmode = \"full\"\n");
    let mut line = Line::open(&bench.gateway).await;
    line.ask(&create("cobaltheron")).await;
    let kept = crate::support::eventually("content of the turn", async || {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_prefixgate"))
            .args(["report", "content", "--run", "r", "--data-dir"])
            .arg(bench.gateway.data())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.contains("cobaltheron").then_some(text)
    })
    .await;
    assert!(kept.contains("response 200"), "{kept}");
    assert!(kept.contains(r#""object": "response""#), "{kept}");
    assert!(kept.contains(r#""text": "ok""#), "{kept}");
}
