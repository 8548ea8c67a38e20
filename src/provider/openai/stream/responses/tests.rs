use proptest::prelude::*;
use serde_json::{Value, json};

use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::view::{Answer, ApiError, DIAGNOSIS_NONE, Ttl};
use crate::provider::wire::Wire;
use crate::usage::{ServiceTier, Usage};

const JSON_OK: Shape = Shape::Json { status: 200 };

fn stream(events: &[Value]) -> String {
    events
        .iter()
        .map(|data| {
            format!(
                "event: {}\ndata: {data}\n\n",
                data["type"].as_str().unwrap()
            )
        })
        .collect()
}

fn read_with<'a>(
    limits: Limits,
    shape: Shape,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Answer {
    let mut reader = Reader::new(Wire::Responses, shape, limits);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.end(Some(Ttl::M30));
    reader.into_answer()
}

fn read(shape: Shape, body: &str) -> Answer {
    read_with(Limits::default(), shape, [body.as_bytes()])
}

fn read_events(events: &[Value]) -> Answer {
    read(Shape::Stream, &stream(events))
}

fn response(status: &str, output: Value) -> Value {
    let ended = status != "in_progress" && status != "queued";
    json!({"id":"resp_1","object":"response","created_at":1,"status":status,"error":null,
        "incomplete_details":null,"instructions":"long","model":"test-gpt-2026-11-01",
        "output":output,"parallel_tool_calls":true,"tool_choice":"auto","tools":[],
        "service_tier":if ended { "default" } else { "auto" },
        "usage":if ended { usage() } else { Value::Null }})
}

fn usage() -> Value {
    json!({"input_tokens":4000,"input_tokens_details":{"cached_tokens":1536,
        "cache_write_tokens":2000,
        "cache_write_tokens_details":{"ttl_30m_tokens":1500,"ttl_12h_tokens":500}},
        "output_tokens":77,"output_tokens_details":{"reasoning_tokens":12},"total_tokens":4077})
}

fn used() -> Usage {
    Usage {
        uncached: Some(464),
        read: Some(1536),
        write_30m: Some(1500),
        write_12h: Some(500),
        output: Some(77),
        reasoning: Some(12),
        ..Usage::default()
    }
}

fn created() -> Value {
    json!({"type":"response.created","sequence_number":0,"response":response("in_progress", json!([]))})
}

fn ended(kind: &str, response: Value) -> Value {
    json!({"type":format!("response.{kind}"),"sequence_number":9,"response":response})
}

fn completed(output: Value) -> Value {
    ended("completed", response("completed", output))
}

fn delta(kind: &str, index: u64, text: &str) -> Value {
    json!({"type":format!("response.{kind}.delta"),"sequence_number":4,"item_id":format!("item_{index}"),
        "output_index":index,"content_index":0,"delta":text,"logprobs":[],"obfuscation":"x"})
}

fn call(index: u64, arguments: &str, status: &str) -> Value {
    json!({"type":"function_call","id":format!("item_{index}"),"call_id":format!("call_{index}"),
        "name":"shell","arguments":arguments,"status":status})
}

fn item(what: &str, index: u64, item: &Value) -> Value {
    json!({"type":format!("response.output_item.{what}"),"sequence_number":5,"output_index":index,
        "item":item})
}

fn added(index: u64) -> Value {
    item("added", index, &call(index, "", "in_progress"))
}

fn done(index: u64, arguments: &str) -> Value {
    item("done", index, &call(index, arguments, "completed"))
}

fn arguments(index: u64, piece: &str) -> Value {
    delta("function_call_arguments", index, piece)
}

fn message(text: &str) -> Value {
    json!({"type":"message","id":"item_1","role":"assistant","status":"completed",
        "content":[{"type":"output_text","text":text,"annotations":[]}]})
}

/// A stream with everything in it.
fn full() -> Vec<Value> {
    let (a, b) = ("{\"a\":\"渐\"}", "{\"b\":\" 🙂 é “\"}");
    vec![
        created(),
        json!({"type":"response.in_progress","response":response("in_progress", json!([]))}),
        item(
            "added",
            0,
            &json!({"type":"reasoning","id":"item_0","summary":[]}),
        ),
        delta("reasoning_summary_text", 0, "渐 🙂"),
        item(
            "done",
            0,
            &json!({"type":"reasoning","id":"item_0","summary":[]}),
        ),
        item(
            "added",
            1,
            &json!({"type":"message","id":"item_1","content":[]}),
        ),
        delta("output_text", 1, "渐 🙂 é “"),
        delta("output_text", 1, "line\nbreak \"q\""),
        json!({"type":"response.output_text.done","output_index":1,"text":"all of it"}),
        item("done", 1, &message("all of it")),
        added(2),
        arguments(2, "{\"a\":"),
        added(3),
        arguments(3, "{\"b\":"),
        arguments(3, "\" 🙂 é “\"}"),
        json!({"type":"response.function_call_arguments.done","item_id":"item_3","output_index":3,
            "arguments":b}),
        arguments(2, "\"渐\"}"),
        done(3, b),
        done(2, a),
        json!({"type":"response.from_the_future","x":{"y":[1]}}),
        delta("audio", 1, "c291bmQ="),
        completed(json!([
            message("all of it"),
            call(2, a, "completed"),
            call(3, b, "completed")
        ])),
    ]
}

/// B01: for every cut, and byte by byte, the same answer; no character is broken.
#[test]
fn b01_cuts_inside_characters_do_not_matter() {
    let bytes = stream(&full()).into_bytes();
    let limits = Limits::default();
    let whole = read_with(limits, Shape::Stream, [bytes.as_slice()]);
    assert_eq!(whole.id.as_deref(), Some("resp_1"));
    assert_eq!(whole.metered.model.as_deref(), Some("test-gpt-2026-11-01"));
    assert_eq!(whole.metered.usage, used());
    assert_eq!(whole.prompt_tokens, Some(4000));
    assert_eq!(whole.stop_reason.as_deref(), Some("completed"));
    assert!(whole.finished && whole.usage_complete && whole.content_begun);
    let calls: Vec<_> = whole
        .calls
        .iter()
        .map(|call| (call.id.as_str(), call.name.as_str(), call.complete))
        .collect();
    assert_eq!(
        calls,
        [("call_2", "shell", true), ("call_3", "shell", true)]
    );
    assert_eq!(whole.calls[0].input, "{\"a\":\"渐\"}".as_bytes());
    assert_eq!(whole.calls[1].input, "{\"b\":\" 🙂 é “\"}".as_bytes());
    assert_eq!(whole.warnings, [] as [&str; 0]);
    let delivered = [
        "渐 🙂",
        "渐 🙂 é “",
        "line\nbreak \"q\"",
        "{\"a\":\"渐\"}",
        "{\"b\":\" 🙂 é “\"}",
    ];
    assert_eq!(whole.delivered_bytes, delivered.concat().len() as u64);
    for cut in 0..=bytes.len() {
        let (a, b) = bytes.split_at(cut);
        assert_eq!(
            read_with(limits, Shape::Stream, [a, b]),
            whole,
            "cut at {cut}"
        );
    }
    assert_eq!(read_with(limits, Shape::Stream, bytes.chunks(1)), whole);
}

/// B03 (ii): clients go by the type in the data, so a stream without names is as good as one with
/// them; where the type is missing, the name counts.
#[test]
fn b03_names_and_types_say_the_same() {
    let named = read_events(&full());
    let unnamed: String = full()
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    assert_eq!(read(Shape::Stream, &unnamed), named);
    let untyped: String = full()
        .iter()
        .map(|data| {
            let mut bare = data.clone();
            let kind = bare.as_object_mut().unwrap().remove("type").unwrap();
            format!("event: {}\ndata: {bare}\n\n", kind.as_str().unwrap())
        })
        .collect();
    assert_eq!(read(Shape::Stream, &untyped), named);
    // The type stands first in what the provider sends.
    let first: String = full()
        .iter()
        .map(|data| {
            let rest = data.to_string();
            let mut bare = data.clone();
            let kind = bare.as_object_mut().unwrap().remove("type").unwrap();
            assert!(rest.starts_with('{'));
            format!("data: {{\"type\":{kind},{}\n\n", &bare.to_string()[1..])
        })
        .collect();
    assert_eq!(read(Shape::Stream, &first), named);
}

/// B03 (i): an error event has a name, and its type is no kind of error.
#[test]
fn b03_errors_inside_a_stream() {
    let error = |kind: &str, message: &str| {
        Some(ApiError {
            kind: kind.into(),
            message: message.into(),
        })
    };
    for (event, expected) in [
        (
            json!({"type":"error","sequence_number":3,"code":"server_error","message":"m","param":null}),
            error("server_error", "m"),
        ),
        (
            json!({"type":"error","error":{"type":"invalid_request_error","code":"c","message":"m"}}),
            error("invalid_request_error", "m"),
        ),
        (
            json!({"type":"error","code":null,"message":"m"}),
            error("unknown_error", "m"),
        ),
        (
            json!({"type":"error"}),
            error("unknown_error", r#"{"type":"error"}"#),
        ),
    ] {
        let answer = read_events(&[created(), delta("output_text", 0, "a"), event.clone()]);
        assert_eq!(answer.error, expected, "{event}");
        assert!(!answer.finished);
        assert_eq!(answer.warnings, [] as [&str; 0]);
    }
    let bare = read(
        Shape::Stream,
        "data: {\"error\":{\"code\":429,\"message\":\"m\"}}\n\n",
    );
    assert_eq!(bare.error, error("rate_limit_error", "m"));
    let ours = crate::provider::openai::error::responses_error_events("billing_error", "over");
    let ours = read_with(Limits::default(), Shape::Stream, [&ours[..]]);
    assert_eq!(ours.error, error("billing_error", "over"));
}

/// C01, CLIENTS: a clean end without the terminal event is a cut.
#[test]
fn a_stream_that_just_stops_is_cut() {
    let mut events = full();
    events.pop();
    let cut = read_events(&events);
    assert!(!cut.finished && !cut.usage_complete && cut.content_begun);
    assert_eq!(cut.metered.usage, Usage::default());
    assert!(cut.calls.iter().all(|call| call.complete));
    assert!(!read(Shape::Stream, "").finished);
    let half = read_events(&[created(), added(0), arguments(0, "{}")]);
    assert!(!half.calls[0].complete);
}

#[test]
fn how_a_response_ends() {
    let mut incomplete = response("incomplete", json!([]));
    incomplete["incomplete_details"] = json!({"reason":"max_output_tokens"});
    let answer = read_events(&[created(), ended("incomplete", incomplete)]);
    assert!(answer.finished && answer.usage_complete && answer.error.is_none());
    assert_eq!(answer.stop_reason.as_deref(), Some("max_output_tokens"));
    let bare = read_events(&[
        created(),
        ended("incomplete", response("incomplete", json!([]))),
    ]);
    assert_eq!(bare.stop_reason.as_deref(), Some("incomplete"));

    let mut failed = response("failed", json!([]));
    failed["error"] = json!({"code":"server_is_overloaded","message":"m"});
    let answer = read_events(&[created(), ended("failed", failed.clone())]);
    assert_eq!(answer.error.unwrap().kind, "server_is_overloaded");
    assert_eq!(answer.metered.usage, used());
    assert!(answer.finished && answer.usage_complete && answer.stop_reason.is_none());
    failed["usage"] = Value::Null;
    let answer = read_events(&[created(), ended("failed", failed)]);
    assert!(answer.error.is_some() && !answer.finished && !answer.usage_complete);
}

#[test]
fn calls_of_every_kind() {
    let action = json!({"type":"exec","command":["ls"],"env":{}});
    let commands = json!({"commands":["ls"]});
    let operation = json!({"type":"delete_file","path":"a"});
    let items = [
        json!({"type":"function_call","id":"fc","call_id":"c1","name":"f","arguments":"{\"a\":1}",
            "status":"completed"}),
        json!({"type":"function_call","call_id":"c2","name":"f","arguments":""}),
        json!({"type":"custom_tool_call","id":"ctc","call_id":"c3","name":"patch","input":"*** Begin"}),
        json!({"type":"local_shell_call","id":"lsh","call_id":"c4","status":"completed",
            "action":action}),
        json!({"type":"shell_call","id":"sh","call_id":"c5","status":"completed",
            "environment":{"type":"local"},"action":commands}),
        json!({"type":"apply_patch_call","id":"ap","call_id":"c6","status":"completed",
            "operation":operation}),
        json!({"type":"computer_call","id":"cu","call_id":"c7","status":"completed",
            "action":{"type":"wait"}}),
        json!({"type":"tool_search_call","id":"ts","call_id":"c8","execution":"client",
            "arguments":{"q":1}}),
        // Cut off by the output limit.
        json!({"type":"function_call","call_id":"c9","name":"f","arguments":"{\"a\":",
            "status":"incomplete"}),
        // These run at the provider.
        json!({"type":"shell_call","id":"sh2","call_id":"x","status":"completed",
            "environment":{"type":"container_reference","container_id":"k"},"action":commands}),
        json!({"type":"tool_search_call","id":"ts2","execution":"server","arguments":{}}),
        json!({"type":"mcp_call","id":"mcp","name":"f","arguments":"{}","server_label":"s"}),
        json!({"type":"code_interpreter_call","id":"ci","code":"1"}),
        json!({"type":"web_search_call","id":"ws1","status":"completed",
            "action":{"type":"search","query":"q"}}),
        json!({"type":"web_search_call","id":"ws2","status":"completed",
            "action":{"type":"open_page","url":"u"}}),
        json!({"type":"web_search_call","id":"ws3","status":"failed","action":{"type":"search"}}),
        json!({"type":"from_the_future","call_id":"y","name":"f","arguments":"{}"}),
    ];
    let expected = [
        ("c1", "f", "{\"a\":1}".to_owned(), true),
        ("c2", "f", "{}".to_owned(), true),
        ("c3", "patch", "*** Begin".to_owned(), true),
        ("c4", "local_shell_call", action.to_string(), true),
        ("c5", "shell_call", commands.to_string(), true),
        ("c6", "apply_patch_call", operation.to_string(), true),
        (
            "c7",
            "computer_call",
            "{\"type\":\"wait\"}".to_owned(),
            true,
        ),
        ("c8", "tool_search_call", "{\"q\":1}".to_owned(), true),
        ("c9", "f", "{\"a\":".to_owned(), false),
    ];
    let check = |answer: Answer, how: &str| {
        let calls: Vec<_> = answer
            .calls
            .iter()
            .map(|call| {
                let input = String::from_utf8(call.input.clone()).unwrap();
                (call.id.as_str(), call.name.as_str(), input, call.complete)
            })
            .collect();
        assert_eq!(calls, expected, "{how}");
        assert_eq!(answer.metered.usage.web_searches, Some(1), "{how}");
        assert!(answer.finished);
    };
    let mut events = vec![created()];
    for (at, it) in items.iter().enumerate() {
        let mut begun = it.clone();
        begun["status"] = "in_progress".into();
        for empty in ["arguments", "input"] {
            if begun.get(empty).is_some_and(Value::is_string) {
                begun[empty] = "".into();
            }
        }
        events.push(item("added", at as u64, &begun));
        events.push(item("done", at as u64, it));
    }
    events.push(completed(json!(items)));
    check(read_events(&events), "streamed");
    check(
        read_events(&[created(), completed(json!(items))]),
        "at the end",
    );
    let body = response("completed", json!(items)).to_string();
    check(read(JSON_OK, &body), "a body");
    // The backend that Codex talks to repeats no output.
    events.pop();
    events.push(completed(json!([])));
    check(read_events(&events), "not repeated");
}

/// The provider's own count of searches is the one that is billed.
#[test]
fn web_searches_as_the_provider_counts_them() {
    let search = json!({"type":"web_search_call","id":"ws","status":"completed",
        "action":{"type":"search"}});
    let mut whole = response("completed", json!([search]));
    whole["tool_usage"] = json!({"web_search":{"num_requests":3}});
    let answer = read_events(&[
        created(),
        item("done", 0, &search),
        ended("completed", whole),
    ]);
    assert_eq!(answer.metered.usage.web_searches, Some(3));
    let cut = read_events(&[created(), item("done", 0, &search)]);
    assert_eq!(cut.metered.usage.web_searches, Some(1));
    let none = read_events(&[created(), completed(json!([]))]);
    assert_eq!(none.metered.usage.web_searches, None);
}

/// The words of the provider's own explanation.
#[test]
fn the_providers_diagnosis() {
    for (said, expected) in [
        (json!({"type":"cache_hit"}), Some(DIAGNOSIS_NONE)),
        (
            json!({"type":"cache_miss","reason":"tools_changed","cache_missed_tokens":9}),
            Some("tools_changed"),
        ),
        (json!({"type":"cache_miss"}), Some("cache_miss")),
        (
            json!({"type":"comparison_response_not_found"}),
            Some("comparison_response_not_found"),
        ),
        (json!({"type":"unavailable"}), Some("unavailable")),
        (json!(null), None),
        (json!(7), None),
    ] {
        let mut whole = response("completed", json!([]));
        whole["prompt_cache_diagnostics"] = said;
        let answer = read_events(&[created(), ended("completed", whole.clone())]);
        assert_eq!(answer.native_diagnosis.as_deref(), expected);
        let answer = read(JSON_OK, &whole.to_string());
        assert_eq!(answer.native_diagnosis.as_deref(), expected);
    }
}

/// C15: the model and the tier that served, as the last response says them.
#[test]
fn c15_the_served_model_and_tier_are_told() {
    let mut whole = response("completed", json!([]));
    whole["model"] = "test-small".into();
    whole["service_tier"] = "priority".into();
    let answer = read_events(&[created(), ended("completed", whole)]);
    assert_eq!(answer.metered.model.as_deref(), Some("test-small"));
    assert_eq!(answer.metered.tier, ServiceTier::Priority);
}

#[test]
fn bodies_whole_queued_and_failed() {
    let output = json!([
        {"type":"reasoning","summary":[{"type":"summary_text","text":"why"}]},
        message("渐")
    ]);
    let whole = read(JSON_OK, &response("completed", output).to_string());
    assert!(whole.finished && whole.usage_complete && whole.content_begun);
    assert_eq!(whole.metered.usage, used());
    assert_eq!(whole.delivered_bytes, 6);
    assert_eq!(whole.stop_reason.as_deref(), Some("completed"));
    assert_eq!(whole.warnings, [] as [&str; 0]);

    for status in ["queued", "in_progress"] {
        let queued = read(JSON_OK, &response(status, json!([])).to_string());
        assert!(queued.finished && !queued.usage_complete);
        assert_eq!(queued.stop_reason.as_deref(), Some(status));
        assert_eq!(queued.metered.usage, Usage::default());
    }

    let mut failed = response("failed", json!([]));
    failed["error"] = json!({"code":"server_error","message":"m"});
    let failed = read(JSON_OK, &failed.to_string());
    assert_eq!(failed.error.unwrap().kind, "server_error");
    assert_eq!(failed.id.as_deref(), Some("resp_1"));
    assert_eq!(failed.metered.usage, used());
    assert!(failed.finished && failed.usage_complete);

    let refused = read(
        Shape::Json { status: 400 },
        r#"{"error":{"message":"m","type":"invalid_request_error","param":"x","code":"previous_response_not_found"}}"#,
    );
    assert_eq!(refused.error.unwrap().kind, "invalid_request_error");
    assert_eq!(
        read(JSON_OK, r#"{"hello":1}"#).warnings,
        ["answer_unreadable"]
    );
}

/// A skipped event may have been a piece of any open call; what is told whole later is known.
#[test]
fn a_gap_leaves_calls_incomplete_until_they_are_told_whole() {
    let limits = Limits {
        event_bytes: 1024,
        body_bytes: 1024,
        ..Limits::default()
    };
    let read = |events: &[Value]| {
        let answer = read_with(limits, Shape::Stream, [stream(events).as_bytes()]);
        assert_eq!(answer.warnings, ["event_too_large"]);
        let calls = answer.calls.iter();
        let calls: Vec<_> = calls
            .map(|call| (call.input_bytes, call.complete))
            .collect();
        (calls, answer.finished)
    };
    let lost = arguments(0, &"x".repeat(2000));
    let begun = [added(0), arguments(0, "{"), lost.clone(), arguments(0, "}")];
    assert_eq!(read(&begun), (vec![(1, false)], false));
    let told = done(0, "{\"a\":1}");
    assert_eq!(
        read(&[added(0), lost.clone(), arguments(0, "}"), told]),
        (vec![(7, true)], false)
    );
    let mut bare = call(0, "", "completed");
    bare.as_object_mut().unwrap().remove("arguments");
    assert_eq!(
        read(&[added(0), lost.clone(), item("done", 0, &bare)]),
        (vec![(0, false)], false)
    );
    let whole = completed(json!([call(0, "{\"a\":1}", "completed")]));
    assert_eq!(read(&[added(0), lost, whole]), (vec![(7, true)], true));
}

/// The terminal event carries the whole answer, so it is the one that may be too large: then the
/// stream was not cut, but what it used is unknown.
#[test]
fn a_terminal_event_that_is_too_large_is_an_end() {
    let limits = Limits {
        event_bytes: 512,
        body_bytes: 2048,
        ..Limits::default()
    };
    let last = completed(json!([message(&"x".repeat(1000))]));
    let fits = stream(&[added(0), last]);
    let answer = read_with(limits, Shape::Stream, [fits.as_bytes()]);
    assert!(answer.finished && answer.usage_complete);
    let last = completed(json!([message(&"x".repeat(3000))]));
    let events = stream(&[added(0), last]);
    let answer = read_with(limits, Shape::Stream, [events.as_bytes()]);
    assert!(answer.finished && !answer.usage_complete);
    assert_eq!(answer.warnings, ["event_too_large"]);
    // Half of such an event is a cut.
    let half = &events.as_bytes()[..events.len() - 20];
    assert!(!read_with(limits, Shape::Stream, [half]).finished);
}

#[test]
fn odd_shapes_hide_nothing_else() {
    let odd = [
        json!({"type":"response.output_item.added","output_index":"x","item":null}),
        json!({"type":"response.output_item.done","item":{"type":7,"call_id":[]}}),
        json!({"type":"response.output_text.delta","delta":{"text":"abc"}}),
        json!({"type":"response.output_text.delta"}),
    ];
    let mut events = vec![created()];
    events.extend(odd);
    events.push(completed(json!(null)));
    let answer = read_events(&events);
    assert!(answer.finished && answer.usage_complete);
    assert_eq!(answer.delivered_bytes, 3);
    assert_eq!(answer.warnings, [] as [&str; 0]);
    let answer = read_events(&[completed(json!({"x":1}))]);
    assert!(answer.finished && answer.usage_complete);
    assert_eq!(answer.warnings, ["content_unreadable"]);
    let broken = "event: response.completed\ndata: {\"response\":\n\ndata: [DONE]\n\n";
    let answer = read(Shape::Stream, broken);
    assert!(answer.finished && !answer.usage_complete);
    assert_eq!(answer.warnings, ["event_unreadable"]);
}

#[test]
fn what_is_kept_is_bounded() {
    let limits = Limits {
        tool_input_bytes: 8,
        tool_inputs_bytes: 12,
        ..Limits::default()
    };
    let mut events = vec![
        added(0),
        arguments(0, "12345"),
        arguments(0, "67890"),
        done(0, "1234567890abc"),
        added(1),
        arguments(1, "123456"),
    ];
    events.extend((2..400).map(added));
    let answer = read_with(limits, Shape::Stream, [stream(&events).as_bytes()]);
    assert_eq!(answer.calls[0].input, b"12345678");
    assert_eq!(answer.calls[0].input_bytes, 13);
    assert_eq!(answer.calls[1].input, b"1234");
    assert_eq!(answer.calls[1].input_bytes, 6);
    assert_eq!(answer.calls.len(), super::MAX_CALLS);
    assert_eq!(answer.warnings, ["too_many_calls"]);
}

fn any_event() -> impl Strategy<Value = Value> {
    let piece = "[a-z{}\":0-9渐🙂]{0,12}";
    prop_oneof![
        Just(created()),
        piece.prop_map(|s| delta("output_text", 0, &s)),
        (0_u64..4).prop_map(added),
        (0_u64..4, piece).prop_map(|(at, s)| arguments(at, &s)),
        (0_u64..4, piece).prop_map(|(at, s)| {
            json!({"type":"response.function_call_arguments.done","output_index":at,"arguments":s})
        }),
        (0_u64..4, piece).prop_map(|(at, s)| done(at, &s)),
        (0_u64..4, piece).prop_map(|(at, s)| completed(json!([call(at, &s, "completed")]))),
        Just(json!({"type":"error","message":"m","code":"c"})),
        Just(delta("output_text", 0, &"x".repeat(1200))),
    ]
}

proptest! {
    /// However the bytes are cut, the same answer; what is kept is bounded.
    #[test]
    fn cuts_do_not_matter(
        events in proptest::collection::vec(any_event(), 0..16),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        broken in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let limits = Limits { event_bytes: 1000, body_bytes: 1000, tool_input_bytes: 16,
            tool_inputs_bytes: 40 };
        let mut bytes = stream(&events).into_bytes();
        if let Some((at, byte)) = broken && !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = read_with(limits, Shape::Stream, [&bytes[..]]);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in at {
            pieces.push(&bytes[from..to]);
            from = to;
        }
        pieces.push(&bytes[from..]);
        prop_assert_eq!(&read_with(limits, Shape::Stream, pieces), &whole);
        let kept: usize = whole.calls.iter().map(|call| call.input.len()).sum();
        prop_assert!(kept <= 40 + 2 * whole.calls.len());
        prop_assert!(whole.calls.iter().all(|call| call.input.len() as u64 <= call.input_bytes));
    }
}
