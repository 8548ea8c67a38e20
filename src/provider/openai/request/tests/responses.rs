use super::*;
use crate::provider::view::{BlockKind, Form, History, Role, Section};

const WIRE: Wire = Wire::Responses;

/// In the shape of a coding agent's second request.
const AGENT: &str = r#"{"model":"gpt-6-sol","instructions":"You are an agent.","input":[
  {"type":"message","role":"developer","content":[{"type":"input_text","text":"<permissions>"}]},
  {"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>"},{"type":"input_image","image_url":"data:x"}]},
  {"role":"user","content":"run the tests"},
  {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}],"encrypted_content":"gAAA"},
  {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I will.","annotations":[]},{"type":"refusal","refusal":"no"}],"phase":"commentary"},
  {"type":"function_call","name":"exec","arguments":"{\"cmd\":\"make\"}","call_id":"call_1","id":"fc_1"},
  {"type":"custom_tool_call","status":"completed","call_id":"call_2","name":"apply_patch","input":"*** Begin Patch"},
  {"type":"function_call_output","call_id":"call_1","output":"Process exited with code 2"},
  {"type":"custom_tool_call_output","call_id":"call_2","output":[{"type":"input_text","text":"Done"}]},
  {"type":"local_shell_call","id":"ls_1","call_id":"call_3","status":"completed","action":{"type":"exec","command":["ls"],"env":{}}},
  {"type":"local_shell_call_output","id":"call_3","output":"a b"},
  {"type":"shell_call","call_id":"call_4","action":{"commands":["ls"]}},
  {"type":"shell_call_output","call_id":"call_4","output":[{"stdout":"x","stderr":"","outcome":{"type":"exit","exit_code":0}}]},
  {"type":"apply_patch_call","call_id":"call_5","operation":{"type":"delete_file","path":"a"},"status":"completed"},
  {"type":"apply_patch_call_output","call_id":"call_5","status":"failed","output":"no such file"},
  {"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},
  {"type":"compaction","encrypted_content":"x"},
  {"type":"item_reference","id":"msg_1"},{"type":"later","content":"x"},
  {"role":"system","content":"env"}],
  "tools":[{"type":"function","name":"exec","parameters":{}},{"type":"custom","name":"apply_patch"},{"type":"web_search"},
    {"type":"mcp","server_label":"docs"},{"type":"namespace","name":"collab","tools":[{"type":"function","name":"spawn"}]}],
  "store":false,"stream":true,"prompt_cache_key":"sess-1","max_output_tokens":100,"include":["reasoning.encrypted_content"]}"#;

#[test]
fn items_become_runs_of_one_speaker() {
    let view = seen(WIRE, AGENT);
    let told: Vec<_> = view
        .messages
        .iter()
        .map(|m| (m.role, m.blocks.end - m.blocks.start))
        .collect();
    assert_eq!(
        told,
        [
            (Role::User, 3),
            (Role::Assistant, 5),
            (Role::User, 2),
            (Role::Assistant, 1),
            (Role::User, 1),
            (Role::Assistant, 1),
            (Role::User, 1),
            (Role::Assistant, 1),
            (Role::User, 1),
            (Role::Assistant, 2),
            (Role::Other, 1),
            (Role::Other, 1),
            (Role::System, 1),
        ]
    );
    assert_eq!((view.tools, view.head_len()), (5, 7));
    assert_eq!(view.messages[0].blocks, 7..10);
    assert_eq!(
        (view.max_tokens, &view.history),
        (Some(100), &History::Whole)
    );
    assert_eq!(view.ids.sessions, ["sess-1"]);
    assert!(view.stream && view.uneditable.is_none());
}

#[test]
fn blocks_come_in_provider_order_with_their_paths() {
    let view = seen(WIRE, AGENT);
    assert_eq!(
        paths(&view),
        [
            "tools[0]",
            "tools[1]",
            "tools[2]",
            "tools[3]",
            "tools[4]",
            "instructions",
            "input[0].content[0]",
            "input[1].content[0]",
            "input[1].content[1]",
            "input[2].content",
            "input[3]",
            "input[4].content[0]",
            "input[4].content[1]",
            "input[5]",
            "input[6]",
            "input[7]",
            "input[8]",
            "input[9]",
            "input[10]",
            "input[11]",
            "input[12]",
            "input[13]",
            "input[14]",
            "input[15]",
            "input[16]",
            "input[17]",
            "input[18]",
            "input[19].content",
        ]
    );
    use BlockKind::{Image, Other, ServerTool, Text, Thinking, Tool, ToolResult, ToolUse};
    let kinds: Vec<_> = view.blocks[4..].iter().map(|block| block.kind).collect();
    let expected = [
        Tool, Text, Text, Text, Image, Text, Thinking, Text, Other, ToolUse, ToolUse, ToolResult,
        ToolResult, ToolUse, ToolResult, ToolUse, ToolResult, ToolUse, ToolResult, ServerTool,
        Other, Other, Other, Text,
    ];
    assert_eq!(kinds, expected);
    let named: Vec<_> = view.blocks[..5]
        .iter()
        .map(|block| text(AGENT, block.name))
        .collect();
    assert_eq!(
        named,
        [
            r#""exec""#,
            r#""apply_patch""#,
            r#""web_search""#,
            r#""docs""#,
            r#""collab""#
        ]
    );
    let (instructions, developer) = (view.blocks[5], view.blocks[6]);
    assert_eq!(
        (instructions.section, instructions.form, instructions.outer),
        (Section::System, Form::BareString, 0)
    );
    assert_eq!((developer.section, developer.outer), (Section::System, 1));
    // Messages with a text only are the same as the text.
    let plain: Vec<_> = [6, 11, 9]
        .map(|at| text(AGENT, view.blocks[at].plain))
        .into();
    assert_eq!(
        plain,
        [r#""<permissions>""#, r#""I will.""#, r#""run the tests""#]
    );
}

#[test]
fn calls_and_results_are_paired_by_id_whatever_their_kind() {
    let view = seen(WIRE, AGENT);
    let told: Vec<_> = view
        .blocks
        .iter()
        .filter(|block| matches!(block.kind, BlockKind::ToolUse | BlockKind::ToolResult))
        .map(|block| {
            let of = |span| text(AGENT, span);
            (
                of(block.call_id),
                of(block.name),
                of(block.content),
                block.is_error,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (r#""call_1""#, r#""exec""#, r#""{\"cmd\":\"make\"}""#, None),
            (
                r#""call_2""#,
                r#""apply_patch""#,
                r#""*** Begin Patch""#,
                None
            ),
            (r#""call_1""#, "", r#""Process exited with code 2""#, None),
            (
                r#""call_2""#,
                "",
                r#"[{"type":"input_text","text":"Done"}]"#,
                None
            ),
            (
                r#""call_3""#,
                r#""local_shell_call""#,
                r#"{"type":"exec","command":["ls"],"env":{}}"#,
                None
            ),
            (r#""call_3""#, "", r#""a b""#, None),
            (
                r#""call_4""#,
                r#""shell_call""#,
                r#"{"commands":["ls"]}"#,
                None
            ),
            (
                r#""call_4""#,
                "",
                r#"[{"stdout":"x","stderr":"","outcome":{"type":"exit","exit_code":0}}]"#,
                None
            ),
            (
                r#""call_5""#,
                r#""apply_patch_call""#,
                r#"{"type":"delete_file","path":"a"}"#,
                None
            ),
            (r#""call_5""#, "", r#""no such file""#, Some(true)),
        ]
    );
    let results: Vec<_> = view
        .blocks
        .iter()
        .filter(|b| b.kind == BlockKind::ToolResult)
        .collect();
    let plain: Vec<_> = results
        .iter()
        .map(|block| text(AGENT, block.plain))
        .collect();
    assert_eq!(
        plain,
        [
            r#""Process exited with code 2""#,
            r#""Done""#,
            r#""a b""#,
            "",
            r#""no such file""#
        ]
    );
}

#[test]
fn a_bare_input_is_what_the_user_says() {
    let body = r#"{"input":"hi","model":"m"}"#;
    let view = seen(WIRE, body);
    assert_eq!(paths(&view), ["input"]);
    assert_eq!(
        (view.messages.len(), view.messages[0].role),
        (1, Role::User)
    );
    assert_eq!(view.messages[0].span, view.blocks[0].span);
}

#[test]
fn who_holds_the_history() {
    let of = |members: &str| {
        let view = seen(WIRE, &format!(r#"{{"input":"x"{members}}}"#));
        (view.history, view.ids.previous_message, view.ids.sessions)
    };
    assert_eq!(of(""), (History::Opened, None, vec![]));
    assert_eq!(
        of(r#","store":null,"previous_response_id":null"#).0,
        History::Opened
    );
    assert_eq!(
        of(r#","store":false,"conversation":null"#).0,
        History::Whole
    );
    assert_eq!(
        of(r#","previous_response_id":"resp_1","store":false"#),
        (
            History::Continues("resp_1".into()),
            Some("resp_1".into()),
            vec![]
        )
    );
    for conversation in [r#""conv_1""#, r#"{"id":"conv_1"}"#] {
        assert_eq!(
            of(&format!(
                r#","conversation":{conversation},"prompt_cache_key":"k","session_id":"s""#
            )),
            (
                History::Continues("conv:conv_1".into()),
                None,
                vec!["s".into(), "conv_1".into(), "k".into()]
            )
        );
    }
    assert_eq!(of(r#","previous_response_id":"""#).0, History::Opened);
}

#[test]
fn settings_that_are_part_of_the_key() {
    for default in [
        "{}",
        r#"{"text":{"format":{"type":"text"},"verbosity":"medium"},"reasoning":{"summary":"auto"},"service_tier":"auto"}"#,
        r#"{"prompt":null,"tool_choice":"auto","include":[],"truncation":"auto"}"#,
    ] {
        assert!(names(WIRE, default).is_empty(), "{default}");
    }
    let all = r#"{"text":{"verbosity":"low","format":{"type":"json_schema"}},"reasoning":{"effort":"xhigh"},
        "service_tier":"priority","prompt_cache_key":"k","prompt":{"id":"pmpt_1"}}"#;
    assert_eq!(
        names(WIRE, all),
        [
            "prompt",
            "prompt_cache_key",
            "service_tier",
            "text.format",
            "reasoning.effort",
            "text.verbosity"
        ]
    );
    assert!(seen(WIRE, r#"{"tool_choice":{"type":"mcp","server_label":"x"}}"#).forced_call);
    assert!(!seen(WIRE, r#"{"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"mode":"required"}]}}"#).forced_call);
    assert!(
        seen(
            WIRE,
            r#"{"tool_choice":{"mode":"required","type":"allowed_tools"}}"#
        )
        .forced_call
    );
    let asks = seen(
        WIRE,
        r#"{"prompt_cache_options":{"comparison_response_id":"resp_0"}}"#,
    );
    assert!(asks.diagnostics);
    assert_eq!(asks.ids.previous_message.as_deref(), Some("resp_0"));
    assert!(!seen(WIRE, r#"{"prompt_cache_options":{"mode":"explicit"}}"#).diagnostics);
}

#[test]
fn a_key_that_stands_twice_is_read_once_and_never_edited() {
    for body in [
        r#"{"input":[{"role":"system","content":"old"},{"role":"user","content":"old"}],"input":"new"}"#,
        r#"{"input":"old","input":[{"role":"user","content":"new"}]}"#,
        r#"{"input":[{"role":"user","content":["x"],"c\u006fntent":"new"}]}"#,
        r#"{"instructions":"old","input":"new","instructions":null}"#,
    ] {
        let view = seen(WIRE, body);
        assert_eq!(view.uneditable, Some("duplicate_key"), "{body}");
        assert_eq!((view.blocks.len(), view.messages.len()), (1, 1), "{body}");
        assert_eq!(view.blocks[0].span.of(body.as_bytes()), br#""new""#);
    }
    let call = r#"{"input":[{"type":"function_call","name":"a","name":"b"}]}"#;
    assert_eq!(seen(WIRE, call).uneditable, Some("duplicate_key"));
}
