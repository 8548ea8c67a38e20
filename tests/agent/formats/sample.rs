//! One answer in each format that has everything in it: reasoning, text with characters of several
//! bytes, two calls whose pieces alternate, a ping, and things of types that nobody knows.

use prefixgate::provider::wire::Wire;

use super::support::events;

/// The inputs of the two calls of every sample.
pub const INPUTS: [&str; 2] = [r#"{"file_path":"a.py"}"#, r#"{"q":"é x"}"#];
/// The text of every sample.
pub const TEXT: &str = "Grüße 渐🙂";

pub fn stream(wire: Wire) -> String {
    match wire {
        Wire::Messages => messages(),
        Wire::Chat => chat(),
        Wire::Responses => responses(),
    }
}

fn messages() -> String {
    events([
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm \u00e9"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln/+=="}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Grüße "}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"渐\ud83d\ude42"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"page_location","b":1,"a":2}}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"read","input":{},"caller":{"type":"direct"}}}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t2","name":"search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"file_"}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"q\":\"é"}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"new_event","index":"odd","delta":7}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"new_delta","text":7}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"path\":\"a.py\"}"}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":" x\"}"}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":4,"content_block":{"type":"new_block", "z":1,"a":[1, 2]}}"#,
        r#"{"type":"content_block_stop","index":4}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ])
}

fn chat() -> String {
    let deltas = [
        r#"{"role":"assistant","content":"","refusal":null}"#,
        r#"{"reasoning_content":"hm "}"#,
        r#"{"reasoning_content":"é","new_member":{"z":1,"a":2}}"#,
        r#"{"reasoning_details":[{"type":"reasoning.text","text":"h","index":0}]}"#,
        r#"{"reasoning_details":[{"type":"reasoning.text","text":"m","signature":"s","index":0}]}"#,
        r#"{"content":"Grüße "}"#,
        r#"{"content":"渐\ud83d\ude42"}"#,
        r#"{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"read","arguments":""},"extra_content":{"sig":"x"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"search","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"file_"}}]}"#,
        r#"{"tool_calls":[{"index":1,"function":{"arguments":"{\"q\":\"é"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"path\":\"a.py\"}"}},{"index":1,"function":{"arguments":" x\"}"}}]}"#,
    ];
    let head = r#""id":"c1","object":"chat.completion.chunk","created":1,"model":"m""#;
    let mut out = String::from(": keep-alive\n\n");
    for delta in deltas {
        out.push_str(&format!(
            "data: {{{head},\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n"
        ));
    }
    out.push_str(&format!(
        "data: {{{head},\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"tool_calls\"}}]}}\n\n"
    ));
    out.push_str(&format!(
        "data: {{{head},\"choices\":[],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":9,\"total_tokens\":19}}}}\n\n"
    ));
    out.push_str("data: [DONE]\n\n");
    out
}

/// The items of the sample, as they end.
pub const ITEMS: [&str; 5] = [
    r#"{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"c2ln/+=="}"#,
    r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Grüße 渐🙂"}]}"#,
    r#"{"id":"fc_1","status":"completed","call_id":"t1","type":"function_call","arguments":"{\"file_path\":\"a.py\"}","name":"read"}"#,
    r#"{"id":"fc_2","status":"completed","call_id":"t2","type":"function_call","arguments":"{\"q\":\"é x\"}","name":"search"}"#,
    r#"{"type":"new_item","z":1,"a":[1, 2]}"#,
];

fn responses() -> String {
    let [thinking, text, first, second, other] = ITEMS;
    let done = |index: usize, item: &str| {
        format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{item}}}"#)
    };
    let mut data: Vec<String> = [
        r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    data.push(done(0, thinking));
    data.extend(
        [
            r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","content":[]}}"#,
            r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"delta":"Grüße "}"#,
            r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"delta":"渐\ud83d\ude42"}"#,
        ]
        .map(str::to_owned),
    );
    data.push(done(1, text));
    data.extend(
        [
            r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","name":"read","arguments":""}}"#,
            r#"{"type":"response.output_item.added","output_index":3,"item":{"id":"fc_2","type":"function_call","name":"search","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"file_"}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":3,"delta":"{\"q\":"}"#,
            r#"{"type":"response.new_event","output_index":"odd","item":7}"#,
        ]
        .map(str::to_owned),
    );
    data.push(done(3, second));
    data.push(done(2, first));
    data.push(done(4, other));
    data.push(format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","status":"completed","output":[{}],"usage":{{"input_tokens":10,"output_tokens":9,"total_tokens":19}}}}}}"#,
        ITEMS.join(",")
    ));
    events(data)
}
