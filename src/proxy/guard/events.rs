//! What happened, told to the store, the metrics and the alerts.

use uuid::Uuid;

use crate::guard::caps::{Cap, Crossing, Denied, Scope};
use crate::guard::loops::Finding;
use crate::proxy::Shared;
use crate::proxy::account::new_id;
use crate::trace::{Digest, EventKind, EventRecord, Notice, TurnRecord};

/// What was done about a request beyond a cap: nothing, but to say so.
pub(super) const WARNED: &str = "warn";

/// Where something happened.
#[derive(Debug, Clone)]
pub(super) struct Place {
    turn_id: Uuid,
    run_id: String,
    thread_id: String,
    app: Option<String>,
}

impl Place {
    /// In this request.
    pub(super) fn of(record: &TurnRecord) -> Self {
        Self {
            turn_id: record.id,
            run_id: record.run_id.clone(),
            thread_id: record.thread_id.clone(),
            app: record.app.clone(),
        }
    }
}

/// The word of a scope, for records and labels.
pub(super) const fn word(scope: &Scope) -> &'static str {
    match scope {
        Scope::Run(_) => "run",
        Scope::Unnamed(..) => "unnamed",
        Scope::Key(..) => "key",
    }
}

/// A loop came to its threshold or to a next step.
pub(super) fn loop_found(
    shared: &Shared,
    record: &TurnRecord,
    finding: &Finding,
    action: &str,
    pico: Option<u64>,
    threshold: u32,
) {
    shared.metrics.loop_found(&finding.detector, action);
    tracing::warn!(
        run = record.run_id,
        thread = record.thread_id,
        detector = finding.detector,
        tools = finding.tools.join(","),
        count = finding.count,
        action,
        "a loop: calls repeat without getting anywhere"
    );
    loop_went_on(shared, record, finding, action, pico, threshold);
}

/// A loop has gone on for long without coming to a next step. No metric and no line in the log: neither
/// a further loop nor anything else that is done about it.
pub(super) fn loop_went_on(
    shared: &Shared,
    record: &TurnRecord,
    finding: &Finding,
    action: &str,
    pico: Option<u64>,
    threshold: u32,
) {
    emit(
        shared,
        EventRecord {
            name: finding.detector.clone(),
            action: action.to_owned(),
            value: Some(finding.count.into()),
            limit: Some(threshold.into()),
            pico,
            tools: finding.tools.clone(),
            ..begun(shared, Place::of(record), EventKind::Loop)
        },
    );
}

/// A cap did not let a request pass; `action` says what was done about it.
pub(super) fn cap_refused(shared: &Shared, record: &TurnRecord, denied: &Denied, action: &str) {
    let scope = word(&denied.scope);
    if action != WARNED {
        shared.metrics.cap_refused(denied.cap.as_str(), scope);
    }
    emit(
        shared,
        EventRecord {
            name: denied.cap.as_str().to_owned(),
            run_id: subject(&denied.scope).to_owned(),
            scope: scope.to_owned(),
            action: action.to_owned(),
            value: Some(denied.spent),
            limit: Some(denied.limit),
            ..begun(shared, Place::of(record), EventKind::CapRefused)
        },
    );
}

/// A request without a price was refused under a cap on money. Each counts; of a run and a model
/// the first is an event.
pub(super) fn unpriced_refused(shared: &Shared, record: &TurnRecord, first: bool) {
    let cap = Cap::Usd.as_str();
    shared.metrics.cap_refused(cap, "run");
    if first {
        emit(
            shared,
            EventRecord {
                name: cap.to_owned(),
                scope: "run".to_owned(),
                action: "refused".to_owned(),
                ..begun(shared, Place::of(record), EventKind::CapUnenforced)
            },
        );
    }
}

/// Shares of caps have been used.
pub(super) fn crossed(shared: &Shared, place: &Place, crossings: &[Crossing]) {
    for crossing in crossings {
        let cap = crossing.cap.as_str();
        shared.metrics.cap_level(cap, crossing.level);
        let scope = word(&crossing.scope);
        tracing::info!(
            scope,
            run = subject(&crossing.scope),
            cap,
            level = crossing.level,
            "{} % of a cap has been used",
            crossing.level
        );
        emit(
            shared,
            EventRecord {
                name: cap.to_owned(),
                run_id: subject(&crossing.scope).to_owned(),
                scope: scope.to_owned(),
                value: Some(crossing.value),
                limit: Some(crossing.limit),
                level: Some(crossing.level),
                ..begun(shared, place.clone(), EventKind::CapLevel)
            },
        );
    }
}

/// A cap on money does not hold for a model without a price.
pub(super) fn unenforced(shared: &Shared, record: &TurnRecord) {
    shared.metrics.cap_unenforced();
    tracing::warn!(
        run = record.run_id,
        model = record.model_requested,
        "a cap on money cannot be enforced: the model has no known price; add a [[price]]"
    );
    emit(
        shared,
        EventRecord {
            name: Cap::Usd.as_str().to_owned(),
            scope: "run".to_owned(),
            ..begun(shared, Place::of(record), EventKind::CapUnenforced)
        },
    );
}

/// What rates and ratios are made of, where anybody listens.
pub(in crate::proxy) fn digest(shared: &Shared, record: &TurnRecord) {
    if !shared.guards.alerts.listens() {
        return;
    }
    let verdict = record.cache.verdict.as_ref();
    let culprit = verdict.and_then(|verdict| {
        let path = verdict.first_changed.as_ref()?.clone();
        Some((path, verdict.lost_pico?))
    });
    let model = record.model_served.as_ref();
    let model = model.or(record.model_requested.as_ref());
    let digest = Digest {
        at_ms: record.started_ms + i64::try_from(record.duration_us / 1_000).unwrap_or(0),
        kind: record.kind,
        outcome: record.outcome,
        run_id: record.run_id.clone(),
        app: record.app.clone(),
        model: model.cloned(),
        usage: record.usage,
        cost_pico: record.cost_pico,
        unpriced: record
            .warnings
            .iter()
            .any(|word| word.starts_with("unpriced:unknown_model")),
        culprit,
        dropped: shared.recorder.dropped(),
    };
    send(shared, Notice::Turn(Box::new(digest)));
}

/// Whose books they are, for people: a run's id, or the hash of a key.
pub(super) fn subject(scope: &Scope) -> &str {
    match scope {
        Scope::Run(name) | Scope::Unnamed(name, _) | Scope::Key(name, _) => name,
    }
}

fn begun(shared: &Shared, place: Place, kind: EventKind) -> EventRecord {
    let at_ms = shared.clock.utc_ms();
    EventRecord {
        id: new_id(at_ms),
        at_ms,
        kind,
        name: String::new(),
        run_id: place.run_id,
        thread_id: place.thread_id,
        turn_id: Some(place.turn_id),
        app: place.app,
        scope: String::new(),
        action: String::new(),
        value: None,
        limit: None,
        level: None,
        pico: None,
        tools: Vec::new(),
    }
}

fn emit(shared: &Shared, event: EventRecord) {
    if shared.guards.alerts.listens() {
        send(shared, Notice::Event(Box::new(event.clone())));
    }
    shared.recorder.event(event);
}

fn send(shared: &Shared, notice: Notice) {
    if !shared.guards.alerts.send(notice) {
        shared.metrics.alert("dropped");
    }
}
