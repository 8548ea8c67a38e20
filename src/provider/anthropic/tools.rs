//! Which tools a request declares.

use crate::provider::json::{Fault, Walker, says, unescape};
use crate::provider::view::{
    Block, BlockKind, DeclaredTool, DeclaredTools, History, RequestView, Section, Span,
};

/// The tools of a request, with the schemas of those that the client defines.
///
/// A request is open where it declares a set of tools or a search for tools, adds tools in the
/// middle of the conversation, or goes on from an answer whose request is not at hand. Types are
/// those of the provider's SDK, November 2026.
#[must_use]
pub fn declared(body: &[u8], view: &RequestView) -> DeclaredTools {
    let mut all = DeclaredTools {
        tools: Vec::with_capacity(view.tools as usize),
        open: matches!(view.history, History::Continues(_)),
    };
    for block in &view.blocks {
        match block.section {
            Section::Tools => match tool(body, block) {
                Ok(Some((tool, open))) => {
                    all.tools.push(tool);
                    all.open |= open;
                }
                // A set of tools has no name; what is not understood may bring anything.
                Ok(None) | Err(_) => all.open = true,
            },
            Section::Messages if block.kind == BlockKind::Other => {
                all.open |= members(body, block).is_ok_and(|parts| {
                    parts
                        .kind
                        .is_some_and(|kind| says(kind.of(body), "tool_addition"))
                });
            }
            Section::Messages | Section::System => {}
        }
    }
    all
}

/// A declaration, and whether it may bring further tools.
fn tool(body: &[u8], block: &Block) -> Result<Option<(DeclaredTool, bool)>, Fault> {
    let parts = members(body, block)?;
    let Some(name) = block.name else {
        return Ok(None);
    };
    let kind = parts.kind.map(|kind| unescape(kind.of(body)));
    let kind = kind.as_deref().unwrap_or("custom");
    let open = kind.contains("toolset") || kind.starts_with("tool_search");
    let schema = parts.schema.filter(|_| kind == "custom");
    Ok(Some((DeclaredTool { name, schema }, open)))
}

#[derive(Default)]
struct Members {
    kind: Option<Span>,
    schema: Option<Span>,
}

fn members(body: &[u8], block: &Block) -> Result<Members, Fault> {
    let mut walk = Walker::new(block.span.of(body))?;
    let mut parts = Members::default();
    if !walk.enter(b'{')? {
        return Ok(parts);
    }
    let at = |span: Span| Span {
        start: span.start + block.span.start,
        end: span.end + block.span.start,
    };
    let mut first = true;
    while let Some(key) = walk.key(&mut first)? {
        let byte = walk.peek()?;
        let value = at(walk.skip()?);
        match key.as_ref() {
            b"type" => parts.kind = (byte == b'"').then_some(value),
            b"input_schema" => parts.schema = Some(value),
            _ => {}
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::super::request::view;
    use super::*;

    fn of(body: &str) -> (Vec<(&str, Option<&str>)>, bool) {
        let view = view(body.as_bytes()).unwrap();
        let all = declared(body.as_bytes(), &view);
        let text = |span: Span| std::str::from_utf8(span.of(body.as_bytes())).unwrap();
        let tools = all
            .tools
            .iter()
            .map(|tool| (text(tool.name), tool.schema.map(text)))
            .collect();
        (tools, all.open)
    }

    #[test]
    fn tools_have_names_and_their_own_ones_schemas() {
        let body = r#"{"tools":[{"name":"read","description":"d","input_schema":{"type":"object"}},
            {"type":"custom","input_schema": {} ,"name":"x"},{"type":null,"name":"n","input_schema":true},
            {"type":"bash_20250124","name":"bash"},{"type":"web_search_20250305","name":"web_search","input_schema":{}}],
            "messages":[{"role":"user","content":"hi"}]}"#;
        let expected = vec![
            (r#""read""#, Some(r#"{"type":"object"}"#)),
            (r#""x""#, Some("{}")),
            (r#""n""#, Some("true")),
            (r#""bash""#, None),
            (r#""web_search""#, None),
        ];
        assert_eq!(of(body), (expected, false));
        assert_eq!(of(r#"{"messages":[]}"#), (Vec::new(), false));
    }

    #[test]
    fn what_may_bring_further_tools_is_open() {
        for (body, open) in [
            (
                r#"{"tools":[{"type":"mcp_toolset","mcp_server_name":"s"}]}"#,
                true,
            ),
            (
                r#"{"tools":[{"type":"browser_toolset_20260401","name":"b"}]}"#,
                true,
            ),
            (
                r#"{"tools":[{"type":"tool_search_tool_bm25_20251119","name":"tool_search_tool_bm25"}]}"#,
                true,
            ),
            (r#"{"tools":[{"description":"no name"}]}"#, true),
            (r#"{"tools":[7]}"#, true),
            (
                r#"{"thread":{"type":"continue","previous_message_id":"m"},"messages":[]}"#,
                true,
            ),
            (
                r#"{"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"name":"late"}}]}]}"#,
                true,
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"new_kind"}]}]}"#,
                false,
            ),
            (
                r#"{"tools":[{"name":"a","defer_loading":true,"input_schema":{}}]}"#,
                false,
            ),
        ] {
            assert_eq!(of(body).1, open, "{body}");
        }
    }
}
