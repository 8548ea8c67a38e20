//! Any bytes as an answer to the loop client, in any format: no panic, the same answer however they
//! are cut, and what is whole has calls that can be told apart and blocks that are JSON. The first
//! byte chooses the format and the shape, the second the size of the pieces.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use prefixgate::agent::model::{Broken, Piece, Whole, format_of};
use prefixgate::agent::talk::Kind;
use prefixgate::provider::wire::Wire;
use prefixgate::sse::Decoder;

const MAX_EVENT: usize = 64 << 10;

type Read = (Result<Whole, Broken>, Vec<Piece>);

fn stream<'a>(wire: Wire, parts: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut making = format_of(wire).assembler("m");
    let mut decoder = Decoder::new(MAX_EVENT);
    let mut pieces = Vec::new();
    for part in parts {
        decoder.feed(part, |event| making.event(event, &mut pieces));
    }
    (making.finish(), pieces)
}

fn body(wire: Wire, json: &[u8]) -> Read {
    let mut making = format_of(wire).assembler("m");
    let mut pieces = Vec::new();
    making.body(json, &mut pieces);
    (making.finish(), pieces)
}

fn check(read: &Read) {
    let (Ok(whole), pieces) = read else { return };
    let mut ids = HashSet::new();
    for block in &whole.answer.blocks {
        assert!(serde_json::from_str::<serde_json::Value>(&block.raw).is_ok());
        match &block.kind {
            Kind::Text(text) => assert!(!text.trim().is_empty()),
            // A call that was given out early is the call of the answer.
            Kind::Call(call) => {
                assert!(ids.insert(&call.id));
                let told = pieces.iter().find_map(|piece| match piece {
                    Piece::Call(told) if told.id == call.id => Some(told),
                    _ => None,
                });
                assert!(told.is_none_or(|told| told == call));
            }
            Kind::Thinking | Kind::Other => {}
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let [choice, size, bytes @ ..] = input else {
        return;
    };
    let wire = match choice % 3 {
        0 => Wire::Messages,
        1 => Wire::Chat,
        _ => Wire::Responses,
    };
    if choice / 3 % 2 == 1 {
        check(&body(wire, bytes));
        return;
    }
    let whole = stream(wire, [bytes]);
    check(&whole);
    let parts = bytes.chunks(usize::from(*size).max(1));
    assert_eq!(stream(wire, parts), whole);
});
