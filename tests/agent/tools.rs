//! Tools: checks, isolation, time limits, what comes built in, MCP.

mod batch;
mod checks;
mod commands;
mod confinement;
mod cutting;
mod fetch;
mod files;
mod loops;
#[cfg(feature = "mcp")]
mod mcp;
mod model;

use std::sync::Arc;

use prefixgate::agent::talk::{CallResult, ToolCall};
use prefixgate::agent::tools::{Batch, CallEnd, Tool, Toolbox};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A box of these tools.
fn toolbox(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Arc<Toolbox> {
    let mut toolbox = Toolbox::new();
    for tool in tools {
        toolbox.add(tool);
    }
    Arc::new(toolbox)
}

fn a_call(id: &str, name: &str, input: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        input: input.to_owned(),
    }
}

/// Makes calls of one answer and waits for all of them, in the order in which they end.
async fn ends(toolbox: &Arc<Toolbox>, calls: Vec<ToolCall>) -> Vec<CallEnd> {
    let mut batch = Batch::new(Arc::clone(toolbox), CancellationToken::new());
    for call in calls {
        let key = format!("run/main/1/{}", call.id);
        batch.start(call, key);
    }
    let mut ends = Vec::new();
    while let Some(end) = batch.next().await {
        ends.push(end);
    }
    ends
}

/// Makes one call.
async fn one(toolbox: &Arc<Toolbox>, name: &str, input: Value) -> CallResult {
    let call = a_call("c1", name, &input.to_string());
    ends(toolbox, vec![call]).await.remove(0).result
}

/// The text of a call that succeeds.
async fn good(toolbox: &Arc<Toolbox>, name: &str, input: Value) -> String {
    let result = one(toolbox, name, input).await;
    assert!(!result.is_error, "{}", result.text);
    result.text.into()
}

/// The failure of a call that fails, as its JSON.
async fn bad(toolbox: &Arc<Toolbox>, name: &str, input: Value) -> Value {
    failure(&one(toolbox, name, input).await)
}

fn failure(result: &CallResult) -> Value {
    assert!(result.is_error, "{}", result.text);
    serde_json::from_str(&result.text).unwrap_or_else(|_| panic!("no JSON: {}", result.text))
}
