//! The tool over a memory.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Memory, MemoryError};
use crate::agent::machine::ToolSpec;
use crate::agent::tools::{CallContext, Manners, Tool, ToolError, ToolResult};

const DESCRIPTION: &str = "Notes that outlive this run: facts, decisions, and lessons that a later \
run on the same work will need. Use it at the beginning to see what is known (`list`, then `read`), \
and before the end to keep what was learnt. Do not keep what the files themselves show, and no \
secrets. `write` replaces a note, `append` adds to its end. Example: {\"action\": \"append\", \
\"name\": \"build\", \"text\": \"Tests need `make fixtures` first.\\n\"}. `list` gives names with \
their sizes in bytes, `read` the text.";

/// The tool `memory`.
#[must_use]
pub fn tool(memory: Arc<dyn Memory>) -> Arc<dyn Tool> {
    Arc::new(Notes(memory))
}

struct Notes(Arc<dyn Memory>);

#[derive(Deserialize)]
struct Input {
    action: Action,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Read,
    Write,
    Append,
    Delete,
}

impl Tool for Notes {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {
                "action": {"enum": ["list", "read", "write", "append", "delete"]},
                "name": {"type": "string", "description": "Name of the note: letters, digits, - _ ."},
                "text": {"type": "string", "description": "For write and append"},
            },
            "required": ["action"],
            "additionalProperties": false,
        });
        ToolSpec {
            name: "memory".to_owned(),
            description: DESCRIPTION.to_owned(),
            schema: schema.to_string(),
        }
    }

    fn manners(&self) -> Manners {
        Manners::CHANGES
    }

    fn call(&self, input: Value, _context: CallContext) -> BoxFuture<'static, ToolResult> {
        let memory = Arc::clone(&self.0);
        Box::pin(async move {
            let input: Input = serde_json::from_value(input)
                .map_err(|error| ToolError::failed("invalid_input", error.to_string()))?;
            // Providers take no conditions in a schema, so that these are looked for here.
            let needs_name = !matches!(input.action, Action::List);
            let needs_text = matches!(input.action, Action::Write | Action::Append);
            for (missing, name) in [
                (needs_name && input.name.is_none(), "name"),
                (needs_text && input.text.is_none(), "text"),
            ] {
                if missing {
                    let message = format!("{name:?} is required for this action");
                    return Err(ToolError::failed("invalid_input", message));
                }
            }
            act(&*memory, input).await.map_err(failed)
        })
    }
}

async fn act(memory: &dyn Memory, input: Input) -> Result<String, MemoryError> {
    let name = input.name.unwrap_or_default();
    let text = input.text.unwrap_or_default();
    match input.action {
        Action::List => {
            let notes = memory.list().await?;
            let lines = notes
                .iter()
                .map(|note| format!("{} ({})\n", note.name, note.bytes));
            let lines: String = lines.collect();
            Ok(if lines.is_empty() {
                "no notes".to_owned()
            } else {
                lines
            })
        }
        Action::Read => memory.read(&name).await,
        Action::Write => memory.write(&name, &text).await.map(|()| "kept".to_owned()),
        Action::Append => memory
            .append(&name, &text)
            .await
            .map(|()| "kept".to_owned()),
        Action::Delete => memory.delete(&name).await.map(|()| "forgotten".to_owned()),
    }
}

fn failed(error: MemoryError) -> ToolError {
    let message = error.to_string();
    match error {
        MemoryError::Missing(_) => {
            ToolError::failed("not_found", message).hint("`list` tells which notes there are")
        }
        MemoryError::Name(_) => ToolError::failed("invalid_input", message),
        MemoryError::TooLong(_) => ToolError::failed("too_large", message)
            .hint("write a shorter text, or put a part of it into another note"),
        MemoryError::Full => {
            ToolError::failed("full", message).hint("delete notes that are not needed any more")
        }
        MemoryError::Broken { .. } => ToolError::failed("unavailable", message),
    }
}
