//! Planning and splicing: the original comes back, JSON stays JSON and keeps its prefix hashes,
//! and there are never more than four markers.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prefixgate::prompt_cache::chain::Hasher;
use prefixgate::prompt_cache::habits::{Kind, Outlook};
use prefixgate::prompt_cache::plan::{MAX_MARKERS, Situation, plan};
use prefixgate::prompt_cache::splice::{apply, sent_len, undo};
use prefixgate::provider::anthropic::request::view;

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    let Ok(before) = view(&body) else { return };
    let plan = plan(&Situation {
        outlook: Outlook::prior(Kind::of(&before), true),
        min_tokens: Some(1),
        bytes_per_token_milli: 1000,
        ..Situation::new(&body, &before)
    });
    let sent = apply(&body, &plan.splices).concat();
    assert_eq!(sent.len(), sent_len(body.len(), &plan.splices));
    assert_eq!(undo(&sent, &plan.splices, &body).as_deref(), Some(data));
    if plan.placed.is_empty() {
        return;
    }
    let Ok(after) = view(&sent) else {
        panic!("the edit made the body unreadable")
    };
    assert!(after.client_markers() as usize <= MAX_MARKERS);
    assert_eq!(after.client_markers() as usize, before.client_markers() as usize + plan.placed.len());
    let hasher = Hasher::new([3; 32]);
    assert_eq!(hasher.chain(&body, &before, b"s"), hasher.chain(&sent, &after, b"s"));
    if serde_json::from_slice::<serde_json::Value>(data).is_ok() {
        assert!(serde_json::from_slice::<serde_json::Value>(&sent).is_ok());
    }
});
