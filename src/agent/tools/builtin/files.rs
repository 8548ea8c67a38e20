//! Files.

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Root;
use crate::agent::machine::ToolSpec;
use crate::agent::tools::{CallContext, Manners, Tool, ToolError, ToolResult};

/// Reads a file.
pub struct ReadFile(pub Root);

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file".to_owned(),
            description: "Reads a text file. Use it before editing a file or quoting from it; to \
                          find a file use list_files or search_files. Example: {\"path\": \
                          \"src/main.rs\"}. Gives the text."
                .to_owned(),
            schema: r#"{"type":"object","properties":{"path":{"type":"string","description":"Path below the working directory"}},"required":["path"],"additionalProperties":false}"#.to_owned(),
        }
    }

    fn manners(&self) -> Manners {
        Manners::READS
    }

    fn call(&self, input: Value, _context: CallContext) -> BoxFuture<'static, ToolResult> {
        let root = self.0.clone();
        Box::pin(async move {
            let path = input["path"].as_str().unwrap_or_default().to_owned();
            let full = root.0.join(&path);
            tokio::task::spawn_blocking(move || std::fs::read_to_string(full))
                .await
                .map_err(|_| ToolError::failed("panic", "reading broke down"))?
                .map_err(|error| ToolError::failed("io", format!("{path}: {error}")))
        })
    }
}
