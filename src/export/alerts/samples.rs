//! What tests of alerts are made of.

use uuid::Uuid;

use crate::trace::{Digest, EventKind, EventRecord, Notice, Outcome, RequestKind};
use crate::usage::Usage;

/// 2026-12-01T00:00:00Z.
pub(super) const START: i64 = 1_796_083_200_000;
/// Milliseconds of a minute.
pub(super) const MINUTE: i64 = 60_000;
/// Pico-USD in a dollar.
pub(super) const USD: u64 = 1_000_000_000_000;

pub(super) fn event(kind: EventKind, name: &str, run: &str, at_ms: i64) -> EventRecord {
    EventRecord {
        id: Uuid::now_v7(),
        at_ms,
        kind,
        name: name.to_owned(),
        run_id: run.to_owned(),
        thread_id: String::new(),
        turn_id: None,
        app: None,
        scope: "run".to_owned(),
        action: String::new(),
        value: None,
        limit: None,
        level: None,
        pico: None,
        tools: Vec::new(),
    }
}

/// A run has used `level` percent of 5 USD.
pub(super) fn level(run: &str, level: u32) -> EventRecord {
    EventRecord {
        value: Some(u64::from(level) * USD / 20),
        limit: Some(5 * USD),
        level: Some(level),
        ..event(EventKind::CapLevel, "usd", run, START)
    }
}

pub(super) fn digest(at_ms: i64) -> Digest {
    Digest {
        at_ms,
        kind: RequestKind::Turn,
        outcome: Outcome::Ok,
        run_id: "nightly".to_owned(),
        app: Some("etl".to_owned()),
        model: Some("test-sonnet".to_owned()),
        usage: Usage {
            uncached: Some(1),
            read: Some(0),
            write_5m: Some(0),
            write_1h: Some(0),
            output: Some(1),
            ..Usage::default()
        },
        cost_pico: None,
        unpriced: false,
        culprit: None,
        dropped: 0,
    }
}

pub(super) fn of_event(event: EventRecord) -> Notice {
    Notice::Event(Box::new(event))
}

pub(super) fn of_turn(digest: Digest) -> Notice {
    Notice::Turn(Box::new(digest))
}
