//! One block of a request: what it is, whether it may carry a marker, what it says.

use crate::provider::json::{Fault, blank, inside, says, unescape};
use crate::provider::view::{Block, BlockKind, Form, Marker, Section, Span, Unmarkable};

use super::{Reader, Seen};

/// How deep content inside content is searched for markers at places that allow none.
const MAX_NESTED_CONTENT: u32 = 4;

/// First characters of the text that Claude Code puts first into `system` to say which version
/// speaks. The provider strips it when it stands first and is unmodified, so it is neither marked
/// nor part of the prefix (observed in Claude Code 2.1, Nov 2026).
const ATTRIBUTION: &[u8] = b"x-anthropic-billing-header:";

/// What is read of one block before it is known what it is.
#[derive(Default)]
struct Parts {
    members: u32,
    kind: Option<Span>,
    kind_at: u32,
    text: Option<Span>,
    text_at: u32,
    input: Option<Span>,
    content: Option<Span>,
    content_plain: Option<Span>,
    id: Option<Span>,
    result_of: Option<Span>,
    name: Option<Span>,
    is_error: Option<bool>,
    run_by_code: bool,
    deferred: bool,
    marker: Option<Marker>,
    marker_member: Option<Span>,
}

impl Parts {
    /// The raw text when the block consists of `type` and `text`, in this order, and nothing else.
    /// Another order counts as another spelling: what the provider makes of it is not documented.
    fn plain_text(&self) -> Option<Span> {
        (self.members == 2 && self.kind_at == 1 && self.text_at == 2).then_some(self.text)?
    }
}

impl Reader<'_> {
    pub(super) fn block(
        &mut self,
        section: Section,
        outer: u32,
        inner: u32,
    ) -> Result<Block, Fault> {
        let is_object = self.walk.peek()? == b'{';
        let start = self.walk.at();
        let gaps_before = std::mem::take(&mut self.walk.gaps);
        let parts = if is_object {
            self.parts(section)?
        } else {
            self.walk.skip()?;
            Parts::default()
        };
        let compact = !self.walk.gaps;
        self.walk.gaps |= gaps_before;
        let span = Span {
            start,
            end: self.walk.at(),
        };
        let mut block = Block {
            section,
            kind: BlockKind::Tool,
            form: Form::Object,
            outer,
            inner,
            place: outer,
            span,
            marker: parts.marker,
            unmarkable: None,
            call_id: None,
            name: parts.name,
            is_error: None,
            content: None,
            plain: None,
            marker_member: parts.marker_member,
            compact,
        };
        if section == Section::Tools {
            block.unmarkable = parts.deferred.then_some(Unmarkable::Deferred);
            let kind = parts.kind.map(|kind| inside(kind.of(self.body)));
            if kind.is_some_and(is_search) {
                block.kind = BlockKind::ServerTool;
            }
        } else {
            self.classify(&mut block, &parts);
        }
        // An object without members has no place for a marker after a comma, and one whose marker
        // is an explicit null would get the key twice.
        if block.unmarkable.is_none()
            && (parts.members == 0 || (parts.marker.is_none() && parts.marker_member.is_some()))
        {
            block.unmarkable = Some(Unmarkable::Unknown);
        }
        Ok(block)
    }

    /// Kind, and what depends on it, of a block of `system` or of a message.
    fn classify(&mut self, block: &mut Block, parts: &Parts) {
        let word = parts.kind.map(|kind| unescape(kind.of(self.body)));
        let (kind, unmarkable) = match word.as_deref() {
            Some("text") => {
                block.content = parts.text;
                block.plain = parts.plain_text();
                let unmarkable = match parts.text.map(|text| text.of(self.body)) {
                    None => Some(Unmarkable::Unknown),
                    Some(raw) if blank(raw) => Some(Unmarkable::Empty),
                    Some(raw)
                        if block.section == Section::System
                            && block.outer == 0
                            && inside(raw).starts_with(ATTRIBUTION) =>
                    {
                        Some(Unmarkable::Attribution)
                    }
                    Some(_) => None,
                };
                (BlockKind::Text, unmarkable)
            }
            Some("image") => {
                self.has_images = true;
                (BlockKind::Image, None)
            }
            Some("document" | "search_result" | "container_upload") => (BlockKind::Document, None),
            Some("tool_use") => {
                block.call_id = parts.id;
                block.content = parts.input;
                (BlockKind::ToolUse, None)
            }
            Some("tool_result") => {
                block.call_id = parts.result_of;
                block.content = parts.content;
                block.plain = parts.content_plain;
                block.is_error = parts.is_error;
                (BlockKind::ToolResult, None)
            }
            Some("thinking" | "redacted_thinking") => {
                (BlockKind::Thinking, Some(Unmarkable::Thinking))
            }
            Some("server_tool_use" | "mcp_tool_use") => {
                block.call_id = parts.id;
                block.content = parts.input;
                (BlockKind::ServerTool, None)
            }
            Some(word) if word.ends_with("_tool_result") => {
                block.call_id = parts.result_of;
                block.content = parts.content;
                block.is_error = parts.is_error;
                (BlockKind::ServerTool, None)
            }
            _ => (BlockKind::Other, Some(Unmarkable::Unknown)),
        };
        block.kind = kind;
        block.unmarkable = unmarkable;
        if parts.run_by_code {
            block.unmarkable = Some(Unmarkable::CodeExecution);
            self.talk_has_code = true;
        }
    }

    fn parts(&mut self, section: Section) -> Result<Parts, Fault> {
        self.walk.enter(b'{')?;
        let (mut parts, mut seen, mut first) = (Parts::default(), Seen::default(), true);
        let is_tool = section == Section::Tools;
        while let Some(key) = self.walk.key(&mut first)? {
            parts.members += 1;
            let bit = match key.as_ref() {
                b"cache_control" => {
                    parts.members -= 1;
                    let (marker, member) = self.marker()?;
                    (parts.marker, parts.marker_member) = (marker, Some(member));
                    0
                }
                b"type" => {
                    parts.kind_at = parts.members;
                    parts.kind = self.string()?;
                    1
                }
                b"text" => {
                    parts.text_at = parts.members;
                    parts.text = self.string()?;
                    2
                }
                b"name" => {
                    parts.name = self.string()?;
                    3
                }
                b"defer_loading" if is_tool => {
                    parts.deferred = self.boolean()? == Some(true);
                    4
                }
                b"id" => {
                    parts.id = self.string()?;
                    5
                }
                b"tool_use_id" => {
                    parts.result_of = self.string()?;
                    6
                }
                b"input" => {
                    parts.input = Some(self.walk.skip()?);
                    7
                }
                b"content" if !is_tool => {
                    let (span, plain) = self.nested(MAX_NESTED_CONTENT)?;
                    (parts.content, parts.content_plain) = (Some(span), plain);
                    8
                }
                b"is_error" => {
                    parts.is_error = self.boolean()?;
                    9
                }
                b"citations" if !is_tool => {
                    let enabled = self.flag(b"enabled")?;
                    self.has_citations |= enabled;
                    12
                }
                b"caller" => {
                    let (kind, _) = self.two(b"type", b"")?;
                    parts.run_by_code = kind.is_some_and(|kind| {
                        unescape(kind.of(self.body)).starts_with("code_execution")
                    });
                    10
                }
                b"source" if !is_tool => {
                    self.source(MAX_NESTED_CONTENT)?;
                    11
                }
                _ => {
                    self.walk.skip()?;
                    continue;
                }
            };
            self.once(&mut seen, bit);
        }
        Ok(parts)
    }

    /// Content inside a block: its span, and its plain text if it is a string or one text block.
    /// The API takes no markers here (it says so of `tool_result.content`), so they are counted.
    fn nested(&mut self, levels: u32) -> Result<(Span, Option<Span>), Fault> {
        let byte = self.walk.peek()?;
        let start = self.walk.at();
        if byte != b'[' || levels == 0 {
            let span = self.walk.skip()?;
            return Ok((span, (byte == b'"').then_some(span)));
        }
        self.walk.enter(b'[')?;
        let (mut first, mut count, mut plain) = (true, 0_u32, None);
        while self.walk.element(&mut first)? {
            count += 1;
            plain = self.nested_block(levels)?;
        }
        let span = Span {
            start,
            end: self.walk.at(),
        };
        Ok((span, plain.filter(|_| count == 1)))
    }

    /// Whether a member of an object says `true`; anything else is skipped.
    fn flag(&mut self, name: &[u8]) -> Result<bool, Fault> {
        if !self.walk.enter(b'{')? {
            self.walk.skip()?;
            return Ok(false);
        }
        let (mut on, mut first) = (false, true);
        while let Some(key) = self.walk.key(&mut first)? {
            let value = self.boolean()?;
            if key.as_ref() == name {
                on = value == Some(true);
            }
        }
        Ok(on)
    }

    fn nested_block(&mut self, levels: u32) -> Result<Option<Span>, Fault> {
        if !self.walk.enter(b'{')? {
            self.walk.skip()?;
            return Ok(None);
        }
        let (mut parts, mut seen, mut first) = (Parts::default(), Seen::default(), true);
        while let Some(key) = self.walk.key(&mut first)? {
            parts.members += 1;
            match key.as_ref() {
                b"cache_control" => {
                    parts.members -= 1;
                    self.out.misplaced_markers += u32::from(self.marker()?.0.is_some());
                    self.once(&mut seen, 0);
                }
                b"type" => {
                    parts.kind_at = parts.members;
                    parts.kind = self.string()?;
                    self.once(&mut seen, 1);
                }
                b"text" => {
                    parts.text_at = parts.members;
                    parts.text = self.string()?;
                    self.once(&mut seen, 2);
                }
                b"content" => {
                    self.nested(levels - 1)?;
                    self.once(&mut seen, 3);
                }
                b"source" => self.source(levels - 1)?,
                _ => {
                    self.walk.skip()?;
                }
            }
        }
        let kind = parts.kind.map(|kind| kind.of(self.body));
        let is_text = kind.is_some_and(|kind| says(kind, "text"));
        self.has_images |= kind.is_some_and(|kind| says(kind, "image"));
        Ok(parts.plain_text().filter(|_| is_text))
    }

    /// The source of a document may itself be blocks.
    fn source(&mut self, levels: u32) -> Result<(), Fault> {
        if !self.walk.enter(b'{')? {
            self.walk.skip()?;
            return Ok(());
        }
        let mut first = true;
        while let Some(key) = self.walk.key(&mut first)? {
            if key.as_ref() == b"content" {
                self.nested(levels)?;
            } else {
                self.walk.skip()?;
            }
        }
        Ok(())
    }
}

/// Searches that the provider runs. It renders them into the system prompt: switching one on or off
/// leaves the tools' entries alone (its table of what invalidates the cache, August 2026).
fn is_search(kind: &[u8]) -> bool {
    kind.starts_with(b"web_search_") || kind.starts_with(b"web_fetch_")
}
