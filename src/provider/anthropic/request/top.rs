//! The members of the request itself: what they say, and where the blocks are to be read.

use super::{MAX_WORD_BYTES, Reader, Seen};
use crate::provider::json::{Fault, beginning, says, unescape};
use crate::provider::view::{Block, History, Section, Span};

/// What only the whole body says, in the order in which it was read.
#[derive(Default)]
pub(super) struct Top {
    pub(super) tools: Vec<Block>,
    pub(super) system: Vec<Block>,
    pub(super) talk: Vec<Block>,
    pub(super) session: Option<Span>,
    pub(super) litellm_session: Option<Span>,
    pub(super) cache_key: Option<Span>,
    pub(super) user: Option<Span>,
    pub(super) metadata_session: Option<Span>,
    pub(super) tool_choice: Option<Span>,
    pub(super) thinking: Option<Span>,
    pub(super) effort: Option<Span>,
    pub(super) format: Option<Span>,
    /// Where it stood before it moved into `output_config`.
    pub(super) old_format: Option<Span>,
    pub(super) speed: Option<Span>,
}

impl Reader<'_> {
    pub(super) fn top_level(&mut self) -> Result<Top, Fault> {
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
                    self.out.model = raw.map(|raw| beginning(raw.of(self.body), MAX_WORD_BYTES));
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

    /// A guess that saves growing the lists step by step.
    fn expected_messages(&self) -> usize {
        (self.body.len() / 1024).clamp(4, 512)
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
}
