//! Lists of blocks: tools, the system prompt, and the messages with their content.

use super::{Reader, Seen};
use crate::provider::json::{Fault, blank, unescape};
use crate::provider::view::{Block, BlockKind, Form, Message, Role, Section, Span, Unmarkable};

impl Reader<'_> {
    pub(super) fn tools(&mut self, into: &mut Vec<Block>) -> Result<(), Fault> {
        if !self.walk.enter(b'[')? {
            self.walk.skip()?;
            return Ok(());
        }
        let (mut first, mut outer) = (true, 0);
        while self.walk.element(&mut first)? {
            let block = self.block(Section::Tools, outer, 0)?;
            into.push(block);
            outer += 1;
        }
        Ok(())
    }

    pub(super) fn messages(&mut self, into: &mut Vec<Block>) -> Result<(), Fault> {
        self.out.messages.clear();
        if !self.walk.enter(b'[')? {
            self.walk.skip()?;
            return Ok(());
        }
        let mut first = true;
        while self.walk.element(&mut first)? {
            self.walk.peek()?;
            let start = self.walk.at();
            let outer = self.out.messages.len() as u32;
            let begin = into.len();
            let role = self.message(outer, begin, into)?;
            self.out.messages.push(Message {
                role,
                span: Span {
                    start,
                    end: self.walk.at(),
                },
                blocks: begin as u32..into.len() as u32,
            });
        }
        Ok(())
    }

    fn message(&mut self, outer: u32, begin: usize, into: &mut Vec<Block>) -> Result<Role, Fault> {
        let mut role = Role::Other;
        if !self.walk.enter(b'{')? {
            self.walk.skip()?;
            return Ok(role);
        }
        let (mut seen, mut first) = (Seen::default(), true);
        while let Some(key) = self.walk.key(&mut first)? {
            match key.as_ref() {
                b"role" => {
                    role = match self
                        .string()?
                        .map(|raw| unescape(raw.of(self.body)))
                        .as_deref()
                    {
                        Some("user") => Role::User,
                        Some("assistant") => Role::Assistant,
                        Some("system") => Role::System,
                        _ => Role::Other,
                    };
                    self.once(&mut seen, 0);
                }
                b"content" => {
                    into.truncate(begin);
                    self.content(Section::Messages, outer, into)?;
                    self.once(&mut seen, 1);
                }
                _ => {
                    self.walk.skip()?;
                }
            }
        }
        Ok(role)
    }

    /// `system`, or the `content` of a message: a string or an array of blocks.
    pub(super) fn content(
        &mut self,
        section: Section,
        outer: u32,
        into: &mut Vec<Block>,
    ) -> Result<(), Fault> {
        match self.walk.peek()? {
            b'"' => {
                let span = self.walk.skip()?;
                into.push(Block {
                    section,
                    kind: BlockKind::Text,
                    form: Form::BareString,
                    outer,
                    inner: 0,
                    place: outer,
                    span,
                    marker: None,
                    unmarkable: blank(span.of(self.body)).then_some(Unmarkable::Empty),
                    call_id: None,
                    name: None,
                    is_error: None,
                    content: Some(span),
                    plain: Some(span),
                    marker_member: None,
                    compact: true,
                });
            }
            b'[' => {
                self.walk.enter(b'[')?;
                let (mut first, mut index) = (true, 0);
                while self.walk.element(&mut first)? {
                    let (outer, inner) = match section {
                        Section::Messages => (outer, index),
                        _ => (index, 0),
                    };
                    let block = self.block(section, outer, inner)?;
                    into.push(block);
                    index += 1;
                }
            }
            _ => {
                self.walk.skip()?;
            }
        }
        Ok(())
    }
}
