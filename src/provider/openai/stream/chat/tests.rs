use proptest::prelude::*;
use serde_json::{Value, json};

use crate::provider::dialect::Counting;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::view::{Answer, ApiError, Ttl};
use crate::provider::wire::Wire;
use crate::usage::{ServiceTier, Usage};

const JSON_OK: Shape = Shape::Json { status: 200 };
const DONE: &str = "data: [DONE]\n\n";

fn stream(chunks: &[Value]) -> String {
    chunks
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect()
}

fn read_with<'a>(
    limits: Limits,
    shape: Shape,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Answer {
    let mut reader = Reader::new(Wire::Chat, shape, limits);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.end(Some(Ttl::M30));
    reader.into_answer()
}

fn read(shape: Shape, body: &str) -> Answer {
    read_with(Limits::default(), shape, [body.as_bytes()])
}

fn read_chunks(chunks: &[Value]) -> Answer {
    read(Shape::Stream, &(stream(chunks) + DONE))
}

fn chunk(choices: Value) -> Value {
    json!({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,
        "model":"test-gpt-2026-11-01","service_tier":"default","system_fingerprint":"fp",
        "choices":choices,"usage":null,"obfuscation":"x1y2"})
}

fn delta(choice: u64, delta: Value) -> Value {
    chunk(json!([{"index":choice,"delta":delta,"logprobs":null,"finish_reason":null}]))
}

fn finish(choice: u64, reason: &str) -> Value {
    chunk(json!([{"index":choice,"delta":{},"logprobs":null,"finish_reason":reason}]))
}

fn text(text: &str) -> Value {
    delta(0, json!({"content":text}))
}

fn call_start(choice: u64, index: u64, id: &str, arguments: &str) -> Value {
    delta(
        choice,
        json!({"tool_calls":[{"index":index,"id":id,"type":"function",
            "function":{"name":"Bash","arguments":arguments}}]}),
    )
}

fn call_piece(choice: u64, index: u64, arguments: &str) -> Value {
    delta(
        choice,
        json!({"tool_calls":[{"index":index,"function":{"arguments":arguments}}]}),
    )
}

fn usage_chunk() -> Value {
    let mut chunk = chunk(json!([]));
    chunk["usage"] = json!({"prompt_tokens":2000,"completion_tokens":77,"total_tokens":2077,
        "prompt_tokens_details":{"cached_tokens":1536,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":12}});
    chunk
}

fn used() -> Usage {
    Usage {
        uncached: Some(464),
        read: Some(1536),
        write_30m: Some(0),
        write_12h: Some(0),
        output: Some(77),
        reasoning: Some(12),
        ..Usage::default()
    }
}

/// A stream with everything in it.
fn full() -> String {
    let head = stream(&[
        delta(0, json!({"role":"assistant","content":"","refusal":null})),
        delta(0, json!({"reasoning_content":"渐 🙂","reasoning":"渐 🙂"})),
        text("渐 🙂 é “"),
    ]);
    let tail = stream(&[
        text("line\nbreak \"q\""),
        call_start(0, 0, "call_1", ""),
        call_piece(0, 0, "{\"a\":\"渐"),
        call_start(0, 1, "call_2", "{\"b\":"),
        call_piece(0, 1, " 🙂 é “\"}"),
        call_piece(0, 0, "[1]}"),
        json!({"object":"from.the.future","x":{"y":[1]}}),
        finish(0, "tool_calls"),
        usage_chunk(),
    ]);
    format!("{head}: OPENROUTER PROCESSING\n\n{tail}{DONE}")
}

/// B01: for every cut, and byte by byte, the same answer; no character is broken.
#[test]
fn b01_cuts_inside_characters_do_not_matter() {
    let bytes = full().into_bytes();
    let limits = Limits::default();
    let whole = read_with(limits, Shape::Stream, [bytes.as_slice()]);
    assert_eq!(whole.id.as_deref(), Some("chatcmpl-1"));
    assert_eq!(whole.metered.model.as_deref(), Some("test-gpt-2026-11-01"));
    assert_eq!(whole.metered.usage, used());
    assert_eq!(whole.prompt_tokens, Some(2000));
    assert_eq!(whole.stop_reason.as_deref(), Some("tool_calls"));
    assert!(whole.finished && whole.usage_complete && whole.content_begun);
    let calls: Vec<_> = whole
        .calls
        .iter()
        .map(|call| (call.id.as_str(), call.name.as_str(), call.complete))
        .collect();
    assert_eq!(calls, [("call_1", "Bash", true), ("call_2", "Bash", true)]);
    assert_eq!(whole.calls[0].input, "{\"a\":\"渐[1]}".as_bytes());
    assert_eq!(whole.calls[1].input, "{\"b\": 🙂 é “\"}".as_bytes());
    assert_eq!(whole.warnings, [] as [&str; 0]);
    let delivered = [
        "渐 🙂",
        "渐 🙂 é “",
        "line\nbreak \"q\"",
        "{\"a\":\"渐[1]}",
        "{\"b\": 🙂 é “\"}",
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

/// C01, CLIENTS: a clean end is an end only where something says so.
#[test]
fn a_stream_that_just_stops_is_cut() {
    let begun = [text("half of"), call_start(0, 0, "call_1", "{\"a\":1}")];
    let cut = read(Shape::Stream, &stream(&begun));
    assert!(!cut.finished && !cut.usage_complete && !cut.calls[0].complete);
    assert!(cut.error.is_none() && cut.content_begun);
    assert!(!read(Shape::Stream, "").finished);
    assert!(!read(Shape::Stream, ": OPENROUTER PROCESSING\n\n").finished);
    // A usage alone says nothing of the end.
    let usage = read(Shape::Stream, &stream(&[text("a"), usage_chunk()]));
    assert!(!usage.finished && !usage.usage_complete);
    assert_eq!(usage.metered.usage, used());
}

#[test]
fn a_finish_reason_for_every_choice_stands_for_the_terminal_event() {
    let one = [text("a"), finish(0, "stop")];
    assert!(read(Shape::Stream, &stream(&one)).finished);
    let half = [
        delta(0, json!({"content":"a"})),
        delta(1, json!({"content":"b"})),
        finish(0, "stop"),
    ];
    assert!(!read(Shape::Stream, &stream(&half)).finished);
    let mut both = half.to_vec();
    both.push(finish(1, "length"));
    let answer = read(Shape::Stream, &stream(&both));
    assert!(answer.finished && !answer.usage_complete);
    assert_eq!(answer.stop_reason.as_deref(), Some("stop"));
    // The terminal event counts also without any reason.
    assert!(read_chunks(&[text("a")]).finished);
}

/// C10: without a usage nothing is known, and nothing is zero.
#[test]
fn c10_without_a_usage_it_is_unknown() {
    let answer = read_chunks(&[text("a"), finish(0, "stop")]);
    assert!(answer.finished && !answer.usage_complete);
    assert_eq!(answer.metered.usage, Usage::default());
    // C10 (3): a usage beside a choice counts.
    let mut last = finish(0, "stop");
    last["usage"] = usage_chunk()["usage"].clone();
    let answer = read_chunks(&[text("a"), last]);
    assert!(answer.usage_complete);
    assert_eq!(answer.metered.usage, used());
}

#[test]
fn the_last_usage_counts_and_is_final_when_nothing_follows() {
    let with = |mut chunk: Value, output: u64| {
        chunk["usage"] = json!({"prompt_tokens":10,"completion_tokens":output,
            "prompt_tokens_details":{"cached_tokens":0}});
        chunk
    };
    let running = [
        with(text("a"), 1),
        with(text("b"), 2),
        with(finish(0, "stop"), 3),
    ];
    let answer = read_chunks(&running);
    assert_eq!(answer.metered.usage.output, Some(3));
    assert!(answer.usage_complete);
    // The last of them lacks it.
    let stale = [with(text("a"), 1), text("b"), finish(0, "stop")];
    let answer = read_chunks(&stale);
    assert_eq!(answer.metered.usage.output, Some(1));
    assert!(answer.finished && !answer.usage_complete);
    // Other places: Groq's, Moonshot's.
    let said = usage_chunk()["usage"].clone();
    let mut groq = finish(0, "stop");
    groq["x_groq"] = json!({"id":"req_1","usage":said});
    let mut moonshot = finish(0, "stop");
    moonshot["choices"][0]["usage"] = said;
    for last in [groq, moonshot] {
        let answer = read_chunks(&[text("a"), last]);
        assert_eq!(answer.metered.usage, used());
        assert!(answer.usage_complete);
    }
}

/// xAI counts reasoning beside the output.
#[test]
fn tokens_are_counted_as_the_upstream_counts() {
    let counting = Counting {
        reasoning_beside: true,
        ..Counting::default()
    };
    let limits = Limits::default();
    let mut reader = Reader::new(Wire::Chat, Shape::Stream, limits).counting(counting);
    reader.feed(stream(&[text("a"), finish(0, "stop"), usage_chunk()]).as_bytes());
    reader.end(None);
    assert_eq!(reader.answer().metered.usage.output, Some(77 + 12));
}

/// C15: the model that served, not the one asked for; tiers in the provider's words.
#[test]
fn c15_the_served_model_and_tier_are_told() {
    let mut first = text("a");
    first["model"] = "".into();
    first["id"] = "".into();
    let mut last = finish(0, "stop");
    for (word, tier) in [
        ("default", ServiceTier::Standard),
        ("auto", ServiceTier::Standard),
        ("priority", ServiceTier::Priority),
        ("fast", ServiceTier::Priority),
        ("flex", ServiceTier::Flex),
        ("ultrafast", ServiceTier::Ultrafast),
        ("batch", ServiceTier::Batch),
    ] {
        last["service_tier"] = word.into();
        let answer = read_chunks(&[first.clone(), last.clone()]);
        assert_eq!(answer.metered.tier, tier);
        assert_eq!(answer.metered.model.as_deref(), Some("test-gpt-2026-11-01"));
        assert_eq!(answer.id.as_deref(), Some("chatcmpl-1"));
    }
}

#[test]
fn choices_keep_their_own_calls() {
    let answer = read_chunks(&[
        call_start(1, 0, "call_b", "{\"b\":"),
        call_start(0, 0, "call_a", "{\"a\":"),
        call_piece(1, 0, "2}"),
        call_piece(0, 0, "1}"),
        finish(1, "tool_calls"),
        finish(0, "tool_calls"),
    ]);
    let calls: Vec<_> = answer
        .calls
        .iter()
        .map(|call| (call.id.as_str(), &call.input[..], call.complete))
        .collect();
    assert_eq!(
        calls,
        [
            ("call_b", &b"{\"b\":2}"[..], true),
            ("call_a", &b"{\"a\":1}"[..], true)
        ]
    );
}

/// Servers that number all calls alike, give no index, repeat name and id, or leave out arguments.
#[test]
fn calls_of_servers_with_their_own_ways() {
    let calls = |calls: &[Value]| {
        let mut chunks: Vec<_> = calls
            .iter()
            .map(|call| delta(0, json!({"tool_calls":[call]})))
            .collect();
        chunks.push(finish(0, "tool_calls"));
        let answer = read_chunks(&chunks);
        assert!(answer.calls.iter().all(|call| call.complete));
        answer
            .calls
            .into_iter()
            .map(|call| (call.id, call.name, String::from_utf8(call.input).unwrap()))
            .collect::<Vec<_>>()
    };
    let owned = |all: &[(&str, &str, &str)]| {
        all.iter()
            .map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned()))
            .collect::<Vec<_>>()
    };
    let f = |name: Option<&str>, arguments: Value| json!({"name":name,"arguments":arguments});
    assert_eq!(
        calls(&[
            json!({"index":0,"id":"a","function":f(Some("x"), "{}".into())}),
            json!({"index":0,"id":"b","function":f(Some("y"), "{\"n\":".into())}),
            json!({"index":0,"id":"","function":f(Some(""), "1}".into())}),
        ]),
        owned(&[("a", "x", "{}"), ("b", "y", "{\"n\":1}")])
    );
    assert_eq!(
        calls(&[
            json!({"id":"a","function":f(Some("x"), "{\"n\":".into())}),
            json!({"id":"a","function":f(Some("x"), "1}".into())}),
            json!({"id":"b","function":f(Some("y"), "[".into())}),
            json!({"function":f(None, "]".into())}),
            json!({"function":f(Some("z"), "{}".into())}),
        ]),
        owned(&[("a", "x", "{\"n\":1}"), ("b", "y", "[]"), ("", "z", "{}")])
    );
    assert_eq!(
        calls(&[
            json!({"index":0,"id":"a","function":f(Some("x"), Value::Null)}),
            json!({"index":1,"id":"b","function":f(Some("x"), json!({"n":1}))}),
            json!({"index":2,"id":"c","type":"custom","custom":{"name":"patch","input":"*** Be"}}),
            json!({"index":2,"custom":{"input":"gin"}}),
            json!({"index":7,"function":f(None, "belongs to nothing".into())}),
        ]),
        owned(&[
            ("a", "x", "{}"),
            ("b", "x", "{\"n\":1}"),
            ("c", "patch", "*** Begin")
        ])
    );
}

#[test]
fn the_old_form_of_a_call() {
    let answer = read_chunks(&[
        delta(
            0,
            json!({"function_call":{"name":"f","arguments":"{\"a\""}}),
        ),
        delta(0, json!({"function_call":{"arguments":":1}"}})),
        finish(0, "function_call"),
    ]);
    assert_eq!(answer.calls.len(), 1);
    assert_eq!(answer.calls[0].name, "f");
    assert_eq!(answer.calls[0].input, b"{\"a\":1}");
    assert!(answer.calls[0].complete);
}

/// A call that was cut off by the output limit is none; those before it are.
#[test]
fn a_call_that_was_cut_off_is_not_complete() {
    let calls = |last: &str, reason: &str| {
        read_chunks(&[
            call_start(0, 0, "call_1", "{}"),
            call_start(0, 1, "call_2", last),
            finish(0, reason),
        ])
        .calls
        .iter()
        .map(|call| call.complete)
        .collect::<Vec<_>>()
    };
    assert_eq!(calls("{\"a\":", "length"), [true, false]);
    assert_eq!(calls("{\"a\":1}", "length"), [true, true]);
    assert_eq!(calls("{\"a\":", "content_filter"), [true, false]);
    assert_eq!(calls("{\"a\":", "tool_calls"), [true, true]);
    // The terminal event without a reason ends only what is whole.
    let answer = read_chunks(&[
        call_start(0, 0, "call_1", "{}"),
        call_start(0, 1, "call_2", "{\"a\":"),
    ]);
    assert!(answer.calls[0].complete && !answer.calls[1].complete);
}

#[test]
fn errors_inside_a_stream() {
    let error = |kind: &str, message: &str| {
        Some(ApiError {
            kind: kind.into(),
            message: message.into(),
        })
    };
    let after_text = |event: &str| {
        let answer = read(Shape::Stream, &(stream(&[text("a")]) + event));
        assert!(!answer.finished, "{event}");
        assert_eq!(answer.warnings, [] as [&str; 0], "{event}");
        answer.error
    };
    for (event, expected) in [
        (
            r#"data: {"error":{"message":"m","type":"server_error","param":null,"code":"c"}}"#,
            error("server_error", "m"),
        ),
        (
            r#"data: {"error":{"message":"m","type":null,"code":"rate_limit_exceeded"}}"#,
            error("rate_limit_exceeded", "m"),
        ),
        (
            r#"data: {"error":{"message":"m","code":429}}"#,
            error("rate_limit_error", "m"),
        ),
        (
            r#"data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}],"error":{"code":502,"message":"m"}}"#,
            error("api_error", "m"),
        ),
        (
            r#"data: {"object":"error","message":"m","type":"BadRequestError","code":400}"#,
            error("BadRequestError", "m"),
        ),
        (r#"data: {"error":"m"}"#, error("unknown_error", "m")),
        (
            "event: error\ndata: {\"message\":\"m\"}",
            error("unknown_error", "m"),
        ),
        (
            "event: error\ndata: out of memory",
            error("unknown_error", "out of memory"),
        ),
    ] {
        assert_eq!(after_text(&format!("{event}\n\n")), expected, "{event}");
    }
    assert_eq!(
        after_text("data: {\"error\":null,\"choices\":[]}\n\n"),
        None
    );
}

#[test]
fn a_body_says_the_same_as_a_stream() {
    let body = json!({"id":"chatcmpl-1","object":"chat.completion","created":1,
        "model":"test-gpt-2026-11-01","service_tier":"flex","choices":[{"index":0,
            "message":{"role":"assistant","content":"渐","refusal":null,"annotations":[],
                "reasoning_content":"why","tool_calls":[
                {"id":"call_1","type":"function","function":{"name":"Bash","arguments":"{\"a\":1}"}},
                {"id":"call_2","type":"custom","custom":{"name":"patch","input":"***"}}]},
            "logprobs":null,"finish_reason":"tool_calls"},
            {"index":1,"message":{"content":[{"type":"text","text":"ab"}]},"finish_reason":"stop"}],
        "usage":usage_chunk()["usage"]});
    let answer = read(JSON_OK, &body.to_string());
    assert!(answer.finished && answer.usage_complete && answer.content_begun);
    assert_eq!(answer.metered.usage, used());
    assert_eq!(answer.metered.tier, ServiceTier::Flex);
    assert_eq!(answer.stop_reason.as_deref(), Some("tool_calls"));
    assert_eq!(answer.warnings, [] as [&str; 0]);
    assert!(answer.calls.iter().all(|call| call.complete));
    assert_eq!(answer.calls[0].input, b"{\"a\":1}");
    assert_eq!(answer.calls[1].name, "patch");
    assert_eq!(answer.delivered_bytes, 3 + 3 + 7 + 3 + 2);
    let error = read(
        Shape::Json { status: 400 },
        r#"{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"c"}}"#,
    );
    assert_eq!(error.error.unwrap().kind, "invalid_request_error");
    let foreign = read(JSON_OK, r#"{"hello":1}"#);
    assert_eq!(foreign.warnings, ["answer_unreadable"]);
}

/// Odd shapes hide nothing but themselves.
#[test]
fn odd_members_hide_nothing_else() {
    let mut odd = text("ab");
    odd["id"] = json!(7);
    odd["service_tier"] = json!({"x":1});
    odd["usage"] = json!("none");
    odd["choices"][0]["finish_reason"] = json!(["x"]);
    let mut parts = delta(
        0,
        json!({"content":[{"type":"thinking","thinking":[{"type":"text","text":"abc"}]},
            {"type":"text","text":"d"}]}),
    );
    parts["model"] = json!(null);
    let answer = read_chunks(&[odd, parts, finish(0, "stop")]);
    assert_eq!(answer.delivered_bytes, 6);
    assert_eq!(answer.warnings, [] as [&str; 0]);
    // One broken character, and half of a pair of escapes.
    let mut bytes = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\xFF".to_vec();
    bytes.extend(
        b"\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ud83d\"}}]}\n\n",
    );
    let answer = read_with(Limits::default(), Shape::Stream, [&bytes[..]]);
    assert!(answer.content_begun && answer.delivered_bytes > 4);
    assert_eq!(answer.warnings, [] as [&str; 0]);
    let broken = read(Shape::Stream, "data: {\"choices\":7}\n\ndata: no json\n\n");
    assert_eq!(broken.warnings, ["event_unreadable"]);
}

/// A skipped event may have been a piece of any open call.
#[test]
fn a_gap_leaves_open_calls_incomplete() {
    let limits = Limits {
        event_bytes: 1024,
        ..Limits::default()
    };
    let events = stream(&[
        call_start(0, 0, "call_1", "{\"a\":\""),
        call_piece(0, 0, &"x".repeat(2000)),
        call_piece(0, 0, "\"}"),
        call_start(0, 1, "call_2", "{}"),
        // Its first piece was lost too: it belongs to nothing.
        call_piece(0, 2, "}"),
        finish(0, "tool_calls"),
    ]) + DONE;
    let answer = read_with(limits, Shape::Stream, [events.as_bytes()]);
    let calls: Vec<_> = answer
        .calls
        .iter()
        .map(|call| (call.id.as_str(), call.complete))
        .collect();
    assert_eq!(calls, [("call_1", false), ("call_2", true)]);
    assert_eq!(answer.warnings, ["event_too_large"]);
    assert!(answer.finished);
}

#[test]
fn what_is_kept_is_bounded() {
    let limits = Limits {
        tool_input_bytes: 8,
        tool_inputs_bytes: 12,
        ..Limits::default()
    };
    let mut chunks = vec![
        call_start(0, 0, "call_1", "12345"),
        call_piece(0, 0, "67890"),
        call_piece(0, 0, "abc"),
        call_start(0, 1, "call_2", "123456"),
    ];
    chunks.extend((2..400).map(|index| call_start(0, index, "call", "1")));
    chunks.extend((1..300).map(|choice| delta(choice, json!({"content":"x"}))));
    let answer = read_with(limits, Shape::Stream, [stream(&chunks).as_bytes()]);
    assert_eq!(answer.calls[0].input, b"12345678");
    assert_eq!(answer.calls[0].input_bytes, 13);
    assert_eq!(answer.calls[1].input, b"1234");
    assert_eq!(answer.calls[1].input_bytes, 6);
    assert_eq!(answer.calls.len(), super::MAX_CALLS);
    assert_eq!(answer.warnings, ["too_many_calls", "too_many_choices"]);
}

fn any_chunk() -> impl Strategy<Value = Value> {
    let piece = "[a-z{}\":0-9渐🙂]{0,12}";
    prop_oneof![
        piece.prop_map(|s| text(&s)),
        (0_u64..3, 0_u64..3, piece).prop_map(|(c, i, s)| call_start(c, i, "call_1", &s)),
        (0_u64..3, 0_u64..3, piece).prop_map(|(c, i, s)| call_piece(c, i, &s)),
        (
            0_u64..3,
            prop_oneof![Just("stop"), Just("length"), Just("tool_calls")]
        )
            .prop_map(|(c, r)| finish(c, r)),
        Just(usage_chunk()),
        Just(json!({"error":{"message":"m","code":"c"}})),
        Just(text(&"x".repeat(700))),
    ]
}

proptest! {
    /// However the bytes are cut, the same answer; what is kept is bounded; a call of a choice
    /// without an end is not complete unless something ended the stream.
    #[test]
    fn cuts_do_not_matter(
        chunks in proptest::collection::vec(any_chunk(), 0..20),
        done in any::<bool>(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        broken in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let limits = Limits { event_bytes: 600, tool_input_bytes: 16, tool_inputs_bytes: 40,
            ..Limits::default() };
        let mut bytes = (stream(&chunks) + if done { DONE } else { "" }).into_bytes();
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
        if !whole.finished {
            prop_assert!(!whole.usage_complete);
        }
    }
}
