//! Definitions of tools, as blocks.

use super::reader::{Member, Reader, block};
use crate::provider::json::Fault;
use crate::provider::view::{Block, BlockKind, Marker, Section, Span, Unmarkable};

#[derive(Default)]
struct Parts {
    kind: Option<Span>,
    name: Option<Span>,
    /// Name of a function or custom tool that stands one level deeper (Chat Completions).
    inner_name: Option<Span>,
    server: Option<Span>,
    deferred: bool,
    marker: Option<Marker>,
    marker_member: Option<Span>,
}

impl Reader<'_> {
    /// Consumes `tools`.
    pub(super) fn tools(&mut self) -> Result<(), Fault> {
        self.tools = self.definitions(0)?;
        Ok(())
    }

    /// Consumes `functions`, the older spelling of Chat Completions.
    pub(super) fn functions(&mut self) -> Result<(), Fault> {
        self.functions = self.definitions(Member::Functions.inner())?;
        Ok(())
    }

    fn definitions(&mut self, inner: u32) -> Result<Vec<Block>, Fault> {
        let mut all = Vec::new();
        if !self.walk.enter(b'[')? {
            self.walk.skip()?;
            return Ok(all);
        }
        let mut first = true;
        while self.walk.element(&mut first)? {
            self.walk.peek()?;
            let start = self.walk.at();
            let gaps_before = std::mem::take(&mut self.walk.gaps);
            let parts = self.definition()?;
            let compact = !self.walk.gaps;
            self.walk.gaps |= gaps_before;
            let end = self.walk.at();
            let place = all.len() as u32;
            // A tool of the provider has no name of its own, so its kind stands for it.
            let name = parts.inner_name.or(parts.name).or(parts.server);
            all.push(Block {
                section: Section::Tools,
                outer: place,
                name: name.or(parts.kind),
                unmarkable: parts.deferred.then_some(Unmarkable::Deferred),
                marker: parts.marker,
                marker_member: parts.marker_member,
                ..block(BlockKind::Tool, place, inner, Span { start, end }, compact)
            });
        }
        Ok(all)
    }

    fn definition(&mut self) -> Result<Parts, Fault> {
        let mut parts = Parts::default();
        self.members(|reader, key, seen| {
            let bit = match key {
                b"type" => {
                    parts.kind = reader.string()?;
                    0
                }
                b"name" => {
                    parts.name = reader.string()?;
                    1
                }
                b"function" | b"custom" => {
                    [parts.inner_name] = reader.strings([b"name"])?;
                    2 + u32::from(key == b"custom")
                }
                b"server_label" => {
                    parts.server = reader.string()?;
                    4
                }
                b"defer_loading" => {
                    parts.deferred = reader.boolean()? == Some(true);
                    5
                }
                b"cache_control" => {
                    let (marker, member) = reader.marker(true)?;
                    (parts.marker, parts.marker_member) = (marker, Some(member));
                    6
                }
                _ => return reader.walk.skip().map(drop),
            };
            reader.once(seen, bit);
            Ok(())
        })?;
        Ok(parts)
    }
}
