//! Calls that cannot succeed: of a tool that the request does not declare, or with an input that
//! its declared schema does not allow.
//!
//! What cannot be told is not told: a schema that refers to somewhere else, that does not compile,
//! or whose checking could take too long is no schema here, and an unknown name proves nothing
//! where a request may bring further tools. Schemas and inputs belong to others and may be made to
//! hurt, so both are bounded, and the work that they can cause together is estimated beforehand.

mod effort;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::bounded::Bounded;
use crate::provider::json::{Walker, unescape};
use crate::provider::view::DeclaredTools;
use effort::Effort;

/// The request declares no such tool.
pub const UNDECLARED: &str = "undeclared";
/// The input does not satisfy the tool's schema.
pub const INVALID_INPUT: &str = "invalid_input";

/// Tools of a request that are looked at; beyond them it is taken for open.
const MAX_TOOLS: usize = 4_096;
/// Longest name of a tool, in bytes; a longer one makes a request open.
const MAX_NAME_BYTES: usize = 1_024;
/// Largest schema that is checked against, in bytes.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Schemas of one request together, in bytes; those beyond are not checked against.
const MAX_SCHEMAS_BYTES: usize = 1 << 20;
/// Largest input that is checked, in bytes.
const MAX_INPUT_BYTES: usize = 256 << 10;
/// Size of a compiled pattern, in bytes, and of the memory with which it is matched.
const MAX_PATTERN_BYTES: usize = 256 << 10;
/// Lists of tools that are remembered.
const MAX_LISTS: usize = 128;
/// Their schemas and names together, in bytes.
const MAX_LISTS_BYTES: usize = 16 << 20;

/// The tools that a request declares.
#[derive(Debug, Default)]
pub struct Declared {
    tools: HashMap<String, Schema>,
    open: bool,
    /// Of names and schemas.
    bytes: usize,
}

/// The schema of a tool's input.
#[derive(Debug, Default)]
struct Schema {
    /// As it stands in the request; `None` where it is not checked against.
    text: Option<Box<[u8]>>,
    /// Compiled when it is first needed; `None` inside where it cannot be.
    compiled: OnceLock<Option<Compiled>>,
}

#[derive(Debug)]
struct Compiled {
    validator: Validator,
    effort: Effort,
}

impl Declared {
    /// Copies the names and schemas of the tools that `body` declares.
    #[must_use]
    pub fn read(body: &[u8], declared: &DeclaredTools) -> Self {
        let mut all = Self {
            open: declared.open || declared.tools.len() > MAX_TOOLS,
            ..Self::default()
        };
        let mut schemas = 0;
        for tool in declared.tools.iter().take(MAX_TOOLS) {
            let raw = tool.name.of(body);
            // An escape is at most six times as long as what it stands for.
            let name = (raw.len() <= MAX_NAME_BYTES * 6).then(|| unescape(raw));
            let Some(name) = name.filter(|name| name.len() <= MAX_NAME_BYTES) else {
                all.open = true;
                continue;
            };
            let text = tool.schema.map(|schema| schema.of(body)).filter(|text| {
                text.len() <= MAX_SCHEMA_BYTES && schemas + text.len() <= MAX_SCHEMAS_BYTES
            });
            schemas += text.map_or(0, <[u8]>::len);
            all.bytes += name.len() + text.map_or(0, <[u8]>::len);
            let schema = Schema {
                text: text.map(Box::from),
                compiled: OnceLock::new(),
            };
            if all.tools.contains_key(name.as_ref()) {
                // Nobody knows which of two counts.
                all.tools.insert(name.into_owned(), Schema::default());
            } else {
                all.tools.insert(name.into_owned(), schema);
            }
        }
        all
    }

    /// What is wrong with a call: [`UNDECLARED`], [`INVALID_INPUT`], or nothing that can be told.
    ///
    /// `input` is JSON text; `whole` says that none of it was cut off.
    #[must_use]
    pub fn check(&self, name: &str, input: &[u8], whole: bool) -> Option<&'static str> {
        let Some(schema) = self.tools.get(name) else {
            return (!self.open).then_some(UNDECLARED);
        };
        if !whole || input.len() > MAX_INPUT_BYTES {
            return None;
        }
        let text = schema.text.as_deref()?;
        if !is_json(input) {
            return Some(INVALID_INPUT);
        }
        // What a strict reader does not take (lone surrogates, say) others do.
        let input: Value = serde_json::from_slice(input).ok()?;
        let compiled = schema.compiled.get_or_init(|| compile(text)).as_ref()?;
        if !compiled.effort.allows(&input) {
            return None;
        }
        let valid = unharmed(|| compiled.validator.is_valid(&input))?;
        (!valid).then_some(INVALID_INPUT)
    }
}

/// Whether a lenient reader finds one value, and nothing behind it.
fn is_json(text: &[u8]) -> bool {
    let read = || {
        let mut walk = Walker::new(text)?;
        walk.skip()?;
        walk.finish()
    };
    read().is_ok()
}

fn compile(text: &[u8]) -> Option<Compiled> {
    let schema: Value = serde_json::from_slice(text).ok()?;
    let effort = Effort::of(&schema)?;
    // Formats are annotations: what a date is, clients do not agree on. Patterns are matched in
    // linear time; those that need more (looking around, back references) do not compile.
    let options = jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(
            PatternOptions::regex()
                .size_limit(MAX_PATTERN_BYTES)
                .dfa_size_limit(MAX_PATTERN_BYTES),
        );
    let validator = unharmed(|| options.build(&schema).ok())??;
    Some(Compiled { validator, effort })
}

/// A defect of the validator must cost a finding and not a turn.
fn unharmed<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Lists of tools as they come again with each turn, with what was compiled of them.
#[derive(Debug)]
pub struct Schemas(Mutex<Lists>);

#[derive(Debug)]
struct Lists {
    by_key: Bounded<u128, Arc<Declared>>,
    bytes: usize,
}

impl Schemas {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(Lists {
            by_key: Bounded::new(MAX_LISTS),
            bytes: 0,
        }))
    }

    /// The list of a key, which is a hash of all that [`Declared::read`] is given; read if it is
    /// not remembered. When there are too many, the ones not used longest are forgotten.
    pub fn get_or_read(&self, key: u128, read: impl FnOnce() -> Declared) -> Arc<Declared> {
        let lists = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lists().by_key.touch(&key) {
            return known.clone();
        }
        // Not under the lock: others may read theirs meanwhile, and reading the same twice is
        // harmless.
        let list = Arc::new(read());
        let mut lists = lists();
        let before = lists.by_key.remove(&key);
        let evicted = lists.by_key.insert(key, list.clone());
        lists.bytes += list.bytes;
        let gone = before.into_iter().chain(evicted.map(|(_, list)| list));
        lists.bytes -= gone.map(|list| list.bytes).sum::<usize>();
        while lists.bytes > MAX_LISTS_BYTES {
            let Some((_, oldest)) = lists.by_key.pop_oldest() else {
                break;
            };
            lists.bytes -= oldest.bytes;
        }
        list
    }
}

impl Default for Schemas {
    fn default() -> Self {
        Self::new()
    }
}
