//! What a Messages request asks for, seen without changing or rebuilding a byte of it.
//!
//! One forward walk over the body (`view`). Unknown fields, block types and roles are fine; they
//! are simply never marked. Facts about the API are from its documentation and SDK types as of
//! November 2026 unless another source is named.
//!
//! Here is the reader with what all of the walk needs. `top` reads the members of the request,
//! `content` their lists of blocks, `block` one block, and `assemble` makes the view of them.

mod assemble;
mod block;
mod content;
#[cfg(test)]
mod tests;
mod top;

use super::diagnosis::QUESTION;
use crate::provider::json::{Fault, Walker, inside, says, unescape};
use crate::provider::view::{
    Block, Form, Marker, MarkerSpelling, RequestView, Section, Span, Spelling, TextSpelling, Ttl,
};
use crate::text::indexed;

/// Longest model name and conversation id that is kept, in bytes; a longer model name is cut, a
/// longer id ignored (two conversations must not become one by cutting).
const MAX_WORD_BYTES: usize = 1024;

/// How a breakpoint is written.
pub static MARKERS: MarkerSpelling = cache_control(false);

/// The spelling of Anthropic's breakpoints. Five minutes is the default and is left unsaid.
pub const fn cache_control(results_inside: bool) -> MarkerSpelling {
    const WRAP_OPEN: &[u8] = br#"[{"type":"text","text":"#;
    MarkerSpelling {
        m5: Spelling {
            member: br#","cache_control":{"type":"ephemeral"}"#,
            wrap_open: WRAP_OPEN,
            wrap_close: br#","cache_control":{"type":"ephemeral"}}]"#,
        },
        h1: Spelling {
            member: br#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
            wrap_open: WRAP_OPEN,
            wrap_close: br#","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#,
        },
        results_inside,
    }
}

/// How a text is appended to a message.
static TEXT_BLOCK: TextSpelling = TextSpelling {
    before: br#",{"type":"text","text":"#,
    after: b"}",
    own_element: false,
};

/// Looks at a request body.
///
/// Of a key that stands twice the last one counts, and the view is `uneditable`: nobody knows
/// which one the provider takes.
///
/// # Errors
/// The body is not one JSON object, or over 4 GiB; the word says what was found. Such a body is
/// passed on without having been inspected.
pub fn view(body: &[u8]) -> Result<RequestView, Fault> {
    let mut reader = Reader::new(body)?;
    reader.out.spelling = Some(&MARKERS);
    reader.out.anthropic_rules = true;
    reader.out.text_block = Some(&TEXT_BLOCK);
    reader.out.question = Some(&QUESTION);
    let top = reader.top_level()?;
    reader.walk.finish()?;
    Ok(reader.assemble(top))
}

/// The JSON path of a block of this format.
#[must_use]
pub(in crate::provider) fn path(block: &Block) -> String {
    let (outer, inner) = (block.outer, block.inner);
    match (block.section, block.form) {
        (Section::Tools, _) => indexed(&[("tools[", outer)], "]"),
        (Section::System, Form::BareString) => "system".into(),
        (Section::System, Form::Object) => indexed(&[("system[", outer)], "]"),
        (Section::Messages, Form::BareString) if inner == 0 => {
            indexed(&[("messages[", outer)], "].content")
        }
        (Section::Messages, _) => indexed(&[("messages[", outer), ("].content[", inner)], "]"),
    }
}

/// Keys seen in one object, as bits.
#[derive(Default)]
struct Seen(u32);

struct Reader<'a> {
    body: &'a [u8],
    walk: Walker<'a>,
    out: RequestView,
    talk_has_code: bool,
    /// An image stands somewhere, also inside a tool result.
    has_images: bool,
    /// A document asks for citations.
    has_citations: bool,
}

impl<'a> Reader<'a> {
    fn new(body: &'a [u8]) -> Result<Self, Fault> {
        Ok(Self {
            body,
            walk: Walker::new(body)?,
            out: RequestView::default(),
            talk_has_code: false,
            has_images: false,
            has_citations: false,
        })
    }
}

impl Reader<'_> {
    fn once(&mut self, seen: &mut Seen, bit: u32) {
        if seen.0 & 1 << bit != 0 {
            self.out.uneditable = Some("duplicate_key");
        }
        seen.0 |= 1 << bit;
    }

    /// Consumes the value; its span if it is a string.
    fn string(&mut self) -> Result<Option<Span>, Fault> {
        let is_string = self.walk.peek()? == b'"';
        let span = self.walk.skip()?;
        Ok(is_string.then_some(span))
    }

    /// Consumes the value; its span unless it is null, which the API takes for absent.
    fn value(&mut self) -> Result<Option<Span>, Fault> {
        let is_null = self.walk.peek()? == b'n';
        let span = self.walk.skip()?;
        Ok((!is_null).then_some(span))
    }

    /// Consumes the value; what it says if it is a boolean.
    fn boolean(&mut self) -> Result<Option<bool>, Fault> {
        Ok(match self.walk.skip()?.of(self.body) {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        })
    }

    fn text_of(&self, raw: Option<Span>) -> Option<String> {
        let raw = raw?.of(self.body);
        // Escapes only shrink when read, but at most sixfold.
        if raw.len() > MAX_WORD_BYTES * 6 {
            return None;
        }
        let text = unescape(raw);
        (!text.is_empty() && text.len() <= MAX_WORD_BYTES).then(|| text.into_owned())
    }

    /// The string values of two keys of an object; anything else is skipped.
    fn two(&mut self, one: &[u8], other: &[u8]) -> Result<(Option<Span>, Option<Span>), Fault> {
        let mut found = (None, None);
        if !self.walk.enter(b'{')? {
            self.walk.skip()?;
            return Ok(found);
        }
        let (mut seen, mut first) = (Seen::default(), true);
        while let Some(key) = self.walk.key(&mut first)? {
            if key.as_ref() == one {
                found.0 = self.string()?;
                self.once(&mut seen, 0);
            } else if key.as_ref() == other {
                found.1 = self.string()?;
                self.once(&mut seen, 1);
            } else {
                self.walk.skip()?;
            }
        }
        Ok(found)
    }

    /// A marker's value: the marker unless it is null, and the member it stands in.
    fn marker(&mut self) -> Result<(Option<Marker>, Span), Fault> {
        let start = self.walk.key_start();
        let is_null = self.walk.peek()? == b'n';
        let value = self.walk.peek()?;
        let (kind, ttl, ttl_given) = if value == b'{' {
            self.marker_value()?
        } else {
            self.walk.skip()?;
            (None, None, false)
        };
        let span = Span {
            start,
            end: self.walk.at(),
        };
        let known = kind.is_some_and(|kind| says(kind.of(self.body), "ephemeral"));
        let ttl = match ttl.map(|ttl| inside(ttl.of(self.body))) {
            _ if !known => None,
            None if !ttl_given => Some(Ttl::M5),
            Some(b"5m") => Some(Ttl::M5),
            Some(b"1h") => Some(Ttl::H1),
            _ => None,
        };
        Ok(((!is_null).then_some(Marker { span, ttl }), span))
    }

    /// `type` and `ttl` of a marker, and whether a `ttl` other than null was given.
    fn marker_value(&mut self) -> Result<(Option<Span>, Option<Span>, bool), Fault> {
        self.walk.enter(b'{')?;
        let (mut kind, mut ttl, mut given) = (None, None, false);
        let (mut seen, mut first) = (Seen::default(), true);
        while let Some(key) = self.walk.key(&mut first)? {
            match key.as_ref() {
                b"type" => {
                    kind = self.string()?;
                    self.once(&mut seen, 0);
                }
                b"ttl" => {
                    given = self.walk.peek()? != b'n';
                    ttl = self.string()?;
                    self.once(&mut seen, 1);
                }
                _ => {
                    self.walk.skip()?;
                }
            }
        }
        Ok((kind, ttl, given))
    }
}
