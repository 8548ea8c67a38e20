//! What both formats are read with: values, and the runs of one speaker.

use crate::provider::json::{Fault, Walker, unescape};
use crate::provider::view::{
    Block, BlockKind, Form, Message, RequestView, Role, Section, Span, Unmarkable,
};

/// Longest model name and conversation id that is kept, in bytes; a longer model name is cut, a
/// longer id ignored (two conversations must not become one by cutting).
pub(super) const MAX_WORD_BYTES: usize = 1024;

/// First of the values of [`Block::inner`] that stand for a place that has no number of its own.
const PLACES: u32 = u32::MAX - 15;

/// Such a place: a member of the request or of its element, or all of an element that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Unknown,
    Instructions,
    Input,
    Functions,
    FunctionCall,
    Refusal,
    Audio,
    ReasoningContent,
    Reasoning,
    ReasoningDetails,
    ThinkingBlocks,
}

impl Member {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Unknown, ""),
        (Self::Instructions, "instructions"),
        (Self::Input, "input"),
        (Self::Functions, "functions"),
        (Self::FunctionCall, "function_call"),
        (Self::Refusal, "refusal"),
        (Self::Audio, "audio"),
        (Self::ReasoningContent, "reasoning_content"),
        (Self::Reasoning, "reasoning"),
        (Self::ReasoningDetails, "reasoning_details"),
        (Self::ThinkingBlocks, "thinking_blocks"),
    ];

    /// What [`Block::inner`] says for it.
    pub(super) fn inner(self) -> u32 {
        PLACES + self as u32
    }

    /// The place that a block stands in, with its name, if it has no number.
    pub(super) fn of(block: &Block) -> Option<(Self, &'static str)> {
        let at = block.inner.checked_sub(PLACES)?;
        Self::ALL.get(at as usize).copied()
    }
}

/// Keys seen in one object, as bits.
#[derive(Default)]
pub(super) struct Seen(u32);

/// The body, and what of it has been read.
pub(super) struct Reader<'a> {
    pub body: &'a [u8],
    pub walk: Walker<'a>,
    pub out: RequestView,
    pub tools: Vec<Block>,
    pub functions: Vec<Block>,
    pub instructions: Option<Block>,
    /// Blocks of the system messages before all others.
    pub system: Vec<Block>,
    pub talk: Vec<Block>,
    /// Where the breakpoints begin that live as long as the request says.
    pub inherit: Vec<u32>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Result<Self, Fault> {
        // A guess that saves growing the list step by step.
        let expected = (body.len() / 512).clamp(8, 1024);
        Ok(Self {
            body,
            walk: Walker::new(body)?,
            out: RequestView::default(),
            tools: Vec::new(),
            functions: Vec::new(),
            instructions: None,
            system: Vec::new(),
            talk: Vec::with_capacity(expected),
            inherit: Vec::new(),
        })
    }
}

impl Reader<'_> {
    /// Notes that a key was seen; whether it had been before.
    pub(super) fn once(&mut self, seen: &mut Seen, bit: u32) -> bool {
        let again = seen.0 & 1 << bit != 0;
        if again {
            self.out.uneditable = Some("duplicate_key");
        }
        seen.0 |= 1 << bit;
        again
    }

    /// Consumes the value; its span if it is a string.
    pub(super) fn string(&mut self) -> Result<Option<Span>, Fault> {
        let is_string = self.walk.peek()? == b'"';
        let span = self.walk.skip()?;
        Ok(is_string.then_some(span))
    }

    /// Consumes the value; its span unless it is null, which the API takes for absent.
    pub(super) fn value(&mut self) -> Result<Option<Span>, Fault> {
        let is_null = self.walk.peek()? == b'n';
        let span = self.walk.skip()?;
        Ok((!is_null).then_some(span))
    }

    /// Consumes the value; what it says if it is a boolean.
    pub(super) fn boolean(&mut self) -> Result<Option<bool>, Fault> {
        Ok(match self.walk.skip()?.of(self.body) {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        })
    }

    /// Consumes the value. If it is an object, `member` is called at each key, and must consume the
    /// value behind it; whether it is one is returned.
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, &[u8], &mut Seen) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        if !self.walk.enter(b'{')? {
            self.walk.skip()?;
            return Ok(false);
        }
        let (mut seen, mut first) = (Seen::default(), true);
        while let Some(key) = self.walk.key(&mut first)? {
            member(self, key.as_ref(), &mut seen)?;
        }
        Ok(true)
    }

    /// The string values of some keys of an object; anything else is skipped.
    pub(super) fn strings<const N: usize>(
        &mut self,
        keys: [&[u8]; N],
    ) -> Result<[Option<Span>; N], Fault> {
        let mut found = [None; N];
        self.members(|reader, key, seen| {
            let Some(at) = keys.iter().position(|known| *known == key) else {
                return reader.walk.skip().map(drop);
            };
            found[at] = reader.string()?;
            reader.once(seen, at as u32);
            Ok(())
        })?;
        Ok(found)
    }

    /// What a raw JSON string says; `None` where it is empty, or too long for a word.
    pub(super) fn text_of(&self, raw: Option<Span>) -> Option<String> {
        let raw = raw?.of(self.body);
        // Escapes only shrink when read, but at most sixfold.
        if raw.len() > MAX_WORD_BYTES * 6 {
            return None;
        }
        let text = unescape(raw);
        (!text.is_empty() && text.len() <= MAX_WORD_BYTES).then(|| text.into_owned())
    }

    /// Consumes an array and hands each of its elements to `read`, which says who speaks in it and
    /// puts its blocks behind those of the elements before.
    pub(super) fn elements(
        &mut self,
        read: fn(&mut Self, u32) -> Result<Role, Fault>,
    ) -> Result<(), Fault> {
        self.forget_talk();
        if !self.walk.enter(b'[')? {
            self.walk.skip()?;
            return Ok(());
        }
        let (mut first, mut place) = (true, 0);
        while self.walk.element(&mut first)? {
            let is_object = self.walk.peek()? == b'{';
            let (start, begin) = (self.walk.at(), self.talk.len());
            let gaps_before = std::mem::take(&mut self.walk.gaps);
            let role = if is_object {
                read(self, place)?
            } else {
                self.walk.skip()?;
                Role::Other
            };
            self.walk.gaps |= gaps_before;
            let end = self.walk.at();
            self.speak(role, Span { start, end }, begin);
            place += 1;
        }
        Ok(())
    }

    /// Forgets a conversation whose key stands a second time.
    pub(super) fn forget_talk(&mut self) {
        self.out.messages.clear();
        self.system.clear();
        self.talk.clear();
    }

    /// Puts an element, whose blocks begin at `begin`, into the run of its speaker.
    pub(super) fn speak(&mut self, role: Role, span: Span, begin: usize) {
        if role == Role::System && self.out.messages.is_empty() {
            for block in &mut self.talk[begin..] {
                block.section = Section::System;
            }
            self.system.extend(self.talk.drain(begin..));
            return;
        }
        let end = self.talk.len() as u32;
        let run = self.out.messages.last_mut();
        match run.filter(|run| run.role == role && role != Role::Other) {
            Some(run) => {
                run.span.end = span.end;
                run.blocks.end = end;
            }
            None => self.out.messages.push(Message {
                role,
                span,
                blocks: begin as u32..end,
            }),
        }
        let outer = self.out.messages.len() as u32 - 1;
        for block in &mut self.talk[begin..] {
            block.outer = outer;
        }
    }
}

/// A block of the conversation of which nothing is known but where it stands.
pub(super) fn block(kind: BlockKind, place: u32, inner: u32, span: Span, compact: bool) -> Block {
    Block {
        section: Section::Messages,
        kind,
        form: Form::Object,
        outer: 0,
        inner,
        place,
        span,
        marker: None,
        unmarkable: match kind {
            BlockKind::Thinking => Some(Unmarkable::Thinking),
            BlockKind::Other => Some(Unmarkable::Unknown),
            _ => None,
        },
        call_id: None,
        name: None,
        is_error: None,
        content: None,
        plain: None,
        marker_member: None,
        compact,
    }
}
