//! The log line of a turn, for a person who watches.

use crate::prompt_cache::verdict::Status;
use crate::text::{push_digits, push_number};
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
    let mut out = String::with_capacity(256);
    let model = r
        .model_served
        .as_deref()
        .or(r.model_requested.as_deref())
        .unwrap_or("?");
    out.push_str(&r.run_id);
    if let Some(app) = &r.app {
        out.push(' ');
        out.push_str(app);
    }
    push(&mut out, &[" ", &r.thread_id, "#"]);
    push_number(&mut out, u64::from(r.turn));
    push(&mut out, &[" ", model, " "]);
    match (r.outcome, r.status) {
        (Outcome::Ok, _) => out.push_str(r.stop_reason.as_deref().unwrap_or("ok")),
        (outcome, status) => {
            out.push_str(outcome.as_str());
            if let Some(status) = status {
                out.push(' ');
                push_number(&mut out, u64::from(status));
            }
            if let Some(kind) = r
                .error_type
                .as_ref()
                .filter(|kind| *kind != outcome.as_str())
            {
                push(&mut out, &[" ", kind]);
            }
        }
    }
    if let Some(prompt) = r.usage.prompt() {
        out.push_str(" | ");
        push_tokens(&mut out, prompt);
        out.push_str(" in");
        if let Some(ratio) = r.usage.hit_ratio() {
            out.push_str(", ");
            push_number(&mut out, (ratio * 100.0).round() as u64);
            out.push_str("% read");
        }
        let written = r.usage.written().unwrap_or(0);
        if written > 0 {
            out.push_str(", ");
            push_tokens(&mut out, written);
            out.push_str(" written");
        }
    }
    if let Some(output) = r.usage.output {
        out.push_str(", ");
        push_tokens(&mut out, output);
        out.push_str(" out");
    }
    match r.cost_pico {
        Some(pico) => {
            let sign = if r.usage_complete { "" } else { ">= " };
            push(&mut out, &[" | ", sign, &crate::usage::usd_short(pico)]);
        }
        // What was refused has no price that could be missing.
        None if r.outcome == Outcome::Ok || r.usage.prompt().is_some() => {
            out.push_str(" | unpriced");
        }
        None => {}
    }
    out.push_str(" | ");
    push_took(&mut out, r.duration_us);
    if let Some(first) = r.first_token_us {
        out.push_str(" (first token ");
        push_took(&mut out, first);
        out.push(')');
    }
    if !r.markers_added.is_empty() {
        let how = if r.dry_run { "would add" } else { "+" };
        let end = if r.markers_added.len() == 1 { "" } else { "s" };
        push(&mut out, &[" | ", how, " "]);
        push_number(&mut out, r.markers_added.len() as u64);
        push(&mut out, &[" marker", end]);
    }
    if let Some(broken) = broken(r) {
        push(&mut out, &[" | ", &broken]);
    }
    // The first one is the one that is met the most strictly.
    if let Some(found) = r.guard.findings.first() {
        push(&mut out, &[" | loop=", &found.detector, ":"]);
        push_number(&mut out, u64::from(found.count));
    }
    if let Some(cap) = &r.guard.cap {
        push(&mut out, &[" | cap=", cap]);
    }
    if r.attempt > 1 {
        out.push_str(" | attempt ");
        push_number(&mut out, u64::from(r.attempt));
    }
    for warning in &r.warnings {
        push(&mut out, &[" | ", warning]);
    }
    out
}

/// What broke the prompt cache in this turn, where, and what that cost.
fn broken(r: &TurnRecord) -> Option<String> {
    let verdict = r.cache.verdict.as_ref()?;
    if !matches!(verdict.status, Status::Miss | Status::Partial) {
        return None;
    }
    let mut out = String::with_capacity(64);
    push(&mut out, &["cache ", verdict.status.as_str()]);
    if let Some(reason) = verdict.reason {
        push(&mut out, &[": ", reason.as_str()]);
    }
    if let Some(what) = verdict.what {
        push(&mut out, &[", ", what.as_str()]);
    }
    if let Some(path) = &verdict.first_changed {
        push(&mut out, &[" at ", path]);
        if let Some(offset) = verdict.offset {
            out.push(':');
            push_number(&mut out, u64::from(offset));
        }
    }
    if let Some(lost) = verdict.lost_tokens {
        out.push_str(", ");
        push_tokens(&mut out, lost);
        out.push_str(" lost");
    }
    if let Some(pico) = verdict.lost_pico {
        push(&mut out, &[" (", &crate::usage::usd_short(pico), ")"]);
    }
    Some(out)
}

fn push(out: &mut String, words: &[&str]) {
    for word in words {
        out.push_str(word);
    }
}

/// A number of tokens, rounded for reading.
fn push_tokens(out: &mut String, tokens: u64) {
    match tokens {
        0..1_000 => push_number(out, tokens),
        1_000..1_000_000 => {
            push_rounded(out, tokens, 1_000, 1);
            out.push('k');
        }
        _ => {
            push_rounded(out, tokens, 1_000_000, 2);
            out.push('M');
        }
    }
}

/// Microseconds, rounded for reading.
fn push_took(out: &mut String, us: u64) {
    match us {
        0..1_000 => {
            push_number(out, us);
            out.push_str("us");
        }
        1_000..1_000_000 => {
            push_number(out, (us + 500) / 1_000);
            out.push_str("ms");
        }
        _ => {
            push_rounded(out, us, 1_000_000, 1);
            out.push('s');
        }
    }
}

/// A number in units of `unit`, with so many decimal places. Floats and formatting take several times
/// as long, and there are a handful of these in a line.
fn push_rounded(out: &mut String, number: u64, unit: u64, places: u32) {
    let parts = 10_u64.pow(places);
    let step = unit / parts;
    let rounded = number.saturating_add(step / 2) / step;
    push_number(out, rounded / parts);
    out.push('.');
    push_digits(out, rounded, places);
}

#[cfg(test)]
mod tests {
    use super::{broken, line, one_line, push_tokens, push_took};
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
    fn numbers_are_rounded_for_reading() {
        let written = |write: fn(&mut String, u64), n| {
            let mut out = String::new();
            write(&mut out, n);
            out
        };
        let said = |n| written(push_tokens, n);
        let all = [0, 999, 1_049, 1_050, 999_949, 1_000_000, 12_345_678];
        let words = ["0", "999", "1.0k", "1.1k", "999.9k", "1.00M", "12.35M"];
        assert_eq!(all.map(said), words);
        assert!(said(u64::MAX).ends_with('M'));
        let took = |us| written(push_took, us);
        let all = [0, 999, 1_499, 1_500, 1_000_000, 61_250_000];
        assert_eq!(
            all.map(took),
            ["0us", "999us", "1ms", "2ms", "1.0s", "61.3s"]
        );
        assert!(took(u64::MAX).ends_with('s'));
    }

    #[test]
    fn a_name_cannot_break_the_line() {
        let line = one_line("run a\nb\u{1b}[2Jc\u{9b}d".into());
        assert_eq!(line, "run a\u{fffd}b\u{fffd}[2Jc\u{fffd}d");
        assert_eq!(one_line("grüße".into()), "grüße");
    }
}
