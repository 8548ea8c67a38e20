//! One call: is there such a tool, is the input right.

use serde_json::Value;

use super::presence::MAX_ABANDONED;
use super::toolbox::Entry;
use super::{ToolError, Toolbox, schema};
use crate::agent::talk::ToolCall;

/// Names that are listed for one that is not known.
const MAX_NAMES: usize = 40;
/// How much of an unknown name is repeated, in bytes.
const MAX_NAME: usize = 100;

/// Checks a call: its tool, and its input. The error is what the model reads.
pub fn check<'a>(toolbox: &'a Toolbox, call: &ToolCall) -> Result<(&'a Entry, Value), ToolError> {
    let entry = toolbox
        .entry(&call.name)
        .ok_or_else(|| unknown(toolbox, &call.name))?;
    let validator = entry.validator.as_ref().as_ref().map_err(|error| {
        ToolError::Exception(format!(
            "the schema of {} cannot be used: {error}",
            call.name
        ))
    })?;
    let input = read(&call.input)?;
    schema::check(validator, &input)?;
    if entry.abandoned.too_many() {
        return Err(ToolError::failed(
            "unavailable",
            format!(
                "{MAX_ABANDONED} earlier calls of {} have not come back",
                call.name
            ),
        )
        .hint("go on without it; it can be called again when one of them is back")
        .retryable());
    }
    Ok((entry, input))
}

/// Reads an input. Models leave it out where a tool wants none.
fn read(input: &str) -> Result<Value, ToolError> {
    let input = if input.trim().is_empty() { "{}" } else { input };
    serde_json::from_str(input).map_err(|error| {
        ToolError::failed("invalid_json", format!("the input is not JSON: {error}"))
            .hint("nothing was done; write the input as one JSON object")
    })
}

fn unknown(toolbox: &Toolbox, name: &str) -> ToolError {
    let name = crate::text::prefix(name, MAX_NAME);
    let mut names: Vec<&str> = toolbox.names().collect();
    // The sort is stable: equally near ones stay in their order.
    names.sort_by_cached_key(|known| strsim::damerau_levenshtein(known, name));
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let mut hint = match names.as_slice() {
        [] => "there are no tools at all".to_owned(),
        names => format!("the tools are, nearest first: {}", names.join(", ")),
    };
    if more > 0 {
        hint.push_str(&format!(" and {more} more"));
    }
    ToolError::failed("unknown_tool", format!("there is no tool {name:?}")).hint(hint)
}
