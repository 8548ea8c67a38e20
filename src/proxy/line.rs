//! The log line of a turn, for a person who watches.

use std::fmt::Write as _;

use crate::prompt_cache::verdict::Status;
use crate::trace::{Outcome, RequestKind, TurnRecord};

/// Under which name the lines of turns are logged.
pub const TURN_TARGET: &str = "prefixgate::turn";

/// Logs a finished request: turns at `info`, the rest at `debug`.
pub fn log(record: &TurnRecord) {
    if record.kind != RequestKind::Turn {
        tracing::debug!(
            target: "prefixgate::request",
            kind = record.kind.as_str(), method = record.method, path = record.path,
            status = record.status, outcome = record.outcome.as_str(), "request"
        );
        return;
    }
    if tracing::enabled!(target: TURN_TARGET, tracing::Level::INFO) {
        tracing::info!(target: TURN_TARGET, "{}", one_line(line(record)));
    }
}

/// Names come from clients and upstreams: none of them may end the line or steer a terminal.
fn one_line(line: String) -> String {
    let printable = |byte: &u8| (b' '..=b'~').contains(byte);
    if !line.as_bytes().iter().all(printable) && line.chars().any(char::is_control) {
        return line.replace(char::is_control, "\u{fffd}");
    }
    line
}

/// One line: where, who, how it ended, tokens, money, time.
fn line(r: &TurnRecord) -> String {
    let mut out = String::with_capacity(160);
    let model = r
        .model_served
        .as_deref()
        .or(r.model_requested.as_deref())
        .unwrap_or("?");
    let app = r
        .app
        .as_deref()
        .map_or(String::new(), |app| format!(" {app}"));
    // Writing into a String cannot fail.
    let _ = write!(out, "{}{app} {}#{} {model} ", r.run_id, r.thread_id, r.turn);
    match (r.outcome, r.status) {
        (Outcome::Ok, _) => out.push_str(r.stop_reason.as_deref().unwrap_or("ok")),
        (outcome, status) => {
            out.push_str(outcome.as_str());
            if let Some(status) = status {
                let _ = write!(out, " {status}");
            }
            if let Some(kind) = r
                .error_type
                .as_ref()
                .filter(|kind| *kind != outcome.as_str())
            {
                let _ = write!(out, " {kind}");
            }
        }
    }
    if let Some(prompt) = r.usage.prompt() {
        let _ = write!(out, " | {} in", tokens(prompt));
        if let Some(ratio) = r.usage.hit_ratio() {
            let _ = write!(out, ", {:.0}% read", ratio * 100.0);
        }
        let written = r.usage.written().unwrap_or(0);
        if written > 0 {
            let _ = write!(out, ", {} written", tokens(written));
        }
    }
    if let Some(output) = r.usage.output {
        let _ = write!(out, ", {} out", tokens(output));
    }
    match r.cost_pico {
        Some(pico) => {
            let sign = if r.usage_complete { "" } else { ">= " };
            let _ = write!(out, " | {sign}{}", crate::usage::usd_short(pico));
        }
        // What was refused has no price that could be missing.
        None if r.outcome == Outcome::Ok || r.usage.prompt().is_some() => {
            out.push_str(" | unpriced");
        }
        None => {}
    }
    let _ = write!(out, " | {}", seconds(r.duration_us));
    if let Some(first) = r.first_token_us {
        let _ = write!(out, " (first token {})", seconds(first));
    }
    if !r.markers_added.is_empty() {
        let how = if r.dry_run { "would add" } else { "+" };
        let end = if r.markers_added.len() == 1 { "" } else { "s" };
        let _ = write!(out, " | {how} {} marker{end}", r.markers_added.len());
    }
    if let Some(broken) = broken(r) {
        let _ = write!(out, " | {broken}");
    }
    // The first one is the one that is met the most strictly.
    if let Some(found) = r.guard.findings.first() {
        let _ = write!(out, " | loop={}:{}", found.detector, found.count);
    }
    if let Some(cap) = &r.guard.cap {
        let _ = write!(out, " | cap={cap}");
    }
    if r.attempt > 1 {
        let _ = write!(out, " | attempt {}", r.attempt);
    }
    for warning in &r.warnings {
        let _ = write!(out, " | {warning}");
    }
    out
}

/// What broke the prompt cache in this turn, where, and what that cost.
fn broken(r: &TurnRecord) -> Option<String> {
    let verdict = r.cache.verdict.as_ref()?;
    if !matches!(verdict.status, Status::Miss | Status::Partial) {
        return None;
    }
    let mut out = format!("cache {}", verdict.status.as_str());
    if let Some(reason) = verdict.reason {
        let _ = write!(out, ": {}", reason.as_str());
    }
    if let Some(what) = verdict.what {
        let _ = write!(out, ", {}", what.as_str());
    }
    if let Some(path) = &verdict.first_changed {
        let _ = write!(out, " at {path}");
        if let Some(offset) = verdict.offset {
            let _ = write!(out, ":{offset}");
        }
    }
    if let Some(lost) = verdict.lost_tokens {
        let _ = write!(out, ", {} lost", tokens(lost));
    }
    if let Some(pico) = verdict.lost_pico {
        let _ = write!(out, " ({})", crate::usage::usd_short(pico));
    }
    Some(out)
}

#[expect(clippy::cast_precision_loss, reason = "rounded for reading")]
fn tokens(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.2}M", n as f64 / 1e6),
    }
}

#[expect(clippy::cast_precision_loss, reason = "rounded for reading")]
fn seconds(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.0}ms", us as f64 / 1e3),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::{broken, line, one_line};
    use crate::guard::loops::Finding;
    use crate::prompt_cache::verdict::{Reason, Status, Verdict, What, Whose};
    use crate::trace::{Outcome, RequestKind, TurnRecord};

    #[test]
    fn a_break_is_said_in_a_few_words() {
        let mut record = TurnRecord::begin(uuid::Uuid::nil(), RequestKind::Turn, "u", 0);
        assert_eq!(broken(&record), None);
        let verdict = Verdict {
            status: Status::Miss,
            reason: Some(Reason::System),
            first_changed: Some("system[0].text".into()),
            offset: Some(23),
            what: Some(What::Clock),
            detail: String::new(),
            whose: Some(Whose::Client),
            lost_tokens: Some(12_300),
            lost_pico: Some(42_000_000_000),
            excerpt: None,
        };
        record.cache.verdict = Some(verdict.clone());
        assert_eq!(
            broken(&record).unwrap(),
            "cache miss: system, clock at system[0].text:23, 12.3k lost ($0.042)"
        );
        record.cache.verdict = Some(Verdict {
            status: Status::Extended,
            ..verdict
        });
        assert_eq!(broken(&record), None);
    }

    #[test]
    fn a_loop_and_a_cap_are_said_where_there_are_any() {
        let mut record = TurnRecord::begin(uuid::Uuid::nil(), RequestKind::Turn, "u", 0);
        record.outcome = Outcome::Refused;
        record.status = Some(400);
        assert!(!line(&record).contains('='), "{}", line(&record));
        let finding = |detector: &str, count| Finding {
            detector: detector.into(),
            tools: vec!["Bash".into()],
            count,
            period: 1,
            turns: count,
            action: "block".into(),
            fresh: true,
        };
        record.guard.findings = vec![finding("same_call", 6), finding("no_progress", 5)];
        record.guard.cap = Some("usd".into());
        assert_eq!(
            line(&record),
            "unplaced main#0 ? refused 400 | 0us | loop=same_call:6 | cap=usd"
        );
    }

    #[test]
    fn a_name_cannot_break_the_line() {
        let line = one_line("run a\nb\u{1b}[2Jc\u{9b}d".into());
        assert_eq!(line, "run a\u{fffd}b\u{fffd}[2Jc\u{fffd}d");
        assert_eq!(one_line("grüße".into()), "grüße");
    }
}
