//! Requests of Chat Completions.

use super::reader::{Member, Reader, Seen, block};
use crate::provider::json::{Fault, unescape};
use crate::provider::view::{Block, BlockKind, Form, RequestView, Role, Section, Span};
use crate::provider::wire::Wire;
use crate::text::indexed;

/// Looks at a request body.
///
/// Of a key that stands twice the last one counts, and the view is `uneditable`: nobody knows
/// which one the provider takes.
///
/// # Errors
/// The body is not one JSON object, or over 4 GiB; the word says what was found. Such a body is
/// passed on without having been inspected.
pub fn view(body: &[u8]) -> Result<RequestView, Fault> {
    super::top::view(body, Wire::Chat)
}

/// The JSON path of a block of this format.
#[must_use]
pub(in crate::provider) fn path(block: &Block) -> String {
    let (place, inner) = (block.place, block.inner);
    let member = Member::of(block).map(|(_, name)| name);
    match (block.section, block.kind, block.form) {
        (Section::Tools, ..) => match member {
            Some(member) => format!("{member}[{place}]"),
            None => indexed(&[("tools[", place)], "]"),
        },
        (_, BlockKind::ToolResult, _) => indexed(&[("messages[", place)], "]"),
        _ if member.is_some() => format!("messages[{place}].{}", member.unwrap_or_default()),
        (_, BlockKind::ToolUse, _) => {
            indexed(&[("messages[", place), ("].tool_calls[", inner)], "]")
        }
        (_, _, Form::BareString) => indexed(&[("messages[", place)], "].content"),
        _ => indexed(&[("messages[", place), ("].content[", inner)], "]"),
    }
}

/// The order in which a message is put before the model, whatever the order of its members.
fn rank(block: &Block) -> u8 {
    match (block.kind, Member::of(block)) {
        (BlockKind::Thinking, Some(_)) => 0,
        (BlockKind::ToolUse, _) => 3,
        (_, Some(_)) => 2,
        (_, None) => 1,
    }
}

#[derive(Default)]
struct Parts {
    role: Option<Span>,
    content: Option<Span>,
    result_of: Option<Span>,
    name: Option<Span>,
}

impl Reader<'_> {
    /// Consumes `messages`.
    pub(super) fn messages(&mut self) -> Result<(), Fault> {
        self.elements(Self::message)
    }

    fn message(&mut self, place: u32) -> Result<Role, Fault> {
        let (start, begin) = (self.walk.at(), self.talk.len());
        let mut parts = Parts::default();
        self.members(|reader, key, seen| {
            reader.message_member(key, seen, place, begin, &mut parts)
        })?;
        let role = parts.role.map(|role| unescape(role.of(self.body)));
        let role = match role.as_deref() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system" | "developer") => Role::System,
            // A function's result answers the call by its name.
            Some(word @ ("tool" | "function")) => {
                let id = match word {
                    "tool" => parts.result_of.or(parts.name),
                    _ => parts.name,
                };
                let end = self.walk.at();
                let compact = !self.walk.gaps;
                let mut whole = Block {
                    call_id: id,
                    name: parts.name,
                    content: parts.content,
                    ..block(
                        BlockKind::ToolResult,
                        place,
                        0,
                        Span { start, end },
                        compact,
                    )
                };
                self.fold(begin, &mut whole);
                self.talk.push(whole);
                Role::User
            }
            _ => Role::Other,
        };
        let blocks = &mut self.talk[begin..];
        if !blocks.is_sorted_by_key(rank) {
            blocks.sort_by_key(rank);
        }
        Ok(role)
    }

    fn message_member(
        &mut self,
        key: &[u8],
        seen: &mut Seen,
        place: u32,
        begin: usize,
        parts: &mut Parts,
    ) -> Result<(), Fault> {
        let so_far = self.talk.len();
        let (bit, of) = match key {
            b"role" => {
                parts.role = self.string()?;
                (0, None)
            }
            b"content" => {
                parts.content = self.content(place)?;
                (1, Some((1, None)))
            }
            b"tool_calls" => {
                self.calls(place)?;
                (2, Some((3, None)))
            }
            b"tool_call_id" => {
                parts.result_of = self.string()?;
                (3, None)
            }
            b"name" => {
                parts.name = self.string()?;
                (4, None)
            }
            b"cache_control" => {
                self.out.misplaced_markers += u32::from(self.marker(true)?.0.is_some());
                (5, None)
            }
            b"function_call" => {
                self.function_call(place)?;
                (6, Some((3, Some(Member::FunctionCall))))
            }
            _ => {
                let (kind, member) = match key {
                    b"refusal" => (BlockKind::Other, Member::Refusal),
                    b"audio" => (BlockKind::Document, Member::Audio),
                    b"reasoning_content" => (BlockKind::Thinking, Member::ReasoningContent),
                    b"reasoning" => (BlockKind::Thinking, Member::Reasoning),
                    b"reasoning_details" => (BlockKind::Thinking, Member::ReasoningDetails),
                    b"thinking_blocks" => (BlockKind::Thinking, Member::ThinkingBlocks),
                    _ => return self.walk.skip().map(drop),
                };
                self.member(kind, member, place)?;
                let rank = if kind == BlockKind::Thinking { 0 } else { 2 };
                (7 + member as u32, Some((rank, Some(member))))
            }
        };
        // Of a member that stands twice only the last one is left.
        if self.once(seen, bit)
            && let Some((ranked, member)) = of
        {
            let old = self.talk[begin..so_far].to_vec();
            let new = self.talk.split_off(so_far);
            self.talk.truncate(begin);
            let same = |block: &Block| {
                rank(block) == ranked && Member::of(block).map(|(member, _)| member) == member
            };
            self.talk
                .extend(old.into_iter().filter(|block| !same(block)));
            self.talk.extend(new);
        }
        Ok(())
    }

    /// A member of a message that is a block itself.
    fn member(&mut self, kind: BlockKind, member: Member, place: u32) -> Result<(), Fault> {
        self.walk.peek()?;
        let gaps_before = std::mem::take(&mut self.walk.gaps);
        let value = self.value()?;
        let compact = !self.walk.gaps;
        self.walk.gaps |= gaps_before;
        if let Some(span) = value {
            let is_string = span.of(self.body).first() == Some(&b'"');
            self.talk.push(Block {
                form: if is_string {
                    Form::BareString
                } else {
                    Form::Object
                },
                content: is_string.then_some(span),
                ..block(kind, place, member.inner(), span, compact)
            });
        }
        Ok(())
    }

    fn calls(&mut self, place: u32) -> Result<(), Fault> {
        if !self.walk.enter(b'[')? {
            self.walk.skip()?;
            return Ok(());
        }
        let (mut first, mut inner) = (true, 0);
        while self.walk.element(&mut first)? {
            self.call(place, inner)?;
            inner += 1;
        }
        Ok(())
    }

    fn call(&mut self, place: u32, inner: u32) -> Result<(), Fault> {
        self.walk.peek()?;
        let start = self.walk.at();
        let gaps_before = std::mem::take(&mut self.walk.gaps);
        let (mut id, mut name, mut input) = (None, None, None);
        self.members(|reader, key, seen| {
            let bit = match key {
                b"id" => {
                    id = reader.string()?;
                    0
                }
                b"function" => {
                    (name, input) = reader.called(b"arguments")?;
                    1
                }
                b"custom" => {
                    (name, input) = reader.called(b"input")?;
                    2
                }
                _ => return reader.walk.skip().map(drop),
            };
            reader.once(seen, bit);
            Ok(())
        })?;
        let compact = !self.walk.gaps;
        self.walk.gaps |= gaps_before;
        let end = self.walk.at();
        self.talk.push(Block {
            call_id: id,
            name,
            content: input,
            ..block(
                BlockKind::ToolUse,
                place,
                inner,
                Span { start, end },
                compact,
            )
        });
        Ok(())
    }

    /// The call of a function in the older spelling, which has no id.
    fn function_call(&mut self, place: u32) -> Result<(), Fault> {
        let is_object = self.walk.peek()? == b'{';
        let start = self.walk.at();
        let gaps_before = std::mem::take(&mut self.walk.gaps);
        let (name, input) = self.called(b"arguments")?;
        let compact = !self.walk.gaps;
        self.walk.gaps |= gaps_before;
        let end = self.walk.at();
        if is_object {
            let inner = Member::FunctionCall.inner();
            self.talk.push(Block {
                call_id: name,
                name,
                content: input,
                ..block(
                    BlockKind::ToolUse,
                    place,
                    inner,
                    Span { start, end },
                    compact,
                )
            });
        }
        Ok(())
    }

    /// The name and the input of what is called.
    fn called(&mut self, input_key: &[u8]) -> Result<(Option<Span>, Option<Span>), Fault> {
        let (mut name, mut input) = (None, None);
        self.members(|reader, key, seen| {
            if key == b"name" {
                name = reader.string()?;
                reader.once(seen, 0);
            } else if key == input_key {
                input = reader.value()?;
                reader.once(seen, 1);
            } else {
                reader.walk.skip()?;
            }
            Ok(())
        })?;
        Ok((name, input))
    }
}
