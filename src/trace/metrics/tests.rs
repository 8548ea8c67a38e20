use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::config::{Config, Otlp};
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
        r#"prefixgate_cache_lost_tokens_total{app="",reason="tools"} 4000"#,
        r#"prefixgate_cache_lost_usd_total{app="",reason="tools"} 0.5"#,
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
fn what_others_have_counted_is_taken_over_once() {
    let metrics = Metrics::new(&[]).unwrap();
    assert!(
        !text(&metrics).contains("prefixgate_otlp"),
        "only where it is configured"
    );
    let mut spans = OtlpStats {
        sent: 5,
        rejected: 1,
        posts: 2,
        failed_metric_posts: 3,
        ..OtlpStats::default()
    };
    let mut books = LedgerStats {
        up: false,
        fallback: 7,
        waiting: 4,
        lost: 2,
    };
    for _ in 0..2 {
        metrics.otlp(&spans);
        metrics.ledger(&books);
    }
    spans.sent = 6;
    (books.up, books.waiting) = (true, 0);
    metrics.otlp(&spans);
    metrics.ledger(&books);
    let text = text(&metrics);
    for line in [
        r#"prefixgate_otlp_spans_total{result="sent"} 6"#,
        r#"prefixgate_otlp_spans_total{result="rejected"} 1"#,
        r#"prefixgate_otlp_spans_total{result="given_up"} 0"#,
        r#"prefixgate_otlp_posts_total{result="taken",signal="traces"} 2"#,
        r#"prefixgate_otlp_posts_total{result="failed",signal="metrics"} 3"#,
        "prefixgate_ledger_up 1",
        "prefixgate_ledger_fallback_total 7",
        "prefixgate_ledger_waiting 0",
        "prefixgate_ledger_lost_total 2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
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

#[test]
fn what_alerts_ask_for_is_there_at_zero_and_stays_bounded() {
    let metrics = Metrics::new(&["batch".to_owned()]).unwrap();
    let mut config = Config::embedded("nowhere".into());
    config.otlp = Some(Otlp::at("http://127.0.0.1:4318/v1/traces".parse().unwrap()));
    config.caps.run.turns = Some(9);
    metrics.announce(&config);
    let text = text(&metrics);
    for line in [
        r#"prefixgate_requests_total{kind="turn",outcome="upstream_cut",upstream="openai"} 0"#,
        r#"prefixgate_upstream_errors_total{class="429",upstream="anthropic"} 0"#,
        r#"prefixgate_unpriced_turns_total{model="other",upstream="anthropic"} 0"#,
        r#"prefixgate_cache_lost_usd_total{app="batch",reason="tools"} 0"#,
        r#"prefixgate_cache_lost_usd_total{app="",reason="expired"} 0"#,
        r#"prefixgate_loops_total{action="warn",detector="same_call"} 0"#,
        r#"prefixgate_cap_refusals_total{cap="usd",scope="key"} 0"#,
        r#"prefixgate_cap_levels_total{cap="turns",level="80"} 0"#,
        r#"prefixgate_records_dropped_total{reason="disk_full"} 0"#,
        r#"prefixgate_alerts_total{result="failed"} 0"#,
        r#"prefixgate_cache_markers_total{by="refused"} 0"#,
        r#"prefixgate_config_info{cache="fill",caps="local",capture="none",clickhouse="off",loops="warn",otlp="on",webhooks="off"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
    // Of stores that nobody has set up, nothing is said.
    assert!(!text.contains("prefixgate_remote_up{"));
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series < 400, "{series}");
}

#[test]
fn errors_of_an_upstream_are_told_apart() {
    let metrics = Metrics::new(&[]).unwrap();
    for status in [Some(429), Some(400), Some(404), Some(529), Some(200)] {
        let mut failed = record(RequestKind::Turn);
        failed.outcome = Outcome::UpstreamError;
        failed.status = status;
        metrics.turn(&failed, None);
    }
    let text = text(&metrics);
    for (class, count) in [("429", 1), ("4xx", 2), ("5xx", 1), ("in_stream", 1)] {
        let line = format!(
            r#"prefixgate_upstream_errors_total{{class="{class}",upstream="anthropic"}} {count}"#
        );
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
}

#[test]
fn threads_are_counted_once_and_by_who_began_them() {
    let metrics = Metrics::new(&[]).unwrap();
    let turn = |turn, attempt, parent: Option<&str>| {
        let mut r = record(RequestKind::Turn);
        (r.turn, r.attempt) = (turn, attempt);
        r.parent_thread = parent.map(Into::into);
        r.outcome = Outcome::Ok;
        metrics.turn(&r, None);
    };
    turn(1, 1, None);
    turn(1, 2, None);
    turn(2, 1, None);
    turn(1, 1, Some("main"));
    turn(2, 1, Some("main"));
    let mut refused = record(RequestKind::Turn);
    (refused.turn, refused.outcome) = (1, Outcome::Refused);
    metrics.turn(&refused, None);
    let text = text(&metrics);
    for line in [
        r#"prefixgate_threads_started_total{agent="main"} 1"#,
        r#"prefixgate_threads_started_total{agent="sub"} 1"#,
        r#"prefixgate_retries_total{upstream="anthropic"} 1"#,
        "prefixgate_runs_active 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
}

#[test]
fn a_run_that_is_silent_is_not_at_work() {
    let runs = Runs::new().unwrap();
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    runs.heard_of("a", start);
    runs.heard_of("b", after(200));
    runs.heard_of("b", after(250));
    assert_eq!(runs.active(after(299)), 2);
    assert_eq!(runs.active(after(300)), 1);
    assert_eq!(runs.active(after(550)), 0);
    for run in 0..2 * runs::MAX_RUNS {
        runs.heard_of(&run.to_string(), after(600));
    }
    assert_eq!(runs.active(after(600)), runs::MAX_RUNS);
    // Room is made when what is there is over.
    runs.heard_of("late", after(900));
    assert_eq!(runs.active(after(900)), 1);
}

#[test]
fn counts_of_a_remote_store_are_taken_over_once() {
    let metrics = Metrics::new(&[]).unwrap();
    let mut stats = RemoteStats {
        waiting_records: 3,
        waiting_bytes: 4_096,
        limit_bytes: 1 << 30,
        oldest_ms: Some(1_500),
        appended: 10,
        delivered: 5,
        dropped: vec![("refused", 1), ("of a word they made up", 1)],
        failures: 2,
        up: Some(false),
    };
    metrics.remote("clickhouse", &stats);
    metrics.remote("clickhouse", &stats);
    (stats.delivered, stats.oldest_ms, stats.up) = (8, None, Some(true));
    metrics.remote("otlp", &RemoteStats::default());
    metrics.remote("another", &RemoteStats::default());
    let before = text(&metrics);
    metrics.remote("clickhouse", &stats);
    let after = text(&metrics);
    for (text, line) in [
        (&before, r#"prefixgate_remote_up{store="clickhouse"} 0"#),
        (&after, r#"prefixgate_remote_up{store="clickhouse"} 1"#),
        (&after, r#"prefixgate_remote_up{store="otlp"} 1"#),
        (&after, r#"prefixgate_remote_up{store="other"} 1"#),
        (
            &before,
            r#"prefixgate_spool_oldest_seconds{store="clickhouse"} 1.5"#,
        ),
        (
            &after,
            r#"prefixgate_spool_oldest_seconds{store="clickhouse"} 0"#,
        ),
        (&after, r#"prefixgate_spool_records{store="clickhouse"} 3"#),
        (&after, r#"prefixgate_spool_bytes{store="clickhouse"} 4096"#),
        (
            &after,
            r#"prefixgate_spool_limit_bytes{store="clickhouse"} 1073741824"#,
        ),
        (
            &after,
            r#"prefixgate_spool_appended_total{store="clickhouse"} 10"#,
        ),
        (
            &before,
            r#"prefixgate_spool_delivered_total{store="clickhouse"} 5"#,
        ),
        (
            &after,
            r#"prefixgate_spool_delivered_total{store="clickhouse"} 8"#,
        ),
        (
            &after,
            r#"prefixgate_remote_failures_total{store="clickhouse"} 2"#,
        ),
        (
            &after,
            r#"prefixgate_spool_dropped_total{reason="refused",store="clickhouse"} 1"#,
        ),
        (
            &after,
            r#"prefixgate_spool_dropped_total{reason="other",store="clickhouse"} 1"#,
        ),
        (
            &after,
            r#"prefixgate_spool_dropped_total{reason="full",store="otlp"} 0"#,
        ),
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
}

#[test]
fn two_scrapes_at_once_do_not_count_twice() {
    let metrics = Metrics::new(&[]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for written in 0..2_000 {
                    metrics.records(written, |_| written);
                }
            });
        }
    });
    let text = text(&metrics);
    for line in [
        "prefixgate_records_written_total 1999",
        r#"prefixgate_records_dropped_total{reason="closed"} 1999"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
}
