//! Any bytes as an answer of Chat Completions or Responses: no panic, and the same answer however
//! they are cut. The first byte chooses the format and the shape, the second the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::provider::reader::{Limits, Reader, Shape};
use prefixgate::provider::view::{Answer, Ttl};
use prefixgate::provider::wire::Wire;

const LIMITS: Limits = Limits {
    event_bytes: 4096,
    body_bytes: 4096,
    tool_input_bytes: 64,
    tool_inputs_bytes: 256,
};

fn read<'a>(wire: Wire, shape: Shape, pieces: impl IntoIterator<Item = &'a [u8]>) -> Answer {
    let mut reader = Reader::new(wire, shape, LIMITS);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.end(Some(Ttl::M30));
    reader.into_answer()
}

fuzz_target!(|input: &[u8]| {
    let [choice, size, bytes @ ..] = input else {
        return;
    };
    let wire = if choice % 2 == 0 {
        Wire::Chat
    } else {
        Wire::Responses
    };
    let shape = match choice / 2 % 4 {
        0 => Shape::Stream,
        1 => Shape::Json { status: 200 },
        2 => Shape::Json { status: 529 },
        _ => Shape::Unlabelled { status: 200 },
    };
    let whole = read(wire, shape, [bytes]);
    let pieces = bytes.chunks(usize::from(*size).max(1));
    assert_eq!(read(wire, shape, pieces), whole);
    let kept: usize = whole.calls.iter().map(|call| call.input.len()).sum();
    // A call without arguments gets two braces.
    assert!(kept <= LIMITS.tool_inputs_bytes + 2 * whole.calls.len());
    let usage = &whole.metered.usage;
    if let Some(prompt) = usage.prompt() {
        assert_eq!(Some(prompt), whole.prompt_tokens);
    }
    if let (Some(reasoning), Some(output)) = (usage.reasoning, usage.output) {
        assert!(reasoning <= output);
    }
});
