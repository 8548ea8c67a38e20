//! Spans of our own agent, sent to the same receivers in the same words as the gateway's.

use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, status::StatusCode};
use prost::Message as _;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attr::Attributes;
use super::naming::Provider;
use super::post::{Post, Target};
use super::span::{Place, blank, status};
use super::{resource, scope};
use crate::agent::trace::{Span as Finished, Spans, What};
use crate::config::Otlp;
use crate::proxy::upstream::UpstreamClient;

/// Spans whose posts failed and that wait for the next one.
const MAX_KEPT: usize = 16_384;

/// Sends the spans of an agent while it works.
#[derive(Debug)]
pub struct AgentExporter {
    task: JoinHandle<Report>,
    ending: CancellationToken,
}

/// What became of the spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Spans that arrived.
    pub sent: u64,
    /// Spans that did not.
    pub lost: u64,
    /// Why the last post failed.
    pub why: Option<String>,
}

impl AgentExporter {
    /// Begins to send what comes, in batches. `provider` is whom the agent asks.
    #[must_use]
    pub fn start(
        settings: &Otlp,
        provider: Provider,
        client: UpstreamClient,
        spans: Spans,
    ) -> Self {
        let sender = Sender {
            post: Post::new(client, settings),
            target: Target {
                uri: settings.traces.clone(),
                headers: settings.headers.clone(),
            },
            attributes: settings.resource.clone(),
            batch: settings.batch_spans.max(1),
            wait: settings.batch_wait,
            provider,
            both: settings.semconv == crate::config::Semconv::Both,
            report: Report::default(),
            kept: Vec::new(),
        };
        let ending = CancellationToken::new();
        Self {
            task: tokio::spawn(sender.run(spans, ending.clone())),
            ending,
        }
    }

    /// Sends what is left, within so long.
    pub async fn finish(mut self, most: Duration) -> Report {
        self.ending.cancel();
        match tokio::time::timeout(most, &mut self.task).await {
            Ok(report) => report.unwrap_or_default(),
            Err(_) => {
                self.task.abort();
                Report {
                    why: Some("no answer in time".to_owned()),
                    lost: 1,
                    ..Report::default()
                }
            }
        }
    }
}

struct Sender {
    post: Post,
    target: Target,
    attributes: Vec<(String, String)>,
    batch: usize,
    wait: Duration,
    provider: Provider,
    both: bool,
    report: Report,
    kept: Vec<Span>,
}

impl Sender {
    async fn run(mut self, mut spans: Spans, ending: CancellationToken) -> Report {
        let mut open = true;
        while open {
            let mut due = None;
            while open && self.kept.len() < self.batch {
                let at = due.unwrap_or_else(Instant::now);
                tokio::select! {
                    next = spans.receiver.recv() => match next {
                        Some(span) => {
                            self.kept.push(self.span(span));
                            due.get_or_insert_with(|| Instant::now() + self.wait);
                        }
                        None => open = false,
                    },
                    // What is in the queue still comes out of it, and then nothing more.
                    () = ending.cancelled(), if !spans.receiver.is_closed() => spans.receiver.close(),
                    () = tokio::time::sleep_until(at), if due.is_some() => break,
                }
            }
            self.deliver().await;
            if !self.kept.is_empty() && open {
                tokio::select! {
                    () = tokio::time::sleep(self.wait) => {}
                    () = ending.cancelled() => {}
                }
            }
        }
        self.report.lost += self.kept.len() as u64 + spans.dropped.load(Ordering::Relaxed);
        self.report
    }

    /// Sends what is there. A post that fails is tried again with what comes next.
    async fn deliver(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let spans = std::mem::take(&mut self.kept);
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource(&self.attributes)),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope()),
                    spans,
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        };
        let posted = self.post.send(&self.target, request.encode_to_vec()).await;
        let scopes = request
            .resource_spans
            .into_iter()
            .flat_map(|of| of.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans);
        match posted {
            Ok(taken) => {
                let count = spans.count() as u64;
                let rejected = taken.rejected.min(count);
                self.report.sent += count - rejected;
                self.report.lost += rejected;
            }
            Err(failure) => {
                self.report.why = Some(failure.to_string());
                self.kept = spans.collect();
                let over = self.kept.len().saturating_sub(MAX_KEPT);
                self.kept.drain(..over);
                self.report.lost += over as u64;
            }
        }
    }

    fn span(&self, finished: Finished) -> Span {
        let mut put = Attributes::default();
        let mut events = Vec::new();
        let (name, kind, error) = match &finished.what {
            What::Agent {
                facts,
                outcome,
                turns,
            } => {
                put.text("gen_ai.operation.name", "invoke_agent");
                put.text("gen_ai.agent.name", facts.agent.as_str());
                put.text("gen_ai.provider.name", self.provider.name.as_str());
                put.text("gen_ai.request.model", facts.model.as_str());
                placed(&mut put, &facts.run, &facts.agent);
                put.text("prefixgate.app", facts.app.as_deref());
                put.text("prefixgate.outcome", *outcome);
                put.int("prefixgate.turns", u64::from(*turns));
                put.int("prefixgate.depth", u64::from(facts.depth));
                let failed = matches!(*outcome, "provider_error" | "tool_exception");
                let name = format!("invoke_agent {}", facts.agent);
                (name, SpanKind::Internal, failed.then_some(*outcome))
            }
            What::Turn(turn) => {
                let usage = &turn.usage;
                put.text("gen_ai.operation.name", "chat");
                put.text("gen_ai.provider.name", self.provider.name.as_str());
                put.text("gen_ai.request.model", turn.model.as_str());
                put.flag("gen_ai.request.stream", true);
                put.list("gen_ai.response.finish_reasons", turn.stop.into_iter());
                put.int("gen_ai.usage.input_tokens", usage.prompt());
                put.int("gen_ai.usage.output_tokens", usage.output);
                put.int("gen_ai.usage.cache_read.input_tokens", usage.read);
                put.int("gen_ai.usage.cache_write.input_tokens", usage.written());
                put.int("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
                if self.both {
                    put.text("gen_ai.system", self.provider.name.as_str());
                    put.int("gen_ai.usage.prompt_tokens", usage.prompt());
                    put.int("gen_ai.usage.completion_tokens", usage.output);
                }
                put.text("server.address", self.provider.address.as_str());
                put.int("server.port", u64::from(self.provider.port));
                placed(&mut put, &turn.run, &turn.agent);
                put.text("prefixgate.app", turn.app.as_deref());
                put.text(
                    "prefixgate.kind",
                    turn.number.map_or("compaction", |_| "turn"),
                );
                put.int("prefixgate.turn", turn.number.map(u64::from));
                put.money("prefixgate.cost", turn.pico);
                put.double("prefixgate.hit_ratio", usage.hit_ratio());
                events.extend(turn.failed_ns.iter().map(|at| Event {
                    time_unix_nano: *at,
                    name: "prefixgate.attempt_failed".to_owned(),
                    ..Event::default()
                }));
                (format!("chat {}", turn.model), SpanKind::Client, turn.error)
            }
            What::Call {
                run,
                agent,
                name,
                call,
                failed,
                input_bytes,
                result_bytes,
            } => {
                put.text("gen_ai.operation.name", "execute_tool");
                put.text("gen_ai.tool.name", name.as_str());
                put.text("gen_ai.tool.call.id", call.as_str());
                put.text("gen_ai.tool.type", "function");
                placed(&mut put, run, agent);
                put.int("prefixgate.tool.input_bytes", *input_bytes);
                put.int("prefixgate.tool.result_bytes", *result_bytes);
                let name = format!("execute_tool {name}");
                (name, SpanKind::Internal, failed.then_some("tool_failed"))
            }
        };
        put.text("error.type", error);
        let place = Place {
            trace: finished.trace,
            parent: finished.parent,
            remote: finished.remote,
        };
        let times = (finished.start_ns, finished.end_ns);
        Span {
            attributes: put.done(),
            events,
            status: error.and_then(|error| status(StatusCode::Error, error)),
            ..blank(place, finished.id, &name, kind, times)
        }
    }
}

/// Which run and which agent of it.
fn placed(put: &mut Attributes, run: &str, agent: &str) {
    put.text("gen_ai.conversation.id", run);
    put.text("prefixgate.run", run);
    put.text("prefixgate.agent", agent);
}
