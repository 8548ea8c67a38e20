//! Bodies as clients send them, and as nobody should.

mod chat;
pub(crate) mod properties;
mod responses;

use crate::provider::view::{RequestView, Span};
use crate::provider::wire::Wire;

fn seen(wire: Wire, body: &str) -> RequestView {
    wire.view(body.as_bytes()).unwrap()
}

fn paths(view: &RequestView) -> Vec<String> {
    view.blocks.iter().map(|block| view.path(block)).collect()
}

fn text(body: &str, span: Option<Span>) -> &str {
    span.map_or("", |span| {
        std::str::from_utf8(span.of(body.as_bytes())).unwrap()
    })
}

fn names(wire: Wire, body: &str) -> Vec<&'static str> {
    let parameters = seen(wire, body).parameters;
    parameters.iter().map(|parameter| parameter.name).collect()
}

#[test]
fn strange_bodies_are_read_or_refused_but_never_break() {
    for wire in [Wire::Chat, Wire::Responses] {
        for body in ["[]", "", "3", "{} {}", "{\"a\":1", "\u{feff}{}"] {
            assert!(wire.view(body.as_bytes()).is_err(), "{body}");
        }
        let shapes = r#"{"messages":"x","input":7,"tools":{"a":1},"functions":2,"instructions":[],
            "text":3,"reasoning":[],"conversation":4,"previous_response_id":5,"metadata":"m","store":"no",
            "tool_choice":7,"prompt_cache_options":8,"max_tokens":123456789012345678901234,"model":7}"#;
        let view = seen(wire, shapes);
        assert!(view.blocks.is_empty() && view.messages.is_empty() && view.parameters.is_empty());
        assert_eq!((view.max_tokens, view.model), (None, None));
    }
}

/// Nesting in every place that is walked into, deeper than any stack.
#[test]
fn depth_costs_no_stack() {
    for (wire, around) in [
        (
            Wire::Chat,
            r#"{"messages":[{"role":"user","content":[X]}]}"#,
        ),
        (
            Wire::Chat,
            r#"{"messages":[{"role":"assistant","tool_calls":[X]}]}"#,
        ),
        (
            Wire::Responses,
            r#"{"input":[{"type":"function_call_output","output":[X]}]}"#,
        ),
        (Wire::Responses, r#"{"tools":[{"name":X}]}"#),
    ] {
        for (open, close) in [(r#"{"text":"#, "}"), (r#"{"function":"#, "}"), ("[", "]")] {
            let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            assert_eq!(seen(wire, &around.replace('X', &deep)).blocks.len(), 1);
        }
    }
}
