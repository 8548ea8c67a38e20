//! The request view: never panics, and what it points at lies in the body and hashes alike twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::prompt_cache::chain::Hasher;
use prefixgate::provider::anthropic::request::view;

fuzz_target!(|body: &[u8]| {
    let Ok(view) = view(body) else { return };
    for block in &view.blocks {
        let inside = |span: prefixgate::provider::view::Span| {
            block.span.start <= span.start && span.start <= span.end && span.end <= block.span.end
        };
        assert!(!block.span.is_empty() && block.span.end as usize <= body.len());
        let marker = block.marker.map(|marker| marker.span);
        let within = [marker, block.call_id, block.name, block.content, block.plain, block.marker_member];
        assert!(within.into_iter().flatten().all(inside));
    }
    for message in &view.messages {
        assert!(message.blocks.start <= message.blocks.end && message.blocks.end as usize <= view.blocks.len());
    }
    let hasher = Hasher::new([3; 32]);
    let chain = hasher.chain(body, &view, b"scope");
    assert_eq!(chain, hasher.chain(body, &view, b"scope"));
    assert_eq!(chain.blocks.len(), view.blocks.len());
});
