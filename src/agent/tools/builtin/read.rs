//! Reading a file.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::root::is_binary;
use super::{Root, on_files};
use crate::agent::tools::{Manners, Tool, ToolError, ToolResult};

/// How much of a file is told at once, in bytes: below the limit of a result, so that it is cut at
/// a line and with the number of the next one.
const MAX_TOLD: usize = 24 << 10;
/// Longest line that is told whole, in bytes.
const MAX_LINE: usize = 4 << 10;

const DESCRIPTION: &str = "Reads a text file, or some lines of it. Use it before changing a file \
and before quoting from it. To find a file by its name use list_files, to find a text in many \
files search_files. Example: {\"path\": \"src/main.rs\", \"from_line\": 40, \"lines\": 20}. Gives \
the text; a long one ends with a note that says which line comes next.";

#[derive(Deserialize, JsonSchema)]
struct Input {
    /// Path of the file, relative to the working directory
    path: String,
    /// First line to read, from 1
    #[serde(default)]
    #[schemars(range(min = 1))]
    from_line: Option<usize>,
    /// How many lines to read at most
    #[serde(default)]
    #[schemars(range(min = 1))]
    lines: Option<usize>,
    /// Puts its number before each line
    #[serde(default)]
    numbered: bool,
}

/// The tool `read_file`.
#[must_use]
pub fn read_file(root: &Root) -> Arc<dyn Tool> {
    on_files(root, "read_file", DESCRIPTION, Manners::READS, read)
}

fn read(root: &Root, input: Input, _: &CancellationToken) -> ToolResult {
    let (_, bytes) = root.read(&input.path)?;
    if bytes.is_empty() {
        return Ok("(the file is empty)".to_owned());
    }
    if is_binary(&bytes) {
        let message = format!(
            "{} is no text: {} bytes of binary data",
            input.path,
            bytes.len()
        );
        return Err(ToolError::failed("binary", message));
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let from = input.from_line.unwrap_or(1).max(1);
    if from > lines.len() {
        let message = format!("{} has only {} lines", input.path, lines.len());
        return Err(ToolError::failed("out_of_range", message));
    }
    let wanted = input.lines.unwrap_or(usize::MAX);
    let mut told = String::new();
    let mut next = from;
    for line in lines[from - 1..].iter().take(wanted) {
        let short = crate::text::prefix(line, MAX_LINE);
        if !told.is_empty() && told.len() + short.len() > MAX_TOLD {
            break;
        }
        if input.numbered {
            told.push_str(&format!("{next:>6}\t"));
        }
        told.push_str(short);
        if short.len() < line.len() {
            told.push_str(&format!(
                "[... {} bytes left out ...]\n",
                line.len() - short.len()
            ));
        }
        next += 1;
    }
    if next <= lines.len() {
        told.push_str(&format!(
            "[lines {from} to {} of {}; the next is from_line {next}]\n",
            next - 1,
            lines.len()
        ));
    }
    Ok(told)
}
