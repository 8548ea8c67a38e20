//! Accounting and identity in OpenAI's formats: B03, C01, C08, C10, C15 and E10 as they are for
//! Messages, over real sockets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::warnings;
use crate::support::client::Reply;
use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, Step, chunk, json as http_json};
use crate::support::{Gateway, PRICES, Upstream, Wire};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const BOTH: [&str; 2] = [CHAT, RESPONSES];

fn gateway(upstream: &Upstream, config: &str, args: &[&str]) -> Gateway {
    Gateway::with(&upstream.url(), &config_of(upstream, config), args)
}

/// OpenAI's formats go to the upstream as well. What follows its url may be further settings of it.
fn config_of(upstream: &Upstream, config: &str) -> String {
    let url = upstream.url();
    format!("{PRICES}\n[upstream.openai]\nurl = \"{url}\"\nformat = \"openai\"\n{config}")
}

/// A whole answer of the format of `path`; `prompt` includes `cached`.
fn answer(path: &str, id: usize, model: &str, prompt: u64, cached: u64, output: u64) -> String {
    let total = prompt + output;
    let whole = if path.ends_with("/responses") {
        json!({"id": format!("resp_{id}"), "object": "response", "status": "completed", "model": model,
            "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "ok", "annotations": []}]}],
            "usage": {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": cached},
                "output_tokens": output, "total_tokens": total}})
    } else {
        json!({"id": format!("chatcmpl-{id}"), "object": "chat.completion", "created": 1, "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens": output, "total_tokens": total}})
    };
    whole.to_string()
}

/// Answers as the model that it is asked for.
async fn answering(prompt: u64, cached: u64, output: u64) -> Upstream {
    Upstream::start(move |seen, n| {
        let (line, body) = (seen.line(), seen.json());
        let model = body["model"].as_str().unwrap();
        let whole = answer(&line, n, model, prompt, cached, output);
        vec![Step::Write(http_json(200, &whole))]
    })
    .await
}

fn ask(path: &str, model: &str) -> Value {
    if path == RESPONSES {
        json!({"model": model, "max_output_tokens": 64, "input": "hello"})
    } else {
        json!({"model": model, "max_completion_tokens": 64, "messages": [{"role": "user", "content": "hello"}]})
    }
}

async fn post(gateway: &Gateway, path: &str, headers: &[&str], body: &Value) -> Reply {
    Wire::exchange(gateway.proxy, path, headers, body.to_string().as_bytes()).await
}

fn sse(events: &[Value]) -> String {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    events.collect()
}

fn streamed(events: &str) -> Vec<Step> {
    let all = [SSE_HEAD, &chunk(events.as_bytes()), LAST_CHUNK];
    vec![Step::Write(all.concat())]
}

/// Clients go by the type in the data; servers there are that send no names.
#[tokio::test]
async fn b03_events_of_responses_without_names_pass_unchanged_and_are_counted() {
    let whole: Value =
        serde_json::from_str(&answer(RESPONSES, 1, "test-sonnet", 1000, 0, 100)).unwrap();
    let events = sse(&[
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "delta": "ok"}),
        json!({"type": "response.completed", "response": whole}),
    ]);
    let sent = events.clone();
    let upstream = Upstream::start(move |_, _| streamed(&sent)).await;
    let gateway = gateway(&upstream, "", &[]);
    let mut body = ask(RESPONSES, "test-sonnet");
    body["stream"] = true.into();
    let reply = post(&gateway, RESPONSES, &[], &body).await;
    assert_eq!(reply.text(), events);
    let turn = &gateway.turns(1).await[0];
    assert_eq!(
        (&turn["outcome"], &turn["cost_usd"]),
        (&json!("ok"), &json!("0.0045"))
    );
}

#[tokio::test]
async fn c01_cached_tokens_are_inside_of_openais_prompt_tokens() {
    let upstream = answering(1000, 400, 100).await;
    for path in BOTH {
        let gateway = gateway(&upstream, "", &[]);
        post(&gateway, path, &[], &ask(path, "test-sonnet")).await;
        let turn = &gateway.turns(1).await[0];
        let tokens = &turn["tokens"];
        assert_eq!(
            (&tokens["uncached"], &tokens["read"]),
            (&json!(600), &json!(400)),
            "{path}"
        );
        // 600 x 3 + 400 x 0.30 + 100 x 15
        assert_eq!(turn["cost_usd"], "0.00342", "{path}");
    }
}

#[tokio::test]
async fn c08_a_model_without_a_price_is_unknown_in_openais_formats_too() {
    let upstream = answering(1_000_000, 0, 50_000).await;
    for path in BOTH {
        let gateway = gateway(&upstream, "", &[]);
        for model in ["test-unlisted-9", "test-unlisted-9", "test-sonnet-mini"] {
            post(&gateway, path, &["x-session-id: c08"], &ask(path, model)).await;
        }
        for model in ["vendor/test-sonnet", "test-sonnet-20261101", "test-sonnet"] {
            post(&gateway, path, &["x-session-id: c08"], &ask(path, model)).await;
        }
        let turns = gateway.turns(6).await;
        for turn in &turns[..3] {
            assert_eq!(turn["cost_usd"], Value::Null, "{path}: {turn}");
            assert_eq!(turn["tokens"]["uncached"], 1_000_000, "{path}");
            assert!(
                warnings(turn).iter().any(|w| w.starts_with("unpriced")),
                "{turn}"
            );
        }
        for turn in &turns[3..] {
            assert_eq!(turn["cost_usd"], "3.75", "{path}: {turn}");
        }
        let run = &gateway.report(&["runs"])[0];
        assert_eq!(
            (&run["unpriced_turns"], &run["cost_complete"]),
            (&json!(3), &json!(false))
        );
        let unpriced = gateway.metric("prefixgate_unpriced_turns_total", &[]).await;
        assert_eq!(unpriced, 3.0, "{path}");
    }
}

#[tokio::test]
async fn c08_a_cap_on_money_holds_for_openais_formats_without_a_price() {
    let upstream = answering(1_000_000, 0, 50_000).await;
    for path in BOTH {
        let body = ask(path, "test-unlisted-9");
        let before = upstream.seen().len();
        let strict = gateway(&upstream, "", &["--max-usd", "0.10"]);
        let reply = post(&strict, path, &["x-session-id: refused"], &body).await;
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, &error["type"]),
            (400, &json!("billing_error")),
            "{path}"
        );
        let text = error["message"].as_str().unwrap();
        assert!(
            text.contains("test-unlisted-9") && text.contains("caps.unpriced"),
            "{text}"
        );
        assert_eq!(upstream.seen().len(), before);

        let flag = "[caps]\nunpriced = \"flag\"\n[caps.run]\nusd = 0.10\n";
        let flagging = gateway(&upstream, flag, &[]);
        let reply = post(&flagging, path, &["x-session-id: flagged"], &body).await;
        assert_eq!(reply.status, 200, "{path}");
        let turn = &flagging.turns_of("flagged", 1).await[0];
        assert_eq!(turn["cost_usd"], Value::Null);
        assert!(
            turn["warnings"].to_string().contains("cap_not_enforceable"),
            "{turn}"
        );

        let fallback = "[[price]]\nmodel = \"*\"\ninput = 3\noutput = 15\nread = 3\nwrite_5m = 3\nwrite_1h = 3\n[caps.run]\nusd = 0.10\n";
        let falling = gateway(&upstream, fallback, &[]);
        let head = ["x-session-id: fallback"];
        assert_eq!(post(&falling, path, &head, &body).await.status, 200);
        let turn = &falling.turns_of("fallback", 1).await[0];
        assert_eq!(turn["cost_usd"], "3.75", "{path}");
        assert!(
            turn["warnings"].to_string().contains("fallback_price"),
            "{turn}"
        );
        let reply = post(&falling, path, &head, &body).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (400, &json!("cap_reached"))
        );
    }
}

fn piece(delta: Value, finish: Option<&str>) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "test-sonnet",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// Streams an answer, with its tokens only where they are asked for.
async fn chatting() -> Upstream {
    Upstream::start(|seen, _| {
        let mut events = vec![piece(json!({"content": "hi"}), None), piece(json!({}), Some("stop"))];
        let usage = json!({"prompt_tokens": 70, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens": 10, "total_tokens": 80});
        if seen.json()["stream_options"]["include_usage"] == true {
            events.push(json!({"id": "c", "object": "chat.completion.chunk", "model": "test-sonnet", "choices": [], "usage": usage}));
        }
        streamed(&(sse(&events) + "data: [DONE]\n\n"))
    })
    .await
}

#[tokio::test]
async fn c10_usage_is_asked_for_and_kept_from_who_did_not_ask() {
    let upstream = chatting().await;
    let options = [
        None,
        Some(json!({"include_usage": false})),
        Some(json!({"include_usage": true})),
        Some(json!({"foo": 1})),
    ];
    for on in [true, false] {
        let gateway = gateway(
            &upstream,
            &format!("ask_usage = {on}\n"),
            &["--cache", "fill"],
        );
        for (case, options) in options.iter().enumerate() {
            let asked = options.as_ref().is_some_and(|o| o["include_usage"] == true);
            let mut body = ask(CHAT, "test-sonnet");
            body["stream"] = true.into();
            if let Some(options) = options {
                body["stream_options"] = options.clone();
            }
            let session = format!("x-session-id: case-{case}");
            let reply = post(&gateway, CHAT, &[&session], &body).await;
            let seen = upstream.last();
            if on && !asked {
                let mut expected = body.clone();
                expected["stream_options"]["include_usage"] = true.into();
                assert_eq!(seen.json(), expected, "{case}");
            } else {
                assert_eq!(seen.body, body.to_string().into_bytes(), "{case}");
            }
            let events = [
                piece(json!({"content": "hi"}), None),
                piece(json!({}), Some("stop")),
            ];
            let shown = sse(&events) + "data: [DONE]\n\n";
            if asked {
                let text = reply.text();
                assert_eq!(text.matches("data: ").count(), 4, "{case}: {text}");
                assert!(text.starts_with(&sse(&events)));
            } else {
                assert_eq!(reply.text(), shown, "{on} {case}");
            }
            let turn = &gateway.turns_of(&format!("case-{case}"), 1).await[0];
            let output = &turn["tokens"]["output"];
            let known = if on || asked { json!(10) } else { Value::Null };
            assert_eq!(*output, known, "{on} {case}: {turn}");
            assert_eq!(turn["cost_usd"].is_null(), known.is_null(), "{turn}");
        }
    }
}

#[tokio::test]
async fn c10_a_chunk_with_tokens_and_a_choice_is_passed_on() {
    let mut last = piece(json!({"content": "hi"}), Some("stop"));
    last["usage"] = json!({"prompt_tokens": 70, "completion_tokens": 10});
    let events = sse(&[last]) + "data: [DONE]\n\n";
    let sent = events.clone();
    let upstream = Upstream::start(move |_, _| streamed(&sent)).await;
    let gateway = gateway(&upstream, "", &["--cache", "fill"]);
    let mut body = ask(CHAT, "test-sonnet");
    body["stream"] = true.into();
    let reply = post(&gateway, CHAT, &[], &body).await;
    assert_eq!(reply.text(), events);
    let turn = &gateway.turns(1).await[0];
    assert_eq!(turn["tokens"]["output"], 10);
}

#[tokio::test]
async fn c15_the_serving_model_is_priced_in_openais_formats() {
    for path in BOTH {
        let upstream = Upstream::start(|seen, n| {
            let model = ["test-sonnet-20261101", "test-small"][n];
            let whole = answer(&seen.line(), n, model, 1000, 0, 100);
            vec![Step::Write(http_json(200, &whole))]
        })
        .await;
        let gateway = gateway(&upstream, "", &[]);
        let body = ask(path, "test-alias");
        for n in 0..2 {
            let reply = post(&gateway, path, &["x-session-id: c15"], &body).await;
            let model = ["test-sonnet-20261101", "test-small"][n];
            assert_eq!(reply.text(), answer(path, n, model, 1000, 0, 100));
            assert_eq!(upstream.last().body, body.to_string().into_bytes());
        }
        let turns = gateway.turns(2).await;
        assert_eq!(turns[0]["model_requested"], "test-alias");
        assert_eq!(turns[0]["model_served"], "test-sonnet-20261101");
        assert_eq!(turns[0]["cost_usd"], "0.0045", "{path}");
        assert_eq!(
            (&turns[1]["model_served"], &turns[1]["cost_usd"]),
            (&json!("test-small"), &Value::Null)
        );
        let run = &gateway.report(&["runs"])[0];
        assert_eq!(run["models"], json!(["test-sonnet-20261101", "test-small"]));
    }
}

/// A conversation that grows.
struct Talk {
    path: &'static str,
    model: &'static str,
    /// What else stands in the body.
    more: Value,
    said: Vec<Value>,
}

impl Talk {
    fn new(path: &'static str, first: &str) -> Self {
        Self {
            path,
            model: "test-sonnet",
            more: json!({}),
            said: vec![json!({"role": "user", "content": first})],
        }
    }

    async fn send(&mut self, gateway: &Gateway, headers: &[&str]) -> Reply {
        let mut body = self.more.clone();
        body["model"] = self.model.into();
        let mut said = self.said.clone();
        if self.path == RESPONSES {
            body["instructions"] = "be brief".into();
            body["input"] = said.into();
        } else {
            said.insert(0, json!({"role": "system", "content": "be brief"}));
            body["messages"] = said.into();
        }
        let reply = post(gateway, self.path, headers, &body).await;
        let n = self.said.len();
        self.said
            .push(json!({"role": "assistant", "content": format!("answer {n}")}));
        self.said
            .push(json!({"role": "user", "content": format!("question {n}")}));
        reply
    }
}

/// The runs by their id, whose totals are the sums of their requests.
fn runs(gateway: &Gateway) -> BTreeMap<String, Value> {
    let runs = gateway.report(&["runs"]).into_iter();
    let runs: BTreeMap<String, Value> = runs
        .map(|run| (run["id"].as_str().unwrap().to_owned(), run))
        .collect();
    for (id, run) in &runs {
        let turns = gateway.report(&["turns", "--run", id]);
        let tokens = turns
            .iter()
            .filter_map(|t| t["tokens"]["uncached"].as_u64());
        assert_eq!(run["tokens"]["uncached"], tokens.sum::<u64>(), "{id}");
        assert_eq!(run["requests"], turns.len(), "{id}");
    }
    runs
}

#[tokio::test]
async fn e10_sessions_by_header_and_body_in_openais_formats() {
    let upstream = answering(70, 0, 10).await;
    for path in BOTH {
        let gateway = gateway(&upstream, "", &[]);
        // (i) interleaved, with the same first words.
        let (mut a, mut b) = (Talk::new(path, "same words"), Talk::new(path, "same words"));
        for _ in 0..3 {
            a.send(&gateway, &["x-session-id: s1"]).await;
            b.send(&gateway, &["x-session-id: s2"]).await;
        }
        // (ii) Codex.
        let codex = ["session-id: c1", "user-agent: codex_cli_rs/1.2"];
        Talk::new(path, "x").send(&gateway, &codex).await;
        // (iii) in the body, in the ways that there are.
        for (more, words) in [
            (
                json!({"metadata": {"user_id": r#"{"device_id":"d","session_id":"s9"}"#}}),
                "y",
            ),
            (json!({"metadata": {"session_id": "s8"}}), "y"),
            (json!({"prompt_cache_key": "s7"}), "y"),
        ] {
            let mut talk = Talk::new(path, words);
            talk.more = more;
            talk.send(&gateway, &[]).await;
        }
        // (v) one session whose user and model change; the header wins over the body.
        let mut talk = Talk::new(path, "z");
        for (more, model) in [
            (json!({}), "test-sonnet"),
            (
                json!({"user": "u1", "prompt_cache_key": "other"}),
                "test-sonnet",
            ),
            (json!({"user": "u2"}), "test-small"),
        ] {
            talk.more = more;
            talk.model = model;
            talk.send(&gateway, &["x-session-id: s5"]).await;
        }
        gateway.turns(13).await;
        let runs = runs(&gateway);
        let known: Vec<&str> = runs.keys().map(String::as_str).collect();
        assert_eq!(known, ["c1", "s1", "s2", "s5", "s7", "s8", "s9"], "{path}");
        for (id, run) in &runs {
            let (turns, source) = match id.as_str() {
                "s1" | "s2" | "s5" => (3, "header"),
                "c1" => (1, "client"),
                _ => (1, "body"),
            };
            assert_eq!(
                (&run["turns"], &run["id_source"]),
                (&json!(turns), &json!(source)),
                "{path} {id}"
            );
            assert_eq!(run["threads"], 1, "{path} {id}");
        }
    }
}

#[tokio::test]
async fn e10_without_ids_the_words_tell_in_openais_formats() {
    let upstream = answering(70, 0, 10).await;
    for path in BOTH {
        let mut gateway = gateway(&upstream, "", &[]);
        let (mut a, mut b) = (
            Talk::new(path, "write a poem"),
            Talk::new(path, "fix the bug"),
        );
        for round in 1..=4 {
            a.send(&gateway, &[]).await;
            b.send(&gateway, &[]).await;
            assert_eq!(gateway.turns(2 * round).await.len(), 2 * round, "{path}");
            if round == 2 {
                let config = config_of(&upstream, "");
                gateway = gateway.restart(&upstream.url(), &config, &[]);
            }
        }
        let runs = runs(&gateway);
        assert_eq!(runs.len(), 2, "{path}: {runs:?}");
        for (id, run) in &runs {
            assert_eq!(
                (&run["turns"], &run["threads"]),
                (&json!(4), &json!(1)),
                "{path}: {run}"
            );
            assert_eq!(run["id_source"], "content");
            let turns = gateway.report(&["turns", "--run", id]);
            let numbers: Vec<&Value> = turns.iter().map(|turn| &turn["turn"]).collect();
            assert_eq!(numbers, [1, 2, 3, 4], "{path}");
        }
    }
}

#[tokio::test]
async fn e10_unusable_ids_are_hashed_in_openais_formats() {
    let upstream = answering(70, 0, 10).await;
    for path in BOTH {
        let gateway = gateway(&upstream, "", &[]);
        let long = format!("x-session-id: {}", "s".repeat(10_000));
        for header in [long.as_str(), "x-session-id: a\tb"] {
            for n in 0..2 {
                let mut talk = Talk::new(path, &format!("question {n}"));
                assert_eq!(talk.send(&gateway, &[header]).await.status, 200);
                let (_, value) = header.split_once(": ").unwrap();
                assert_eq!(upstream.last().header("x-session-id"), Some(value));
            }
        }
        gateway.turns(4).await;
        let runs = runs(&gateway);
        assert_eq!(runs.len(), 2, "{path}: {:?}", runs.keys());
        for (id, run) in runs {
            assert!(id.starts_with("h-") && id.len() < 40, "{path}: {id}");
            assert_eq!(run["requests"], 2);
        }
    }
}

/// Making a conversation shorter costs like a turn; nothing is edited, and no text in the model's
/// place is given where a compacted conversation is meant.
#[tokio::test]
async fn a_compaction_is_counted_as_a_turn_and_passes_untouched() {
    let path = "/v1/responses/compact";
    let upstream = Upstream::start(|_, n| {
        let whole = json!({"id": format!("resp_{n}"), "object": "response.compaction", "created_at": 1,
            "output": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
                {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}],
            "usage": {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 400},
                "output_tokens": 100, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1100}});
        vec![Step::Write(http_json(200, &whole.to_string()))]
    })
    .await;
    let config = "[openai]\nprompt_cache_key = \"add\"\n[caps]\naction = \"answer\"\n[caps.run]\nturns = 1\n";
    let gateway = gateway(&upstream, config, &["--cache", "fill"]);
    let body = json!({"model": "test-sonnet", "instructions": super::filler(3000), "input": [{"role": "user", "content": "go"}]});
    let head = ["x-session-id: compact"];
    let reply = post(&gateway, path, &head, &body).await;
    assert_eq!(reply.json()["object"], "response.compaction");
    assert_eq!(upstream.last().line(), format!("POST {path}"));
    assert_eq!(upstream.last().body, body.to_string().into_bytes());
    let turn = &gateway.turns_of("compact", 1).await[0];
    assert_eq!(
        (&turn["kind"], &turn["outcome"]),
        (&json!("turn"), &json!("ok")),
        "{turn}"
    );
    let tokens = &turn["tokens"];
    assert_eq!(
        (&tokens["uncached"], &tokens["read"], &tokens["output"]),
        (&json!(600), &json!(400), &json!(100))
    );
    assert_eq!(turn["cost_usd"], "0.00342");
    let reply = post(&gateway, path, &head, &body).await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["type"]),
        (400, &json!("billing_error"))
    );
    assert_eq!(upstream.seen().len(), 1);
}
