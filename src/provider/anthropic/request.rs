//! What a Messages request asks for, seen without changing or rebuilding a byte of it.
//!
//! One forward walk over the body (`view`). Unknown fields, block types and roles are fine; they
//! are simply never marked. Facts about the API are from its documentation and SDK types as of
//! November 2026 unless another source is named.

mod block;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::diagnosis::QUESTION;
use crate::provider::json::{Fault, Walker, blank, inside, says, unescape};
use crate::provider::view::{
    Block, BlockKind, Form, History, Marker, MarkerSpelling, Message, Parameter, RequestView, Role,
    Section, Span, Spelling, TextSpelling, Ttl, Unmarkable,
};

/// Longest model name and conversation id that is kept, in bytes; a longer model name is cut, a
/// longer id ignored (two conversations must not become one by cutting).
const MAX_WORD_BYTES: usize = 1024;

/// How a breakpoint is written. Five minutes is the default and is left unsaid.
pub static MARKERS: MarkerSpelling = MarkerSpelling {
    m5: Spelling {
        member: br#","cache_control":{"type":"ephemeral"}"#,
        wrap_open: br#"[{"type":"text","text":"#,
        wrap_close: br#","cache_control":{"type":"ephemeral"}}]"#,
    },
    h1: Spelling {
        member: br#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        wrap_open: br#"[{"type":"text","text":"#,
        wrap_close: br#","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#,
    },
};

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
        (Section::Tools, _) => format!("tools[{outer}]"),
        (Section::System, Form::BareString) => "system".into(),
        (Section::System, Form::Object) => format!("system[{outer}]"),
        (Section::Messages, Form::BareString) if inner == 0 => format!("messages[{outer}].content"),
        (Section::Messages, _) => format!("messages[{outer}].content[{inner}]"),
    }
}

/// What only the whole body says, in the order in which it was read.
#[derive(Default)]
struct Top {
    tools: Vec<Block>,
    system: Vec<Block>,
    talk: Vec<Block>,
    session: Option<Span>,
    litellm_session: Option<Span>,
    cache_key: Option<Span>,
    user: Option<Span>,
    metadata_session: Option<Span>,
    tool_choice: Option<Span>,
    thinking: Option<Span>,
    effort: Option<Span>,
    format: Option<Span>,
    /// Where it stood before it moved into `output_config`.
    old_format: Option<Span>,
    speed: Option<Span>,
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

    fn top_level(&mut self) -> Result<Top, Fault> {
        if !self.walk.enter(b'{')? {
            return Err("json_object_expected");
        }
        self.out.object_start = self.walk.at();
        let (mut top, mut seen, mut first) = (
            Top {
                talk: Vec::with_capacity(self.expected_messages() * 2),
                ..Top::default()
            },
            Seen::default(),
            true,
        );
        while let Some(key) = self.walk.key(&mut first)? {
            let bit = match key.as_ref() {
                b"messages" => {
                    top.talk.clear();
                    self.messages(&mut top.talk)?;
                    0
                }
                b"system" => {
                    top.system.clear();
                    self.content(Section::System, 0, &mut top.system)?;
                    1
                }
                b"tools" => {
                    top.tools.clear();
                    self.tools(&mut top.tools)?;
                    2
                }
                b"cache_control" => {
                    self.out.auto_marker = self.marker()?.0;
                    3
                }
                b"model" => {
                    let raw = self.string()?;
                    self.out.model = raw.map(|raw| {
                        let raw = raw.of(self.body);
                        let raw = &raw[..raw.len().min(MAX_WORD_BYTES * 6)];
                        crate::text::prefix(&unescape(raw), MAX_WORD_BYTES).to_owned()
                    });
                    4
                }
                b"stream" => {
                    let value = self.walk.skip()?;
                    self.out.stream = value.of(self.body) == b"true";
                    self.out.stream_at = Some(value);
                    5
                }
                b"max_tokens" => {
                    let value = self.walk.skip()?;
                    let raw = std::str::from_utf8(value.of(self.body));
                    self.out.max_tokens = raw.ok().and_then(|s| s.parse().ok());
                    self.out.max_tokens_at = Some(value);
                    6
                }
                b"speed" => {
                    top.speed = self.string()?.filter(|s| says(s.of(self.body), "fast"));
                    self.out.fast = top.speed.is_some();
                    7
                }
                b"thread" => {
                    self.thread()?;
                    8
                }
                b"metadata" => {
                    (top.user, top.metadata_session) = self.two(b"user_id", b"session_id")?;
                    9
                }
                b"diagnostics" => {
                    self.out.question = None;
                    self.out.diagnostics = self.walk.peek()? == b'{';
                    let (previous, _) = self.two(b"previous_message_id", b"")?;
                    self.out.ids.previous_message = self.text_of(previous);
                    10
                }
                b"session_id" => {
                    top.session = self.string()?;
                    11
                }
                b"litellm_session_id" => {
                    top.litellm_session = self.string()?;
                    12
                }
                b"prompt_cache_key" => {
                    top.cache_key = self.string()?;
                    13
                }
                b"tool_choice" => {
                    let is_null = self.walk.peek()? == b'n';
                    let start = self.walk.at();
                    let (kind, _) = self.two(b"type", b"")?;
                    let kind = kind.map(|kind| unescape(kind.of(self.body)));
                    self.out.forced_call = matches!(kind.as_deref(), Some("any" | "tool"));
                    let end = self.walk.at();
                    top.tool_choice = (!is_null).then_some(Span { start, end });
                    14
                }
                b"thinking" => {
                    top.thinking = self.value()?;
                    15
                }
                b"output_config" => {
                    (top.effort, top.format) = self.output_config()?;
                    16
                }
                b"output_format" => {
                    top.old_format = self.value()?;
                    17
                }
                _ => {
                    self.walk.skip()?;
                    continue;
                }
            };
            self.once(&mut seen, bit);
        }
        Ok(top)
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

    /// The effort, which is all of it that is known to be part of the cache's key, and the format.
    fn output_config(&mut self) -> Result<(Option<Span>, Option<Span>), Fault> {
        let mut found = (None, None);
        if !self.walk.enter(b'{')? {
            self.walk.skip()?;
            return Ok(found);
        }
        let (mut seen, mut first) = (Seen::default(), true);
        while let Some(key) = self.walk.key(&mut first)? {
            match key.as_ref() {
                b"effort" => {
                    found.0 = self.string()?;
                    self.once(&mut seen, 0);
                }
                b"format" => {
                    found.1 = self.value()?;
                    self.once(&mut seen, 1);
                }
                _ => {
                    self.walk.skip()?;
                }
            }
        }
        Ok(found)
    }

    /// Message threads (beta of August 2026): the provider keeps the conversation.
    fn thread(&mut self) -> Result<(), Fault> {
        let start = self.walk.peek()?;
        let (kind, previous) = self.two(b"type", b"previous_message_id")?;
        let kind = kind.map(|kind| unescape(kind.of(self.body)));
        self.out.history = match kind.as_deref() {
            Some("create") => History::Opened,
            Some("continue") => History::Continues(self.text_of(previous).unwrap_or_default()),
            _ => {
                // `null` is the documented default; anything else is not understood.
                if start != b'n' {
                    self.out.uneditable = Some("unknown_thread");
                }
                History::Whole
            }
        };
        Ok(())
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

    fn tools(&mut self, into: &mut Vec<Block>) -> Result<(), Fault> {
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

    fn messages(&mut self, into: &mut Vec<Block>) -> Result<(), Fault> {
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
    fn content(
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

    /// Puts the sections in provider order and reads what needs all of them.
    /// A guess that saves growing the lists step by step.
    fn expected_messages(&self) -> usize {
        (self.body.len() / 1024).clamp(4, 512)
    }

    fn assemble(mut self, top: Top) -> RequestView {
        self.out.tools = top.tools.len() as u32;
        self.sessions(&top);
        let parameters = self.parameters(&top);
        self.out.no_prewarm = self.no_prewarm(&top);
        let Top {
            tools,
            system,
            mut talk,
            ..
        } = top;
        if self.talk_has_code {
            self.mark_results_of_code(&mut talk);
        }
        self.out.parameters = parameters;
        let head = (tools.len() + system.len()) as u32;
        for message in &mut self.out.messages {
            message.blocks = message.blocks.start + head..message.blocks.end + head;
        }
        self.out.blocks = tools;
        self.out.blocks.reserve_exact(system.len() + talk.len());
        self.out.blocks.extend(system);
        self.out.blocks.append(&mut talk);
        self.out
    }

    /// What decides, beside the blocks, which prefixes are equal (the provider's table of what
    /// invalidates the cache, August 2026). An explicit default counts as leaving it out.
    fn parameters(&self, top: &Top) -> Vec<Parameter> {
        let fact = |is: bool, name, from| {
            is.then_some(Parameter {
                name,
                from,
                value: None,
            })
        };
        let given = |value: Option<Span>, default: &[u8], name, from| {
            let value = value.filter(|value| value.of(self.body) != default)?;
            Some(Parameter {
                name,
                from,
                value: Some(value),
            })
        };
        [
            given(top.speed, b"", "speed", Section::System),
            fact(self.has_citations, "citations", Section::System),
            given(
                top.tool_choice
                    .filter(|choice| !is_auto(choice.of(self.body))),
                b"",
                "tool_choice",
                Section::Messages,
            ),
            given(top.thinking, b"", "thinking", Section::Messages),
            given(
                top.effort,
                b"\"high\"",
                "output_config.effort",
                Section::Messages,
            ),
            fact(self.has_images, "images", Section::Messages),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What the provider does not take together with `max_tokens: 0` (docs of August 2026).
    /// Kinds that this version does not know are taken for refused ones.
    fn no_prewarm(&self, top: &Top) -> Option<&'static str> {
        let other_than = |value: Option<Span>, fine: [&str; 2]| {
            value.is_some_and(|value| {
                let kind = kind_of(value.of(self.body));
                !kind.is_some_and(|kind| fine.contains(&kind.as_str()))
            })
        };
        if other_than(top.thinking, ["disabled", "disabled"]) {
            Some("thinking")
        } else if other_than(top.tool_choice, ["auto", "none"]) {
            Some("tool_choice")
        } else if top.format.or(top.old_format).is_some() {
            Some("output_format")
        } else {
            None
        }
    }

    /// A result of a call that the provider's code execution made must not be marked either.
    fn mark_results_of_code(&self, talk: &mut [Block]) {
        let calls: HashSet<_> = talk
            .iter()
            .filter(|block| block.unmarkable == Some(Unmarkable::CodeExecution))
            .filter_map(|block| Some(unescape(block.call_id?.of(self.body))))
            .collect();
        for block in talk {
            let of_code = |id: Span| calls.contains(&unescape(id.of(self.body)));
            if block.call_id.is_some_and(of_code) {
                block.unmarkable = Some(Unmarkable::CodeExecution);
            }
        }
    }

    /// Session ids in the order in which they are to be believed.
    fn sessions(&mut self, top: &Top) {
        self.out.ids.user_id = self.text_of(top.user);
        let of_user = self.out.ids.user_id.as_deref().and_then(session_of_user);
        let others = [
            top.session,
            top.litellm_session,
            top.metadata_session,
            top.cache_key,
        ];
        let sessions = of_user
            .into_iter()
            .chain(others.into_iter().filter_map(|raw| self.text_of(raw)))
            .collect();
        self.out.ids.sessions = sessions;
    }
}

/// The session id inside Claude Code's `metadata.user_id`: JSON with `session_id`, or (older)
/// `user_<hash>_account_<uuid>_session_<uuid>`.
fn session_of_user(user: &str) -> Option<String> {
    if !user.trim_start().starts_with('{') {
        let (before, session) = user.rsplit_once("_session_")?;
        let sound = before.starts_with("user_")
            && session.len() >= 8
            && session
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-');
        return sound.then(|| session.to_owned());
    }
    let mut reader = Reader::new(user.as_bytes()).ok()?;
    let (session, _) = reader.two(b"session_id", b"").ok()?;
    reader.text_of(session)
}

/// The `type` of an object.
fn kind_of(object: &[u8]) -> Option<String> {
    let mut reader = Reader::new(object).ok()?;
    let (kind, _) = reader.two(b"type", b"").ok()?;
    reader.text_of(kind)
}

/// Whether a `tool_choice` says what a request without one gets.
fn is_auto(choice: &[u8]) -> bool {
    let spelled = choice.iter().filter(|byte| !byte.is_ascii_whitespace());
    spelled.eq(br#"{"type":"auto"}"#.iter())
}
