//! What is stored: responses, conversations, background, compaction.

use super::*;

#[tokio::test]
async fn a_stored_response_is_continued_with_all_that_came_before() {
    let bench = Bench::new();
    let first = bench
        .respond(&json!({"model": "gpt-6-sol", "instructions": "i", "input": format!("{} [[plan:shell_ok,end]]", long("a", 2_000)), "tools": [shell()]}))
        .await;
    let call = first["output"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["type"] == "function_call")
        .unwrap();
    let output =
        json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}]);
    let body = json!({"model": "gpt-6-sol", "instructions": "i", "input": output, "previous_response_id": first["id"], "tools": [shell()]});
    let second = bench.respond(&body).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(
        second["usage"]["input_tokens_details"]["cached_tokens"],
        first["usage"]["input_tokens"]
    );
    let said = second["output"].as_array().unwrap().last().unwrap();
    assert_eq!(said["content"][0]["text"], "DONE after 1 tool turns.");
    // Without the call's answer the held call stays open.
    let open = json!({"model": "gpt-6-sol", "input": "x", "previous_response_id": first["id"]});
    assert_eq!(bench.refused("/v1/responses", &open).await.1, "input");
    // Instructions are not carried over: the prefix is another one.
    let mut bare = body.clone();
    bare.as_object_mut().unwrap().remove("instructions");
    assert_eq!(
        bench.respond(&bare).await["usage"]["input_tokens_details"]["cached_tokens"],
        0
    );
}

#[tokio::test]
async fn what_is_not_stored_belongs_to_others_or_is_gone_cannot_be_continued() {
    let bench = Bench::new();
    let unstored = bench
        .respond(&json!({"model": "gpt-6-sol", "input": "x", "store": false}))
        .await;
    let stored = bench
        .respond(&json!({"model": "gpt-6-sol", "input": "x"}))
        .await;
    let next = |id: &Value| json!({"model": "gpt-6-sol", "input": "y", "previous_response_id": id});
    let lost = json!("previous_response_not_found");
    assert_eq!(
        bench
            .refused("/v1/responses", &next(&unstored["id"]))
            .await
            .2,
        lost
    );
    let foreign = bench
        .call(
            "POST",
            "/v1/responses",
            &[("authorization", "Bearer other")],
            next(&stored["id"]).to_string().as_bytes(),
        )
        .await
        .unwrap();
    assert_eq!(foreign.json()["error"]["code"], lost);
    bench.respond(&next(&stored["id"])).await;
    let path = format!("/v1/responses/{}", stored["id"].as_str().unwrap());
    assert_eq!(bench.get(&path).await.json()["output"], stored["output"]);
    assert_eq!(
        bench.call("DELETE", &path, &[], b"").await.unwrap().json()["deleted"],
        true
    );
    assert_eq!(bench.get(&path).await.status, 404);
    assert_eq!(
        bench.refused("/v1/responses", &next(&stored["id"])).await.2,
        lost
    );
}

#[tokio::test]
async fn a_response_whose_stream_broke_is_not_stored() {
    let bench = Bench::new();
    let body =
        json!({"model": "gpt-6-sol", "input": "[[inject:drop]] [[inject-any]]", "stream": true});
    let got = bench.post("/v1/responses", &body).await;
    let id = got.events()[0]["response"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    bench.sim.wait_for(|all| all[0].end == End::Fault).await;
    assert_eq!(bench.get(&format!("/v1/responses/{id}")).await.status, 404);
}

#[tokio::test]
async fn a_background_response_is_polled_to_its_end() {
    let bench = Bench::new();
    let queued = bench
        .respond(&json!({"model": "gpt-6-sol", "input": "x", "background": true}))
        .await;
    assert_eq!(
        (&queued["status"], &queued["output"]),
        (&json!("queued"), &json!([]))
    );
    let path = format!("/v1/responses/{}", queued["id"].as_str().unwrap());
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(bench.get(&path).await.json());
    }
    let statuses: Vec<&str> = seen.iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["in_progress", "completed", "completed"]);
    assert!(seen[0]["usage"].is_null() && seen[1]["usage"]["input_tokens"].is_u64());

    let body = json!({"model": "gpt-6-sol", "input": "[[inject:sse_overloaded]] [[inject-any]]", "background": true});
    let failing = bench.respond(&body).await;
    let path = format!("/v1/responses/{}", failing["id"].as_str().unwrap());
    bench.get(&path).await;
    let failed = bench.get(&path).await.json();
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("failed"), &json!("server_is_overloaded"))
    );

    let third = bench
        .respond(&json!({"model": "gpt-6-sol", "input": "x", "background": true}))
        .await;
    let path = format!("/v1/responses/{}", third["id"].as_str().unwrap());
    let cancelled = bench
        .post(&format!("{path}/cancel"), &json!({}))
        .await
        .json();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(bench.get(&path).await.json()["status"], "cancelled");
}

#[tokio::test]
async fn a_background_stream_can_be_taken_up_again() {
    let bench = Bench::new();
    let body = json!({"model": "gpt-6-sol", "input": "x", "background": true, "stream": true});
    let events = bench.post("/v1/responses", &body).await.events();
    assert_eq!(events[1]["type"], "response.queued");
    let id = events[0]["response"]["id"].as_str().unwrap();
    let rest = bench
        .get(&format!("/v1/responses/{id}?stream=true&starting_after=3"))
        .await
        .events();
    assert_eq!(rest[0]["sequence_number"], 4);
    assert_eq!(rest.last().unwrap()["type"], "response.completed");
    assert_eq!(rest.len() + 4, events.len());
}

#[tokio::test]
async fn a_conversation_grows_by_each_turn() {
    let bench = Bench::new();
    let opened = bench
        .post(
            "/v1/conversations",
            &json!({"items": [{"role": "developer", "content": "d"}]}),
        )
        .await
        .json();
    let ask =
        |words: &str| json!({"model": "gpt-6-sol", "input": words, "conversation": opened["id"]});
    let first = bench.respond(&ask(&long("a", 2_000))).await;
    assert_eq!(first["conversation"]["id"], opened["id"]);
    let second = bench.respond(&ask("b")).await;
    assert_eq!(
        second["usage"]["input_tokens_details"]["cached_tokens"],
        first["usage"]["input_tokens"]
    );
    let unknown = json!({"model": "gpt-6-sol", "input": "x", "conversation": {"id": "conv_none"}});
    assert_eq!(bench.refused("/v1/responses", &unknown).await.0, 404);
}

#[tokio::test]
async fn items_are_referred_to_by_their_ids() {
    let bench = Bench::new();
    let first = bench
        .respond(&json!({"model": "gpt-6-sol", "input": "x"}))
        .await;
    let references: Vec<Value> = first["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| json!({"type": "item_reference", "id": item["id"]}))
        .collect();
    let mut input = vec![json!({"role": "user", "content": "x"})];
    input.extend(references);
    input.push(json!({"role": "user", "content": "y"}));
    bench
        .respond(&json!({"model": "gpt-6-sol", "input": input}))
        .await;
    let lost =
        json!({"model": "gpt-6-sol", "input": [{"type": "item_reference", "id": "msg_none"}]});
    assert_eq!(bench.refused("/v1/responses", &lost).await.0, 404);
}

#[tokio::test]
async fn a_compacted_conversation_goes_on_with_its_sealed_item() {
    let bench = Bench::new();
    let history = json!([{"role": "user", "content": long("a", 2_000)}, {"role": "assistant", "content": "b"}]);
    let first = bench
        .respond(&json!({"model": "gpt-6-sol", "input": history}))
        .await;
    let compacted = bench
        .post(
            "/v1/responses/compact",
            &json!({"model": "gpt-6-sol", "input": history}),
        )
        .await
        .json();
    assert_eq!(compacted["object"], "response.compaction");
    assert_eq!(
        compacted["usage"]["input_tokens_details"]["cached_tokens"],
        first["usage"]["input_tokens"]
    );
    let output = compacted["output"].as_array().unwrap();
    assert_eq!(
        (output.len(), &output[1]["type"]),
        (2, &json!("compaction"))
    );
    let mut next = vec![output[1].clone()];
    next.push(json!({"role": "user", "content": "on"}));
    let body = json!({"model": "gpt-6-sol", "input": next, "prompt_cache_options": {"comparison_response_id": first["id"]}});
    let told = bench.respond(&body).await;
    assert_eq!(
        told["prompt_cache_diagnostics"]["reason"],
        "context_compacted"
    );
    let mut forged = body.clone();
    forged["input"][0]["encrypted_content"] = json!("gAAAAforged");
    assert_eq!(
        bench.refused("/v1/responses", &forged).await.2,
        "invalid_encrypted_content"
    );
}

#[tokio::test]
async fn input_is_counted_as_it_will_be_billed() {
    let bench = Bench::new();
    let body = json!({"model": "gpt-6-sol", "input": "hello", "tools": [shell()]});
    let counted = bench.post("/v1/responses/input_tokens", &body).await.json();
    let billed = bench.respond(&body).await;
    assert_eq!(counted["input_tokens"], billed["usage"]["input_tokens"]);
}
