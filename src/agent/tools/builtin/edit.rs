//! Changing a part of a file.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{Root, nearest, on_files, write};
use crate::agent::tools::{Manners, Tool, ToolError, ToolResult};

/// Places of an ambiguous text that are told.
const MAX_PLACES: usize = 10;
/// Lines shown before and after a change.
const AROUND: usize = 3;
/// How much of a change is shown, in lines.
const MAX_SHOWN: usize = 40;

const DESCRIPTION: &str = "Replaces a text in a file by another one. The old text must stand in \
the file exactly so, white space included, and in one place only, unless replace_all is set: read \
the file first, and take in enough lines around to make it unique. Use it for changes; for a new \
file, or all of one, use write_file (or create, which fails where the file exists). Example: \
{\"path\": \"src/lib.rs\", \"old\": \"let limit = 10;\", \"new\": \"let limit = 20;\"}. Gives the \
lines around the change with their numbers. Where the text is not found nothing is changed, and \
the answer says which lines are most like it.";

#[derive(Deserialize, JsonSchema)]
struct Input {
    /// Path of the file, relative to the working directory
    path: String,
    /// The text to replace; left out when a file is created
    #[serde(default)]
    old: String,
    /// The text to put there
    new: String,
    /// Replaces every place where the text stands
    #[serde(default)]
    replace_all: bool,
    /// Makes a new file with the new text; an existing one is left as it is
    #[serde(default)]
    create: bool,
}

/// The tool `edit_file`.
#[must_use]
pub fn edit_file(root: &Root) -> Arc<dyn Tool> {
    on_files(root, "edit_file", DESCRIPTION, Manners::CHANGES, edit)
}

fn edit(root: &Root, input: Input, _: &CancellationToken) -> ToolResult {
    let path = &input.path;
    if input.create {
        return create(root, &input);
    }
    if input.old.is_empty() {
        return Err(ToolError::failed("invalid_input", "old is empty")
            .hint("name the text to replace, or set create for a new file"));
    }
    if input.old == input.new {
        return Err(ToolError::failed(
            "invalid_input",
            "old and new are the same text",
        ));
    }
    let (full, bytes) = root.read(path)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        ToolError::failed(
            "binary",
            format!("{path} is no UTF-8 text and is not changed"),
        )
    })?;
    let places: Vec<usize> = text.match_indices(&input.old).map(|(at, _)| at).collect();
    let first = match places.as_slice() {
        [] => {
            return Err(
                ToolError::failed("no_match", format!("{path} has no such text"))
                    .hint(nearest::advice(&text, &input.old)),
            );
        }
        [one] => *one,
        [first, ..] if input.replace_all => *first,
        many => return Err(ambiguous(path, &text, many)),
    };
    let changed = text.replace(&input.old, &input.new);
    write::replace(root, path, &full, changed.as_bytes())?;
    let line = line_of(&changed, first);
    let count = places.len();
    let what = if count == 1 {
        "place"
    } else {
        "places, the first"
    };
    let shown = around(&changed, line, input.new.lines().count());
    Ok(format!(
        "replaced {count} {what} in {path}, line {line}:\n{shown}"
    ))
}

fn create(root: &Root, input: &Input) -> ToolResult {
    let path = &input.path;
    let full = root.resolve(path)?;
    if !input.old.is_empty() {
        return Err(ToolError::failed(
            "invalid_input",
            "a new file has no old text",
        ));
    }
    if full.exists() {
        return Err(
            ToolError::failed("exists", format!("{path} exists and was left as it is")).hint(
                "leave create out and name the old text, or use write_file to replace it all",
            ),
        );
    }
    write::replace(root, path, &full, input.new.as_bytes())?;
    Ok(format!("created {path}, {} bytes", input.new.len()))
}

fn ambiguous(path: &str, text: &str, places: &[usize]) -> ToolError {
    let lines: Vec<String> = places
        .iter()
        .take(MAX_PLACES)
        .map(|at| line_of(text, *at).to_string())
        .collect();
    let more = if places.len() > MAX_PLACES {
        " ..."
    } else {
        ""
    };
    let message = format!(
        "the text stands in {} places of {path}: lines {}{more}",
        places.len(),
        lines.join(", ")
    );
    ToolError::failed("ambiguous", message)
        .hint("take in lines around it that make it unique, or set replace_all")
}

/// The number of the line that a byte is in.
fn line_of(text: &str, at: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count()
}

/// Numbered lines around a change.
fn around(text: &str, line: usize, count: usize) -> String {
    let from = line.saturating_sub(AROUND).max(1);
    let to = line + count.min(MAX_SHOWN) + AROUND;
    let lines = text.lines().enumerate().skip(from - 1).take(to - from);
    lines
        .map(|(at, line)| format!("{:>6}\t{line}\n", at + 1))
        .collect()
}
