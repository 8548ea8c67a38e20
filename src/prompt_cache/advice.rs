//! One sentence that a developer can act on.

use super::verdict::{Reason, What};
use crate::text;

/// Longest detail that an advice repeats, in bytes.
const MAX_DETAIL_BYTES: usize = 160;

/// What to do about a loss. `path`, `offset` and `detail` are those of the first change and of the
/// verdict; reasons of time, size, lookback, burst or eviction have no use for a path and never
/// name one.
#[must_use]
pub fn advice(
    reason: Reason,
    what: Option<What>,
    path: Option<&str>,
    offset: Option<u32>,
    detail: &str,
) -> String {
    let place = place(path, offset);
    match reason {
        Reason::Tools => of_tools(what, &place, detail),
        Reason::System => of_system(what, &place, detail),
        Reason::Messages => of_messages(what, &place, detail),
        Reason::Parameter => told(
            "a setting beside the prompt changed",
            detail,
            "keep tool_choice, thinking, effort and speed the same within a conversation, or change \
             them only where a new one begins",
        ),
        Reason::Model => told(
            "another model was asked",
            detail,
            "each model has a cache of its own: stay with one within a conversation and switch where \
             a new one begins",
        ),
        Reason::Speed => "fast and standard mode do not share a cache: choose one for the whole \
                          conversation"
            .into(),
        Reason::Beta => told(
            "the beta features changed",
            detail,
            "send the same set of beta features on every request of a conversation",
        ),
        Reason::Expired => "the entries' lifetime was over before this request came: use ttl 1h \
                            where pauses are longer than five minutes, or let cache.keep_warm_max_usd \
                            pay for keep_warm across the pause"
            .into(),
        Reason::Concurrent => "another request was still writing this prefix: set cache.warm_first, \
                               so that siblings wait until the first answer has begun"
            .into(),
        Reason::Lookback => "the turn added more blocks than the provider looks back from a \
                             breakpoint: set one where the previous turn ended (cache.policy fill \
                             does), or send fewer blocks a turn"
            .into(),
        Reason::BelowMinimum => told(
            "the prefix is shorter than what this model caches",
            detail,
            "nothing is lost; put more of what stays the same before the breakpoint, or leave the \
             breakpoint out",
        ),
        Reason::NoMarker => "the request had no breakpoint: set cache.policy to fill, or set \
                             one on the last block that stays the same; for Claude behind a router \
                             the upstream's section says with cache_control that it takes them"
            .into(),
        Reason::Evicted => "by all known rules the entry was there and the provider did not use it: \
                            nothing in the request is to blame; if it happens often, tell the \
                            provider the request ids"
            .into(),
        Reason::NotWritten => "the provider wrote no entry and no known rule says why: check that \
                               this model caches prompts and how short a prompt it takes"
            .into(),
    }
}

fn of_tools(what: Option<What>, place: &str, detail: &str) -> String {
    let what = what.unwrap_or(What::Unknown);
    match what {
        What::ToolsReordered => told(
            &format!("the same tools came in another order from {place} on"),
            detail,
            "sort them by name in the client, or set cache.stable_tool_order",
        ),
        What::ToolAdded => told(
            &format!("a tool was added at {place}"),
            detail,
            "offer all tools from the first turn on, or load late ones on demand (deferred), which \
             keeps them out of the prefix",
        ),
        What::ToolRemoved => told(
            &format!("a tool is missing at {place}"),
            detail,
            "keep offering it and forbid its use by tool_choice or in the newest message",
        ),
        What::Clock | What::Id | What::Counter => {
            let it = volatile(what);
            told(
                &format!("{it} in a tool definition at {place} changes"),
                detail,
                "write it into the newest user message: tools stand before everything else",
            )
        }
        What::KeyOrder | What::Escapes | What::Whitespace => told(
            &format!("a tool definition at {place} says the same in other bytes"),
            detail,
            "serialise it once and send the same bytes, with keys in a fixed order",
        ),
        _ => told(
            &format!("a tool definition changed at {place}"),
            detail,
            "build definitions once at the start of a conversation and send the same bytes each turn",
        ),
    }
}

fn of_system(what: Option<What>, place: &str, detail: &str) -> String {
    let what = what.unwrap_or(What::Unknown);
    match what {
        What::Clock | What::Counter | What::Id => {
            let it = volatile(what);
            format!(
                "{it} at {place} changes every turn; move it behind the last breakpoint or into the \
                 newest user message"
            )
        }
        What::Whitespace | What::Escapes | What::KeyOrder => told(
            &format!("the system prompt says the same in other bytes at {place}"),
            detail,
            "render it once and send the same bytes each turn",
        ),
        What::Reminder => told(
            &format!("an injected text in the system prompt came, went or changed at {place}"),
            detail,
            "append it to the newest user message instead",
        ),
        What::ToolAdded | What::ToolRemoved | What::ToolChanged | What::ToolsReordered => told(
            &format!("the searches that the provider runs changed at {place}"),
            detail,
            "keep them switched on or off for the whole conversation; they are part of the system \
             prompt",
        ),
        What::Moved => told(
            &format!("a block of the system prompt left {place}"),
            detail,
            "keep the blocks in one order, those that change last",
        ),
        What::Inserted | What::Removed | What::Replaced | What::ImageReplaced => told(
            &format!("the system prompt has other blocks from {place} on"),
            detail,
            "keep its blocks for the whole conversation and append what is new to the newest message",
        ),
        _ => told(
            &format!("the system prompt changed at {place}"),
            detail,
            "keep it the same for the whole conversation and put what changes into the newest user \
             message",
        ),
    }
}

fn of_messages(what: Option<What>, place: &str, detail: &str) -> String {
    let what = what.unwrap_or(What::Unknown);
    match what {
        What::Clock | What::Counter | What::Id => {
            let it = volatile(what);
            format!(
                "{it} at {place} is written anew into an old message; keep what was sent and put the \
                 new value into the newest user message"
            )
        }
        What::Whitespace | What::Escapes | What::KeyOrder => told(
            &format!("an old message says the same in other bytes at {place}"),
            detail,
            "keep the bytes that were sent instead of parsing and writing them again",
        ),
        What::Reminder => told(
            &format!("an injected reminder came, went or changed at {place}"),
            detail,
            "leave injected texts where they were once sent and add new ones to the newest message",
        ),
        What::Moved => told(
            &format!("a block left {place}"),
            detail,
            "save injected blocks with the history, so that a resumed conversation repeats them in \
             place",
        ),
        What::ImageReplaced => told(
            &format!("an old image was replaced at {place}"),
            detail,
            "keep images until a compaction, or drop several at once: all that follows is written \
             again each time",
        ),
        What::ResultPruned => told(
            &format!("an old tool result was cut or replaced at {place}"),
            detail,
            "shorten results before they are first sent, or prune many at once and rarely",
        ),
        What::ThinkingDropped => told(
            &format!("thinking was dropped at {place}"),
            detail,
            "send thinking blocks back unchanged with the rest of the history",
        ),
        What::Compaction => told(
            "the conversation was compacted",
            detail,
            "this is paid once; keep tools and system the same so that they are still read, and \
             compact less often if it happens often",
        ),
        What::Rewound => told(
            &format!("the conversation was taken back to {place}"),
            detail,
            "nothing is wrong; a breakpoint on each turn's last block lets a retry read what comes \
             before",
        ),
        What::Removed => told(
            &format!("blocks of old messages are gone at {place}"),
            detail,
            "append only; when the history must shrink, drop much at once and rarely",
        ),
        What::Inserted => told(
            &format!("a block was put into the history at {place}"),
            detail,
            "append it to the newest message instead",
        ),
        What::Replaced
        | What::Text
        | What::Unknown
        | What::ToolsReordered
        | What::ToolAdded
        | What::ToolRemoved
        | What::ToolChanged => told(
            &format!("an old message changed at {place}"),
            detail,
            "append only: send old messages as they were sent first",
        ),
    }
}

fn volatile(what: What) -> &'static str {
    match what {
        What::Clock => "a clock",
        What::Counter => "a counter",
        _ => "an identifier",
    }
}

/// `system[0].text:142`, or what can be said without a path.
fn place(path: Option<&str>, offset: Option<u32>) -> String {
    match (path, offset) {
        (Some(path), Some(offset)) => format!("{path}:{offset}"),
        (Some(path), None) => path.into(),
        (None, _) => "a place that is not known".into(),
    }
}

/// What happened, the detail if there is one, and what to do.
fn told(happened: &str, detail: &str, remedy: &str) -> String {
    if detail.is_empty() {
        return format!("{happened}; {remedy}");
    }
    let short = text::prefix(detail, MAX_DETAIL_BYTES);
    let ellipsis = if short.len() < detail.len() {
        "…"
    } else {
        ""
    };
    format!("{happened} ({short}{ellipsis}); {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASONS: [Reason; 14] = [
        Reason::Model,
        Reason::Speed,
        Reason::Beta,
        Reason::Tools,
        Reason::System,
        Reason::Messages,
        Reason::Parameter,
        Reason::Expired,
        Reason::Concurrent,
        Reason::Lookback,
        Reason::BelowMinimum,
        Reason::NoMarker,
        Reason::Evicted,
        Reason::NotWritten,
    ];

    const WHATS: [What; 22] = [
        What::Clock,
        What::Counter,
        What::Id,
        What::Text,
        What::Whitespace,
        What::Escapes,
        What::KeyOrder,
        What::ToolsReordered,
        What::ToolAdded,
        What::ToolRemoved,
        What::ToolChanged,
        What::Moved,
        What::Removed,
        What::Inserted,
        What::Replaced,
        What::ImageReplaced,
        What::ResultPruned,
        What::ThinkingDropped,
        What::Compaction,
        What::Rewound,
        What::Reminder,
        What::Unknown,
    ];

    #[test]
    fn every_combination_is_one_sentence() {
        for reason in REASONS {
            for what in WHATS.map(Some).into_iter().chain([None]) {
                let said = advice(reason, what, Some("system[0].text"), Some(142), "a detail");
                assert!(
                    said.len() > 40 && !said.contains("  ") && !said.contains('\n'),
                    "{said}"
                );
                assert!(!said.contains(". ") && !said.ends_with('.'), "{said}");
                let _ = advice(reason, what, None, None, "");
            }
        }
    }

    #[test]
    fn only_changes_of_the_prompt_blame_a_path() {
        for reason in REASONS {
            for what in WHATS {
                let said = advice(
                    reason,
                    Some(what),
                    Some("messages[3].content[1]"),
                    Some(7),
                    "d",
                );
                let may = matches!(reason, Reason::Tools | Reason::System | Reason::Messages);
                let must = may && !(reason == Reason::Messages && what == What::Compaction);
                assert_eq!(
                    said.contains("messages[3].content[1]"),
                    must,
                    "{reason:?} {said}"
                );
            }
        }
    }

    #[test]
    fn the_remedy_fits_the_cause() {
        let of = |reason, what| advice(reason, what, Some("tools[0]"), None, "d");
        assert_eq!(
            advice(
                Reason::System,
                Some(What::Clock),
                Some("system[0].text"),
                Some(142),
                "d"
            ),
            "a clock at system[0].text:142 changes every turn; move it behind the last breakpoint \
             or into the newest user message"
        );
        assert!(of(Reason::Concurrent, None).contains("cache.warm_first"));
        assert!(of(Reason::Tools, Some(What::ToolsReordered)).contains("cache.stable_tool_order"));
        assert!(of(Reason::Expired, None).contains("ttl 1h"));
        assert!(of(Reason::Expired, None).contains("keep_warm"));
        assert!(of(Reason::NoMarker, None).contains("cache.policy"));
        assert!(of(Reason::BelowMinimum, None).contains("shorter"));
        let long = "ä".repeat(500);
        assert!(advice(Reason::Model, None, None, None, &long).len() < 500);
    }
}
