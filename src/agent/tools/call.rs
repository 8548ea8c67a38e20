//! One call: is there such a tool, is the input right, and what becomes of it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{CallContext, Tool, ToolError, Toolbox};
use crate::agent::machine::ToolSpec;
use crate::agent::talk::{CallResult, ToolCall};

/// Violations of a schema that are told.
const MAX_VIOLATIONS: usize = 20;

/// A call that may be made.
pub struct Ready {
    pub tool: Arc<dyn Tool>,
    pub input: Value,
}

/// Checks a call. The error is what the model reads.
pub fn check(toolbox: &Toolbox, call: &ToolCall) -> Result<Ready, ToolError> {
    let Some(tool) = toolbox.get(&call.name) else {
        return Err(unknown(toolbox, &call.name));
    };
    let input: Value = serde_json::from_str(&call.input).map_err(|error| {
        ToolError::failed("invalid_json", format!("the input is not JSON: {error}"))
            .hint("write the input as one JSON object")
    })?;
    let spec = tool.spec();
    violations(&spec, &input)?;
    Ok(Ready {
        tool: Arc::clone(tool),
        input,
    })
}

fn unknown(toolbox: &Toolbox, name: &str) -> ToolError {
    let names: Vec<&str> = toolbox.names().collect();
    ToolError::failed("unknown_tool", format!("there is no tool {name:?}"))
        .hint(format!("the tools are: {}", names.join(", ")))
}

fn violations(spec: &ToolSpec, input: &Value) -> Result<(), ToolError> {
    let schema: Value = serde_json::from_str(&spec.schema)
        .map_err(|error| ToolError::Exception(format!("schema of {}: {error}", spec.name)))?;
    let validator = jsonschema::validator_for(&schema)
        .map_err(|error| ToolError::Exception(format!("schema of {}: {error}", spec.name)))?;
    let found: Vec<String> = validator
        .iter_errors(input)
        .take(MAX_VIOLATIONS)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(ToolError::failed("invalid_input", found.join("; ")))
}

/// What the model reads of a failure: one JSON object.
pub fn told(call: &str, error: &ToolError) -> CallResult {
    let text = match error {
        ToolError::Failed {
            kind,
            message,
            hint,
            retryable,
        } => json!({"error": kind, "message": message, "hint": hint, "retryable": retryable}),
        ToolError::Exception(message) => json!({"error": "exception", "message": message}),
    };
    CallResult::failed(call, &text.to_string())
}

/// The context of a call.
pub fn context(
    call: &ToolCall,
    key: String,
    parent: &tokio_util::sync::CancellationToken,
) -> CallContext {
    CallContext {
        key,
        call: call.id.clone(),
        cancelled: parent.child_token(),
    }
}
