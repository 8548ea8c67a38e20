//! The members of a request, and the view that they make.

use super::reader::{MAX_WORD_BYTES, Reader, Seen};
use crate::provider::json::{Fault, beginning, says, unescape};
use crate::provider::openai::caching::{controls, rules};
use crate::provider::openai::claude;
use crate::provider::openai::diagnosis::QUESTION;
use crate::provider::view::{
    Caching, History, Parameter, RequestView, Section, Span, TextSpelling, Ttl, UsageQuestion,
};
use crate::provider::wire::Wire;

/// How a text goes into a conversation: as a message of the user, in both formats.
static MESSAGE: TextSpelling = TextSpelling {
    before: br#",{"role":"user","content":"#,
    after: b"}",
    own_element: true,
};

/// What only the whole body says.
#[derive(Default)]
struct Top {
    limit: Option<Span>,
    old_limit: Option<Span>,
    prompt: Option<Span>,
    service_tier: Option<Span>,
    format: Option<Span>,
    effort: Option<Span>,
    /// As routers spell it in Chat Completions.
    nested_effort: Option<Span>,
    verbosity: Option<Span>,
    cache_key: Option<Span>,
    session: Option<Span>,
    litellm_session: Option<Span>,
    metadata_session: Option<Span>,
    user: Option<Span>,
    previous: Option<Span>,
    compared: Option<Span>,
    has_cache_options: bool,
    has_retention: bool,
    cache_mode: Option<Span>,
    cache_ttl: Option<Span>,
    conversation: Option<Span>,
    not_stored: bool,
    /// What is to be edited so that they ask for the tokens; `None` inside where they do.
    stream_options: Option<Option<UsageQuestion>>,
}

/// Looks at a body of either format.
pub(super) fn view(body: &[u8], wire: Wire) -> Result<RequestView, Fault> {
    let mut reader = Reader::new(body)?;
    reader.out.wire = wire;
    if reader.walk.peek()? != b'{' {
        return Err("json_object_expected");
    }
    reader.out.object_start = reader.walk.at() + 1;
    let mut top = Top::default();
    reader.members(|reader, key, seen| reader.top_member(wire, key, seen, &mut top))?;
    reader.walk.finish()?;
    Ok(reader.assemble(wire, &top))
}

impl Reader<'_> {
    fn top_member(
        &mut self,
        wire: Wire,
        key: &[u8],
        seen: &mut Seen,
        top: &mut Top,
    ) -> Result<(), Fault> {
        let chat = wire == Wire::Chat;
        let bit = match key {
            b"messages" if chat => {
                self.messages()?;
                0
            }
            b"input" if !chat => {
                self.input()?;
                0
            }
            b"instructions" if !chat => {
                self.instructions()?;
                1
            }
            b"functions" if chat => {
                self.functions()?;
                1
            }
            b"tools" => {
                self.tools()?;
                2
            }
            b"model" => {
                let raw = self.string()?;
                self.out.model = raw.map(|raw| beginning(raw.of(self.body), MAX_WORD_BYTES));
                3
            }
            b"stream" => {
                let value = self.walk.skip()?;
                self.out.stream = value.of(self.body) == b"true";
                self.out.stream_at = Some(value);
                4
            }
            b"max_completion_tokens" if chat => {
                top.limit = self.value()?;
                5
            }
            b"max_tokens" if chat => {
                top.old_limit = self.value()?;
                6
            }
            b"max_output_tokens" if !chat => {
                top.limit = self.value()?;
                5
            }
            b"prompt" if !chat => {
                top.prompt = self.value()?;
                6
            }
            b"service_tier" => {
                top.service_tier = self.value()?;
                7
            }
            b"response_format" if chat => {
                top.format = self.value()?;
                8
            }
            b"verbosity" if chat => {
                top.verbosity = self.value()?;
                9
            }
            b"reasoning_effort" if chat => {
                top.effort = self.value()?;
                10
            }
            b"text" if !chat => {
                (top.format, top.verbosity) = self.pair(b"format", b"verbosity")?;
                8
            }
            b"reasoning" => {
                (top.nested_effort, _) = self.pair(b"effort", b"")?;
                11
            }
            b"prompt_cache_key" => {
                top.cache_key = self.string()?;
                12
            }
            b"session_id" => {
                top.session = self.string()?;
                13
            }
            b"litellm_session_id" => {
                top.litellm_session = self.string()?;
                14
            }
            b"metadata" => {
                [top.metadata_session, top.user] = self.strings([b"session_id", b"user_id"])?;
                15
            }
            b"tool_choice" => {
                self.out.forced_call |= self.forces()?;
                16
            }
            b"function_call" if chat => {
                self.out.forced_call |= self.walk.peek()? == b'{';
                self.walk.skip()?;
                17
            }
            b"previous_response_id" if !chat => {
                top.previous = self.string()?;
                17
            }
            b"conversation" if !chat => {
                top.conversation = match self.walk.peek()? {
                    b'"' => Some(self.walk.skip()?),
                    _ => {
                        let [id] = self.strings([b"id"])?;
                        id
                    }
                };
                18
            }
            b"store" if !chat => {
                top.not_stored = self.boolean()? == Some(false);
                19
            }
            b"prompt_cache_options" => {
                top.has_cache_options = true;
                [top.compared, top.cache_mode, top.cache_ttl] =
                    self.strings([b"comparison_response_id", b"mode", b"ttl"])?;
                20
            }
            b"prompt_cache_retention" => {
                top.has_retention = true;
                self.walk.skip()?;
                23
            }
            b"stream_options" if chat => {
                top.stream_options = Some(self.stream_options()?);
                22
            }
            b"cache_control" => {
                self.out.auto_marker = self.marker(true)?.0;
                21
            }
            _ => return self.walk.skip().map(drop),
        };
        self.once(seen, bit);
        Ok(())
    }

    /// Consumes `stream_options`, and says how they are made to ask for the tokens.
    fn stream_options(&mut self) -> Result<Option<UsageQuestion>, Fault> {
        if self.walk.peek()? != b'{' {
            let at = self.walk.skip()?;
            let text = r#"{"include_usage":true}"#;
            return Ok(Some(UsageQuestion { at, text }));
        }
        let inside = self.walk.at() + 1;
        let (mut asked, mut empty) = (None, true);
        self.members(|reader, key, _| {
            empty = false;
            let value = reader.walk.skip()?;
            if key == b"include_usage" {
                asked = Some(value);
            }
            Ok(())
        })?;
        let here = Span {
            start: inside,
            end: inside,
        };
        let (at, text) = match asked {
            Some(value) if value.of(self.body) == b"true" => return Ok(None),
            Some(value) => (value, "true"),
            None if empty => (here, r#""include_usage":true"#),
            None => (here, r#""include_usage":true,"#),
        };
        Ok(Some(UsageQuestion { at, text }))
    }

    /// The values of two keys of an object, without nulls.
    fn pair(&mut self, one: &[u8], other: &[u8]) -> Result<(Option<Span>, Option<Span>), Fault> {
        let mut found = (None, None);
        self.members(|reader, key, seen| {
            if key == one {
                found.0 = reader.value()?;
                reader.once(seen, 0);
            } else if key == other {
                found.1 = reader.value()?;
                reader.once(seen, 1);
            } else {
                reader.walk.skip()?;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Whether a choice of tools makes the model call one.
    fn forces(&mut self) -> Result<bool, Fault> {
        if self.walk.peek()? != b'{' {
            let word = self.string()?.map(|word| unescape(word.of(self.body)));
            return Ok(matches!(word.as_deref(), Some("required" | "any")));
        }
        let (mut kind, mut mode) = (None, None);
        self.members(|reader, key, seen| {
            match key {
                b"type" => {
                    kind = reader.string()?;
                    reader.once(seen, 0);
                }
                b"mode" => mode = reader.string()?,
                b"allowed_tools" => [mode] = reader.strings([b"mode"])?,
                _ => return reader.walk.skip().map(drop),
            }
            Ok(())
        })?;
        let says = |raw: Option<Span>, word| raw.is_some_and(|raw| says(raw.of(self.body), word));
        Ok(!says(kind, "allowed_tools") || says(mode, "required"))
    }

    /// Puts the sections in provider order and reads what needs all of them.
    fn assemble(mut self, wire: Wire, top: &Top) -> RequestView {
        let limit = top.limit.or(top.old_limit);
        let digits = limit.and_then(|limit| std::str::from_utf8(limit.of(self.body)).ok());
        self.out.max_tokens = digits.and_then(|digits| digits.parse().ok());
        self.out.max_tokens_at = limit;
        self.out.tools = (self.tools.len() + self.functions.len()) as u32;
        self.out.no_prewarm = Some("format");
        // A bare string has no place for a further element.
        let listed = self
            .out
            .messages
            .first()
            .is_none_or(|message| self.body.get(message.span.start as usize) == Some(&b'{'));
        self.out.text_block = listed.then_some(&MESSAGE);
        self.out.diagnostics = top.compared.is_some();
        self.out.parameters = self.parameters(wire, top);
        self.out.caching = self.caching(top);
        self.out.ask_usage = self.ask_usage(wire, top);
        let keyless = top.cache_key.is_none() && self.out.model.is_some();
        self.out.routing_key = keyless.then_some((r#""prompt_cache_key":""#, r#"","#));
        self.controls(wire, top);
        self.ids(top);
        self.out.history = self.history(wire, top);

        let mut system: Vec<_> = self.instructions.into_iter().collect();
        system.append(&mut self.system);
        for (outer, block) in system.iter_mut().enumerate() {
            block.outer = outer as u32;
        }
        let mut head = self.tools;
        head.reserve_exact(self.functions.len() + system.len() + self.talk.len());
        head.append(&mut self.functions);
        for (outer, block) in head.iter_mut().enumerate() {
            block.outer = outer as u32;
        }
        head.append(&mut system);
        let lifetime = top.cache_ttl.map(|ttl| unescape(ttl.of(self.body)));
        // Half an hour is what it is without a word; an unknown one is nobody's.
        let lifetime = lifetime.map(|ttl| Ttl::from_word(&ttl));
        if let Some(lifetime) = lifetime {
            let markers = head.iter_mut().chain(&mut self.talk);
            let markers = markers.filter_map(|block| block.marker.as_mut());
            for marker in
                markers.filter(|marker| self.inherit.binary_search(&marker.span.start).is_ok())
            {
                marker.ttl = lifetime;
            }
        }
        let shift = head.len() as u32;
        for message in &mut self.out.messages {
            message.blocks = message.blocks.start + shift..message.blocks.end + shift;
        }
        head.append(&mut self.talk);
        self.out.blocks = head;
        claude::adapt(&mut self.out, self.body);
        self.out
    }

    /// What decides, beside model and blocks, which prefixes are equal, in the order in which the
    /// provider names it (its reasons for a miss, November 2026). An explicit default counts as
    /// leaving it out; that of the effort depends on the model, so it is taken as said.
    fn parameters(&self, wire: Wire, top: &Top) -> Vec<Parameter> {
        let given = |name, from, value: Option<Span>, default: &[u8]| {
            let value = value.filter(|value| {
                let raw = value.of(self.body).iter();
                !raw.filter(|byte| !byte.is_ascii_whitespace()).eq(default)
            })?;
            Some(Parameter {
                name,
                from,
                value: Some(value),
            })
        };
        let chat = wire == Wire::Chat;
        let named = |of_chat, of_responses| if chat { of_chat } else { of_responses };
        let (format, effort, verbosity) = (
            named("response_format", "text.format"),
            if top.effort.is_some() {
                "reasoning_effort"
            } else {
                "reasoning.effort"
            },
            named("verbosity", "text.verbosity"),
        );
        [
            given("prompt", Section::Tools, top.prompt, b""),
            given("prompt_cache_key", Section::Tools, top.cache_key, b"\"\""),
            given(
                "service_tier",
                Section::Tools,
                top.service_tier,
                b"\"auto\"",
            ),
            given(format, Section::System, top.format, br#"{"type":"text"}"#),
            given(
                effort,
                Section::System,
                top.effort.or(top.nested_effort),
                b"",
            ),
            given(verbosity, Section::System, top.verbosity, b"\"medium\""),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The rules of the provider's own cache, which others that speak this format may not share.
    fn caching(&self, top: &Top) -> Caching {
        let says = |raw: Option<Span>, word| raw.is_some_and(|raw| says(raw.of(self.body), word));
        if says(top.cache_mode, "explicit") {
            return Caching::Marked;
        }
        let model = self.out.model.as_deref().unwrap_or_default();
        Caching::Automatic(rules(model, says(top.cache_ttl, "12h")))
    }

    /// What can be added about caching, where the model knows it.
    fn controls(&mut self, wire: Wire, top: &Top) {
        let of = controls(wire, self.out.model.as_deref().unwrap_or_default());
        self.out.spelling = of.markers;
        self.out.tells_caching = top.has_cache_options || top.has_retention;
        // The question is a member of its own.
        if wire == Wire::Responses && of.markers.is_some() && !top.has_cache_options {
            self.out.question = Some(&QUESTION);
        }
        let mut blocks = self.talk.iter().chain(&self.system).chain(&self.tools);
        let marked = self.out.auto_marker.is_some()
            || self.out.misplaced_markers > 0
            || blocks.any(|block| block.marker.is_some());
        if !self.out.tells_caching && !marked {
            (self.out.lifetimes, self.out.retention) = (of.lifetimes, of.retention);
        }
    }

    /// A Chat stream tells its tokens only when it is asked to (provider docs, November 2026).
    fn ask_usage(&self, wire: Wire, top: &Top) -> Option<UsageQuestion> {
        let askable = wire == Wire::Chat && self.out.stream && self.out.uneditable.is_none();
        let start = self.out.object_start;
        let unsaid = UsageQuestion {
            at: Span { start, end: start },
            // There are further members: at least the one that asks for a stream.
            text: r#""stream_options":{"include_usage":true},"#,
        };
        askable.then(|| top.stream_options.unwrap_or(Some(unsaid)))?
    }

    /// Ids of the conversation, the most telling first. A cache key may be shared by many.
    fn ids(&mut self, top: &Top) {
        let sessions = [
            top.metadata_session,
            top.session,
            top.litellm_session,
            top.conversation,
            top.cache_key,
        ];
        let sessions = sessions.into_iter().filter_map(|raw| self.text_of(raw));
        self.out.ids.sessions = sessions.collect();
        self.out.ids.user_id = self.text_of(top.user);
        let previous = self.text_of(top.previous);
        self.out.ids.previous_message = previous.or_else(|| self.text_of(top.compared));
    }

    fn history(&self, wire: Wire, top: &Top) -> History {
        if let Some(answer) = self.text_of(top.previous) {
            return History::Continues(answer);
        }
        // Whatever the conversation has so far stands before the input.
        if let Some(conversation) = self.text_of(top.conversation) {
            return History::Continues(format!("{}{conversation}", History::CONVERSATION));
        }
        match wire == Wire::Responses && !top.not_stored {
            true => History::Opened,
            false => History::Whole,
        }
    }
}
