//! Any bytes as WebSocket frames: no panic, a bounded message, and the same however they are cut.
//! The first byte chooses the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::proxy::socket::frame::{Broken, Frames, Seen};

const LIMIT: usize = 5_000;

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, Option<Broken>) {
    let mut frames = Frames::new(LIMIT);
    let mut all = Vec::new();
    for piece in pieces {
        let mut rest = piece;
        loop {
            let part = match frames.next(rest) {
                Ok(part) => part,
                Err(broken) => return (all, Some(broken)),
            };
            rest = &rest[part.used..];
            let more = part.used > 0 || part.seen.is_some();
            if let Some(Seen::Message(message)) = &part.seen {
                assert!(message.payload.len() <= LIMIT);
            }
            all.extend(part.seen);
            if !more {
                break;
            }
        }
        assert!(rest.is_empty());
    }
    (all, None)
}

fuzz_target!(|input: &[u8]| {
    let [size, bytes @ ..] = input else { return };
    let whole = read([bytes]);
    assert_eq!(read(bytes.chunks(usize::from(*size).max(1))), whole);
});
