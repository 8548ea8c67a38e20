//! The calls of one answer, each a task of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::call::{self, Ready};
use super::{ToolError, Toolbox};
use crate::agent::talk::{CallResult, ToolCall};

/// A call has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// With this.
    pub result: CallResult,
    /// The run cannot go on; why.
    pub exception: Option<String>,
    /// How long it took.
    pub took: Duration,
}

/// Calls under way.
pub struct Batch {
    toolbox: Arc<Toolbox>,
    cancelled: CancellationToken,
    /// Calls that may run together read it, a serial one writes. A gate, held while a tool works.
    gate: Arc<RwLock<()>>,
    tasks: JoinSet<CallEnd>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new(toolbox: Arc<Toolbox>, cancelled: CancellationToken) -> Self {
        Self {
            toolbox,
            cancelled,
            gate: Arc::new(RwLock::new(())),
            tasks: JoinSet::new(),
        }
    }

    /// Begins a call.
    pub fn start(&mut self, call: ToolCall, key: String) {
        let toolbox = Arc::clone(&self.toolbox);
        let gate = Arc::clone(&self.gate);
        let context = call::context(&call, key, &self.cancelled);
        self.tasks.spawn(async move {
            let begun = tokio::time::Instant::now();
            let end = |result, exception| CallEnd {
                result,
                exception,
                took: begun.elapsed(),
            };
            let Ready { tool, input } = match call::check(&toolbox, &call) {
                Ok(ready) => ready,
                Err(error) => return ended(&call, Err(error), toolbox.max_result, end),
            };
            let manners = tool.manners();
            let _read;
            let _write;
            if manners.serial {
                _write = gate.write().await;
            } else {
                _read = gate.read().await;
            }
            let token = context.cancelled.clone();
            let mut inner = tokio::spawn(tool.call(input, context));
            let limit = manners.limit.unwrap_or(Duration::MAX);
            let result = match tokio::time::timeout(limit, &mut inner).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(ToolError::failed("panic", "the tool broke down")),
                Err(_) => {
                    token.cancel();
                    inner.abort();
                    Err(ToolError::failed(
                        "timeout",
                        format!("timed out after {} s, outcome unknown", limit.as_secs()),
                    ))
                }
            };
            ended(&call, result, toolbox.max_result, end)
        });
    }

    /// The next call that ends; `None` when none is under way.
    pub async fn next(&mut self) -> Option<CallEnd> {
        loop {
            match self.tasks.join_next().await? {
                Ok(end) => return Some(end),
                // The task around a tool does nothing that could panic.
                Err(_) => continue,
            }
        }
    }
}

fn ended(
    call: &ToolCall,
    result: super::ToolResult,
    max_result: usize,
    end: impl FnOnce(CallResult, Option<String>) -> CallEnd,
) -> CallEnd {
    match result {
        Ok(text) => end(
            CallResult::new(&call.id, cut(text, max_result), false),
            None,
        ),
        Err(error) => {
            let told = call::told(&call.id, &error);
            let exception = match error {
                ToolError::Exception(message) => Some(message),
                ToolError::Failed { .. } => None,
            };
            end(told, exception)
        }
    }
}

/// Takes the middle out of a long text.
fn cut(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let head = crate::text::prefix(&text, max / 2);
    let tail = text.ceil_char_boundary(text.len() - (max - max / 2));
    let left_out = text.len() - head.len() - (text.len() - tail);
    format!(
        "{head}\n[... {left_out} bytes left out ...]\n{}",
        &text[tail..]
    )
}
