//! One record, one span.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, Status, status::StatusCode};

use super::attr::{Attributes, nanos};
use super::naming::Naming;
use crate::text;
use crate::trace::ids::{self, SpanId, TraceId};
use crate::trace::{CallStatus, EventRecord, ToolCallRecord};

mod turn;

pub(super) use turn::{Tried, times, turn};

/// Longest name of a span, in bytes.
const MAX_NAME: usize = 192;
/// The trace flags of what is sent: sampled. The next bits say that it is known whether the parent
/// is remote, and that it is.
const FLAGS_LOCAL: u32 = 0x101;
const FLAGS_REMOTE: u32 = 0x301;

/// Where a span hangs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) trace: TraceId,
    pub(super) parent: Option<SpanId>,
    /// The parent is the client's.
    pub(super) remote: bool,
}

/// Start and end, in nanoseconds since 1970.
pub(super) type Times = (u64, u64);

pub(super) fn blank(place: Place, id: SpanId, name: &str, kind: SpanKind, times: Times) -> Span {
    Span {
        trace_id: place.trace.to_vec(),
        span_id: id.to_vec(),
        parent_span_id: place.parent.map(|id| id.to_vec()).unwrap_or_default(),
        flags: if place.remote {
            FLAGS_REMOTE
        } else {
            FLAGS_LOCAL
        },
        name: text::prefix(name, MAX_NAME).to_owned(),
        kind: kind.into(),
        start_time_unix_nano: times.0,
        end_time_unix_nano: times.1.max(times.0),
        ..Span::default()
    }
}

pub(super) fn status(code: StatusCode, message: &str) -> Option<Status> {
    Some(Status {
        message: message.to_owned(),
        code: code.into(),
    })
}

/// When a tool call began and when its result was seen; `None` while it has none.
pub(super) fn call_times(call: &ToolCallRecord) -> Option<Times> {
    if !matches!(call.status, CallStatus::Ok | CallStatus::Failed) {
        return None;
    }
    let start = nanos(call.asked_ms);
    let latency = call.latency_ms?.saturating_mul(1_000_000);
    Some((start, start.saturating_add(latency)))
}

/// A tool call whose result is known.
pub(super) fn call(call: &ToolCallRecord, place: Place, times: Times) -> Span {
    let mut put = Attributes::default();
    put.text("gen_ai.operation.name", "execute_tool");
    put.text("gen_ai.tool.name", call.name.as_str());
    put.text("gen_ai.tool.call.id", call.call_id.as_str());
    // The client has executed it: what the provider runs itself is no call with a result of its own.
    put.text("gen_ai.tool.type", "function");
    put.text("gen_ai.conversation.id", run_of(&call.run_id));
    let failed = call.status == CallStatus::Failed;
    put.text("error.type", failed.then_some("tool_failed"));
    put.text("prefixgate.run", run_of(&call.run_id));
    put.text("prefixgate.thread", call.thread_id.as_str());
    put.int("prefixgate.tool.input_bytes", call.input_bytes);
    put.int("prefixgate.tool.result_bytes", call.result_bytes);
    put.int("prefixgate.tool.retries", u64::from(call.retries));
    put.text("prefixgate.tool.wrong", call.wrong);
    let id = ids::span_of_call(call.turn_id, &call.call_id);
    let name = format!("execute_tool {}", call.name);
    Span {
        attributes: put.done(),
        status: if failed {
            status(StatusCode::Error, "tool_failed")
        } else {
            None
        },
        ..blank(place, id, &name, SpanKind::Internal, times)
    }
}

/// An event, as a span without duration.
pub(super) fn event(event: &EventRecord, place: Place, at: u64) -> Span {
    let mut put = Attributes::default();
    put.text("gen_ai.conversation.id", run_of(&event.run_id));
    put.text("prefixgate.event", event.kind.as_str());
    put.text("prefixgate.event.name", event.name.as_str());
    put.text("prefixgate.run", run_of(&event.run_id));
    put.text("prefixgate.thread", event.thread_id.as_str());
    put.text("prefixgate.app", event.app.as_deref());
    put.text("prefixgate.event.scope", event.scope.as_str());
    put.text("prefixgate.event.action", event.action.as_str());
    put.int("prefixgate.event.value", event.value);
    put.int("prefixgate.event.limit", event.limit);
    put.int("prefixgate.event.level", event.level.map(u64::from));
    put.money("prefixgate.event.cost", event.pico);
    put.list(
        "prefixgate.event.tools",
        event.tools.iter().map(String::as_str),
    );
    let name = format!("{} {}", event.kind.as_str(), event.name);
    let id = ids::span_of_event(event.id);
    Span {
        attributes: put.done(),
        ..blank(place, id, name.trim_end(), SpanKind::Internal, (at, at))
    }
}

/// What is known of a run or a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) run: String,
    pub(super) thread: String,
    pub(super) agent: Option<String>,
    pub(super) app: Option<String>,
    pub(super) upstream: Option<String>,
}

/// A run (as its main thread) or a thread of it.
pub(super) fn agent(agent: &Agent, naming: &Naming, place: Place, times: Times) -> Span {
    let main = agent.thread == ids::MAIN;
    let mut put = Attributes::default();
    put.text("gen_ai.operation.name", "invoke_agent");
    let name = match &agent.agent {
        None if main => agent.app.as_deref(),
        name => name.as_deref(),
    };
    put.text("gen_ai.agent.name", name);
    let provider = agent.upstream.as_deref().and_then(|up| naming.provider(up));
    put.text("gen_ai.provider.name", provider.map(|p| p.name.as_str()));
    put.text("gen_ai.conversation.id", agent.run.as_str());
    put.text("prefixgate.run", agent.run.as_str());
    put.text("prefixgate.thread", agent.thread.as_str());
    put.text("prefixgate.app", agent.app.as_deref());
    // Threads that nobody has named are told apart by their number in the run.
    let name = match name {
        None if main => "invoke_agent".to_owned(),
        name => format!("invoke_agent {}", name.unwrap_or(&agent.thread)),
    };
    let id = ids::span_of_thread(&agent.run, &agent.thread);
    Span {
        attributes: put.done(),
        ..blank(place, id, &name, SpanKind::Internal, times)
    }
}

/// The run, where there is one.
fn run_of(run: &str) -> Option<&str> {
    ids::is_placed(run).then_some(run)
}
