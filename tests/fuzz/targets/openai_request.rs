//! The views of Chat and Responses requests: never panic; what they point at lies in the body, block
//! beside block, and hashes alike twice. Guards read them without panicking.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::guard::calls::results;
use prefixgate::guard::loops::{Memo, Policy, look};
use prefixgate::prompt_cache::chain::Hasher;
use prefixgate::provider::view::{RequestView, Span};
use prefixgate::provider::wire::Wire;

fuzz_target!(|body: &[u8]| {
    for wire in [Wire::Chat, Wire::Responses] {
        let Ok(view) = wire.view(body) else { continue };
        check(body, &view);
        let declared = wire.declared(body, &view);
        let schemas = declared.tools.iter().filter_map(|tool| tool.schema);
        let spans = declared.tools.iter().map(|tool| tool.name).chain(schemas);
        spans.for_each(|span| assert!(span.start < span.end && span.end as usize <= body.len()));
        let hasher = Hasher::new([3; 32]);
        let chain = hasher.chain(body, &view, b"scope");
        assert_eq!(chain, hasher.chain(body, &view, b"scope"));
        assert_eq!(chain.blocks.len(), view.blocks.len());
        let memo = Memo::default();
        let _ = look(body, &view, &Policy::default(), &memo, None);
        let _ = results(body, &view, &memo, None);
    }
});

fn check(body: &[u8], view: &RequestView) {
    for block in &view.blocks {
        let inside = |span: Span| {
            block.span.start <= span.start && span.start <= span.end && span.end <= block.span.end
        };
        assert!(!block.span.is_empty() && block.span.end as usize <= body.len());
        let marker = block.marker.map(|marker| marker.span);
        let within = [marker, block.call_id, block.name, block.content, block.plain, block.marker_member];
        assert!(within.into_iter().flatten().all(inside));
        assert!(!view.path(block).is_empty());
    }
    let mut spans: Vec<Span> = view.blocks.iter().map(|block| block.span).collect();
    spans.sort_by_key(|span| span.start);
    assert!(spans.windows(2).all(|two| two[0].end <= two[1].start));
    let mut next = view.head_len() as u32;
    for message in &view.messages {
        assert!(message.blocks.start == next && message.blocks.end as usize <= view.blocks.len());
        next = message.blocks.end;
        let blocks = &view.blocks[message.blocks.start as usize..message.blocks.end as usize];
        assert!(blocks.iter().all(|block| {
            message.span.start <= block.span.start && block.span.end <= message.span.end
        }));
    }
}
