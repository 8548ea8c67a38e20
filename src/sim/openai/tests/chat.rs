//! Chat Completions.

use super::*;

fn ask(words: &str) -> Value {
    json!({"model": "gpt-6-sol", "messages": [{"role": "user", "content": words}]})
}

fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_completion_has_the_documented_members() {
    let bench = Bench::new();
    let got = bench.post(CHAT, &ask("hello")).await;
    assert!(got.header("x-request-id").starts_with("req_"));
    assert_eq!(got.header("x-ratelimit-limit-requests"), "10000");
    assert!(got.headers.get("anthropic-organization-id").is_none());
    let body = got.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["choices"][0]["message"]["content"], "ok");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    let usage = &body["usage"];
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 64);
    assert_eq!(
        usage["total_tokens"].as_u64(),
        Some(
            usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap()
        )
    );
    let recorded = bench.sim.requests().pop().unwrap();
    assert_eq!(recorded.end, End::Whole);
    assert_eq!(
        recorded.openai.unwrap().total,
        usage["prompt_tokens"].as_u64().unwrap()
    );
    assert_eq!(recorded.message_id.as_deref(), body["id"].as_str());
}

#[tokio::test]
async fn a_stream_carries_usage_only_when_it_is_asked_for() {
    let bench = Bench::new();
    let body = with(ask("hello"), "stream", json!(true));
    let plain = bench.post(CHAT, &body).await;
    assert!(plain.text().ends_with("data: [DONE]\n\n"));
    assert!(
        plain
            .events()
            .iter()
            .all(|chunk| chunk.get("usage").is_none())
    );
    let asked = with(body, "stream_options", json!({"include_usage": true}));
    let events = bench.post(CHAT, &asked).await.events();
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
    assert!(
        others
            .iter()
            .all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some())
    );
    let text: String = others
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "ok");
    assert!(others[0]["obfuscation"].is_string());
}

#[tokio::test]
async fn a_tool_loop_runs_to_its_end() {
    let bench = Bench::new();
    for stream in [false, true] {
        let mut messages = vec![json!({"role": "user", "content": "go [[plan:shell_ok,par,end]]"})];
        let mut rounds = 0;
        loop {
            let body = json!({"model": "gpt-4.1", "messages": messages, "tools": [chat_shell()], "stream": stream});
            let got = bench.post(CHAT, &body).await;
            assert_eq!(got.status, 200, "{}", got.text());
            let message = if stream {
                assembled(&got.events())
            } else {
                got.json()["choices"][0]["message"].clone()
            };
            messages.push(message.clone());
            let Some(calls) = message["tool_calls"].as_array() else {
                assert_eq!(message["content"], "DONE after 2 tool turns.");
                break;
            };
            rounds += calls.len();
            for call in calls {
                let arguments = call["function"]["arguments"].as_str().unwrap();
                assert!(serde_json::from_str::<Value>(arguments).unwrap()["command"].is_string());
                messages
                    .push(json!({"role": "tool", "tool_call_id": call["id"], "content": "done"}));
            }
        }
        assert_eq!(rounds, 3);
    }
}

/// The message that the chunks of a stream make.
fn assembled(chunks: &[Value]) -> Value {
    let mut message = json!({"role": "assistant", "content": ""});
    for delta in chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]) {
        if let Some(text) = delta["content"].as_str() {
            message["content"] = json!(format!("{}{text}", message["content"].as_str().unwrap()));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            if !message["tool_calls"].is_array() {
                message["tool_calls"] = json!([]);
            }
            let calls = message["tool_calls"].as_array_mut().unwrap();
            if at == calls.len() {
                let mut call = call.clone();
                call.as_object_mut().unwrap().remove("index");
                calls.push(call);
            } else {
                let more = call["function"]["arguments"].as_str().unwrap();
                let so_far = calls[at]["function"]["arguments"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                calls[at]["function"]["arguments"] = json!(so_far + more);
            }
        }
    }
    message
}

#[tokio::test]
async fn c01_cached_tokens_are_part_of_the_prompt_tokens() {
    let bench = Bench::new();
    let ask = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": long("a", 2_000)}]});
    let mut usages = Vec::new();
    for model in ["gpt-6-sol", "gpt-6-sol", "gpt-4.1", "gpt-4.1"] {
        let usage = bench.post(CHAT, &ask(model)).await.json()["usage"].clone();
        assert_eq!(usage["prompt_tokens"], 2_000);
        usages.push(usage["prompt_tokens_details"].clone());
    }
    assert_eq!(usages[0]["cached_tokens"], 0);
    assert_eq!(usages[0]["cache_write_tokens"], 2_000);
    assert_eq!(usages[1]["cached_tokens"], 2_000);
    assert_eq!(usages[1]["cache_write_tokens"], 0);
    // Older models: in steps of 128, and no word of writes.
    assert_eq!(usages[3]["cached_tokens"], 1_920);
    assert!(usages[3].get("cache_write_tokens").is_none());
}

#[tokio::test]
async fn another_cache_key_is_another_cache() {
    let bench = Bench::new();
    let ask = |key: &str| json!({"model": "gpt-6-sol", "prompt_cache_key": key, "messages": [{"role": "user", "content": long("a", 2_000)}]});
    let read = async |key: &str| {
        let got = bench.post(CHAT, &ask(key)).await;
        got.json()["usage"]["prompt_tokens_details"]["cached_tokens"].clone()
    };
    assert_eq!(read("one").await, 0);
    assert_eq!(read("two").await, 0);
    assert_eq!(read("one").await, 2_000);
}

#[tokio::test]
async fn scripted_failures_come_in_this_apis_shape() {
    let bench = Bench::new();
    let words = |kind: &str| ask(&format!("x [[inject:{kind}]] [[inject-any]]"));
    let got = bench.post(CHAT, &words("529")).await;
    assert_eq!(
        (got.status, got.json()["error"]["code"].as_str()),
        (503, Some("server_is_overloaded"))
    );
    let got = bench.post(CHAT, &words("429ra")).await;
    assert_eq!((got.status, got.header("retry-after")), (429, "2"));
    let stream = |kind: &str| with(words(kind), "stream", json!(true));
    let got = bench.post(CHAT, &stream("sse_rate_limit")).await;
    assert_eq!(got.status, 200);
    assert_eq!(
        got.events().last().unwrap()["error"]["code"],
        "rate_limit_exceeded"
    );
    assert!(!got.text().contains("[DONE]"));
    let got = bench.post(CHAT, &stream("cut")).await;
    assert!(got.whole && !got.text().contains("[DONE]"));
    let got = bench.post(CHAT, &stream("drop")).await;
    assert!(!got.whole);
    let body = words("drop0").to_string();
    let got = bench.call("POST", CHAT, &[], body.as_bytes()).await;
    assert!(got.is_none());
}

#[tokio::test]
async fn heads_bodies_and_encodings_are_checked() {
    let bench = Bench::new();
    let body = ask("hello").to_string();
    let send = async |headers: &[(&str, &str)], body: &[u8]| {
        let got = bench.call("POST", CHAT, headers, body).await.unwrap();
        (got.status, got.json()["error"]["code"].clone())
    };
    assert_eq!(
        send(&[("authorization", "Basic k")], body.as_bytes())
            .await
            .0,
        401
    );
    assert_eq!(
        send(&[("authorization", "Bearer invalid")], body.as_bytes()).await,
        (401, json!("invalid_api_key"))
    );
    assert_eq!(send(&[], b"{").await.0, 400);
    assert_eq!(
        send(&[("content-encoding", "br")], body.as_bytes()).await.0,
        400
    );
    assert_eq!(
        send(&[("content-encoding", "gzip")], body.as_bytes())
            .await
            .0,
        400
    );
    let zstd = zstd::encode_all(body.as_bytes(), 1).unwrap();
    assert_eq!(send(&[("content-encoding", "zstd")], &zstd).await.0, 200);
    let gzip = crate::sim::body::gzip(body.as_bytes());
    assert_eq!(send(&[("content-encoding", "gzip")], &gzip).await.0, 200);
    let unknown = with(ask("x"), "model", json!("gpt-99"));
    assert_eq!(
        bench.refused(CHAT, &unknown).await,
        (404, Value::Null, json!("model_not_found"))
    );
}

#[tokio::test]
async fn an_output_limit_ends_the_answer_early() {
    let bench = Bench::new();
    let body = with(ask("[[text:5000]]"), "max_completion_tokens", json!(100));
    let got = bench.post(CHAT, &body).await.json();
    assert_eq!(got["choices"][0]["finish_reason"], "length");
    assert_eq!(got["usage"]["completion_tokens"], 100);
    let text = got["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.len() <= 36 * 4);
}

#[tokio::test]
async fn models_are_listed_in_the_shape_of_the_side_that_asks() {
    let bench = Bench::new();
    let ours = bench.get("/v1/models").await.json();
    assert_eq!(
        (&ours["object"], &ours["data"][0]["object"]),
        (&json!("list"), &json!("model"))
    );
    assert_eq!(
        bench.get("/v1/models/gpt-6-sol").await.json()["id"],
        "gpt-6-sol"
    );
    assert_eq!(bench.get("/v1/models/none").await.status, 404);
    let theirs = [("anthropic-version", "2023-06-01")];
    let theirs = bench.call("GET", "/v1/models", &theirs, b"").await.unwrap();
    assert!(theirs.json()["first_id"].is_string());
}

#[tokio::test]
async fn embeddings_come_as_numbers_or_packed() {
    let bench = Bench::new();
    let ask = |format: &str| json!({"model": "text-embedding-3-small", "input": ["a", "b"], "dimensions": 4, "encoding_format": format});
    let plain = bench.post("/v1/embeddings", &ask("float")).await.json();
    assert_eq!(plain["data"][1]["embedding"].as_array().unwrap().len(), 4);
    assert_eq!(plain["usage"]["prompt_tokens"], 2);
    let packed = bench.post("/v1/embeddings", &ask("base64")).await.json();
    // 16 bytes.
    assert_eq!(packed["data"][0]["embedding"].as_str().unwrap().len(), 24);
    let wrong = json!({"model": "gpt-6-sol", "input": "a"});
    assert_eq!(bench.refused("/v1/embeddings", &wrong).await.0, 404);
}
