//! Requests of Responses.

use super::reader::{Member, Reader, block};
use crate::provider::json::{Fault, says, unescape};
use crate::provider::view::{Block, BlockKind, Form, RequestView, Role, Section, Span, Unmarkable};
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
    super::top::view(body, Wire::Responses)
}

/// The JSON path of a block of this format.
#[must_use]
pub(in crate::provider) fn path(block: &Block) -> String {
    use BlockKind::{ServerTool, Thinking, ToolResult, ToolUse};
    let (place, inner) = (block.place, block.inner);
    match (block.section, Member::of(block), block.kind) {
        (Section::Tools, ..) => indexed(&[("tools[", place)], "]"),
        (_, Some((Member::Unknown, _)), _) => indexed(&[("input[", place)], "]"),
        (_, Some((_, name)), _) => name.into(),
        (_, _, ToolUse | ToolResult | ServerTool | Thinking) => indexed(&[("input[", place)], "]"),
        _ if block.form == Form::BareString => indexed(&[("input[", place)], "].content"),
        _ => indexed(&[("input[", place), ("].content[", inner)], "]"),
    }
}

/// What is read of an item before it is known what it is.
#[derive(Default)]
struct Parts {
    kind: Option<Span>,
    role: Option<Span>,
    content: Option<Span>,
    output: Option<Span>,
    id: Option<Span>,
    call_id: Option<Span>,
    name: Option<Span>,
    input: Option<Span>,
    status: Option<Span>,
}

impl Reader<'_> {
    /// Consumes `instructions`.
    pub(super) fn instructions(&mut self) -> Result<(), Fault> {
        self.instructions = None;
        if self.walk.peek()? != b'"' {
            return self.walk.skip().map(drop);
        }
        let text = self.bare_text(0, Member::Instructions.inner())?;
        self.instructions = Some(Block {
            section: Section::System,
            unmarkable: text.unmarkable.or(Some(Unmarkable::Placeless)),
            ..text
        });
        Ok(())
    }

    /// Consumes `input`, a text of the user or a list of items.
    pub(super) fn input(&mut self) -> Result<(), Fault> {
        if self.walk.peek()? != b'"' {
            return self.elements(Self::item);
        }
        self.forget_talk();
        let mut text = self.bare_text(0, Member::Input.inner())?;
        text.unmarkable = text.unmarkable.or(Some(Unmarkable::Placeless));
        self.talk.push(text);
        self.speak(Role::User, text.span, 0);
        Ok(())
    }

    fn item(&mut self, place: u32) -> Result<Role, Fault> {
        let (start, begin) = (self.walk.at(), self.talk.len());
        let parts = self.item_parts(place, begin)?;
        let end = self.walk.at();
        let word = parts.kind.map(|kind| unescape(kind.of(self.body)));
        let (role, kind) = match word.as_deref() {
            None | Some("message") => return Ok(self.role_of(parts.role)),
            Some(word) => role_and_kind(word),
        };
        let inner = match kind {
            BlockKind::Other => Member::Unknown.inner(),
            _ => 0,
        };
        let mut whole = Block {
            call_id: parts.call_id,
            ..block(kind, place, inner, Span { start, end }, !self.walk.gaps)
        };
        match kind {
            BlockKind::ToolUse | BlockKind::ServerTool => {
                whole.call_id = parts.call_id.or(parts.id);
                whole.name = parts.name.or(parts.kind);
                whole.content = parts.input;
            }
            BlockKind::ToolResult => {
                // The output of a local shell names the call in `id`.
                whole.call_id = parts.call_id.or(parts.id);
                whole.content = parts.output;
                whole.is_error = self.patch_failed(word.as_deref(), parts.status);
            }
            _ => {}
        }
        if kind == BlockKind::ToolResult {
            self.fold(begin, &mut whole);
        } else {
            self.talk.truncate(begin);
        }
        self.talk.push(whole);
        Ok(role)
    }

    fn role_of(&self, role: Option<Span>) -> Role {
        let role = role.map(|role| unescape(role.of(self.body)));
        match role.as_deref() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system" | "developer") => Role::System,
            _ => Role::Other,
        }
    }

    /// The outcome of a patch is the one that the API has a word for. The status of other results
    /// says whether they are complete.
    fn patch_failed(&self, kind: Option<&str>, status: Option<Span>) -> Option<bool> {
        let status = status.filter(|_| kind == Some("apply_patch_call_output"))?;
        let says = |word| says(status.of(self.body), word);
        match (says("failed"), says("completed")) {
            (false, false) => None,
            (failed, _) => Some(failed),
        }
    }

    fn item_parts(&mut self, place: u32, begin: usize) -> Result<Parts, Fault> {
        let mut parts = Parts::default();
        self.members(|reader, key, seen| {
            let bit = match key {
                b"type" => {
                    parts.kind = reader.string()?;
                    0
                }
                b"role" => {
                    parts.role = reader.string()?;
                    1
                }
                b"content" => {
                    reader.talk.truncate(begin);
                    parts.content = reader.content(place)?;
                    2
                }
                // An item has a content or an output.
                b"output" => {
                    reader.talk.truncate(begin);
                    parts.output = reader.content(place)?;
                    3
                }
                b"id" => {
                    parts.id = reader.string()?;
                    4
                }
                b"call_id" => {
                    parts.call_id = reader.string()?;
                    5
                }
                b"name" => {
                    parts.name = reader.string()?;
                    6
                }
                b"arguments" | b"input" | b"action" | b"operation" | b"code" => {
                    parts.input = reader.value()?.or(parts.input);
                    7 + match key {
                        b"arguments" => 0,
                        b"input" => 1,
                        b"action" => 2,
                        b"operation" => 3,
                        _ => 4,
                    }
                }
                b"status" => {
                    parts.status = reader.string()?;
                    12
                }
                _ => return reader.walk.skip().map(drop),
            };
            reader.once(seen, bit);
            Ok(())
        })?;
        Ok(parts)
    }
}

/// Who an item is of, and what it is.
fn role_and_kind(word: &str) -> (Role, BlockKind) {
    match word {
        "function_call" | "custom_tool_call" | "local_shell_call" | "shell_call"
        | "apply_patch_call" | "computer_call" => (Role::Assistant, BlockKind::ToolUse),
        "function_call_output"
        | "custom_tool_call_output"
        | "local_shell_call_output"
        | "shell_call_output"
        | "apply_patch_call_output"
        | "computer_call_output" => (Role::User, BlockKind::ToolResult),
        "reasoning" => (Role::Assistant, BlockKind::Thinking),
        "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "image_generation_call"
        | "mcp_call"
        | "mcp_list_tools"
        | "mcp_approval_request"
        | "tool_search_call"
        | "program" => (Role::Assistant, BlockKind::ServerTool),
        // Either side may have run what these answer.
        "program_output" => (Role::User, BlockKind::ServerTool),
        "tool_search_output" | "mcp_approval_response" => (Role::User, BlockKind::Other),
        "compaction" | "compaction_summary" | "context_compaction" => {
            (Role::Assistant, BlockKind::Other)
        }
        _ => (Role::Other, BlockKind::Other),
    }
}
