use proptest::prelude::*;
use serde_json::{Value, json};

use crate::provider::decode;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::view::{Answer, Ttl};
use crate::provider::wire::Wire;
use crate::usage::Usage;

const JSON_OK: Shape = Shape::Json { status: 200 };

fn event(data: &Value) -> String {
    format!(
        "event: {}\ndata: {data}\n\n",
        data["type"].as_str().unwrap()
    )
}

fn stream(events: &[Value]) -> String {
    events.iter().map(event).collect()
}

fn read_pieces<'a>(shape: Shape, pieces: impl IntoIterator<Item = &'a [u8]>) -> Answer {
    let mut reader = Reader::new(Wire::Messages, shape, Limits::default());
    for piece in pieces {
        reader.feed(piece);
    }
    reader.end(Some(Ttl::M5));
    reader.into_answer()
}

fn read(shape: Shape, body: &str) -> Answer {
    read_pieces(shape, [body.as_bytes()])
}

fn start(usage: Value) -> Value {
    json!({"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",
        "model":"test-sonnet-20261101","content":[],"stop_reason":null,"usage":usage}})
}

fn text_start(index: u64) -> Value {
    json!({"type":"content_block_start","index":index,"content_block":{"type":"text","text":""}})
}

fn tool_start(index: u64, id: &str) -> Value {
    json!({"type":"content_block_start","index":index,
        "content_block":{"type":"tool_use","id":id,"name":"Bash","input":{}}})
}

fn text_delta(text: &str) -> Value {
    json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":text}})
}

fn input_delta(index: u64, part: &str) -> Value {
    json!({"type":"content_block_delta","index":index,
        "delta":{"type":"input_json_delta","partial_json":part}})
}

fn block_stop(index: u64) -> Value {
    json!({"type":"content_block_stop","index":index})
}

fn end(reason: &str, output: u64) -> [Value; 2] {
    [
        json!({"type":"message_delta","delta":{"stop_reason":reason,"stop_sequence":null},
            "usage":{"output_tokens":output}}),
        json!({"type":"message_stop"}),
    ]
}

fn usage() -> Value {
    json!({"input_tokens":25,"cache_read_input_tokens":4000,"cache_creation_input_tokens":0,"output_tokens":1})
}

/// A stream with everything in it.
fn full() -> Vec<Value> {
    let mut events = vec![
        start(usage()),
        json!({"type":"ping"}),
        json!({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}),
        json!({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"渐 🙂"}}),
        json!({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}),
        block_stop(0),
        text_start(0),
        text_delta("渐 🙂 é “"),
        text_delta("line\nbreak \"q\""),
        block_stop(0),
        tool_start(1, "toolu_1"),
        input_delta(1, ""),
        input_delta(1, "{\"a\":\"渐"),
        tool_start(2, "toolu_2"),
        input_delta(2, "{\"b\":"),
        input_delta(1, " 🙂 é “\"}"),
        block_stop(1),
        input_delta(2, "[1]}"),
        block_stop(2),
        json!({"type":"from_the_future","x":{"y":[1]}}),
        json!({"type":"content_block_delta","index":0,"delta":{"type":"new_delta","z":1}}),
    ];
    events.extend(end("tool_use", 77));
    events
}

/// B01: for every cut, and byte by byte, the same answer; no character is broken.
#[test]
fn b01_cuts_inside_characters_do_not_matter() {
    let bytes = stream(&full()).into_bytes();
    let whole = read_pieces(Shape::Stream, [bytes.as_slice()]);
    assert_eq!(whole.calls.len(), 2);
    assert_eq!(whole.calls[0].input, "{\"a\":\"渐 🙂 é “\"}".as_bytes());
    assert_eq!(whole.calls[1].input, b"{\"b\":[1]}");
    assert!(
        whole
            .calls
            .iter()
            .all(|call| call.complete && call.name == "Bash")
    );
    assert_eq!(whole.calls[0].id, "toolu_1");
    assert_eq!(whole.stop_reason.as_deref(), Some("tool_use"));
    assert_eq!(whole.metered.usage.output, Some(77));
    assert!(whole.finished && whole.usage_complete && whole.content_begun);
    assert_eq!(whole.warnings, [] as [&str; 0]);
    let delivered = [
        "渐 🙂",
        "渐 🙂 é “",
        "line\nbreak \"q\"",
        "{\"a\":\"渐 🙂 é “\"}",
        "{\"b\":[1]}",
    ];
    assert_eq!(whole.delivered_bytes, delivered.concat().len() as u64);

    for cut in 0..=bytes.len() {
        let (a, b) = bytes.split_at(cut);
        assert_eq!(read_pieces(Shape::Stream, [a, b]), whole, "cut at {cut}");
    }
    assert_eq!(read_pieces(Shape::Stream, bytes.chunks(1)), whole);
}

/// B03 (ii): without names the type in the data counts, and it is said once.
#[test]
fn b03_streams_without_event_names() {
    let named = read(Shape::Stream, &stream(&full()));
    let nameless: String = full()
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    let mut read_nameless = read(Shape::Stream, &(nameless + "data: [DONE]\n\n"));
    assert_eq!(read_nameless.warnings, ["no_event_names"]);
    read_nameless.warnings.clear();
    assert_eq!(read_nameless, named);
    // The type first, as the provider writes it; in another place; not spelt plainly.
    for id in [
        r#"{"type":"message_start","message":{"id":"msg_1"}}"#,
        r#"{"message":{"id":"msg_1"},"type":"message_start"}"#,
        r#"{"type":"message\u005fstart","message":{"id":"msg_1"}}"#,
    ] {
        let answer = read(Shape::Stream, &format!("data: {id}\n\n"));
        assert_eq!(answer.id.as_deref(), Some("msg_1"));
        assert_eq!(answer.warnings, ["no_event_names"]);
    }
}

/// B05 (ii, iii): an encoded error body is read.
#[test]
fn b05_encoded_errors_are_readable() {
    use std::io::Write;
    let body = r#"{"type":"error","error":{"type":"not_found_error","message":"model: nope"}}"#;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let shape = Shape::of(404, Some("application/json"));
    let mut reader = Reader::new(Wire::Messages, shape, Limits::default());
    let mut decoder = decode::Decoder::new("gzip", 1 << 20).unwrap();
    for piece in gzip.chunks(7) {
        decoder
            .feed(piece, &mut |bytes| reader.feed(bytes))
            .unwrap();
    }
    reader.end(None);
    let error = reader.answer().error.clone().unwrap();
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("not_found_error", "model: nope")
    );
    assert_eq!(reader.answer().metered.usage, Usage::default());
}

#[test]
fn errors_of_every_shape() {
    let check = |status: u16, body: &str, kind: &str, message: &str| {
        // Errors are JSON also where a stream was asked for, whatever they call themselves.
        for content_type in [None, Some("application/json"), Some("text/event-stream")] {
            let answer = read(Shape::of(status, content_type), body);
            let error = answer.error.unwrap();
            assert_eq!(
                (error.kind.as_str(), error.message.as_str()),
                (kind, message),
                "{body}"
            );
            assert_eq!(answer.warnings, [] as [&str; 0]);
            assert!(!answer.usage_complete);
        }
    };
    check(
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"a\nb"},"request_id":"r"}"#,
        "rate_limit_error",
        "a\nb",
    );
    check(
        529,
        r#"{"error":{"message":"busy"}}"#,
        "overloaded_error",
        "busy",
    );
    check(
        400,
        r#"{"error":"plain"}"#,
        "invalid_request_error",
        "plain",
    );
    check(
        403,
        r#"{"message":"from a load balancer"}"#,
        "permission_error",
        "from a load balancer",
    );
    check(500, r#"{"detail":"x"}"#, "api_error", r#"{"detail":"x"}"#);
    check(500, r#"{"error":null}"#, "api_error", r#"{"error":null}"#);
    check(
        502,
        "<html>Bad gateway</html>\n",
        "api_error",
        "<html>Bad gateway</html>",
    );
    check(413, "", "request_too_large", "");
    check(500, "\u{1}\u{2}binary", "api_error", "");
    check(
        400,
        r#"{"error":{"type":"x_error","message":{"deep":1}}}"#,
        "x_error",
        r#"{"deep":1}"#,
    );
    let long = "é".repeat(5000);
    check(
        400,
        &format!(r#"{{"error":{{"type":"t","message":"{long}"}}}}"#),
        "t",
        &long[..512],
    );
    check(500, &long, "api_error", &long[..200]);
    // A body that is not even text.
    let binary = read_pieces(Shape::of(503, None), [b"\xFF\xFE\x00".as_slice()]);
    assert_eq!(
        binary.error.map(|e| (e.kind, e.message)),
        Some(("api_error".into(), String::new()))
    );
}

/// B13 (a): the error is read; what came before it stands, and nothing is complete.
#[test]
fn b13_an_error_inside_a_stream() {
    let error = json!({"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"});
    let answer = read(
        Shape::Stream,
        &stream(&[
            start(usage()),
            text_start(0),
            text_delta("ab"),
            text_delta("c"),
            error,
        ]),
    );
    let read_error = answer.error.unwrap();
    assert_eq!(
        (read_error.kind.as_str(), read_error.message.as_str()),
        ("overloaded_error", "Overloaded")
    );
    assert!(!answer.finished && !answer.usage_complete);
    assert_eq!(
        (answer.metered.usage.uncached, answer.delivered_bytes),
        (Some(25), 3)
    );
    // Not JSON, nameless, or without a type: still an error.
    let plain = read(Shape::Stream, "event: error\ndata: upstream gone\n\n")
        .error
        .unwrap();
    assert_eq!(
        (plain.kind.as_str(), plain.message.as_str()),
        ("unknown_error", "upstream gone")
    );
    let other = read(Shape::Stream, "data: {\"error\":{\"message\":\"m\"}}\n\n")
        .error
        .unwrap();
    assert_eq!(
        (other.kind.as_str(), other.message.as_str()),
        ("unknown_error", "m")
    );
}

/// B13 (b, c): half of a tool call is not a call.
#[test]
fn b13_half_a_tool_call_is_incomplete() {
    let mut events = vec![
        start(usage()),
        tool_start(0, "toolu_1"),
        input_delta(0, "{\"command\":\"rm -"),
    ];
    let cut = read(Shape::Stream, &stream(&events));
    assert!(!cut.finished && !cut.usage_complete && cut.error.is_none());
    assert_eq!(cut.calls.len(), 1);
    assert!(!cut.calls[0].complete);
    assert_eq!(
        (cut.calls[0].input_bytes, cut.stop_reason.as_deref()),
        (16, None)
    );
    // The same with the rest of it is one, also where the input never becomes valid JSON.
    events.push(block_stop(0));
    events.extend(end("max_tokens", 9));
    let whole = read(Shape::Stream, &stream(&events));
    assert!(whole.finished && whole.calls[0].complete);
    assert_eq!(whole.calls[0].input, b"{\"command\":\"rm -");
}

/// C03 through the stream, and what is known at every point of it.
#[test]
fn c03_the_last_total_counts() {
    let first = json!({"input_tokens":25,"cache_read_input_tokens":100,"cache_creation_input_tokens":40,"output_tokens":1});
    let last = json!({"input_tokens":25,"cache_read_input_tokens":100,"cache_creation_input_tokens":40,"output_tokens":15});
    let delta = |usage: Value| json!({"type":"message_delta","delta":{},"usage":usage});
    let mut reader = Reader::new(Wire::Messages, Shape::Stream, Limits::default());
    reader.feed(event(&start(first)).as_bytes());
    assert_eq!(reader.answer().metered.usage.read, Some(100));
    assert!(!reader.answer().usage_complete && !reader.answer().content_begun);
    reader.feed(event(&delta(json!({"output_tokens":10}))).as_bytes());
    assert_eq!(reader.answer().metered.usage.output, Some(10));
    reader.feed(event(&delta(last)).as_bytes());
    assert!(!reader.answer().finished && reader.on_border());
    reader.feed(b"event: message_stop\nda");
    assert!(!reader.on_border());
    reader.feed(b"ta: {\"type\":\"message_stop\"}\n\n");
    assert!(reader.answer().finished && reader.on_border());
    reader.end(Some(Ttl::M5));
    let usage = reader.answer().metered.usage;
    assert_eq!(usage.prompt(), Some(165));
    assert_eq!(
        (usage.uncached, usage.read, usage.write_5m, usage.output),
        (Some(25), Some(100), Some(40), Some(15))
    );
    assert!(reader.answer().usage_complete);
}

/// C05: the split survives the delta; without one the request's lifetime counts, and is flagged.
#[test]
fn c05_writes_by_lifetime() {
    let with_ttl = |usage: Value, shape: Shape, ttl| {
        let body = match shape {
            Shape::Stream => stream(&[start(usage), end("end_turn", 100)[0].clone()]),
            _ => json!({"id":"m","model":"x","content":[],"usage":usage}).to_string(),
        };
        let mut reader = Reader::new(Wire::Messages, shape, Limits::default());
        reader.feed(body.as_bytes());
        reader.end(ttl);
        let answer = reader.into_answer();
        let usage = answer.metered.usage;
        (
            usage.write_5m,
            usage.write_1h,
            usage.split_inferred,
            answer.warnings,
        )
    };
    for shape in [Shape::Stream, JSON_OK] {
        let split = json!({"input_tokens":10,"cache_creation_input_tokens":10000,"cache_creation":{"ephemeral_5m_input_tokens":4000,"ephemeral_1h_input_tokens":6000},"output_tokens":1});
        assert_eq!(
            with_ttl(split, shape, Some(Ttl::M5)),
            (Some(4000), Some(6000), false, vec![])
        );
        let sum = json!({"input_tokens":10,"cache_creation_input_tokens":10000,"output_tokens":1});
        assert_eq!(
            with_ttl(sum.clone(), shape, Some(Ttl::H1)),
            (Some(0), Some(10000), true, vec![])
        );
        assert_eq!(
            with_ttl(sum.clone(), shape, Some(Ttl::M5)),
            (Some(10000), Some(0), true, vec![])
        );
        assert_eq!(
            with_ttl(sum, shape, None),
            (None, None, false, vec!["write_ttl_unknown"])
        );
    }
}

/// C06: what a cut stream has delivered is known, and its usage is not called final.
#[test]
fn c06_cut_streams_are_not_free() {
    let first = json!({"input_tokens":25,"cache_read_input_tokens":4000,"output_tokens":1});
    let mut events = vec![start(first), text_start(0)];
    events.extend((0..5).map(|_| text_delta(&"word ".repeat(40))));
    let answer = read(Shape::Stream, &stream(&events));
    assert_eq!(answer.delivered_bytes, 5 * 40 * 5);
    assert_eq!(
        (answer.metered.usage.uncached, answer.metered.usage.read),
        (Some(25), Some(4000))
    );
    assert!(!answer.usage_complete && !answer.finished && answer.content_begun);
    // Closed before anything came: nothing is known, nothing is zero.
    let nothing = read(Shape::Stream, "");
    assert_eq!(nothing, Answer::default());
}

/// C15: the model that served, also where another one takes over in the middle.
#[test]
fn c15_the_served_model() {
    let events = [start(json!({"input_tokens":1000,"output_tokens":1}))];
    assert_eq!(
        read(Shape::Stream, &stream(&events))
            .metered
            .model
            .as_deref(),
        Some("test-sonnet-20261101")
    );
    let body = json!({"id":"m","type":"message","model":"test-small","content":[],"usage":{"output_tokens":1}});
    assert_eq!(
        read(JSON_OK, &body.to_string()).metered.model.as_deref(),
        Some("test-small")
    );
    let fallback = json!({"type":"content_block_start","index":0,"content_block":{"type":"fallback",
        "from":{"model":"test-sonnet-20261101"},"to":{"model":"test-small"},"trigger":{"type":"refusal"}}});
    let delta = json!({"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9,"iterations":[
        {"type":"message","input_tokens":5,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":2},
        {"type":"fallback_message","model":"test-small","input_tokens":6,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":9}]}});
    let answer = read(Shape::Stream, &stream(&[start(usage()), fallback, delta]));
    assert_eq!(answer.metered.model.as_deref(), Some("test-small"));
    let models: Vec<_> = answer
        .metered
        .iterations
        .iter()
        .map(|i| i.model.as_deref())
        .collect();
    assert_eq!(models, [Some("test-sonnet-20261101"), None]);
    assert_eq!(answer.metered.usage.output, Some(11));
}

#[test]
fn a_json_answer() {
    let body = r#"{"id":"msg_2","type":"message","role":"assistant","model":"m","content":[
        {"type":"text","text":"lone \ud83d surrogate"},
        {"type":"new_block","x":[[[1]]]},
        {"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"q":1}},
        {"type":"tool_use","id":"toolu_9","name":"Read","input":{"path": "a\ud83d\ude00"}}],
        "stop_reason":"tool_use","stop_sequence":null,
        "usage":{"input_tokens":3,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":8,"service_tier":"standard"},
        "diagnostics":{"cache_miss_reason":{"type":"tools_changed","cache_missed_input_tokens":9}}}"#;
    let whole = read(JSON_OK, body);
    assert!(whole.finished && whole.usage_complete && whole.content_begun);
    assert_eq!(whole.id.as_deref(), Some("msg_2"));
    assert_eq!(whole.calls.len(), 1);
    assert_eq!(whole.calls[0].input, br#"{"path": "a\ud83d\ude00"}"#);
    assert!(whole.calls[0].complete);
    assert_eq!(whole.native_diagnosis.as_deref(), Some("tools_changed"));
    assert_eq!(whole.metered.usage.prompt(), Some(3));
    assert_eq!(whole.warnings, [] as [&str; 0]);
    assert_eq!(read_pieces(JSON_OK, body.as_bytes().chunks(1)), whole);
    // Every cut is a cut, and no fault of anybody's JSON.
    for cut in 1..body.len() {
        let answer = read(JSON_OK, &body[..body.floor_char_boundary(cut)]);
        assert!(!answer.finished && !answer.usage_complete, "cut at {cut}");
        assert_eq!(answer.warnings, [] as [&str; 0], "cut at {cut}");
    }
}

#[test]
fn json_that_is_not_an_answer() {
    let html = read(JSON_OK, "<html></html>");
    assert_eq!(
        (html.finished, html.warnings),
        (false, vec!["answer_unreadable"])
    );
    let error = read(
        JSON_OK,
        r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
    );
    assert_eq!(error.error.map(|e| e.kind).as_deref(), Some("api_error"));
    let twice = read(JSON_OK, r#"{"id":"a","id":"b"}"#);
    assert!(twice.finished);
    assert_eq!(twice.warnings, ["answer_unreadable"]);
    let content = read(
        JSON_OK,
        r#"{"id":"a","content":[7],"usage":{"output_tokens":1}}"#,
    );
    assert_eq!(
        (content.usage_complete, content.warnings),
        (true, vec!["content_unreadable"])
    );
    assert_eq!(read(JSON_OK, ""), Answer::default());
}

#[test]
fn the_shape_comes_from_the_head() {
    assert_eq!(
        Shape::of(200, Some("text/event-stream; charset=utf-8")),
        Shape::Stream
    );
    assert_eq!(Shape::of(200, Some("Application/JSON;x")), JSON_OK);
    assert_eq!(
        Shape::of(529, Some("text/event-stream")),
        Shape::Json { status: 529 }
    );
    let unlabelled = Shape::of(200, Some("text/plain"));
    assert_eq!(unlabelled, Shape::Unlabelled { status: 200 });
    for body in [
        stream(&full()),
        "\n\n: hi\n\n".to_owned() + &stream(&full()),
    ] {
        let answer = read_pieces(unlabelled, body.as_bytes().chunks(1));
        assert!(answer.finished && answer.usage_complete);
        assert_eq!(answer.warnings, ["content_type_unclear"]);
    }
    let answer = read(
        Shape::of(200, None),
        " {\"id\":\"a\",\"usage\":{\"output_tokens\":3}}",
    );
    assert_eq!(answer.metered.usage.output, Some(3));
}

#[test]
fn diagnosis_pending_absent_and_given() {
    let check = |diagnostics: Value, expected: Option<&str>| {
        let mut message = start(usage());
        message["message"]["diagnostics"] = diagnostics;
        let answer = read(Shape::Stream, &event(&message));
        assert_eq!(answer.native_diagnosis.as_deref(), expected);
        assert_eq!(answer.warnings, [] as [&str; 0]);
    };
    check(Value::Null, Some("none"));
    check(json!({}), None);
    check(json!("odd"), None);
    check(json!({"cache_miss_reason":"odd"}), None);
    check(json!({"cache_miss_reason":null}), Some("pending"));
    check(
        json!({"cache_miss_reason":{"type":"system_changed"}}),
        Some("system_changed"),
    );
}

#[test]
fn refusals_keep_their_category() {
    let delta = json!({"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":
        {"type":"refusal","category":"bio","explanation":"..."}},"usage":{"output_tokens":0}});
    let answer = read(Shape::Stream, &stream(&[start(usage()), delta]));
    assert_eq!(
        (
            answer.stop_reason.as_deref(),
            answer.refusal_category.as_deref()
        ),
        (Some("refusal"), Some("bio"))
    );
}

#[test]
fn calls_without_arguments_or_with_all_of_them_at_once() {
    let mut at_once = tool_start(1, "toolu_2");
    at_once["content_block"]["input"] = json!({"a":1});
    let events = [
        start(usage()),
        tool_start(0, "toolu_1"),
        block_stop(0),
        at_once,
        block_stop(1),
    ];
    let answer = read(Shape::Stream, &stream(&events));
    assert_eq!(answer.calls[0].input, b"{}");
    assert_eq!(
        (
            answer.calls[1].input.as_slice(),
            answer.calls[1].input_bytes
        ),
        (b"{\"a\":1}".as_slice(), 7)
    );
    assert!(answer.calls.iter().all(|call| call.complete));
}

#[test]
fn everything_is_bounded() {
    let limits = Limits {
        event_bytes: 2000,
        body_bytes: 2000,
        tool_input_bytes: 100,
        tool_inputs_bytes: 150,
    };
    // Input beyond the limits is counted, not kept; an event too large breaks the calls it may belong to.
    let part = "x".repeat(60);
    let mut events = vec![start(usage())];
    for index in 0..3 {
        events.push(tool_start(index, "toolu_1"));
        events.extend([
            input_delta(index, &part),
            input_delta(index, &part),
            block_stop(index),
        ]);
    }
    events.extend([
        tool_start(3, "toolu_4"),
        input_delta(3, &"y".repeat(3000)),
        block_stop(3),
    ]);
    events.extend(end("tool_use", 5));
    let body = stream(&events);
    let read = |pieces: usize| {
        let mut reader = Reader::new(Wire::Messages, Shape::Stream, limits);
        body.as_bytes()
            .chunks(pieces)
            .for_each(|piece| reader.feed(piece));
        reader.end(None);
        reader.into_answer()
    };
    let answer = read(body.len());
    let seen: Vec<_> = answer
        .calls
        .iter()
        .map(|c| (c.input.len(), c.input_bytes, c.complete))
        .collect();
    assert_eq!(
        seen,
        [
            (100, 120, true),
            (50, 120, true),
            (0, 120, true),
            (0, 0, false)
        ]
    );
    assert_eq!(answer.warnings, ["event_too_large"]);
    assert!(answer.usage_complete && answer.finished);
    assert_eq!(read(1), answer);

    let many: Vec<Value> = (0..300).map(|index| tool_start(index, "toolu_1")).collect();
    let answer = super::tests::read(Shape::Stream, &stream(&many));
    assert_eq!(
        (answer.calls.len(), answer.warnings),
        (256, vec!["too_many_calls"])
    );

    let body = json!({"id":"a","content":[{"type":"text","text":"x".repeat(3000)}],"usage":{"output_tokens":1}}).to_string();
    let mut reader = Reader::new(Wire::Messages, JSON_OK, limits);
    body.as_bytes()
        .chunks(7)
        .for_each(|piece| reader.feed(piece));
    reader.end(None);
    let answer = reader.into_answer();
    assert_eq!((answer.usage_complete, answer.finished), (false, true));
    assert_eq!(answer.metered.usage, Usage::default());
    assert_eq!(answer.warnings, ["answer_too_large"]);
}

#[test]
fn unreadable_events_are_passed_over() {
    let body = stream(&[start(usage())])
        + "event: content_block_delta\ndata: {\"index\":\n\n"
        + &stream(&end("end_turn", 3));
    let answer = read(Shape::Stream, &body);
    assert_eq!(answer.warnings, ["event_unreadable"]);
    assert!(answer.finished && answer.usage_complete);
    // Deep nesting costs no stack.
    let deep = format!(
        "event: content_block_start\ndata: {{\"content_block\":{{\"type\":\"tool_use\",\"input\":{}\n\n",
        "[".repeat(100_000)
    );
    assert_eq!(read(Shape::Stream, &deep).warnings, ["event_unreadable"]);
}

fn words() -> impl Strategy<Value = String> {
    "[a-z渐🙂é“\"\\\\\n ]{0,12}"
}

/// A valid stream with interleaved blocks, and what must be read from it.
fn streams() -> impl Strategy<Value = (Vec<Value>, Vec<Vec<u8>>, u64)> {
    let step = (0u64..4, any::<bool>(), words());
    (prop::collection::vec(step, 0..30), any::<u32>()).prop_map(|(steps, output)| {
        let mut events = vec![start(usage())];
        let (mut inputs, mut delivered) = (vec![Vec::new(); 4], 0);
        for index in 0..4 {
            events.push(tool_start(index, &format!("toolu_{index}")));
        }
        for (index, input, text) in steps {
            delivered += text.len() as u64;
            if input {
                inputs[usize::try_from(index).unwrap()].extend_from_slice(text.as_bytes());
                events.push(input_delta(index, &text));
            } else {
                events.push(text_delta(&text));
            }
        }
        events.extend((0..4).map(block_stop));
        events.extend(end("tool_use", u64::from(output)));
        (events, inputs, delivered)
    })
}

proptest! {
    /// Valid streams are read right, however they are cut.
    #[test]
    fn generated_streams((events, inputs, delivered) in streams(), size in 1usize..60) {
        let body = stream(&events);
        let whole = read(Shape::Stream, &body);
        prop_assert!(whole.finished && whole.usage_complete);
        prop_assert_eq!(&whole.warnings, &[] as &[&str]);
        prop_assert_eq!(whole.delivered_bytes, delivered);
        for (call, input) in whole.calls.iter().zip(&inputs) {
            let input = if input.is_empty() { b"{}".as_slice() } else { input };
            prop_assert_eq!(call.input.as_slice(), input);
            prop_assert!(call.complete);
        }
        prop_assert_eq!(read_pieces(Shape::Stream, body.as_bytes().chunks(size)), whole);
    }

    /// Damaged and arbitrary bytes never panic, and cuts never change what is read.
    #[test]
    fn anything_may_come(
        (events, ..) in streams(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..64),
        status in prop_oneof![Just(200u16), Just(529)],
        size in 1usize..60,
    ) {
        let mut bytes = stream(&events).into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let json = serde_json::to_vec(&events[0]["message"]).unwrap();
        for body in [bytes, noise, json] {
            for shape in [Shape::Stream, Shape::Json { status }, Shape::of(status, None)] {
                let whole = read_pieces(shape, [body.as_slice()]);
                prop_assert_eq!(read_pieces(shape, body.chunks(size)), whole);
            }
        }
    }
}
