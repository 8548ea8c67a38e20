//! The content of a message, of a call's result, or of the instructions: a string, or parts.

use super::reader::{Reader, block};
use crate::provider::json::{Fault, blank, inside, says, unescape};
use crate::provider::view::{Block, BlockKind, Form, Marker, Span, Ttl, Unmarkable};

/// What is read of one part before it is known what it is.
#[derive(Default)]
struct Parts {
    kind: Option<Span>,
    text: Option<Span>,
    refusal: Option<Span>,
    marker: Option<Marker>,
    marker_member: Option<Span>,
    /// There are members that may mean something to the provider.
    more: bool,
}

impl Reader<'_> {
    /// Consumes a content and puts its blocks behind the others; its span unless it is null.
    pub(super) fn content(&mut self, place: u32) -> Result<Option<Span>, Fault> {
        let start = match self.walk.peek()? {
            b'"' => {
                let block = self.bare_text(place, 0)?;
                self.talk.push(block);
                return Ok(Some(block.span));
            }
            b'[' => self.walk.at(),
            _ => return self.value(),
        };
        self.walk.enter(b'[')?;
        let (mut first, mut inner) = (true, 0);
        while self.walk.element(&mut first)? {
            let part = self.part(place, inner)?;
            self.talk.push(part);
            inner += 1;
        }
        let end = self.walk.at();
        Ok(Some(Span { start, end }))
    }

    /// A string that stands for one text.
    pub(super) fn bare_text(&mut self, place: u32, inner: u32) -> Result<Block, Fault> {
        let span = self.walk.skip()?;
        Ok(Block {
            form: Form::BareString,
            unmarkable: blank(span.of(self.body)).then_some(Unmarkable::Empty),
            content: Some(span),
            plain: Some(span),
            ..block(BlockKind::Text, place, inner, span, true)
        })
    }

    fn part(&mut self, place: u32, inner: u32) -> Result<Block, Fault> {
        self.walk.peek()?;
        let start = self.walk.at();
        let gaps_before = std::mem::take(&mut self.walk.gaps);
        let parts = self.parts()?;
        let compact = !self.walk.gaps;
        self.walk.gaps |= gaps_before;
        let end = self.walk.at();
        let span = Span { start, end };
        let word = parts.kind.map(|kind| unescape(kind.of(self.body)));
        let kind = match word.as_deref() {
            Some("text" | "input_text" | "output_text") => BlockKind::Text,
            Some("image_url" | "input_image" | "computer_screenshot" | "image") => BlockKind::Image,
            Some("video_url" | "input_video") => BlockKind::Image,
            Some("file" | "input_file" | "input_audio" | "audio_url" | "document") => {
                BlockKind::Document
            }
            Some("thinking" | "reasoning" | "redacted_thinking") => BlockKind::Thinking,
            _ => BlockKind::Other,
        };
        let mut part = Block {
            marker: parts.marker,
            marker_member: parts.marker_member,
            ..block(kind, place, inner, span, compact)
        };
        if kind == BlockKind::Text {
            part.content = parts.text;
            part.plain = parts.text.filter(|_| !parts.more);
            part.unmarkable = match parts.text.map(|text| text.of(self.body)) {
                None => Some(Unmarkable::Unknown),
                Some(raw) => blank(raw).then_some(Unmarkable::Empty),
            };
        } else if kind == BlockKind::Other {
            part.content = parts.refusal;
        }
        Ok(part)
    }

    fn parts(&mut self) -> Result<Parts, Fault> {
        let mut parts = Parts::default();
        self.members(|reader, key, seen| {
            let bit = match key {
                b"type" => {
                    parts.kind = reader.string()?;
                    0
                }
                b"text" => {
                    parts.text = reader.string()?;
                    1
                }
                b"refusal" => {
                    parts.refusal = reader.string()?;
                    parts.more = true;
                    2
                }
                b"prompt_cache_breakpoint" | b"cache_control" => {
                    let routed = key == b"cache_control";
                    let (marker, member) = reader.marker(routed)?;
                    // Of two markers the first counts for the place; no client sends both.
                    if parts.marker.is_some() {
                        reader.out.misplaced_markers += u32::from(marker.is_some());
                    } else {
                        (parts.marker, parts.marker_member) = (marker, Some(member));
                    }
                    3 + u32::from(routed)
                }
                // What the API itself puts beside a text it has written, where it has nothing to
                // say. Clients send it back or leave it out.
                b"annotations" | b"logprobs" => {
                    let value = reader.walk.skip()?.of(reader.body);
                    parts.more |= !says_nothing(value);
                    5 + u32::from(key == b"logprobs")
                }
                _ => {
                    parts.more = true;
                    reader.walk.skip()?;
                    return Ok(());
                }
            };
            reader.once(seen, bit);
            Ok(())
        })?;
        Ok(parts)
    }

    /// A marker's value: the marker unless it is null, and the member it stands in. `routed` are
    /// those of Anthropic's spelling, which routers take.
    pub(super) fn marker(&mut self, routed: bool) -> Result<(Option<Marker>, Span), Fault> {
        let start = self.walk.key_start();
        let is_null = self.walk.peek()? == b'n';
        let [kind, mode, ttl] = self.strings([b"type", b"mode", b"ttl"])?;
        let end = self.walk.at();
        let span = Span { start, end };
        let says = |raw: Option<Span>, word| raw.is_some_and(|raw| says(raw.of(self.body), word));
        let known = match routed {
            true => says(kind, "ephemeral"),
            false => says(mode, "explicit"),
        };
        let ttl = match ttl.map(|ttl| inside(ttl.of(self.body))) {
            _ if !known => None,
            None if routed => Some(Ttl::M5),
            None => {
                self.inherit.push(start);
                Some(Ttl::M30)
            }
            Some(b"5m") if routed => Some(Ttl::M5),
            Some(b"1h") if routed => Some(Ttl::H1),
            Some(b"30m") if !routed => Some(Ttl::M30),
            Some(b"12h") if !routed => Some(Ttl::H12),
            Some(_) => None,
        };
        Ok(((!is_null).then_some(Marker { span, ttl }), span))
    }

    /// Makes the parts from `begin` on into the content of one block, which is their element.
    pub(super) fn fold(&mut self, begin: usize, whole: &mut Block) {
        let mut parts = self.talk.drain(begin..);
        if let (Some(one), None) = (parts.as_slice().first(), parts.as_slice().get(1)) {
            whole.plain = one.plain;
        }
        for part in parts.by_ref().filter(|part| part.marker_member.is_some()) {
            if whole.marker.is_some() {
                self.out.misplaced_markers += u32::from(part.marker.is_some());
                continue;
            }
            whole.marker = part.marker;
            // In one text the marker is left out together with all that is not the text.
            whole.marker_member = part.marker_member.filter(|_| whole.plain.is_none());
        }
    }
}

/// Whether a value is null or an empty list.
fn says_nothing(value: &[u8]) -> bool {
    match value {
        [b'[', inner @ .., b']'] => inner.iter().all(u8::is_ascii_whitespace),
        value => value == b"null",
    }
}
