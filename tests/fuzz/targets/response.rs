//! Any bytes as an answer: no panic, and the same answer however they are cut.
//! The first byte chooses the shape, the second the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::provider::reader::{Limits, Reader, Shape};
use prefixgate::provider::wire::Wire;
use prefixgate::provider::view::{Answer, Ttl};

const LIMITS: Limits = Limits {
    event_bytes: 4096,
    body_bytes: 4096,
    tool_input_bytes: 64,
    tool_inputs_bytes: 256,
};

fn read<'a>(shape: Shape, pieces: impl IntoIterator<Item = &'a [u8]>) -> Answer {
    let mut reader = Reader::new(Wire::Messages, shape, LIMITS);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.end(Some(Ttl::H1));
    reader.into_answer()
}

fuzz_target!(|input: &[u8]| {
    let [shape, size, bytes @ ..] = input else {
        return;
    };
    let shape = match shape % 4 {
        0 => Shape::Stream,
        1 => Shape::Json { status: 200 },
        2 => Shape::Json { status: 529 },
        _ => Shape::Unlabelled { status: 200 },
    };
    let whole = read(shape, [bytes]);
    assert_eq!(read(shape, bytes.chunks(usize::from(*size).max(1))), whole);
    let kept: usize = whole.calls.iter().map(|call| call.input.len()).sum();
    // A call without arguments keeps its two braces.
    assert!(kept <= LIMITS.tool_inputs_bytes + 2 * whole.calls.len());
});
