//! The calls of one answer, each a task of its own.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::RwLock;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::presence::Presence;
use super::{CallContext, Tool, ToolError, ToolResult, Toolbox, call, cut};
use crate::agent::talk::{CallResult, ToolCall};

/// How long a call that is cancelled may take to end by itself; then it is dropped.
pub const CANCEL_GRACE: Duration = Duration::from_millis(100);

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

/// Calls under way. Dropping it cancels and drops them all.
pub struct Batch {
    toolbox: Arc<Toolbox>,
    cancelled: CancellationToken,
    /// Calls that may run together read it, a serial one writes. A gate, held while a tool works.
    gate: Arc<RwLock<()>>,
    tasks: JoinSet<CallEnd>,
}

impl Batch {
    /// An empty batch. Its calls end when `cancelled` is.
    #[must_use]
    pub fn new(toolbox: Arc<Toolbox>, cancelled: CancellationToken) -> Self {
        Self {
            toolbox,
            cancelled: cancelled.child_token(),
            gate: Arc::new(RwLock::new(())),
            tasks: JoinSet::new(),
        }
    }

    /// Begins a call. Calls run at the same time, but one of a serial tool waits for those begun
    /// before it, and those begun after it wait for that one.
    pub fn start(&mut self, call: ToolCall, key: String) {
        let begun = Instant::now();
        let max = self.toolbox.max_result();
        let (entry, input) = match call::check(&self.toolbox, &call) {
            Ok(checked) => checked,
            Err(error) => {
                let end = ended(&call, Err(error), max, begun);
                self.tasks.spawn(std::future::ready(end));
                return;
            }
        };
        let tool = Arc::clone(&entry.tool);
        let presence = Presence::new(&call.name, &entry.abandoned);
        let token = self.cancelled.child_token();
        let context = CallContext::with(key, call.id.clone(), token, presence.clone());
        let entrance = Entrance::queue(&self.gate, tool.manners().serial);
        self.tasks.spawn(async move {
            let result = make(tool, input, context, presence, entrance).await;
            ended(&call, result, max, begun)
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

impl Drop for Batch {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}

async fn make(
    tool: Arc<dyn Tool>,
    input: Value,
    context: CallContext,
    presence: Presence,
    entrance: Entrance,
) -> ToolResult {
    let token = context.cancelled.clone();
    let _inside = tokio::select! {
        biased;
        () = token.cancelled() => return Err(cancelled("before it began")),
        inside = entrance.pass() => inside,
    };
    let limit = tool.manners().limit;
    let here = presence.clone();
    let task = tokio::spawn(async move {
        let _here = here;
        tool.call(input, context).await
    });
    let work = Work {
        task: AbortOnDropHandle::new(task),
        token,
        presence,
        back: false,
    };
    work.wait(limit).await
}

/// A tool at work. Dropped before it is back, it is cancelled, aborted and counted as abandoned.
struct Work {
    task: AbortOnDropHandle<ToolResult>,
    token: CancellationToken,
    presence: Presence,
    back: bool,
}

impl Work {
    async fn wait(mut self, limit: Option<Duration>) -> ToolResult {
        let time_is_up = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let token = self.token.clone();
        tokio::select! {
            biased;
            done = &mut self.task => self.done(done),
            () = token.cancelled() => {
                match tokio::time::timeout(CANCEL_GRACE, &mut self.task).await {
                    Ok(done) => self.done(done),
                    Err(_) => Err(cancelled("while it ran, outcome unknown")),
                }
            }
            () = time_is_up => Err(ToolError::failed(
                "timeout",
                format!("timed out after {}, outcome unknown", in_words(limit.unwrap_or_default())),
            )),
        }
    }

    fn done(&mut self, done: Result<ToolResult, JoinError>) -> ToolResult {
        self.back = true;
        done.unwrap_or_else(|_| {
            Err(ToolError::failed(
                "panic",
                "the tool broke down, outcome unknown",
            ))
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.back {
            self.token.cancel();
            self.presence.give_up();
        }
    }
}

/// The way through the gate.
enum Entrance {
    Open(Inside),
    Queued(BoxFuture<'static, Inside>),
}

/// Being inside; over when dropped.
type Inside = Box<dyn Send + Sync>;

impl Entrance {
    /// Takes a place in the queue at once: the lock is fair, and so calls enter in the order in
    /// which they begin, not in the order in which their tasks happen to run first.
    fn queue(gate: &Arc<RwLock<()>>, alone: bool) -> Self {
        let gate = Arc::clone(gate);
        let mut entering: BoxFuture<'static, Inside> =
            Box::pin(tokio::task::unconstrained(async move {
                match alone {
                    true => Box::new(gate.write_owned().await) as Inside,
                    false => Box::new(gate.read_owned().await),
                }
            }));
        match entering
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(inside) => Self::Open(inside),
            Poll::Pending => Self::Queued(entering),
        }
    }

    async fn pass(self) -> Inside {
        match self {
            Self::Open(inside) => inside,
            Self::Queued(entering) => entering.await,
        }
    }
}

fn cancelled(when: &str) -> ToolError {
    ToolError::failed("cancelled", format!("cancelled {when}"))
}

fn in_words(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    }
}

fn ended(call: &ToolCall, result: ToolResult, max: usize, begun: Instant) -> CallEnd {
    let (result, exception) = match result {
        Ok(text) => (CallResult::new(&call.id, cut(text, max), false), None),
        Err(error) => {
            let told = CallResult::failed(&call.id, &error.told(max));
            let exception = match error {
                ToolError::Exception(message) => Some(message),
                ToolError::Failed { .. } | ToolError::Said(_) => None,
            };
            (told, exception)
        }
    };
    CallEnd {
        result,
        exception,
        took: begun.elapsed(),
    }
}
