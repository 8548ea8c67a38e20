//! What is read of frames, however they are cut.

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 8 << 10;

/// A frame as a client or a server writes it.
fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut out = server(first & 0x0F, payload);
    out[0] = first;
    let Some(mask) = mask else { return out };
    out[1] |= 0x80;
    let at = out.len() - payload.len();
    for (n, byte) in out[at..].iter_mut().enumerate() {
        *byte ^= mask[n % 4];
    }
    out.splice(at..at, mask);
    out
}

/// All that is seen in pieces of a stream, and whether each byte belongs to a control frame.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, Vec<bool>, Option<Broken>) {
    let mut frames = Frames::new(LIMIT);
    let (mut seen, mut control) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut at = 0;
        loop {
            let part = match frames.next(&piece[at..]) {
                Ok(part) => part,
                Err(broken) => return (seen, control, Some(broken)),
            };
            at += part.used;
            control.extend(std::iter::repeat_n(part.control, part.used));
            let more = part.used > 0 || part.seen.is_some();
            seen.extend(part.seen);
            if !more {
                break;
            }
        }
        assert_eq!(at, piece.len());
    }
    (seen, control, None)
}

fn message(text: bool, payload: &[u8]) -> Seen {
    Seen::Message(Message {
        text,
        payload: Bytes::copy_from_slice(payload),
        bytes: payload.len() as u64,
    })
}

#[test]
fn the_examples_of_the_standard_are_read() {
    let masked = [
        0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    let begun = |bytes, whole| Seen::Begun { bytes, whole };
    let (seen, control, broken) = read([&masked[..]]);
    assert_eq!(seen, [begun(5, true), message(true, b"Hello")]);
    assert_eq!((control, broken), (vec![false; 11], None));
    // In two fragments, with a ping between them.
    let parts = [0x01, 0x03, 0x48, 0x65, 0x6c];
    let ping = [0x89, 0x02, 0x48, 0x65];
    let rest = [0x80, 0x02, 0x6c, 0x6f];
    let all = [&parts[..], &ping, &rest].concat();
    let (seen, control, _) = read([&all[..]]);
    assert_eq!(
        seen,
        [begun(3, false), Seen::Control, message(true, b"Hello")]
    );
    assert_eq!(
        control,
        [vec![false; 5], vec![true; 4], vec![false; 4]].concat()
    );
    // Lengths of two and eight bytes.
    for length in [126, 256, 70_000_usize] {
        let all = frame(0x82, &vec![7; length], None);
        let (seen, ..) = read([&all[..]]);
        let Some(Seen::Message(seen)) = seen.last() else {
            panic!("{seen:?}");
        };
        assert_eq!((seen.bytes, seen.text), (length as u64, false));
    }
}

#[test]
fn a_close_tells_its_code() {
    assert_eq!(
        read([&close(1001, "going away")[..]]).0,
        [Seen::Close(Some(1001))]
    );
    assert_eq!(
        read([&frame(0x88, b"", Some([1; 4]))[..]]).0,
        [Seen::Close(None)]
    );
    assert_eq!(close(1000, &"é".repeat(100)).len(), 2 + 124);
}

#[test]
fn of_a_message_that_is_too_large_the_beginning_is_kept() {
    let payload: Vec<u8> = (0..=255).cycle().take(3 * LIMIT).collect();
    let (head, tail) = payload.split_at(LIMIT - 1);
    let all = [
        frame(0x01, head, Some([3; 4])),
        frame(0x80, tail, Some([9; 4])),
    ]
    .concat();
    for size in [1, 1_000, all.len()] {
        let (seen, ..) = read(all.chunks(size));
        let Some(Seen::Message(large)) = seen.last() else {
            panic!("{seen:?}");
        };
        assert_eq!(large.payload, payload[..KEPT_BYTES]);
        assert!(!large.is_whole());
        assert_eq!(large.bytes, payload.len() as u64);
    }
}

#[test]
fn a_message_that_is_forgotten_is_still_followed_to_its_end() {
    let all = frame(0x81, &[b'x'; LIMIT], None);
    let mut frames = Frames::new(LIMIT);
    let begun = frames.next(&all).unwrap();
    frames.forget();
    let part = frames.next(&all[begun.used..]).unwrap();
    let Some(Seen::Message(message)) = part.seen else {
        panic!("{part:?}");
    };
    assert_eq!(
        (message.payload.len(), message.bytes),
        (KEPT_BYTES, LIMIT as u64)
    );
    assert!(frames.on_border());
}

#[test]
fn what_is_no_frame_is_said() {
    let begun = frame(0x01, b"a", None);
    for (bytes, broken) in [
        (frame(0xC1, b"a", None), "reserved_bits"),
        (frame(0x83, b"a", None), "opcode"),
        (frame(0x8B, b"a", None), "opcode"),
        (frame(0x09, b"a", None), "control_frame"),
        (frame(0x89, &[0; 126], None), "control_frame"),
        (frame(0x80, b"a", None), "fragments"),
        (
            [begun.clone(), frame(0x81, b"a", None)].concat(),
            "fragments",
        ),
        (
            vec![0x82, 0x7F, 0x80, 0, 0, 0, 0, 0, 0, 0, 0],
            "frame_length",
        ),
    ] {
        let mut frames = Frames::new(LIMIT);
        let mut at = 0;
        let found = loop {
            match frames.next(&bytes[at..]) {
                Ok(part) => {
                    assert!(part.used > 0 || part.seen.is_some(), "{bytes:?}");
                    at += part.used;
                }
                Err(broken) => break broken,
            }
        };
        assert_eq!(found, broken);
    }
}

#[test]
fn a_border_is_where_frames_and_messages_end() {
    let mut frames = Frames::new(LIMIT);
    let all = [
        frame(0x01, b"ab", None),
        frame(0x89, b"", None),
        frame(0x80, b"c", None),
    ]
    .concat();
    let mut borders = Vec::new();
    for byte in &all {
        let mut piece = std::slice::from_ref(byte);
        loop {
            let part = frames.next(piece).unwrap();
            piece = &piece[part.used..];
            if part.used == 0 && part.seen.is_none() {
                break;
            }
        }
        borders.push((frames.on_frame_border(), frames.on_border()));
    }
    let frame_ends: Vec<usize> = (0..all.len()).filter(|at| borders[*at].0).collect();
    let ends: Vec<usize> = (0..all.len()).filter(|at| borders[*at].1).collect();
    assert_eq!((frame_ends, ends), (vec![3, 5, 8], vec![8]));
}

/// A fragment, and the control frame before it.
type Fragment = (Option<u8>, Vec<u8>);

/// Messages: text or not, and their fragments.
fn messages() -> impl Strategy<Value = Vec<(bool, Vec<Fragment>)>> {
    let control = prop::option::of(prop_oneof![Just(PING), Just(PONG)]);
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        prop::collection::vec(any::<u8>(), 120..300),
    ];
    let fragments = prop::collection::vec((control, bytes), 1..4);
    prop::collection::vec((any::<bool>(), fragments), 0..4)
}

proptest! {
    #[test]
    fn however_the_bytes_are_cut_the_same_messages_are_read(
        messages in messages(),
        mask in prop::option::of(any::<[u8; 4]>()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (mut all, mut expected) = (Vec::new(), Vec::new());
        for (text, fragments) in &messages {
            let mut payload = Vec::new();
            for (n, (control, bytes)) in fragments.iter().enumerate() {
                if let Some(control) = control {
                    all.extend(frame(0x80 | control, b"beat", mask));
                }
                let last = if n + 1 == fragments.len() { 0x80 } else { 0 };
                let opcode = match (n, text) {
                    (0, true) => TEXT,
                    (0, false) => BINARY,
                    _ => CONTINUATION,
                };
                all.extend(frame(last | opcode, bytes, mask));
                payload.extend_from_slice(bytes);
            }
            expected.push(message(*text, &payload));
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(all.len() + 1)).collect();
        cuts.extend([0, all.len()]);
        cuts.sort_unstable();
        let (seen, control, broken) = read(cuts.windows(2).map(|cut| &all[cut[0]..cut[1]]));
        prop_assert_eq!(broken, None);
        prop_assert_eq!((&seen, &control), (&read([&all[..]]).0, &read([&all[..]]).1));
        let seen: Vec<Seen> = seen
            .into_iter()
            .filter(|seen| matches!(seen, Seen::Message(_)))
            .collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn any_bytes_are_read_or_said_to_be_none(bytes in prop::collection::vec(any::<u8>(), 0..400), size in 1_usize..40) {
        let whole = read_any([&bytes[..]]);
        prop_assert_eq!(read_any(bytes.chunks(size)), whole);
    }
}

/// Like [`read`], without what depends on how far a broken stream was read.
fn read_any<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, Option<Broken>) {
    let (seen, _, broken) = read(pieces);
    (seen, broken)
}
