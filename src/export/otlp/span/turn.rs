//! A model request.

use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};

use super::super::attr::{Attributes, nanos, seconds};
use super::super::naming::Naming;
use super::{Place, Times, blank, run_of, status};
use crate::trace::ids;
use crate::trace::{Outcome, TurnRecord};

/// An attempt of the same turn that failed before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Tried {
    pub(in super::super) attempt: u32,
    pub(in super::super) start: u64,
    end: u64,
    error: String,
    status: Option<u16>,
}

impl Tried {
    pub(in super::super) fn of(turn: &TurnRecord) -> Self {
        let (start, end) = times(turn);
        Self {
            attempt: turn.attempt,
            start,
            end,
            error: error_type(turn).unwrap_or_default().to_owned(),
            status: turn.status,
        }
    }

    fn event(&self) -> Event {
        let mut put = Attributes::default();
        put.int("prefixgate.attempt", u64::from(self.attempt));
        put.text("error.type", self.error.as_str());
        put.int("http.response.status_code", self.status.map(u64::from));
        Event {
            time_unix_nano: self.end,
            name: "prefixgate.attempt_failed".to_owned(),
            attributes: put.done(),
            ..Event::default()
        }
    }
}

pub(in super::super) fn times(turn: &TurnRecord) -> Times {
    let start = nanos(turn.started_ms);
    (
        start,
        start.saturating_add(turn.duration_us.saturating_mul(1_000)),
    )
}

fn error_type(turn: &TurnRecord) -> Option<&str> {
    let own = || turn.outcome.as_str();
    let failed = turn.outcome.is_error();
    failed.then(|| {
        turn.error_type
            .as_deref()
            .filter(|e| !e.is_empty())
            .unwrap_or_else(own)
    })
}

/// The span of a turn, over all of its attempts.
pub(in super::super) fn turn(
    turn: &TurnRecord,
    tried: &[Tried],
    naming: &Naming,
    place: Place,
) -> Span {
    let (start, end) = times(turn);
    let start = tried.iter().map(|tried| tried.start).fold(start, u64::min);
    let mut put = Attributes::default();
    conventions(&mut put, turn, naming);
    own(&mut put, turn);
    let model = turn.model_requested.as_deref().unwrap_or_default();
    let name = format!("chat {model}");
    let id = ids::span_of_turn(turn.id);
    Span {
        attributes: put.done(),
        events: tried.iter().map(Tried::event).collect(),
        // Its message is the kind of error only: a provider's own words may quote the prompt.
        status: error_type(turn).and_then(|error| status(StatusCode::Error, error)),
        ..blank(place, id, name.trim_end(), SpanKind::Client, (start, end))
    }
}

/// What the GenAI conventions have a name for.
fn conventions(put: &mut Attributes, turn: &TurnRecord, naming: &Naming) {
    let provider = naming.provider(&turn.upstream);
    let name = provider.map_or(turn.upstream.as_str(), |provider| &provider.name);
    let usage = &turn.usage;
    put.text("gen_ai.operation.name", "chat");
    put.text("gen_ai.provider.name", name);
    put.text("gen_ai.conversation.id", run_of(&turn.run_id));
    put.text("gen_ai.request.model", turn.model_requested.as_deref());
    put.flag("gen_ai.request.stream", turn.streamed);
    put.text("gen_ai.response.id", turn.response_id.as_deref());
    put.text("gen_ai.response.model", turn.model_served.as_deref());
    put.list(
        "gen_ai.response.finish_reasons",
        turn.stop_reason.as_deref().into_iter(),
    );
    let first = turn.first_token_us.filter(|_| turn.streamed);
    put.double("gen_ai.response.time_to_first_chunk", first.map(seconds));
    put.int("gen_ai.usage.input_tokens", usage.prompt());
    put.int("gen_ai.usage.output_tokens", usage.output);
    put.int("gen_ai.usage.cache_read.input_tokens", usage.read);
    put.int("gen_ai.usage.cache_write.input_tokens", usage.written());
    put.int("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
    if naming.both() {
        put.text("gen_ai.system", name);
        put.int("gen_ai.usage.prompt_tokens", usage.prompt());
        put.int("gen_ai.usage.completion_tokens", usage.output);
        put.int("gen_ai.usage.cache_creation.input_tokens", usage.written());
    }
    // The upstream: seen from the client, the gateway stands in between and is not the server.
    put.text(
        "server.address",
        provider.map(|provider| provider.address.as_str()),
    );
    put.int(
        "server.port",
        provider.map(|provider| u64::from(provider.port)),
    );
    put.int("http.response.status_code", turn.status.map(u64::from));
    put.text("error.type", error_type(turn));
}

/// What there is no convention for.
fn own(put: &mut Attributes, turn: &TurnRecord) {
    put.text("prefixgate.record", turn.id.to_string().as_str());
    put.text("prefixgate.kind", turn.kind.as_str());
    put.text("prefixgate.run", run_of(&turn.run_id));
    put.text("prefixgate.run_source", turn.run_source);
    put.text("prefixgate.thread", turn.thread_id.as_str());
    put.text("prefixgate.parent_thread", turn.parent_thread.as_deref());
    put.text("prefixgate.agent", turn.agent.as_deref());
    put.int(
        "prefixgate.turn",
        Some(u64::from(turn.turn)).filter(|turn| *turn > 0),
    );
    put.int("prefixgate.attempt", u64::from(turn.attempt));
    put.text("prefixgate.app", turn.app.as_deref());
    put.text("prefixgate.client", turn.client.as_deref());
    put.text("prefixgate.upstream", turn.upstream.as_str());
    put.text("prefixgate.outcome", turn.outcome.as_str());
    put.text("prefixgate.request_id", turn.request_id.as_deref());
    put.double("prefixgate.overhead", turn.overhead_us.map(seconds));
    put.money("prefixgate.cost", turn.cost_pico);
    put.money("prefixgate.cost_no_cache", turn.cost_no_cache_pico);
    put.text("prefixgate.price_version", turn.price_version.as_deref());
    put.double("prefixgate.hit_ratio", turn.usage.hit_ratio());
    if turn.outcome == Outcome::Ok || turn.usage_complete {
        put.flag("prefixgate.usage_complete", turn.usage_complete);
    }
    if turn.usage_estimated {
        put.flag("prefixgate.usage_estimated", true);
    }
    cache(put, turn);
    guard(put, turn);
    // What follows the colon of a warning may be a name of the client's.
    let words = turn
        .warnings
        .iter()
        .map(|w| w.split(':').next().unwrap_or_default());
    put.list("prefixgate.warnings", words);
}

fn cache(put: &mut Attributes, turn: &TurnRecord) {
    let cache = &turn.cache;
    if let Some(verdict) = &cache.verdict {
        put.text("prefixgate.verdict", verdict.status.as_str());
        put.text(
            "prefixgate.verdict.reason",
            verdict.reason.map(|r| r.as_str()),
        );
        put.text(
            "prefixgate.verdict.whose",
            verdict.whose.map(|w| w.as_str()),
        );
        put.text("prefixgate.verdict.what", verdict.what.map(|w| w.as_str()));
        put.text(
            "prefixgate.verdict.first_changed",
            verdict.first_changed.as_deref(),
        );
        put.int("prefixgate.lost_tokens", verdict.lost_tokens);
        put.money("prefixgate.lost", verdict.lost_pico);
    }
    put.text("prefixgate.unjudged", cache.unjudged);
    put.text("prefixgate.cache_policy", cache.policy);
    put.int("prefixgate.expected_read", cache.expected_read);
    put.text(
        "prefixgate.native_diagnosis",
        turn.native_diagnosis.as_deref(),
    );
    put.text("prefixgate.helper", cache.helper);
    put.int("prefixgate.markers_client", u64::from(turn.markers_client));
    put.int("prefixgate.markers_added", turn.markers_added.len() as u64);
    if turn.dry_run {
        put.flag("prefixgate.dry_run", true);
    }
}

fn guard(put: &mut Attributes, turn: &TurnRecord) {
    let guard = &turn.guard;
    let findings: Vec<String> = (guard.findings.iter())
        .map(|found| {
            format!(
                "{} {} x{}",
                found.detector,
                found.tools.join(","),
                found.count
            )
        })
        .collect();
    put.list(
        "prefixgate.guard.findings",
        findings.iter().map(String::as_str),
    );
    put.text("prefixgate.guard.action", guard.action.as_deref());
    put.money("prefixgate.guard.loop", guard.loop_pico);
    put.text("prefixgate.cap", guard.cap.as_deref());
    put.text("prefixgate.cap.scope", guard.cap_scope.as_deref());
    put.int(
        "prefixgate.guard.hints",
        Some(u64::from(guard.hints)).filter(|n| *n > 0),
    );
}
