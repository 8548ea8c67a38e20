//! Takes the chunk with the tokens out of a Chat stream whose client did not ask for it.
//!
//! The only place where bytes of an upstream's answer are left out. Everything else goes on as it
//! came; an event is held until it is whole, which it nearly always is when it arrives.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A longer event is none that is looked for, and is not held.
const MAX_HELD_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub struct Swallow {
    /// The beginning of an event.
    held: BytesMut,
    /// The event under way was too long to be held: it goes on as it comes.
    passing: bool,
}

impl Swallow {
    /// What goes on of the next bytes of the stream.
    pub fn pass(&mut self, data: &Bytes) -> Bytes {
        if self.held.is_empty() {
            return self.cut(data);
        }
        self.held.extend_from_slice(data);
        let all = self.held.split().freeze();
        self.cut(&all)
    }

    /// What is still held when the stream has ended.
    pub fn rest(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    /// Leaves out the events that are to be left out, and holds what is no whole event yet.
    fn cut(&mut self, data: &Bytes) -> Bytes {
        let mut out: Option<BytesMut> = None;
        // Up to here everything is decided; from `kept` on it is not in `out` yet.
        let (mut at, mut kept) = (0, 0);
        while let Some(end) = border(&data[at..]) {
            let event = at..at + end;
            if !self.passing && is_usage(&data[event.clone()]) {
                let out = out.get_or_insert_with(|| BytesMut::with_capacity(data.len()));
                out.extend_from_slice(&data[kept..event.start]);
                kept = event.end;
            }
            self.passing = false;
            at = event.end;
        }
        let whole = if self.passing || data.len() - at > MAX_HELD_BYTES {
            self.passing = at < data.len();
            data.len()
        } else {
            self.held.extend_from_slice(&data[at..]);
            at
        };
        match out {
            None => data.slice(kept..whole),
            Some(mut out) => {
                out.extend_from_slice(&data[kept..whole]);
                out.freeze()
            }
        }
    }
}

/// The length of the first event with the empty line that ends it. Line ends are LF or CRLF.
fn border(data: &[u8]) -> Option<usize> {
    let mut lines = memchr::memchr_iter(b'\n', data);
    lines.find_map(|at| match &data[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Whether an event is the chunk that `stream_options.include_usage` adds: no choices, and a usage.
/// Source: provider docs, Nov 2026.
fn is_usage(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Chunk {
        choices: Vec<IgnoredAny>,
        usage: Usage,
    }
    #[derive(Deserialize)]
    struct Usage {
        #[serde(rename = "prompt_tokens")]
        _prompt_tokens: IgnoredAny,
    }
    if memmem::find(event, b"prompt_tokens").is_none() {
        return false;
    }
    let Some(data) = event.trim_ascii().strip_prefix(b"data:") else {
        return false;
    };
    serde_json::from_slice::<Chunk>(data).is_ok_and(|chunk| {
        let Usage { _prompt_tokens } = chunk.usage;
        chunk.choices.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USAGE: &str =
        r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;

    fn through(pieces: &[&[u8]]) -> Vec<u8> {
        let mut swallow = Swallow::default();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&swallow.pass(&Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&swallow.rest());
        out
    }

    #[test]
    fn only_the_chunk_with_the_tokens_is_left_out() {
        for end in ["\n\n", "\r\n\r\n"] {
            let others = [
                r#"data: {"choices":[{"delta":{"content":"prompt_tokens"}}],"usage":null}"#,
                r#"data: {"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#,
                r#"data: {"choices":[],"prompt_filter_results":[{"prompt_tokens":1}]}"#,
                ": a comment",
                r#"data: {"choices":[],"usage":{"prompt_tokens":"#,
                "data: [DONE]",
            ];
            let with: String = others
                .iter()
                .take(3)
                .chain([&USAGE])
                .chain(&others[3..])
                .map(|event| format!("{event}{end}"))
                .collect();
            let without: String = others.iter().map(|event| format!("{event}{end}")).collect();
            assert_eq!(through(&[with.as_bytes()]), without.as_bytes(), "{end:?}");
        }
    }

    #[test]
    fn what_is_cut_off_is_passed_on() {
        assert_eq!(through(&[USAGE.as_bytes()]), USAGE.as_bytes());
        assert_eq!(through(&[b"data: {\"cho", b"ices"]), b"data: {\"choices");
    }

    #[test]
    fn a_long_event_is_not_held() {
        let mut swallow = Swallow::default();
        let long = Bytes::from(vec![b'x'; MAX_HELD_BYTES + 1]);
        assert_eq!(swallow.pass(&long), long);
        assert_eq!(swallow.pass(&Bytes::from_static(b"yz")), "yz");
        let event = Bytes::from(format!("\n\n{USAGE}\n\nz"));
        assert_eq!(swallow.pass(&event), "\n\n");
        assert_eq!(swallow.rest(), "z");
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_cut_the_same_goes_on(
            events in prop::collection::vec(prop_oneof![Just(USAGE), Just("data: {\"choices\":[]}"), Just(": x"), Just("a\rb")], 0..6),
            crlf in any::<bool>(),
            cuts in prop::collection::vec(0_usize..600, 0..12),
        ) {
            let end = if crlf { "\r\n\r\n" } else { "\n\n" };
            let all: String = events.iter().map(|event| format!("{event}{end}")).collect();
            let all = all.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(all.len())).collect();
            cuts.extend([0, all.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &all[cut[0]..cut[1]]).collect();
            let expected: String = events.iter().filter(|event| **event != USAGE).map(|event| format!("{event}{end}")).collect();
            prop_assert_eq!(through(&pieces), expected.as_bytes());
        }
    }
}
