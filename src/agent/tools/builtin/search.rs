//! Searching in files.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::pattern::{MAX_COMPILED, Pattern};
use super::root::is_binary;
use super::walk::Walk;
use super::{Root, on_files};
use crate::agent::tools::{Manners, Tool, ToolError, ToolResult};

/// Lines that are told when the call names no other number, and the most it may name.
const LINES: usize = 100;
const MAX_LINES: usize = 1_000;
/// All lines together, in bytes.
const MAX_TOLD: usize = 24 << 10;
/// How much of a line is told, in bytes.
const MAX_LINE: usize = 300;
/// How much of a line is looked at, in bytes; what is beyond is taken for another line.
const MAX_READ_LINE: u64 = 1 << 20;
/// Bytes that are read in one call.
const MAX_READ: u64 = 1 << 30;

const DESCRIPTION: &str = "Searches the text of files for a regular expression, line by line. Use \
it to find where something is defined, used or mentioned; to find files by name use list_files. \
Binary files, hidden ones and .git are left out. Set literal for a text with special characters \
in it. Example: {\"pattern\": \"fn parse_\\\\w+\", \"path\": \"src\", \"files\": \"*.rs\"}. Gives \
one line per match: path:line: text. Finding nothing is an answer, not an error.";

#[derive(Deserialize, JsonSchema)]
struct Input {
    /// The regular expression; no look-around, no back-references
    pattern: String,
    /// Directory or file to search, relative to the working directory; that itself when left out
    #[serde(default)]
    path: Option<String>,
    /// Only files whose name fits this pattern, as in list_files
    #[serde(default)]
    files: Option<String>,
    /// Takes the pattern for plain text
    #[serde(default)]
    literal: bool,
    /// Upper and lower case are the same
    #[serde(default)]
    ignore_case: bool,
    /// Also files whose name begins with a dot
    #[serde(default)]
    hidden: bool,
    /// How many lines to give at most
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_LINES))]
    limit: Option<usize>,
}

/// The tool `search_files`.
#[must_use]
pub fn search_files(root: &Root) -> Arc<dyn Tool> {
    on_files(root, "search_files", DESCRIPTION, Manners::READS, search)
}

fn search(root: &Root, input: Input, cancelled: &CancellationToken) -> ToolResult {
    let regex = compile(&input)?;
    let files = input.files.as_deref().map(Pattern::new).transpose()?;
    let path = input.path.as_deref().unwrap_or(".");
    let mut walk = Walk::new(root, path, input.hidden, true, cancelled)?;
    let mut hits = Hits {
        told: String::new(),
        left: input.limit.unwrap_or(LINES).min(MAX_LINES),
        unread: MAX_READ,
        full: false,
    };
    let mut searched = 0;
    while let Some(found) = walk.next() {
        let below = walk.below(&found.full);
        if !found.is_file || files.as_ref().is_some_and(|files| !files.fits(&below)) {
            continue;
        }
        searched += 1;
        // What cannot be read is left out, as a user without the right would have it.
        let _ = hits.of(&found.full, &root.shown(&found.full), &regex);
        if hits.full {
            break;
        }
    }
    if hits.full || walk.cut_short {
        hits.told
            .push_str("[there is more; narrow it by path, files or pattern]\n");
    } else if hits.told.is_empty() {
        return Ok(format!("(no match in {searched} files)"));
    }
    Ok(hits.told)
}

fn compile(input: &Input) -> Result<Regex, ToolError> {
    let pattern = match input.literal {
        true => regex::escape(&input.pattern),
        false => input.pattern.clone(),
    };
    RegexBuilder::new(&pattern)
        .case_insensitive(input.ignore_case)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|error| {
            ToolError::failed("invalid_pattern", error.to_string())
                .hint("set literal to search for it as plain text")
        })
}

struct Hits {
    told: String,
    /// Lines that may still be told.
    left: usize,
    /// Bytes that may still be read.
    unread: u64,
    full: bool,
}

impl Hits {
    fn of(&mut self, full: &Path, shown: &str, regex: &Regex) -> std::io::Result<()> {
        let mut file = BufReader::new(File::open(full)?);
        if is_binary(file.fill_buf()?) {
            return Ok(());
        }
        let mut line = Vec::new();
        for number in 1usize.. {
            line.clear();
            let read = file
                .by_ref()
                .take(MAX_READ_LINE)
                .read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            self.unread = self.unread.saturating_sub(read as u64);
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if self.unread == 0 || regex.is_match(text) && !self.tell(shown, number, text) {
                self.full = true;
                break;
            }
        }
        Ok(())
    }

    /// Whether there was room for it.
    fn tell(&mut self, shown: &str, number: usize, text: &[u8]) -> bool {
        let text = String::from_utf8_lossy(text);
        let short = crate::text::prefix(&text, MAX_LINE);
        let dots = if short.len() < text.len() { "..." } else { "" };
        let line = format!("{shown}:{number}: {short}{dots}\n");
        if self.left == 0 || self.told.len() + line.len() > MAX_TOLD {
            return false;
        }
        self.left -= 1;
        self.told.push_str(&line);
        true
    }
}
