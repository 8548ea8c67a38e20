//! The tools of an agent.

use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::Validator;

use super::presence::Abandoned;
use super::{Tool, schema};
use crate::agent::machine::ToolSpec;

/// Bytes of a result that the model reads when nothing else is said.
pub const DEFAULT_MAX_RESULT: usize = 30_000;

/// The tools of an agent, in the order in which they are told.
#[derive(Clone)]
pub struct Toolbox {
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    max_result: usize,
}

/// A tool with what is made of it once.
#[derive(Clone)]
pub(super) struct Entry {
    pub tool: Arc<dyn Tool>,
    pub spec: ToolSpec,
    /// Its compiled schema, or why there is none.
    pub validator: Arc<Result<Validator, String>>,
    pub abandoned: Abandoned,
}

impl Default for Toolbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Toolbox {
    /// An empty box.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            by_name: HashMap::new(),
            max_result: DEFAULT_MAX_RESULT,
        }
    }

    /// The same with another limit of a result, in bytes; longer ones lose their middle.
    #[must_use]
    pub fn with_max_result(mut self, bytes: usize) -> Self {
        self.max_result = bytes;
        self
    }

    /// Bytes of a result that the model reads.
    #[must_use]
    pub const fn max_result(&self) -> usize {
        self.max_result
    }

    /// Adds a tool; one of the same name takes the place of the earlier one. Its schema is compiled
    /// here, once. A tool whose schema cannot be used ends the run when it is called.
    pub fn add(&mut self, tool: Arc<dyn Tool>) {
        let spec = tool.spec();
        let name = spec.name.clone();
        let entry = Entry {
            validator: Arc::new(schema::compile(&spec.schema)),
            abandoned: Abandoned::default(),
            tool,
            spec,
        };
        match self.by_name.get(&name) {
            Some(at) => self.entries[*at] = entry,
            None => {
                self.by_name.insert(name, self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    /// How the tools are told.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.entries
            .iter()
            .map(|entry| entry.spec.clone())
            .collect()
    }

    /// The tool of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        Some(&self.entry(name)?.tool)
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(*self.by_name.get(name)?)
    }

    /// Names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.spec.name.as_str())
    }
}
