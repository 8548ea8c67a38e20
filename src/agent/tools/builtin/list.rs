//! Listing files.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::pattern::Pattern;
use super::walk::Walk;
use super::{Root, on_files};
use crate::agent::tools::{Manners, Tool, ToolResult};

/// Paths that are told.
const MAX_LISTED: usize = 500;
/// Their length together, in bytes.
const MAX_TOLD: usize = 24 << 10;

const DESCRIPTION: &str = "Lists files. Without a pattern: what is in a directory, directories \
with a slash at their end. With a pattern: all files below it whose path fits; * and ? stay inside \
a name, ** goes through directories, {a,b} and [0-9] choose; a pattern without a slash fits names \
at any depth. Use it to find files by name; to find a text in files use search_files. Hidden ones \
are left out unless asked for, .git always. Example: {\"path\": \"src\", \"pattern\": \
\"**/*_test.rs\"}. Gives one path per line, relative to the working directory, sorted.";

#[derive(Deserialize, JsonSchema)]
struct Input {
    /// Directory to look in, relative to the working directory; that itself when left out
    #[serde(default)]
    path: Option<String>,
    /// Pattern that paths must fit, as seen from `path`
    #[serde(default)]
    pattern: Option<String>,
    /// Also files and directories whose name begins with a dot
    #[serde(default)]
    hidden: bool,
}

/// The tool `list_files`.
#[must_use]
pub fn list_files(root: &Root) -> Arc<dyn Tool> {
    on_files(root, "list_files", DESCRIPTION, Manners::READS, list)
}

fn list(root: &Root, input: Input, cancelled: &CancellationToken) -> ToolResult {
    let path = input.path.as_deref().unwrap_or(".");
    let pattern = input.pattern.as_deref().map(Pattern::new).transpose()?;
    let mut walk = Walk::new(root, path, input.hidden, pattern.is_some(), cancelled)?;
    let mut told = String::new();
    let mut listed = 0;
    let mut more = false;
    while let Some(found) = walk.next() {
        let fits = match &pattern {
            Some(pattern) => !found.is_dir && pattern.fits(&walk.below(&found.full)),
            None => true,
        };
        if !fits {
            continue;
        }
        let slash = if found.is_dir { "/" } else { "" };
        let line = format!("{}{slash}\n", root.shown(&found.full));
        if listed == MAX_LISTED || told.len() + line.len() > MAX_TOLD {
            more = true;
            break;
        }
        told.push_str(&line);
        listed += 1;
    }
    if more || walk.cut_short {
        told.push_str("[there is more; narrow it by path or pattern]\n");
    } else if listed == 0 {
        told.push_str("(nothing fits)");
    }
    Ok(told)
}
