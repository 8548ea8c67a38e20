//! Claude behind Chat Completions, as routers and proxies offer it.
//!
//! Nothing of such a prompt is cached unless the request carries Anthropic's own breakpoints, on
//! texts that stand as parts; the rules are then Anthropic's. Not all places are taken everywhere: a
//! breakpoint on the text of a tool's result is moved to the result by OpenRouter, while proxies that
//! copy parts send it inside of the result, which Anthropic refuses. So what is written is said by
//! the [dialect](crate::provider::dialect::CacheControl).
//!
//! Sources: OpenRouter's guide to prompt caching and the types of its SDK; the notes of clients that
//! mark such requests (hermes-agent, fabro), 2026.

use super::models;
use crate::provider::anthropic::request::cache_control;
use crate::provider::dialect::CacheControl;
use crate::provider::json::blank;
use crate::provider::view::{
    Block, BlockKind, Caching, MarkerSpelling, RequestView, Role, Section, Ttl, Unmarkable,
};
use crate::provider::wire::Wire;

/// A breakpoint on a part of a message; a text that stands as a string becomes a part.
pub static MARKERS: MarkerSpelling = cache_control(true);

/// How long what is written lives where the request says nothing.
pub const WRITES: Ttl = Ttl::M5;

/// The id in the price data of whose cache it is. A reseller's prices are its own, but what is too
/// short to be cached is said by the model's maker.
pub const MAKER: &str = "anthropic";

/// Makes the view of a Chat request for Claude into one by Anthropic's rules; others stay.
pub(super) fn adapt(view: &mut RequestView, body: &[u8]) {
    let claude = view.model.as_deref().is_some_and(models::is_claude);
    if !claude || view.wire != Wire::Chat {
        return;
    }
    view.caching = Caching::Marked;
    view.anthropic_rules = true;
    view.spelling = Some(&MARKERS);
    // What can be said of OpenAI's cache is nothing to this one.
    (view.lifetimes, view.question, view.retention) = (&[], None, None);
    view.routing_key = None;
    let roles: Vec<Role> = view.messages.iter().map(|message| message.role).collect();
    for block in &mut view.blocks {
        let role = match block.section {
            Section::Messages => roles.get(block.outer as usize).copied(),
            _ => Some(Role::System),
        };
        if block.unmarkable.is_none() && !takes_marker(block, role, body) {
            block.unmarkable = Some(Unmarkable::Placeless);
        }
    }
}

/// Whether a breakpoint can be written there, wherever it is understood.
fn takes_marker(block: &Block, role: Option<Role>, body: &[u8]) -> bool {
    match block.kind {
        BlockKind::Text => matches!(role, Some(Role::User | Role::System)),
        // A string is made a part; of parts one would have to be chosen.
        BlockKind::ToolResult => block.content.is_some_and(|content| {
            let content = content.of(body);
            content.starts_with(b"\"") && !blank(content)
        }),
        _ => false,
    }
}

/// Leaves only the breakpoints that an upstream understands.
pub fn restrict(view: &mut RequestView, knows: CacheControl) {
    match knows {
        CacheControl::None => view.spelling = None,
        CacheControl::Texts => {
            let results = view.blocks.iter_mut();
            for result in results.filter(|block| block.kind == BlockKind::ToolResult) {
                result.unmarkable = Some(Unmarkable::Placeless);
            }
        }
        CacheControl::Results => {}
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::prompt_cache::splice::{Splice, apply, mark};
    use crate::provider::openai::request::tests::properties::{body, conversation};

    fn view(body: &Value) -> (Bytes, RequestView) {
        let body = Bytes::from(body.to_string());
        let view = Wire::Chat.view(&body).unwrap();
        (body, view)
    }

    fn markable(view: &RequestView) -> Vec<String> {
        let blocks = view
            .blocks
            .iter()
            .filter(|block| block.unmarkable.is_none());
        blocks.map(|block| view.path(block)).collect()
    }

    #[test]
    fn breakpoints_go_where_routers_understand_them() {
        let part = |text: &str| json!([{"type": "text", "text": text}]);
        let request = |model: &str| {
            json!({"model": model,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "u"},
                    {"type": "image_url", "image_url": {"url": "data:"}}]},
                {"role": "assistant", "content": "a", "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "d", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "r"},
                {"role": "tool", "tool_call_id": "d", "content": part("r")},
                {"role": "tool", "tool_call_id": "e", "content": " \n\u{a0}"},
                {"role": "user", "content": "last"},
            ]})
        };
        let (_, mut claude) = view(&request("anthropic/claude-sonnet-5"));
        assert!(claude.anthropic_rules && claude.spelling.is_some());
        assert_eq!(claude.caching, Caching::Marked);
        let texts = [
            "messages[0].content",
            "messages[1].content[0]",
            "messages[6].content",
        ];
        let all = [texts[0], texts[1], "messages[3]", texts[2]];
        assert_eq!(markable(&claude), all);
        restrict(&mut claude, CacheControl::Results);
        assert_eq!(markable(&claude), all);
        restrict(&mut claude, CacheControl::Texts);
        assert_eq!(markable(&claude), texts);
        restrict(&mut claude, CacheControl::None);
        assert_eq!(claude.spelling, None);

        for other in ["gpt-6-sol", "google/gemini-3.1-pro", "deepseek/deepseek-v4"] {
            let (_, view) = view(&request(other));
            assert!(
                !view.anthropic_rules && view.caching.automatic().is_some(),
                "{other}"
            );
        }
        let responses = json!({"model": "anthropic/claude-sonnet-5", "input": "u"}).to_string();
        let responses = Wire::Responses.view(responses.as_bytes()).unwrap();
        assert!(
            !responses.anthropic_rules,
            "what a router makes of it is not known"
        );
    }

    proptest! {
        /// Only breakpoints are added, each on a text; without them it is what came.
        #[test]
        fn only_breakpoints_are_added((elements, _) in conversation()) {
            let mut request = body(Wire::Chat, &elements);
            request["model"] = "anthropic/claude-sonnet-5".into();
            let (body, view) = view(&request);
            let blocks = view.blocks.iter().filter(|b| b.unmarkable.is_none());
            let mut splices: Vec<Splice> =
                blocks.clone().flat_map(|block| mark(block, Ttl::M5, &MARKERS)).collect();
            splices.sort_by_key(|splice| splice.at);
            let sent = apply(&body, &splices).concat();
            let mut sent: Value = serde_json::from_slice(&sent).unwrap();
            let mut marked = 0;
            for message in sent["messages"].as_array_mut().unwrap() {
                let Some(parts) = message["content"].as_array_mut() else { continue };
                let with = |part: &&mut Value| part.get("cache_control").is_some();
                for part in parts.iter_mut().filter(with) {
                    prop_assert_eq!(&part["type"], "text");
                    part.as_object_mut().unwrap().remove("cache_control");
                    marked += 1;
                }
            }
            prop_assert_eq!(marked, blocks.count());
            let as_parts = |content: &mut Value| if content.is_string() {
                *content = json!([{"type": "text", "text": content.take()}]);
            };
            for (sent, came) in sent["messages"].as_array_mut().unwrap().iter_mut()
                .zip(request["messages"].as_array_mut().unwrap())
            {
                as_parts(&mut sent["content"]);
                as_parts(&mut came["content"]);
            }
            prop_assert_eq!(sent, request);
        }
    }
}
