//! Answers from streams: whole, cut into any pieces, and at any length.

use std::time::{Duration, Instant};

use prefixgate::agent::machine::Stop;
use prefixgate::agent::model::Piece;
use prefixgate::agent::talk::Kind;
use prefixgate::provider::wire::Wire;

use super::sample::{INPUTS, ITEMS, TEXT, stream};
use super::support::{FORMATS, assemble, assemble_body, events};

#[test]
fn f11_interleaved_pieces_become_the_right_calls_in_all_formats() {
    for (wire, _) in FORMATS {
        let (whole, pieces) = assemble(wire, [stream(wire).as_bytes()]);
        let whole = whole.unwrap();
        let calls: Vec<_> = whole.answer.calls().cloned().collect();
        let told: Vec<_> = calls
            .iter()
            .map(|c| (&*c.id, &*c.name, &*c.input))
            .collect();
        assert_eq!(
            told,
            [("t1", "read", INPUTS[0]), ("t2", "search", INPUTS[1])],
            "{wire:?}"
        );
        assert_eq!(whole.answer.text(), TEXT);
        assert_eq!((whole.stop, whole.open_call), (Stop::ToolUse, false));
        let shown: String = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(shown, TEXT, "{wire:?}");
        for call in calls {
            let opened = Piece::CallOpened(call.name.clone());
            let at = |wanted: &Piece| pieces.iter().position(|piece| piece == wanted);
            assert!(at(&opened) < at(&Piece::Call(call)), "{wire:?}");
        }
    }
}

#[test]
fn f11_blocks_keep_every_member_in_its_place() {
    let raw = |wire| {
        let (whole, _) = assemble(wire, [stream(wire).as_bytes()]);
        let blocks = whole.unwrap().answer.blocks.into_iter();
        blocks
            .map(|block| (block.raw, block.kind))
            .collect::<Vec<_>>()
    };
    let texts = |blocks: Vec<(String, Kind)>| -> Vec<String> {
        blocks.into_iter().map(|(raw, _)| raw).collect()
    };
    assert_eq!(
        texts(raw(Wire::Messages)),
        [
            r#"{"type":"thinking","thinking":"hm é","signature":"c2ln/+=="}"#,
            r#"{"type":"text","text":"Grüße 渐🙂","citations":[{"type":"page_location","b":1,"a":2}]}"#,
            r#"{"type":"tool_use","id":"t1","name":"read","input":{"file_path":"a.py"},"caller":{"type":"direct"}}"#,
            r#"{"type":"tool_use","id":"t2","name":"search","input":{"q":"é x"}}"#,
            r#"{"type":"new_block", "z":1,"a":[1, 2]}"#,
        ]
    );
    assert_eq!(
        texts(raw(Wire::Chat)),
        [
            r#"{"content":"Grüße 渐🙂"}"#,
            r#"{"reasoning_content":"hm é"}"#,
            r#"{"new_member":{"z":1,"a":2}}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"hm","index":0,"signature":"s"}]}"#,
            r#"{"id":"t1","type":"function","function":{"name":"read","arguments":"{\"file_path\":\"a.py\"}"},"extra_content":{"sig":"x"}}"#,
            r#"{"id":"t2","type":"function","function":{"name":"search","arguments":"{\"q\":\"é x\"}"}}"#,
        ]
    );
    assert_eq!(texts(raw(Wire::Responses)), ITEMS);
    let kinds = raw(Wire::Responses);
    assert_eq!(kinds[0].1, Kind::Thinking);
    assert_eq!(kinds[4].1, Kind::Other);
}

#[test]
fn streams_cut_at_every_byte_give_the_same_answer() {
    for (wire, _) in FORMATS {
        let stream = stream(wire);
        let whole = assemble(wire, [stream.as_bytes()]);
        assert!(whole.0.is_some());
        for at in 0..stream.len() {
            let (head, tail) = stream.as_bytes().split_at(at);
            assert_eq!(assemble(wire, [head, tail]), whole, "{wire:?} at {at}");
        }
        assert_eq!(assemble(wire, stream.as_bytes().chunks(1)), whole);
    }
}

#[test]
fn streams_that_end_at_any_byte_are_broken_and_never_a_wrong_answer() {
    for (wire, _) in FORMATS {
        let stream = stream(wire);
        let (whole, _) = assemble(wire, [stream.as_bytes()]);
        let answered: Vec<usize> = (0..stream.len())
            .filter(|at| {
                let (cut, _) = assemble(wire, [&stream.as_bytes()[..*at]]);
                if let Some(cut) = &cut {
                    assert_eq!(Some(cut), whole.as_ref(), "{wire:?} at {at}");
                }
                cut.is_some()
            })
            .collect();
        // In Chat the answer is whole with its finish reason; usage and the end come behind it.
        let first = match wire {
            Wire::Chat => stream.find("\"tool_calls\"}]}").unwrap(),
            _ => stream.len(),
        };
        assert!(
            answered.iter().all(|at| *at >= first),
            "{wire:?}: {answered:?}"
        );
    }
}

#[test]
fn pieces_that_belong_to_nothing_break_the_answer() {
    let start =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    let delta =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let last = r#"{"type":"message_stop"}"#;
    let check = |data: &[&str], sound: bool| {
        let (whole, _) = assemble(Wire::Messages, [events(data).as_bytes()]);
        assert_eq!(whole.is_some(), sound, "{data:?}");
    };
    check(&[start, delta, stop, end, last], true);
    check(&[delta, end, last], false);
    check(&[start, stop, delta, end, last], false);
    check(&[start, start, stop, end, last], false);
    check(&[start, delta, stop, last], false);
    let no_text =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}"#;
    check(&[start, no_text, stop, end, last], false);
    let call = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#;
    // A call that never ends is no end of a turn.
    check(&[call, end, last], false);
    // What comes behind the end is not looked at.
    check(&[start, delta, stop, end, last, delta], true);
    let (whole, _) = assemble(Wire::Messages, [&b"data: {\"type\":\"message_st\n\n"[..]]);
    assert_eq!(whole, None);
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}}]}\n\n";
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    assert_eq!(
        assemble(Wire::Chat, [text.as_bytes(), end.as_bytes()]).0,
        None
    );
    assert_eq!(assemble(Wire::Chat, [&b"data: [DONE]\n\n"[..]]).0, None);
    assert!(assemble(Wire::Chat, [end.as_bytes()]).0.is_some());
}

#[test]
fn f15_two_calls_with_one_id_are_refused_in_all_formats() {
    for (wire, _) in FORMATS {
        let stream = stream(wire).replace("\"t2\"", "\"t1\"");
        assert_eq!(assemble(wire, [stream.as_bytes()]).0, None, "{wire:?}");
    }
}

#[test]
fn bodies_that_were_not_streamed_give_blocks_byte_for_byte() {
    let block = r#"{"text" : "\u00e9", "type":"text","new":{"b":1, "a":2}}"#;
    let body = format!(r#"{{"id":"m","content":[{block}],"stop_reason":"end_turn"}}"#);
    let (whole, pieces) = assemble_body(Wire::Messages, &body);
    let whole = whole.unwrap();
    assert_eq!(whole.answer.blocks[0].raw, block);
    assert_eq!(whole.answer.text(), "é");
    assert_eq!(pieces, [Piece::Text("é".to_owned())]);

    let call = r#"{"id":"t1","type":"function","function":{"name":"search","arguments":"{\"q\":1}"},"x":1}"#;
    let body = format!(
        r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"\u00e9","annotations":[],"refusal":null,"tool_calls":[{call}]}},"finish_reason":"tool_calls"}}]}}"#
    );
    let (whole, _) = assemble_body(Wire::Chat, &body);
    let raw: Vec<String> = whole
        .unwrap()
        .answer
        .blocks
        .into_iter()
        .map(|b| b.raw)
        .collect();
    assert_eq!(raw, [r#"{"content":"\u00e9"}"#, call]);

    let body = format!(
        r#"{{"id":"r","status":"completed","output":[{}]}}"#,
        ITEMS.join(",")
    );
    let (whole, pieces) = assemble_body(Wire::Responses, &body);
    let raw: Vec<String> = whole
        .unwrap()
        .answer
        .blocks
        .into_iter()
        .map(|b| b.raw)
        .collect();
    assert_eq!(raw, ITEMS);
    assert!(pieces.contains(&Piece::Text(TEXT.to_owned())));
    for (wire, _) in FORMATS {
        for none in ["{}", "[]", "", "{\"content\":"] {
            assert_eq!(assemble_body(wire, none).0, None, "{wire:?} {none}");
        }
    }
}

#[test]
fn servers_with_odd_calls_are_understood() {
    let chat = |deltas: &[&str]| {
        let mut out = String::new();
        for delta in deltas {
            out.push_str(&format!(
                "data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n"
            ));
        }
        out.push_str("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n");
        let (whole, _) = assemble(Wire::Chat, [out.as_bytes()]);
        let calls: Vec<_> = whole.unwrap().answer.calls().cloned().collect();
        calls
            .into_iter()
            .map(|call| (call.id, call.name, call.input))
            .collect::<Vec<_>>()
    };
    let call =
        |id: &str, name: &str, input: &str| (id.to_owned(), name.to_owned(), input.to_owned());
    // One index for all.
    assert_eq!(
        chat(&[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#,
        ]),
        [call("a", "f", "{}"), call("b", "g", "{}")]
    );
    // No index, no ids, an object for a string.
    assert_eq!(
        chat(&[
            r#"{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}"#,
            r#"{"tool_calls":[{"function":{"name":"f","arguments":""}}]}"#,
        ]),
        [call("call_0", "f", r#"{"a":1}"#), call("call_1", "f", "{}")]
    );
    // Id and name again with every piece.
    assert_eq!(
        chat(&[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"1}"}}]}"#,
        ]),
        [call("a", "f", r#"{"a":1}"#)]
    );
    // The old form.
    assert_eq!(
        chat(&[
            r#"{"function_call":{"name":"f","arguments":"{\"a\""}}"#,
            r#"{"function_call":{"arguments":":1}"}}"#,
        ]),
        [call("call_0", "f", r#"{"a":1}"#)]
    );
}

/// A call whose arguments are `size` bytes, one byte a delta.
fn dripping(wire: Wire, size: usize) -> String {
    let mut out = match wire {
        Wire::Messages => events([
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#,
        ]),
        Wire::Chat => "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t\",\"function\":{\"name\":\"n\",\"arguments\":\"\"}}]}}]}\n\n".to_owned(),
        Wire::Responses => events([
            r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"fc","type":"function_call","name":"n","arguments":""}}"#,
        ]),
    };
    let arguments = format!("{{\"a\":\"{}\"}}", "x".repeat(size));
    for byte in arguments.chars() {
        let piece = serde_json::to_string(&byte).unwrap();
        match wire {
            Wire::Messages => out.push_str(&format!("event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":{piece}}}}}\n\n")),
            Wire::Chat => out.push_str(&format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":{piece}}}}}]}}}}]}}\n\n")),
            Wire::Responses => out.push_str(&format!("data: {{\"type\":\"response.function_call_arguments.delta\",\"output_index\":0,\"delta\":{piece}}}\n\n")),
        }
    }
    let arguments = serde_json::to_string(&arguments).unwrap();
    out.push_str(&match wire {
        Wire::Messages => events([
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            r#"{"type":"message_stop"}"#,
        ]),
        Wire::Chat => "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n".to_owned(),
        Wire::Responses => events([
            format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{{"type":"function_call","id":"fc","call_id":"t","name":"n","arguments":{arguments}}}}}"#),
            r#"{"type":"response.completed","response":{"status":"completed"}}"#.to_owned(),
        ]),
    });
    out
}

#[test]
fn f11_the_cost_of_putting_arguments_together_is_linear() {
    for (wire, _) in FORMATS {
        let time = |size: usize| {
            let stream = dripping(wire, size);
            let begun = Instant::now();
            let (whole, _) = assemble(wire, stream.as_bytes().chunks(16 << 10));
            let took = begun.elapsed();
            let whole = whole.unwrap();
            assert_eq!(whole.answer.calls().next().unwrap().input.len(), size + 8);
            took
        };
        time(1000);
        let best = |size| (0..2).map(|_| time(size)).min().unwrap();
        let (small, large) = (best(250_000), best(1_000_000));
        // Four times as much; sixteen times as long were quadratic.
        let bound = small * 9 + Duration::from_millis(50);
        assert!(large < bound, "{wire:?}: {small:?}, then {large:?}");
    }
}
