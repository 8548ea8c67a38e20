//! However a byte string is cut, the same events come out of it. The first two bytes choose the cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::sse::Decoder;

type Seen = (Vec<(Option<Vec<u8>>, Vec<u8>, bool)>, u64, bool);

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let mut decoder = Decoder::new(256);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.feed(piece, |event| {
            let name = event.name.map(<[u8]>::to_vec);
            events.push((name, event.data.to_vec(), event.after_gap));
        });
    }
    (events, decoder.oversized(), decoder.on_border())
}

fuzz_target!(|input: &[u8]| {
    let [a, b, bytes @ ..] = input else { return };
    let whole = read([bytes]);
    assert_eq!(read(bytes.chunks(1)), whole);
    let (head, tail) = bytes.split_at(usize::from(*a).min(bytes.len()));
    let (middle, tail) = tail.split_at(usize::from(*b).min(tail.len()));
    assert_eq!(read([head, middle, tail]), whole);
});
