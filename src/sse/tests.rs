use proptest::prelude::*;

use super::{Decoder, Event};

type Owned = (Option<Vec<u8>>, Vec<u8>, bool);

fn own(event: Event<'_>) -> Owned {
    (
        event.name.map(<[u8]>::to_vec),
        event.data.to_vec(),
        event.after_gap,
    )
}

/// Events, oversized count, border: everything that can be seen from outside.
fn decode<'a>(max: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Owned>, u64, bool) {
    let mut decoder = Decoder::new(max);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.feed(chunk, |event| events.push(own(event)));
        let held = decoder.line.capacity() + decoder.data.capacity() + decoder.name.capacity();
        assert!(
            held <= 4 * max + 64,
            "{held} bytes held for a limit of {max}"
        );
    }
    (events, decoder.oversized(), decoder.on_border())
}

fn one(name: Option<&str>, data: &str) -> Owned {
    (
        name.map(|n| n.as_bytes().to_vec()),
        data.as_bytes().to_vec(),
        false,
    )
}

fn check(input: &str, expected: &[Owned]) {
    let (events, oversized, _) = decode(1 << 16, [input.as_bytes()]);
    assert_eq!(events, expected, "{input:?}");
    assert_eq!(oversized, 0);
    let bytewise = decode(1 << 16, input.as_bytes().chunks(1));
    assert_eq!(bytewise.0, expected, "byte by byte: {input:?}");
}

#[test]
fn fields_and_line_ends() {
    let a = one(Some("a"), "1");
    check("event: a\ndata: 1\n\n", std::slice::from_ref(&a));
    check("event: a\r\ndata: 1\r\n\r\n", std::slice::from_ref(&a));
    check("event: a\rdata: 1\r\r", std::slice::from_ref(&a));
    check("event:a\rdata:1\n\r\n", std::slice::from_ref(&a));
    check("data:  1\n\n", &[one(None, " 1")]);
    check("data: 1\ndata:\ndata: 3\n\n", &[one(None, "1\n\n3")]);
    check("data\n\n", &[one(None, "")]);
    check("data\ndata\n\n", &[one(None, "\n")]);
    check("event: a\n\ndata: x\n\n", &[one(None, "x")]);
    check("event: a\nevent: b\ndata: x\n\n", &[one(Some("b"), "x")]);
    check("event: a\nevent:\ndata: x\n\n", &[one(None, "x")]);
    check(
        ": hi\nid: 7\nretry: 5\ndatax: y\nData: z\ndata: x\n\n",
        &[one(None, "x")],
    );
    check("data: never closed\n", &[]);
    check("\n\n\r\n: only a comment\n\n", &[]);
}

#[test]
fn a_byte_order_mark_counts_only_at_the_start() {
    check("\u{feff}data: x\n\n", &[one(None, "x")]);
    check("\u{feff}\u{feff}data: x\n\ndata: y\n\n", &[one(None, "y")]);
    check("data: x\n\n\u{feff}data: y\n\n", &[one(None, "x")]);
    // Two of its three bytes, then something else: an unknown field.
    let (events, ..) = decode(99, [b"\xEF".as_slice(), b"\xBBdata: x\n\ndata: y\n\n"]);
    assert_eq!(events, [one(None, "y")]);
}

#[test]
fn an_event_inside_one_chunk_is_not_copied() {
    let chunk = b"event: a\ndata: hello\n\n".as_slice();
    let range = chunk.as_ptr_range();
    let mut decoder = Decoder::new(99);
    let mut seen = 0;
    decoder.feed(chunk, |event| {
        seen += 1;
        assert!(range.contains(&event.data.as_ptr()));
        assert!(
            event
                .name
                .is_some_and(|name| range.contains(&name.as_ptr()))
        );
    });
    assert_eq!(seen, 1);
    assert_eq!(
        decoder.data.capacity() + decoder.line.capacity() + decoder.name.capacity(),
        0
    );
}

#[test]
fn oversized_events_are_skipped_and_counted() {
    let long = "x".repeat(50);
    let input = format!("data: 1\n\nevent: big\ndata: {long}\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
    for chunks in [1, 7, input.len()] {
        let (events, oversized, border) = decode(40, input.as_bytes().chunks(chunks));
        let mut three = one(None, "3");
        three.2 = true;
        assert_eq!(events, [one(None, "1"), three, one(None, "4")]);
        assert_eq!((oversized, border), (1, true));
    }
    // Comments are never held, however long.
    let comment = format!(":{long}{long}\ndata: 1\n\n");
    for chunks in [1, 7, comment.len()] {
        let (events, oversized, _) = decode(40, comment.as_bytes().chunks(chunks));
        assert_eq!(
            (events.as_slice(), oversized),
            ([one(None, "1")].as_slice(), 0)
        );
    }
}

#[test]
fn border_is_between_events_only() {
    let stream = b"\xEF\xBB\xBFevent: a\r\ndata: 1\r\n\r\n: c\n";
    let border: String = (0..=stream.len())
        .map(|n| {
            if decode(99, [&stream[..n]]).2 {
                'b'
            } else {
                '.'
            }
        })
        .collect();
    //                   mark, then the event's 21 bytes; its last carriage return already ends it
    assert_eq!(border, "b..b...................bb...b");
}

/// Bytes in which every special byte of the format is likely.
fn streamish() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"data".to_vec()),
        Just(b"event:".to_vec()),
        Just(b"event: ping".to_vec()),
        Just(b"id: 1".to_vec()),
        Just(b":".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(BOM_BYTES.to_vec()),
        Just("渐🙂é“".as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

const BOM_BYTES: &[u8] = b"\xEF\xBB\xBF";

proptest! {
    /// However the bytes are cut, everything that can be seen is the same.
    #[test]
    fn cuts_do_not_matter(
        bytes in streamish(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        max in prop_oneof![Just(8usize), Just(24), Just(4096)],
    ) {
        let whole = decode(max, [bytes.as_slice()]);
        prop_assert_eq!(&decode(max, bytes.chunks(1)), &whole);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(&decode(max, pieces), &whole);
    }

    /// What was written as events is read as those events.
    #[test]
    fn written_events_are_read_back(
        events in prop::collection::vec(("[a-z_]{0,12}", "[^\r\n\u{feff}]{0,30}"), 0..8),
        end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
        size in 1usize..20,
    ) {
        let mut stream = String::new();
        for (name, data) in &events {
            stream.push_str(&format!("event: {name}{end}data: {data}{end}{end}"));
        }
        let expected: Vec<Owned> = events
            .iter()
            .map(|(name, data)| one((!name.is_empty()).then_some(name.as_str()), data))
            .collect();
        let (read, oversized, border) = decode(4096, stream.as_bytes().chunks(size));
        prop_assert_eq!(read, expected);
        prop_assert_eq!((oversized, border), (0, true));
    }
}
