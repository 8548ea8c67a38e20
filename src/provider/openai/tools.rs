//! Which tools a request declares.

use crate::provider::json::{Fault, Walker, unescape};
use crate::provider::view::{
    Block, BlockKind, DeclaredTool, DeclaredTools, History, RequestView, Section, Span,
};

/// The tools of a request, with the schemas of its functions.
///
/// A request is open where it declares a tool of the provider, a server, a set of tools or a search
/// for them, brings tools in the middle of the conversation, or goes on from what the provider
/// holds. Types are those of the provider's SDK, November 2026.
pub(in crate::provider) fn declared(body: &[u8], view: &RequestView) -> DeclaredTools {
    let mut all = DeclaredTools {
        tools: Vec::with_capacity(view.tools as usize),
        open: matches!(view.history, History::Continues(_)),
    };
    for block in &view.blocks {
        match (block.section, block.kind) {
            (Section::Tools, _) => match tool(body, block) {
                Ok(Some(tool)) => all.tools.push(tool),
                Ok(None) | Err(_) => all.open = true,
            },
            (_, BlockKind::Other) => all.open |= brings_tools(body, block),
            _ => {}
        }
    }
    all
}

/// Whether an item of the conversation adds tools to those that the request declares.
fn brings_tools(body: &[u8], block: &Block) -> bool {
    members(body, block.span).is_ok_and(|parts| {
        let kind = parts.kind.map(|kind| unescape(kind.of(body)));
        matches!(
            kind.as_deref(),
            Some("additional_tools" | "tool_search_output")
        )
    })
}

#[derive(Default)]
struct Members {
    kind: Option<Span>,
    name: Option<Span>,
    schema: Option<Span>,
    /// What a tool of Chat Completions is, one level deeper.
    inner: Option<Span>,
}

/// A function or custom tool; `None` for what is none.
fn tool(body: &[u8], block: &Block) -> Result<Option<DeclaredTool>, Fault> {
    let outer = members(body, block.span)?;
    let kind = outer.kind.map(|kind| unescape(kind.of(body)));
    let custom = match kind.as_deref() {
        // Functions of the older spelling have no type.
        None | Some("function") => false,
        Some("custom") => true,
        Some(_) => return Ok(None),
    };
    let members = match outer.inner {
        Some(inner) => members(body, inner)?,
        None => outer,
    };
    let schema = members.schema.filter(|_| !custom);
    let schema = schema.filter(|schema| schema.of(body) != b"null");
    Ok(members.name.map(|name| DeclaredTool { name, schema }))
}

fn members(body: &[u8], object: Span) -> Result<Members, Fault> {
    let mut walk = Walker::new(object.of(body))?;
    let mut parts = Members::default();
    if !walk.enter(b'{')? {
        return Ok(parts);
    }
    let mut first = true;
    while let Some(key) = walk.key(&mut first)? {
        let byte = walk.peek()?;
        let value = walk.skip()?;
        let value = Span {
            start: value.start + object.start,
            end: value.end + object.start,
        };
        let string = (byte == b'"').then_some(value);
        match key.as_ref() {
            b"type" => parts.kind = string,
            b"name" => parts.name = string,
            b"parameters" => parts.schema = Some(value),
            b"function" | b"custom" if byte == b'{' => parts.inner = Some(value),
            _ => {}
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::wire::Wire;

    fn of(wire: Wire, body: &str) -> (Vec<(&str, Option<&str>)>, bool) {
        let view = wire.view(body.as_bytes()).unwrap();
        let all = wire.declared(body.as_bytes(), &view);
        let text = |span: Span| std::str::from_utf8(span.of(body.as_bytes())).unwrap();
        let tools = all
            .tools
            .iter()
            .map(|tool| (text(tool.name), tool.schema.map(text)))
            .collect();
        (tools, all.open)
    }

    #[test]
    fn functions_have_schemas_and_custom_tools_have_none() {
        let chat = r#"{"tools":[{"type":"function","function":{"description":"d","name":"read","parameters": {"name":1}}},
            {"type":"custom","custom":{"name":"patch","parameters":{}}},{"function":{"name":"bare","parameters":null},"type":"function"}],
            "functions":[{"name":"old","parameters":{"type":"object"}}],"messages":[]}"#;
        let expected = vec![
            (r#""read""#, Some(r#"{"name":1}"#)),
            (r#""patch""#, None),
            (r#""bare""#, None),
            (r#""old""#, Some(r#"{"type":"object"}"#)),
        ];
        assert_eq!(of(Wire::Chat, chat), (expected, false));
        let responses = r#"{"store":false,"tools":[{"type":"function","name":"exec","strict":false,"parameters":{"a":[]}},
            {"type":"custom","name":"apply_patch","format":{"type":"grammar"}},
            {"type":"function","name":"later","defer_loading":true,"parameters":{}}],"input":"x"}"#;
        let expected = vec![
            (r#""exec""#, Some(r#"{"a":[]}"#)),
            (r#""apply_patch""#, None),
            (r#""later""#, Some("{}")),
        ];
        assert_eq!(of(Wire::Responses, responses), (expected, false));
        assert_eq!(of(Wire::Chat, "{}"), (Vec::new(), false));
        assert_eq!(of(Wire::Responses, r#"{"input":"x"}"#), (Vec::new(), false));
    }

    #[test]
    fn what_may_bring_further_tools_is_open() {
        for (body, open) in [
            (r#"{"tools":[{"type":"mcp","server_label":"s"}]}"#, true),
            (r#"{"tools":[{"type":"web_search"}]}"#, true),
            (r#"{"tools":[{"type":"local_shell"}]}"#, true),
            (
                r#"{"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}"#,
                true,
            ),
            (r#"{"tools":[{"type":"tool_search"}]}"#, true),
            (r#"{"tools":[{"type":"function"}]}"#, true),
            (r#"{"tools":[7]}"#, true),
            (
                r#"{"input":[{"type":"additional_tools","role":"developer","tools":[]}]}"#,
                true,
            ),
            (
                r#"{"input":[{"type":"tool_search_output","tools":[]}]}"#,
                true,
            ),
            (
                r#"{"input":[{"type":"compaction","encrypted_content":"x"}]}"#,
                false,
            ),
            (
                r#"{"input":[{"role":"user","content":[{"type":"additional_tools"}]}]}"#,
                true,
            ),
            (r#"{"previous_response_id":"r","input":"x"}"#, true),
            (r#"{"conversation":"c","input":"x"}"#, true),
        ] {
            assert_eq!(of(Wire::Responses, body).1, open, "{body}");
        }
    }
}
