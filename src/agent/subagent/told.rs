//! What a parent is told of its sub-agent's end.

use crate::agent::machine::{AgentRun, Outcome};
use crate::agent::tools::{ToolError, ToolResult};

const SILENT: &str = "(the sub-agent said nothing)";

/// The final text; how it ended where it did not end by itself. Only a sub-agent that could not do
/// its work has failed: one that a cap has stopped has done a part of it.
pub fn told(run: &AgentRun) -> ToolResult {
    let text = run.answer().filter(|text| !text.trim().is_empty());
    let text = text.unwrap_or_else(|| SILENT.to_owned());
    let failed = |kind, why: &str| {
        let message = format!("the sub-agent {why}. It said last: {text}");
        Err(ToolError::failed(kind, message))
    };
    match run.outcome() {
        Some(Outcome::EndTurn) => Ok(text),
        Some(outcome) if outcome.is_cap() => Ok(format!(
            "{text}\n\n[The sub-agent was stopped before its end by the cap {}; what stands above \
             is what it said last.]",
            outcome.as_str()
        )),
        Some(Outcome::Truncated) => Ok(format!(
            "{text}\n\n[The answer of the sub-agent was cut off here by its output limit.]"
        )),
        Some(Outcome::Cancelled) | None => failed("cancelled", "was cancelled"),
        Some(Outcome::ProviderError(why)) => failed(
            "provider_error",
            &format!("could not reach its model: {why}"),
        ),
        Some(Outcome::ToolException(why)) => failed(
            "tool_exception",
            &format!("has a tool that cannot work: {why}"),
        ),
        Some(outcome) => failed("ended", &format!("ended with {}", outcome.as_str())),
    }
}
