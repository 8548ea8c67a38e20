//! The body of a request, written member by member into one buffer: the same members give the same
//! bytes.

use std::fmt::Display;

use super::Ask;
use crate::agent::machine::ToolSpec;
use crate::agent::talk::Entry;
use crate::agent::text::quote;

/// A body that has its first members.
#[derive(Debug)]
pub struct Body(String);

impl Body {
    /// Begins with the model, with room for all that is asked.
    pub fn of(ask: &Ask<'_>) -> Self {
        let mut out = String::with_capacity(room(ask));
        put(&mut out, &["{\"model\":", &quote(&ask.setup.model)]);
        Self(out)
    }

    /// Adds a member; its value is JSON.
    pub fn member(&mut self, name: &str, value: impl Display) {
        put(&mut self.0, &[",\"", name, "\":", &value.to_string()]);
    }

    /// Adds an array.
    pub fn list(&mut self, name: &str, write: impl FnOnce(&mut List<'_>)) {
        put(&mut self.0, &[",\"", name, "\":"]);
        List::write(&mut self.0, write);
    }

    /// Adds the tools, as the format declares them, the last one with further members. Where there
    /// are none, there is no list either.
    pub fn tools(
        &mut self,
        tools: &[ToolSpec],
        declare: impl Fn(&mut String, &ToolSpec),
        last: &str,
    ) {
        if !tools.is_empty() {
            self.list("tools", |list| {
                tools.iter().for_each(|tool| declare(list.next(), tool));
                list.extend_last(last);
            });
        }
    }

    /// The body.
    pub fn end(mut self) -> Vec<u8> {
        self.0.push('}');
        self.0.into_bytes()
    }
}

/// An array that is being written.
#[derive(Debug)]
pub struct List<'a> {
    out: &'a mut String,
    len: usize,
}

impl List<'_> {
    /// Writes an array at the end of `out`.
    pub fn write(out: &mut String, write: impl FnOnce(&mut List<'_>)) {
        out.push('[');
        write(&mut List { out, len: 0 });
        out.push(']');
    }

    /// Where the next element is to be written.
    pub fn next(&mut self) -> &mut String {
        if self.len > 0 {
            self.out.push(',');
        }
        self.len += 1;
        self.out
    }

    /// How many elements it has so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Adds members to the last element, an object.
    pub fn extend_last(&mut self, members: &str) {
        if self.len > 0 {
            self.out.insert_str(self.out.len() - 1, members);
        }
    }
}

/// Adds these parts.
pub fn put(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}

/// Bytes that a body will have, rather more than less, so that it is not moved while it grows.
fn room(ask: &Ask<'_>) -> usize {
    const AROUND: usize = 128;
    let setup = ask.setup;
    let tools = setup.tools.iter();
    let tools = tools.map(|t| t.name.len() + t.description.len() + t.schema.len() + AROUND);
    let entries = ask.entries.iter().map(|entry| match entry {
        Entry::User { results, texts } => {
            let results = results.iter();
            let results = results.map(|r| r.text.json().len() + r.call.len() + AROUND);
            let texts = texts.iter().map(|text| text.len() + AROUND);
            results.sum::<usize>() + texts.sum::<usize>()
        }
        Entry::Assistant(answer) => {
            let blocks = answer.blocks.iter();
            blocks.map(|block| block.raw.len() + 1).sum::<usize>()
        }
    });
    let entries = entries.map(|entry| entry + AROUND);
    1024 + setup.system.len() * 9 / 8 + tools.sum::<usize>() + entries.sum::<usize>()
}
