//! What every provider demands of a conversation.

use prefixgate::agent::talk::{Entry, Kind};
use serde_json::Value;

/// Panics unless the model may be asked with this conversation: the user begins, speakers
/// alternate, nothing is empty, each call has its result in the turn behind it, in its order, and
/// each result its call. A paused answer may stand at the end.
pub fn assert_legal(entries: &[Entry]) {
    assert!(!entries.is_empty());
    let mut open: Vec<&str> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match entry {
            Entry::User { results, texts } => {
                assert!(at % 2 == 0, "the user speaks twice at {at}: {entries:#?}");
                assert!(
                    !results.is_empty() || !texts.is_empty(),
                    "an empty turn at {at}"
                );
                assert!(
                    texts.iter().all(|text| !text.trim().is_empty()),
                    "an empty text at {at}"
                );
                assert!(
                    results.iter().all(|r| !r.text.trim().is_empty()),
                    "an empty result at {at}"
                );
                let ids: Vec<&str> = results.iter().map(|result| result.call.as_str()).collect();
                assert_eq!(ids, open, "results at {at} are not those of the calls");
                open.clear();
            }
            Entry::Assistant(answer) => {
                assert!(at % 2 == 1, "the model speaks twice at {at}: {entries:#?}");
                assert!(!answer.blocks.is_empty(), "an empty answer at {at}");
                let blank = |kind: &Kind| matches!(kind, Kind::Text(text) if text.is_empty());
                assert!(!answer.blocks.iter().any(|block| blank(&block.kind)));
                open = answer.calls().map(|call| call.id.as_str()).collect();
            }
        }
    }
    assert!(
        open.is_empty(),
        "calls without results at the end: {open:?}"
    );
}

/// The same of a request body of Messages.
pub fn assert_legal_body(body: &Value) {
    let messages = body["messages"].as_array().unwrap();
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(message["role"], role, "at {at}");
        let blocks = message["content"].as_array().unwrap();
        assert!(!blocks.is_empty(), "empty at {at}");
        let of = |kind: &str, id: &str| -> Vec<String> {
            let blocks = blocks.iter().filter(|block| block["type"] == kind);
            blocks
                .map(|block| block[id].as_str().unwrap().to_owned())
                .collect()
        };
        if role == "user" {
            assert_eq!(of("tool_result", "tool_use_id"), open, "at {at}");
        }
        open = of("tool_use", "id");
    }
    assert!(open.is_empty());
}
