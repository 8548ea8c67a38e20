//! Responses over HTTP.

use super::*;

const PATH: &str = "/v1/responses";

fn ask(words: &str) -> Value {
    json!({"model": "gpt-6-sol", "input": words})
}

fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

#[tokio::test]
async fn events_come_numbered_and_in_order_and_add_up_to_the_response() {
    let bench = Bench::new();
    let body = json!({"model": "gpt-6-sol", "input": "go [[plan:par]]", "stream": true, "tools": [shell()],
        "reasoning": {"summary": "auto"}});
    let got = bench.post(PATH, &body).await;
    let events = got.events();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let names: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    // Each event names itself twice.
    let lines: Vec<String> = got
        .text()
        .lines()
        .filter_map(|line| Some(line.strip_prefix("event: ")?.to_owned()))
        .collect();
    assert_eq!(lines, names);
    let mut once = names.clone();
    once.dedup();
    let call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ];
    let mut expected = vec![
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ];
    expected.extend(call);
    expected.extend(call);
    expected.push("response.completed");
    assert_eq!(once, expected);
    let whole = &events.last().unwrap()["response"];
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    assert_eq!(
        whole["output"]
            .as_array()
            .unwrap()
            .iter()
            .collect::<Vec<_>>(),
        done
    );
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(whole["output"][1]["content"][0]["text"], text);
    assert_eq!(whole["status"], "completed");
    assert_eq!(events[0]["response"]["usage"], Value::Null);
    assert!(whole["usage"]["output_tokens"].as_u64().unwrap() > 64);
}

#[tokio::test]
async fn a_loop_that_sends_its_whole_history_reads_what_it_wrote() {
    let bench = Bench::new();
    let mut input = vec![
        json!({"role": "user", "content": format!("{} [[plan:shell_ok,shell_ok,end]]", long("a", 2_000))}),
    ];
    let mut before = 0;
    for turn in 0..3 {
        let body =
            json!({"model": "gpt-6-sol", "input": input, "tools": [shell()], "store": false});
        let response = bench.respond(&body).await;
        let usage = &response["usage"];
        let details = &usage["input_tokens_details"];
        assert_eq!(details["cached_tokens"], before, "turn {turn}");
        let total = usage["input_tokens"].as_u64().unwrap();
        assert_eq!(details["cache_write_tokens"], total - before);
        assert_eq!(
            details["cache_write_tokens_details"]["ttl_30m_tokens"],
            total - before
        );
        before = total;
        for item in response["output"].as_array().unwrap() {
            input.push(item.clone());
            if item["type"] == "function_call" {
                input.push(json!({"type": "function_call_output", "call_id": item["call_id"], "output": "fine"}));
            }
        }
    }
    let text = input.last().unwrap()["content"][0]["text"].clone();
    assert_eq!(text, "DONE after 2 tool turns.");
}

#[tokio::test]
async fn what_stands_before_the_input_is_part_of_the_prefix() {
    let bench = Bench::new();
    let base = with(ask(&long("a", 2_000)), "store", json!(false));
    let changes = [
        ("instructions", json!("be brief")),
        ("tools", json!([shell()])),
        ("service_tier", json!("priority")),
        ("reasoning", json!({"effort": "low"})),
        ("text", json!({"verbosity": "low"})),
        ("text", json!({"format": {"type": "json_object"}})),
        ("prompt_cache_key", json!("other")),
        ("model", json!("gpt-6-luna")),
    ];
    bench.respond(&base).await;
    let read = async |body: &Value| {
        bench.respond(body).await["usage"]["input_tokens_details"]["cached_tokens"].clone()
    };
    for (member, value) in changes {
        assert_eq!(
            read(&with(base.clone(), member, value)).await,
            0,
            "{member}"
        );
    }
    // Defaults spelled out change nothing.
    let spelled = with(
        with(base.clone(), "service_tier", json!("auto")),
        "reasoning",
        json!({"effort": "medium"}),
    );
    assert_eq!(read(&spelled).await, 2_000);
    assert_eq!(read(&base).await, 2_000);
}

#[tokio::test]
async fn lifetimes_follow_the_clock() {
    let bench = Bench::new();
    let ask = |ttl: &str| json!({"model": "gpt-6-sol", "input": long(ttl, 2_000), "prompt_cache_options": {"ttl": ttl}});
    let details =
        async |ttl: &str| bench.respond(&ask(ttl)).await["usage"]["input_tokens_details"].clone();
    assert_eq!(
        details("12h").await["cache_write_tokens_details"],
        json!({"ttl_30m_tokens": 0, "ttl_12h_tokens": 2_000})
    );
    details("30m").await;
    bench.clock.advance(1_800_000);
    assert_eq!(details("30m").await["cached_tokens"], 0);
    assert_eq!(details("12h").await["cached_tokens"], 2_000);
}

#[tokio::test]
async fn failures_inside_a_stream_come_as_events() {
    let bench = Bench::new();
    let stream = |kind: &str| {
        with(
            ask(&format!("[[inject:{kind}]] [[inject-any]]")),
            "stream",
            json!(true),
        )
    };
    let got = bench.post(PATH, &stream("sse_overloaded")).await;
    let last = got.events().pop().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["error"]["code"], "server_is_overloaded");
    assert_eq!(last["response"]["status"], "failed");
    assert!(last["response"]["usage"]["input_tokens"].is_u64());
    let last = bench
        .post(PATH, &stream("sse_api_error"))
        .await
        .events()
        .pop()
        .unwrap();
    assert_eq!(
        (&last["type"], &last["code"]),
        (&json!("error"), &json!("server_error"))
    );
    let got = bench.post(PATH, &stream("drop")).await;
    assert!(!got.whole && !got.text().contains("response.completed"));
}

#[tokio::test]
async fn an_output_limit_makes_an_incomplete_response() {
    let bench = Bench::new();
    let body = with(
        with(ask("[[text:5000]]"), "max_output_tokens", json!(100)),
        "stream",
        json!(true),
    );
    let last = bench.post(PATH, &body).await.events().pop().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    let response = &last["response"];
    assert_eq!(
        response["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(response["usage"]["output_tokens"], 100);
    assert_eq!(response["output"][1]["status"], "incomplete");
}

#[tokio::test]
async fn requests_that_the_api_refuses_are_refused() {
    let bench = Bench::new();
    let check = async |body: Value, param: Value, code: Value| {
        let refused = bench.refused(PATH, &body).await;
        assert_eq!(refused, (400, param, code), "{body}");
    };
    let missing = json!("missing_required_parameter");
    check(json!({"input": "x"}), json!("model"), missing.clone()).await;
    check(json!({"model": "gpt-6-sol"}), json!("input"), missing).await;
    let unknown = json!("unknown_parameter");
    check(
        with(ask("x"), "messages", json!([])),
        json!("messages"),
        unknown.clone(),
    )
    .await;
    check(
        with(ask("x"), "generate", json!(false)),
        json!("generate"),
        unknown,
    )
    .await;
    check(
        with(ask("x"), "previous_response_id", json!("resp_none")),
        json!("previous_response_id"),
        json!("previous_response_not_found"),
    )
    .await;
    let both = with(
        with(ask("x"), "previous_response_id", json!("r")),
        "conversation",
        json!("c"),
    );
    check(both, Value::Null, json!("mutually_exclusive_parameters")).await;
    let output = json!([{"type": "function_call_output", "call_id": "c", "output": "x"}]);
    check(
        json!({"model": "gpt-6-sol", "input": output}),
        json!("input"),
        Value::Null,
    )
    .await;
    check(
        with(ask("x"), "stream_options", json!({})),
        json!("stream_options"),
        Value::Null,
    )
    .await;
    let lone = with(
        with(ask("x"), "background", json!(true)),
        "store",
        json!(false),
    );
    check(lone, json!("background"), Value::Null).await;
    let old =
        json!({"model": "gpt-5.5", "input": "x", "prompt_cache_options": {"mode": "explicit"}});
    check(
        old,
        json!("prompt_cache_options"),
        json!("unsupported_parameter"),
    )
    .await;
}

#[tokio::test]
async fn custom_tools_namespaces_and_shells_are_called_in_their_own_shape() {
    let bench = Bench::new();
    let call = async |tool: Value| {
        let body = json!({"model": "test-gpt", "input": "[[plan:shell_ok]]", "tools": [tool]});
        bench.respond(&body).await["output"][1].clone()
    };
    let custom = call(json!({"type": "custom", "name": "exec_command"})).await;
    assert_eq!(
        (&custom["type"], &custom["input"]),
        (&json!("custom_tool_call"), &json!("echo hello-0"))
    );
    let inner = json!({"type": "namespace", "name": "box", "description": "d", "tools": [shell()]});
    let spaced = call(inner).await;
    assert_eq!(
        (&spaced["name"], &spaced["namespace"]),
        (&json!("shell"), &json!("box"))
    );
    let local = call(json!({"type": "local_shell"})).await;
    assert_eq!(local["type"], "local_shell_call");
    assert_eq!(
        local["action"]["command"],
        json!(["bash", "-lc", "echo hello-0"])
    );
}

#[tokio::test]
async fn tools_that_an_item_brings_are_called_and_a_code_tool_is_given_code() {
    let bench = Bench::new();
    let exec = json!({"type": "custom", "name": "exec", "description": "Runs JavaScript: `await tools.exec_command(...)`."});
    let input = json!([
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "functions", "description": "", "tools": [exec]}]},
        {"role": "user", "content": "[[plan:shell_ok,end]]"}
    ]);
    let response = bench
        .respond(&json!({"model": "test-gpt", "input": input}))
        .await;
    let call = &response["output"][1];
    assert_eq!(
        (&call["type"], &call["name"], &call["namespace"]),
        (
            &json!("custom_tool_call"),
            &json!("exec"),
            &json!("functions")
        )
    );
    let code = call["input"].as_str().unwrap();
    assert!(
        code.contains(r#"tools.exec_command({"cmd": "echo hello-0"})"#),
        "{code}"
    );
}

#[tokio::test]
async fn diagnostics_name_what_changed() {
    let bench = Bench::new();
    let base = ask(&long("a", 2_000));
    let first = bench.respond(&base).await;
    assert!(first.get("prompt_cache_diagnostics").is_none());
    let compare = |body: Value| {
        with(
            body,
            "prompt_cache_options",
            json!({"comparison_response_id": first["id"]}),
        )
    };
    let told = async |body: Value| bench.respond(&body).await["prompt_cache_diagnostics"].clone();
    assert_eq!(
        told(compare(base.clone())).await,
        json!({"type": "cache_hit"})
    );
    let reasons = [
        ("model", json!("gpt-6-luna"), "model_changed"),
        ("service_tier", json!("flex"), "service_tier_changed"),
        ("prompt_cache_key", json!("k"), "prompt_cache_key_changed"),
        ("tools", json!([shell()]), "tools_changed"),
        (
            "text",
            json!({"format": {"type": "json_object"}}),
            "text_format_changed",
        ),
        (
            "reasoning",
            json!({"effort": "low"}),
            "reasoning_effort_changed",
        ),
        ("text", json!({"verbosity": "high"}), "verbosity_changed"),
        ("input", json!("b"), "input_changed"),
    ];
    for (member, value, reason) in reasons {
        let miss = told(compare(with(base.clone(), member, value))).await;
        assert_eq!(
            miss,
            json!({"type": "cache_miss", "reason": reason, "cache_missed_tokens": 2_000, "comparison_reusable_tokens": 2_000})
        );
    }
    let lost = with(
        base.clone(),
        "prompt_cache_options",
        json!({"comparison_response_id": "resp_none"}),
    );
    assert_eq!(
        told(lost).await,
        json!({"type": "comparison_response_not_found"})
    );
    bench.sim.evict_cache();
    assert_eq!(told(compare(base)).await, json!({"type": "unavailable"}));
}
