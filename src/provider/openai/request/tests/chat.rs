use super::*;
use crate::provider::openai::caching::CHAT_MARKERS;
use crate::provider::view::{BlockKind, Form, History, Role, Section, Ttl, Unmarkable};

const WIRE: Wire = Wire::Chat;

const WHOLE: &str = r#"{ "model":"gpt-6-sol","messages":[
  {"role":"system","content":"be brief"},{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"role":"developer"},
  {"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:x"}},{"type":"file","file":{}}]},
  {"role":"user","content":"and"},
  {"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"p\": 1}"}},
    {"id":"c2","type":"custom","custom":{"name":"patch","input":"*** Begin"}}],
   "content":"well","role":"assistant","refusal":null,"reasoning_content":"hm","audio":null,"function_call":null},
  {"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"done"}]},
  {"role":"tool","content":"no","tool_call_id":"c1"},
  {"role":"user","content":"go on"},
  {"role":"assistant","content":null,"refusal":"I won't","function_call":{"name":"old","arguments":"{}"}},
  {"role":"function","name":"old","content":"1"},
  {"role":"system","content":"env"},{"role":"chorus","content":"la"},{"role":"chorus","content":"la"},7],
  "tools":[{"type":"function","function":{"name":"read","parameters":{"name":"x"}}},{"type":"custom","custom":{"name":"patch"}},
    {"type":"web_search","search_context_size":"low"}],
  "functions":[{"name":"old","parameters":{}}],"stream":true,"max_tokens":12,"tool_choice":"auto"}"#;

#[test]
fn messages_become_runs_of_one_speaker() {
    let view = seen(WIRE, WHOLE);
    let told: Vec<_> = view
        .messages
        .iter()
        .map(|m| (m.role, m.blocks.clone()))
        .collect();
    assert_eq!(
        told,
        [
            (Role::User, 7..11),
            (Role::Assistant, 11..15),
            (Role::User, 15..18),
            (Role::Assistant, 18..20),
            (Role::User, 20..21),
            (Role::System, 21..22),
            (Role::Other, 22..23),
            (Role::Other, 23..24),
            (Role::Other, 24..24),
        ]
    );
    let run = view.messages[2].span.of(WHOLE.as_bytes());
    assert!(run.starts_with(br#"{"role":"tool","tool_call_id":"c2""#));
    assert!(run.ends_with(br#"{"role":"user","content":"go on"}"#));
    assert!(view.blocks[7..].iter().all(|block| {
        let of = &view.messages[block.outer as usize].blocks;
        block.section == Section::Messages
            && view.blocks[of.start as usize..of.end as usize].contains(block)
    }));
    assert_eq!(
        (view.tools, view.head_len(), view.max_tokens),
        (4, 7, Some(12))
    );
    assert!(view.stream && !view.fast && !view.forced_call && view.uneditable.is_none());
    assert_eq!(view.model.as_deref(), Some("gpt-6-sol"));
    assert_eq!(
        (&view.history, view.spelling, view.question),
        (&History::Whole, Some(&CHAT_MARKERS), None)
    );
    assert_eq!(view.no_prewarm, Some("format"));
}

#[test]
fn blocks_come_in_provider_order_with_their_paths() {
    let view = seen(WIRE, WHOLE);
    assert_eq!(
        paths(&view),
        [
            "tools[0]",
            "tools[1]",
            "tools[2]",
            "functions[0]",
            "messages[0].content",
            "messages[1].content[0]",
            "messages[1].content[1]",
            "messages[2].content[0]",
            "messages[2].content[1]",
            "messages[2].content[2]",
            "messages[3].content",
            "messages[4].reasoning_content",
            "messages[4].content",
            "messages[4].tool_calls[0]",
            "messages[4].tool_calls[1]",
            "messages[5]",
            "messages[6]",
            "messages[7].content",
            "messages[8].refusal",
            "messages[8].function_call",
            "messages[9]",
            "messages[10].content",
            "messages[11].content",
            "messages[12].content",
        ]
    );
    use BlockKind::{Document, Image, Other, Text, Thinking, Tool, ToolResult, ToolUse};
    let kinds: Vec<_> = view.blocks.iter().map(|block| block.kind).collect();
    let expected = [
        Tool, Tool, Tool, Tool, Text, Text, Text, Text, Image, Document, Text, Thinking, Text,
        ToolUse, ToolUse, ToolResult, ToolResult, Text, Other, ToolUse, ToolResult, Text, Text,
        Text,
    ];
    assert_eq!(kinds, expected);
    let named: Vec<_> = view.blocks[..4]
        .iter()
        .map(|block| text(WHOLE, block.name))
        .collect();
    assert_eq!(
        named,
        ["\"read\"", "\"patch\"", "\"web_search\"", "\"old\""]
    );
    assert_eq!(view.blocks[10].form, Form::BareString);
    assert_eq!(view.blocks[5].outer, 1);
}

#[test]
fn calls_and_results_are_read_alike_in_both_spellings() {
    let view = seen(WIRE, WHOLE);
    let told: Vec<_> = [13, 14, 15, 16, 19, 20]
        .map(|at| view.blocks[at])
        .iter()
        .map(|block| {
            let of = |span| text(WHOLE, span);
            (
                of(block.call_id),
                of(block.name),
                of(block.content),
                of(block.plain),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (r#""c1""#, r#""read""#, r#""{\"p\": 1}""#, ""),
            (r#""c2""#, r#""patch""#, r#""*** Begin""#, ""),
            (
                r#""c2""#,
                "",
                r#"[{"type":"text","text":"done"}]"#,
                r#""done""#
            ),
            (r#""c1""#, "", r#""no""#, r#""no""#),
            (r#""old""#, r#""old""#, r#""{}""#, ""),
            (r#""old""#, r#""old""#, r#""1""#, r#""1""#),
        ]
    );
    assert!(view.blocks.iter().all(|block| block.is_error.is_none()));
    let whole = view.blocks[16].span.of(WHOLE.as_bytes());
    assert_eq!(
        whole,
        br#"{"role":"tool","content":"no","tool_call_id":"c1"}"#
    );
}

#[test]
fn markers_are_found_where_they_stand() {
    let body = r#"{"cache_control":{"type":"ephemeral"},
      "tools":[{"type":"function","function":{"name":"a"},"cache_control":{"ttl":"1h","type":"ephemeral"}}],
      "messages":[{"role":"system","content":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"5m"}}]},
      {"role":"user","cache_control":{"type":"ephemeral"},"content":[
        {"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}},
        {"type":"image_url","image_url":{},"cache_control":{"type":"ephemeral","ttl":"9d"}},
        {"type":"text","text":"n","prompt_cache_breakpoint":null}]},
      {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"o", "prompt_cache_breakpoint":{"mode":"explicit"}}]},
      {"role":"tool","tool_call_id":"d","content":[{"type":"text","text":"o","cache_control":{"type":"ephemeral"}},
        {"type":"text","text":"p","cache_control":{"type":"ephemeral"}}]}]}"#;
    let view = seen(WIRE, body);
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
            Some(Some(Ttl::H12)),
            Some(None),
            None,
            Some(Some(Ttl::M30)),
            Some(Some(Ttl::M5))
        ]
    );
    // That of the message, and the second one of the last result.
    assert_eq!((view.misplaced_markers, view.client_markers()), (2, 9));
    assert_eq!(
        text(body, view.blocks[4].marker_member),
        r#""prompt_cache_breakpoint":null"#
    );
}

#[test]
fn a_breakpoint_without_a_lifetime_has_that_of_the_request() {
    for (options, ttl) in [
        ("", Some(Ttl::M30)),
        (
            r#","prompt_cache_options":{"mode":"explicit"}"#,
            Some(Ttl::M30),
        ),
        (r#","prompt_cache_options":{"ttl":"12h"}"#, Some(Ttl::H12)),
        (r#","prompt_cache_options":{"ttl":"9d"}"#, None),
    ] {
        let part = |marker: &str| format!(r#"{{"type":"text","text":"x",{marker}}}"#);
        let parts = [
            part(r#""prompt_cache_breakpoint":{"mode":"explicit"}"#),
            part(r#""prompt_cache_breakpoint":{"mode":"explicit","ttl":"30m"}"#),
            part(r#""prompt_cache_breakpoint":{"mode":"later"}"#),
            part(r#""cache_control":{"type":"ephemeral"}"#),
        ];
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":[{}]}}]{options}}}"#,
            parts.join(",")
        );
        let blocks = seen(WIRE, &body).blocks;
        let ttls: Vec<_> = blocks.iter().map(|b| b.marker.unwrap().ttl).collect();
        assert_eq!(
            ttls,
            [ttl, Some(Ttl::M30), None, Some(Ttl::M5)],
            "{options}"
        );
    }
}

#[test]
fn what_cannot_carry_a_breakpoint_says_why() {
    let body = r#"{"tools":[{"type":"function","function":{"name":"a"},"defer_loading":true}],"messages":[
      {"role":"user","content":[{"type":"text","text":" \n"},{"type":"text"},{"type":"hologram"},7,{}]},
      {"role":"assistant","content":"","reasoning":"r","reasoning_details":[{}],"thinking_blocks":null,
       "refusal":"no","audio":{"id":"a1"}}]}"#;
    use Unmarkable::{Deferred, Empty, Thinking, Unknown};
    let view = seen(WIRE, body);
    let why: Vec<_> = view.blocks.iter().map(|block| block.unmarkable).collect();
    assert_eq!(
        why,
        [
            Some(Deferred),
            Some(Empty),
            Some(Unknown),
            Some(Unknown),
            Some(Unknown),
            Some(Unknown),
            Some(Thinking),
            Some(Thinking),
            Some(Empty),
            Some(Unknown),
            None,
        ]
    );
    assert_eq!(
        paths(&view)[6..],
        [
            "messages[1].reasoning",
            "messages[1].reasoning_details",
            "messages[1].content",
            "messages[1].refusal",
            "messages[1].audio"
        ]
    );
}

#[test]
fn a_key_that_stands_twice_is_read_once_and_never_edited() {
    for body in [
        r#"{"messages":[{"role":"system","content":"old"},{"role":"user","content":"old"}],"messages":[{"role":"user","content":"new"}]}"#,
        r#"{"messages":[{"role":"user","content":["x"],"c\u006fntent":"new"}]}"#,
        r#"{"messages":[{"role":"user","content":"new"}],"model":"a","model":"b"}"#,
        r#"{"messages":[{"role":"user","content":"new"}],"tools":[{"name":"a"}],"tools":[]}"#,
    ] {
        let view = seen(WIRE, body);
        assert_eq!(view.uneditable, Some("duplicate_key"), "{body}");
        assert_eq!((view.blocks.len(), view.messages.len()), (1, 1));
        assert_eq!(view.blocks[0].span.of(body.as_bytes()), br#""new""#);
    }
    let body = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}],"content":"t","refusal":"x","tool_calls":[{"id":"b"}],"refusal":"y"}]}"#;
    let view = seen(WIRE, body);
    let told: Vec<_> = view
        .blocks
        .iter()
        .map(|b| text(body, Some(b.span)))
        .collect();
    assert_eq!(told, [r#""t""#, r#""y""#, r#"{"id":"b"}"#]);
    assert_eq!(view.uneditable, Some("duplicate_key"));
    let unread = r#"{"x":1,"x":2,"tools":[{"y":1,"y":2}]}"#;
    assert_eq!(seen(WIRE, unread).uneditable, None);
}

#[test]
fn ids_in_the_order_in_which_they_are_believed() {
    let body = r#"{"prompt_cache_key":"k","litellm_session_id":"l","session_id":"s","user":"u","safety_identifier":"i",
      "metadata":{"session_id":"m","user_id":"someone"},"messages":[]}"#;
    let ids = seen(WIRE, body).ids;
    assert_eq!(ids.sessions, ["m", "s", "l", "k"]);
    assert_eq!(
        (ids.user_id.as_deref(), ids.previous_message),
        (Some("someone"), None)
    );
    let long = format!(
        r#"{{"session_id":"{}","prompt_cache_key":""}}"#,
        "x".repeat(1025)
    );
    assert!(seen(WIRE, &long).ids.sessions.is_empty());
}

#[test]
fn settings_that_are_part_of_the_key() {
    for default in [
        "{}",
        r#"{"service_tier":"auto","response_format":{ "type" : "text" },"verbosity":"medium","reasoning_effort":null}"#,
        r#"{"temperature":1,"tool_choice":"required","user":"u","store":true}"#,
    ] {
        assert!(names(WIRE, default).is_empty(), "{default}");
    }
    let all = r#"{"verbosity":"low","reasoning_effort":"high","response_format":{"type":"json_object"},
        "service_tier":"flex","prompt_cache_key":"k"}"#;
    assert_eq!(
        names(WIRE, all),
        [
            "prompt_cache_key",
            "service_tier",
            "response_format",
            "reasoning_effort",
            "verbosity"
        ]
    );
    assert_eq!(
        names(WIRE, r#"{"reasoning":{"effort":"low"}}"#),
        ["reasoning.effort"]
    );
    for (choice, forced) in [
        (r#""none""#, false),
        (r#""auto""#, false),
        (r#""required""#, true),
        ("null", false),
        (r#"{"type":"function","function":{"name":"a"}}"#, true),
        (
            r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#,
            false,
        ),
        (
            r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}"#,
            true,
        ),
    ] {
        let body = format!(r#"{{"tool_choice":{choice}}}"#);
        assert_eq!(seen(WIRE, &body).forced_call, forced, "{choice}");
    }
    assert!(seen(WIRE, r#"{"function_call":{"name":"a"}}"#).forced_call);
    assert!(!seen(WIRE, r#"{"function_call":"auto"}"#).forced_call);
    let body = r#" {"max_tokens": 9,"max_completion_tokens": 12,"stream":true}"#;
    let view = seen(WIRE, body);
    assert_eq!((view.object_start, view.max_tokens), (2, Some(12)));
    assert_eq!(text(body, view.max_tokens_at), "12");
    assert_eq!(text(body, view.stream_at), "true");
}
