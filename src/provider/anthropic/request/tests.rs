use super::*;
use crate::provider::view::{BlockKind, History, Role, Unmarkable};
use proptest::prelude::*;

fn seen(body: &str) -> RequestView {
    view(body.as_bytes()).unwrap()
}

fn blocks(content: &str) -> Vec<Block> {
    seen(&format!(
        r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#
    ))
    .blocks
}

fn unmarkable(content: &str) -> Vec<Option<Unmarkable>> {
    blocks(content)
        .iter()
        .map(|block| block.unmarkable)
        .collect()
}

#[test]
fn blocks_come_in_provider_order_whatever_the_order_in_the_body() {
    let body = r#"{ "model":"claude-opus-5","messages":[{"role":"user","content":"hi"},
      {"content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"read","input":{"x":1}}],"role":"assistant"},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]},
      {"role":"system","content":"env"},{"role":"chorus","content":null}],
      "system":[{"type":"text","text":"s"}],"tools":[{"name":"read"},{"name":"late","defer_loading":true}],
      "stream":true,"max_tokens":12,"speed":"fast"}"#;
    let view = seen(body);
    let spans: Vec<_> = view
        .blocks
        .iter()
        .map(|b| b.span.of(body.as_bytes()))
        .collect();
    assert_eq!(spans[0], br#"{"name":"read"}"#);
    assert_eq!(spans[2], br#"{"type":"text","text":"s"}"#);
    assert_eq!(spans[3], br#""hi""#);
    assert_eq!(
        spans[5],
        br#"{"type":"tool_use","id":"t1","name":"read","input":{"x":1}}"#
    );
    let paths: Vec<_> = view.blocks.iter().map(|b| view.path(b)).collect();
    assert_eq!(
        paths,
        [
            "tools[0]",
            "tools[1]",
            "system[0]",
            "messages[0].content",
            "messages[1].content[0]",
            "messages[1].content[1]",
            "messages[2].content[0]",
            "messages[3].content"
        ]
    );
    let roles: Vec<_> = view.messages.iter().map(|m| m.role).collect();
    assert_eq!(
        roles,
        [
            Role::User,
            Role::Assistant,
            Role::User,
            Role::System,
            Role::Other
        ]
    );
    assert_eq!(view.messages[1].blocks, 4..6);
    assert_eq!(view.messages[4].blocks, 8..8);
    assert_eq!(
        (view.tools, view.head_len(), view.max_tokens),
        (2, 3, Some(12))
    );
    assert!(view.stream && view.fast && view.uneditable.is_none());
    let (call, result) = (view.blocks[5], view.blocks[6]);
    assert_eq!(
        call.call_id.unwrap().of(body.as_bytes()),
        result.call_id.unwrap().of(body.as_bytes())
    );
    assert_eq!(call.content.unwrap().of(body.as_bytes()), br#"{"x":1}"#);
    assert_eq!((result.is_error, call.is_error), (Some(true), None));
    assert_eq!(result.plain.unwrap().of(body.as_bytes()), br#""no""#);
    assert_eq!(view.blocks[1].unmarkable, Some(Unmarkable::Deferred));
}

#[test]
fn a08_text_without_a_visible_character_and_thinking_are_not_markable() {
    use Unmarkable::{Empty, Thinking, Unknown};
    let content = r#"[{"type":"text","text":""},{"type":"text","text":" \n\u0020\t"},{"type":"text","text":"\n."},
        {"type":"thinking","thinking":"..","signature":"s"},{"type":"redacted_thinking","data":"x"},
        {"type":"hologram"},{"type":"text"},{"type":"text","text":7},{},"bare",{"type":"te\u0078t","text":"x"}]"#;
    assert_eq!(
        unmarkable(content),
        [
            Some(Empty),
            Some(Empty),
            None,
            Some(Thinking),
            Some(Thinking),
            Some(Unknown),
            Some(Unknown),
            Some(Unknown),
            Some(Unknown),
            Some(Unknown),
            None
        ]
    );
    assert_eq!(unmarkable(r#""  ""#), [Some(Empty)]);
}

/// A call made by the provider's code execution must not be marked, nor the result with its id.
#[test]
fn calls_made_by_code_execution_and_their_results_are_not_markable() {
    let content = r#"[{"type":"tool_use","id":"toolu_1","caller":{"type":"code_execution_20250825"},"input":{}},
        {"type":"tool_use","id":"toolu_2","caller":{"type":"direct"},"input":{}},
        {"type":"tool_result","tool_use_id":"toolu_\u0031","content":"x"},
        {"type":"tool_result","tool_use_id":"toolu_2","content":"x"}]"#;
    let code = Some(Unmarkable::CodeExecution);
    assert_eq!(unmarkable(content), [code, None, code, None]);
}

#[test]
fn markers_are_found_where_they_stand() {
    let body = r#"{"cache_control":{"type":"ephemeral"},
      "tools":[{"name":"a","cache_control":{"ttl":"1h","type":"ephemeral"},"input_schema":{"cache_control":{}}}],
      "system":[{"cache_control" : {"type":"ephemeral","ttl":"5m"} ,"type":"text","text":"s"}],
      "messages":[{"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]},
        {"type":"tool_use","id":"u","input":{"cache_control":{"type":"ephemeral"}},"cache_control":{"type":"ephemeral","ttl":"9d"}},
        {"type":"document","source":{"type":"content","content":[{"type":"text","text":"d","cache_control":{}}]}},
        {"type":"text","text":"n","cache_control":null}]}]}"#;
    let view = seen(body);
    assert_eq!(view.auto_marker.unwrap().ttl, Some(Ttl::M5));
    let ttls: Vec<_> = view
        .blocks
        .iter()
        .map(|b| b.marker.map(|m| m.ttl))
        .collect();
    assert_eq!(
        ttls,
        [
            Some(Some(Ttl::H1)),
            Some(Some(Ttl::M5)),
            None,
            Some(None),
            None,
            None
        ]
    );
    assert_eq!((view.misplaced_markers, view.client_markers()), (2, 6));
    assert_eq!(
        view.blocks[1].marker.unwrap().span.of(body.as_bytes()),
        br#""cache_control" : {"type":"ephemeral","ttl":"5m"}"#
    );
    // An explicit null is no marker, but a second key must not be written beside it.
    let null = view.blocks[5];
    assert_eq!(null.unmarkable, Some(Unmarkable::Unknown));
    assert_eq!(
        null.marker_member.unwrap().of(body.as_bytes()),
        br#""cache_control":null"#
    );
    assert!(!view.blocks[1].compact && view.blocks[0].compact);
}

#[test]
fn attribution_is_only_the_first_system_text() {
    let text = r#"{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1;"}"#;
    let view = seen(&format!(r#"{{"system":[{text},{text}]}}"#));
    assert_eq!(view.blocks[0].unmarkable, Some(Unmarkable::Attribution));
    assert_eq!(view.blocks[1].unmarkable, None);
    assert!(view.blocks[0].in_prefix());
}

#[test]
fn ids_in_the_order_in_which_they_are_believed() {
    let body = r#"{"prompt_cache_key":"k","litellm_session_id":"l","session_id":"s",
      "metadata":{"session_id":"m","user_id":"{\"device_id\":\"d\",\"session_id\":\"c-1\"}"},
      "diagnostics":{"previous_message_id":"msg_1"}}"#;
    let ids = seen(body).ids;
    assert_eq!(ids.sessions, ["s", "l", "m", "k"]);
    assert_eq!(
        ids.user_id.as_deref(),
        Some(r#"{"device_id":"d","session_id":"c-1"}"#)
    );
    assert_eq!(ids.previous_message.as_deref(), Some("msg_1"));
    let old = r#"{"metadata":{"user_id":"user_0af_account_4b0c_session_1d2c"},
      "diagnostics":{"previous_message_id":null}}"#;
    let ids = seen(old).ids;
    // What a client says in it is known where runs are identified.
    assert!(ids.sessions.is_empty());
    assert_eq!(
        ids.user_id.as_deref(),
        Some("user_0af_account_4b0c_session_1d2c")
    );
    assert_eq!(ids.previous_message, None);
}

#[test]
fn threads_of_the_provider() {
    let history = |thread: &str| {
        let view = seen(&format!(r#"{{"thread":{thread},"messages":[]}}"#));
        (view.history, view.uneditable)
    };
    assert_eq!(history(r#"{"type":"create"}"#), (History::Opened, None));
    assert_eq!(
        history(r#"{"previous_message_id":"msg_7","type":"continue"}"#),
        (History::Continues("msg_7".into()), None)
    );
    assert_eq!(history("null"), (History::Whole, None));
    assert_eq!(
        history(r#"{"type":"fork"}"#),
        (History::Whole, Some("unknown_thread"))
    );
}

#[test]
fn a_key_that_stands_twice_is_read_once_and_never_edited() {
    for body in [
        r#"{"messages":[{"role":"user","content":"old"}],"messages":[{"role":"user","content":"new"}]}"#,
        r#"{"messages":[{"role":"user","content":["x"],"c\u006fntent":"new"}]}"#,
        r#"{"messages":[{"role":"user","content":"new"}],"model":"a","model":"b"}"#,
    ] {
        let view = seen(body);
        assert_eq!(view.uneditable, Some("duplicate_key"), "{body}");
        assert_eq!((view.blocks.len(), view.messages.len()), (1, 1));
        assert_eq!(view.blocks[0].span.of(body.as_bytes()), br#""new""#);
    }
    let twice =
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}"#;
    assert_eq!(seen(twice).uneditable, Some("duplicate_key"));
    let unread = r#"{"x":1,"x":2,"tools":[{"y":1,"y":2}]}"#;
    assert_eq!(seen(unread).uneditable, None);
}

#[test]
fn strange_bodies_are_read_or_refused_but_never_break() {
    for body in ["[]", "", "3", "{} {}", "{\"a\":1", "\u{feff}{}"] {
        assert!(view(body.as_bytes()).is_err(), "{body}");
    }
    let shapes =
        r#"{"messages":"x","system":7,"tools":{"a":1},"max_tokens":12345678901234567890123}"#;
    let empty = RequestView {
        anthropic_rules: true,
        spelling: Some(&MARKERS),
        text_block: Some(&super::TEXT_BLOCK),
        question: Some(&QUESTION),
        object_start: 1,
        max_tokens_at: seen(shapes).max_tokens_at,
        ..RequestView::default()
    };
    assert_eq!(seen(shapes), empty);
}

#[test]
fn settings_that_are_part_of_the_key() {
    let names = |body: &str| -> Vec<&str> {
        let parameters = seen(body).parameters;
        parameters.iter().map(|p| p.name).collect()
    };
    for default in [
        "{}",
        r#"{"tool_choice":{"type": "auto"},"output_config":{"effort":"high"},"thinking":null,"speed":"standard"}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"document","citations":{"enabled":false}}]}]}"#,
    ] {
        assert!(names(default).is_empty(), "{default}");
    }
    let all = r#"{"speed":"fast","tool_choice":{"type":"auto","disable_parallel_tool_use":true},
        "thinking":{"type":"adaptive"},"output_config":{"effort":"low","format":{}},
        "messages":[{"role":"user","content":[
            {"type":"document","citations":{"enabled":true}},
            {"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]}]}]}"#;
    let expected = [
        "speed",
        "citations",
        "tool_choice",
        "thinking",
        "output_config.effort",
        "images",
    ];
    assert_eq!(names(all), expected);
    assert!(!seen(all).forced_call);
    assert!(seen(r#"{"tool_choice":{"name":"t", "type":"tool"}}"#).forced_call);
    assert!(seen(r#"{"diagnostics":{"previous_message_id":null}}"#).diagnostics);
    assert!(!seen(r#"{"diagnostics":null}"#).diagnostics);
    for held in [
        r#"{"diagnostics":null}"#,
        r#"{"\u0064iagnostics":{"previous_message_id":null}}"#,
    ] {
        assert_eq!(seen(held).question, None, "{held}");
    }
    let body = r#" {"max_tokens": 12,"stream":true}"#;
    let view = seen(body);
    assert_eq!(view.object_start, 2);
    assert_eq!(view.max_tokens_at.unwrap().of(body.as_bytes()), b"12");
    assert_eq!(view.stream_at.unwrap().of(body.as_bytes()), b"true");
}

#[test]
fn what_an_output_limit_of_nothing_does_not_go_with() {
    for (body, reason) in [
        ("{}", None),
        (
            r#"{"thinking":{"type":"disabled"},"tool_choice":{"type":"none"},"stream":true}"#,
            None,
        ),
        (
            r#"{"thinking":null,"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"output_config":{"effort":"low","format":null}}"#,
            None,
        ),
        (r#"{"thinking":{"type":"adaptive"}}"#, Some("thinking")),
        (
            r#"{"thinking":{"budget_tokens":1024,"type":"en\u0061bled"}}"#,
            Some("thinking"),
        ),
        (r#"{"thinking":7}"#, Some("thinking")),
        (r#"{"tool_choice":{"type":"any"}}"#, Some("tool_choice")),
        (
            r#"{"tool_choice":{"name":"a","type":"tool"}}"#,
            Some("tool_choice"),
        ),
        (
            r#"{"output_config":{"format":{"type":"json_schema"}}}"#,
            Some("output_format"),
        ),
        (r#"{"output_format":{}}"#, Some("output_format")),
    ] {
        assert_eq!(seen(body).no_prewarm, reason, "{body}");
    }
    let twice = r#"{"output_config":{"format":null,"format":{}}}"#;
    assert_eq!(seen(twice).uneditable, Some("duplicate_key"));
}

#[test]
fn a_search_by_the_provider_is_no_ordinary_tool() {
    let body = r#"{"tools":[{"type":"web_search_20260101","name":"web_search"},{"name":"Bash"}]}"#;
    let kinds: Vec<_> = seen(body).blocks.iter().map(|b| b.kind).collect();
    assert_eq!(kinds, [BlockKind::ServerTool, BlockKind::Tool]);
}

/// Nesting in every place that is walked into, deeper than any stack.
#[test]
fn depth_costs_no_stack() {
    for (open, close, innermost) in [
        (r#"{"type":"tool_result","content":["#, "]}", ""),
        (r#"{"type":"document","source":{"content":["#, "]}}", ""),
        (r#"{"caller":"#, "}", "1"),
        ("[", "]", ""),
    ] {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        let deep =
            format!(r#"{{"messages":[{{"role":"user","content":[{open}{innermost}{close}]}}]}}"#);
        assert_eq!(seen(&deep).blocks.len(), 1);
    }
}

proptest! {
    /// However a body is cut or damaged, reading it ends, and every span lies inside it.
    #[test]
    fn never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut body = br#"{"system":[{"type":"text","text":"s\n"}],"tools":[{"name":"a","defer_loading":true}],"thread":{"type":"create"},"metadata":{"user_id":"{}"},"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],"caller":{"type":"code_execution"}}]}]}"#.to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        for body in [&body[..], &body[..cut.index(body.len())]] {
            if let Ok(view) = view(body) {
                for block in &view.blocks {
                    prop_assert!(block.span.start < block.span.end && block.span.end as usize <= body.len());
                }
            }
        }
    }
}
