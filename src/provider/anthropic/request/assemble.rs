//! The view, once the whole body has been read: the sections in provider order, and what needs all
//! of them.

use std::collections::HashSet;

use super::Reader;
use super::top::Top;
use crate::provider::json::unescape;
use crate::provider::view::{Block, Parameter, RequestView, Section, Span, Unmarkable};

impl Reader<'_> {
    /// Puts the sections in provider order and reads what needs all of them.
    pub(super) fn assemble(mut self, top: Top) -> RequestView {
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
        let others = [
            top.session,
            top.litellm_session,
            top.metadata_session,
            top.cache_key,
        ];
        let sessions = others.into_iter().filter_map(|raw| self.text_of(raw));
        self.out.ids.sessions = sessions.collect();
    }
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
