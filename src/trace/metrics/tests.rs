use uuid::Uuid;

use super::*;
use crate::prompt_cache::verdict::{Reason, Status, Verdict};

fn text(metrics: &Metrics) -> String {
    prometheus::TextEncoder::new()
        .encode_to_string(&metrics.registry().gather())
        .unwrap()
}

fn record(kind: RequestKind) -> TurnRecord {
    TurnRecord::begin(Uuid::now_v7(), kind, "anthropic", 0)
}

fn broken(lost_pico: Option<u64>) -> TurnRecord {
    let mut turn = record(RequestKind::Turn);
    turn.cache.verdict = Some(Verdict {
        status: Status::Partial,
        reason: Some(Reason::Tools),
        first_changed: Some("tools[3]".into()),
        offset: None,
        what: None,
        detail: "secret_tool changed".into(),
        whose: None,
        lost_tokens: Some(2_000),
        lost_pico,
        excerpt: None,
    });
    turn
}

#[test]
fn verdicts_and_losses_have_words_of_ours_as_labels() {
    let metrics = Metrics::new(&[]).unwrap();
    metrics.turn(&broken(Some(500_000_000_000)), None);
    metrics.turn(&broken(None), None);
    let mut hit = broken(None);
    if let Some(verdict) = &mut hit.cache.verdict {
        (verdict.status, verdict.reason) = (Status::Hit, None);
        verdict.lost_tokens = Some(0);
    }
    hit.cache.duplicate_of = Some(Uuid::now_v7());
    metrics.turn(&hit, None);
    for (diagnosis, agrees) in [
        (Some("tools_changed"), Some(true)),
        (Some("tools_changed"), Some(false)),
        (Some("unavailable"), None),
        (None, None),
    ] {
        let mut turn = record(RequestKind::Turn);
        turn.native_diagnosis = diagnosis.map(Into::into);
        turn.cache.native_agrees = agrees;
        metrics.turn(&turn, None);
    }
    // A verdict is about turns only.
    let mut counted = broken(Some(1));
    counted.kind = RequestKind::CountTokens;
    metrics.turn(&counted, None);
    let text = text(&metrics);
    for line in [
        r#"prefixgate_cache_verdicts_total{reason="tools",status="partial"} 2"#,
        r#"prefixgate_cache_verdicts_total{reason="none",status="hit"} 1"#,
        r#"prefixgate_cache_lost_tokens_total{reason="tools"} 4000"#,
        r#"prefixgate_cache_lost_usd_total{reason="tools"} 0.5"#,
        "prefixgate_cache_duplicate_writes_total 1",
        r#"prefixgate_native_diagnosis_total{agrees="yes"} 1"#,
        r#"prefixgate_native_diagnosis_total{agrees="no"} 1"#,
        r#"prefixgate_native_diagnosis_total{agrees="none"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
    assert!(!text.contains("secret_tool") && !text.contains("tools[3]"));
}

#[test]
fn a_request_of_our_own_costs_and_is_no_turn() {
    let metrics = Metrics::new(&[]).unwrap();
    let mut own = record(RequestKind::KeepWarm);
    own.outcome = Outcome::Ok;
    own.usage.read = Some(1_000);
    own.cost_pico = Some(250_000_000_000);
    own.cost_no_cache_pico = Some(999_000_000_000);
    own.cache.helper = Some("keep_warm");
    own.cache.helper_pico = Some(-250_000_000_000);
    metrics.turn(&own, None);
    let mut resumed = record(RequestKind::Turn);
    resumed.cache.helper = Some("keep_warm");
    resumed.cache.helper_pico = Some(2_000_000_000_000);
    metrics.turn(&resumed, None);
    let text = text(&metrics);
    for line in [
        r#"prefixgate_cost_usd_total{app="",model="other",upstream="anthropic"} 0.25"#,
        r#"prefixgate_cost_without_cache_usd_total{app="",model="other",upstream="anthropic"} 0"#,
        r#"prefixgate_tokens_total{app="",kind="read",model="other",upstream="anthropic"} 1000"#,
        r#"prefixgate_helper_saved_usd_total{helper="keep_warm"} 2"#,
        r#"prefixgate_helper_overspent_usd_total{helper="keep_warm"} 0.25"#,
        r#"prefixgate_requests_total{kind="keep_warm",outcome="ok",upstream="anthropic"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
    assert!(text.contains(r#"prefixgate_turns_total{app="",model="other",outcome="client_abort""#));
    assert!(!text.contains(r#"prefixgate_turns_total{app="",model="other",outcome="ok""#));
}

#[test]
fn guards_are_counted_under_words_of_ours_alone() {
    let metrics = Metrics::new(&[]).unwrap();
    metrics.loop_found("same_call", "warn");
    metrics.loop_found("same_call", "warn");
    metrics.loop_found("cycle", "block");
    metrics.loop_found("a tool of theirs", "rm -rf");
    metrics.cap_refused("usd", "run");
    metrics.cap_refused("requests_per_minute", "key");
    metrics.cap_refused("usd", "run 4711");
    metrics.cap_unenforced();
    metrics.hints(3);
    metrics.hints(0);
    metrics.ledger_unavailable();
    for result in ["sent", "sent", "failed", "dropped", "https://hook.example"] {
        metrics.alert(result);
    }
    let text = text(&metrics);
    for line in [
        r#"prefixgate_loops_total{action="warn",detector="same_call"} 2"#,
        r#"prefixgate_loops_total{action="block",detector="cycle"} 1"#,
        r#"prefixgate_loops_total{action="other",detector="other"} 1"#,
        r#"prefixgate_cap_refusals_total{cap="usd",scope="run"} 1"#,
        r#"prefixgate_cap_refusals_total{cap="requests_per_minute",scope="key"} 1"#,
        r#"prefixgate_cap_refusals_total{cap="usd",scope="other"} 1"#,
        "prefixgate_caps_unenforced_total 1",
        "prefixgate_hints_total 3",
        "prefixgate_ledger_unavailable_total 1",
        r#"prefixgate_alerts_total{result="sent"} 2"#,
        r#"prefixgate_alerts_total{result="failed"} 1"#,
        r#"prefixgate_alerts_total{result="dropped"} 1"#,
        r#"prefixgate_alerts_total{result="other"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
    for foreign in ["theirs", "rm -rf", "4711", "hook.example"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
}

#[test]
fn at_most_ten_levels_of_a_cap_have_a_label() {
    let metrics = Metrics::new(&[]).unwrap();
    for level in 1..=12 {
        metrics.cap_level("usd", level);
        metrics.cap_level("tokens", level);
    }
    metrics.cap_level("usd", 1);
    metrics.cap_level("not a cap", 2);
    let text = text(&metrics);
    for line in [
        r#"prefixgate_cap_levels_total{cap="usd",level="1"} 2"#,
        r#"prefixgate_cap_levels_total{cap="tokens",level="10"} 1"#,
        r#"prefixgate_cap_levels_total{cap="usd",level="other"} 2"#,
        r#"prefixgate_cap_levels_total{cap="other",level="2"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
    assert!(!text.contains(r#"level="11""#) && !text.contains(r#"level="12""#));
}
