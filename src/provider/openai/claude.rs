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
use crate::provider::view::{
    Block, BlockKind, Caching, MarkerSpelling, RequestView, Role, Section, Unmarkable,
};
use crate::provider::wire::Wire;

/// A breakpoint on a part of a message; a text that stands as a string becomes a part.
pub static MARKERS: MarkerSpelling = cache_control(true);

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
        BlockKind::ToolResult => match block.content.map(|content| content.of(body)) {
            Some([b'"', text @ .., b'"']) => !text.iter().all(u8::is_ascii_whitespace),
            _ => false,
        },
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
