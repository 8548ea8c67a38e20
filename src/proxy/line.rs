//! The log line of a turn, for a person who watches.

use std::fmt::{self, Write as _};

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
    out.push_str(&r.run_id);
    if let Some(app) = &r.app {
        out.push(' ');
        out.push_str(app);
    }
    // Writing into a String cannot fail.
    let _ = write!(out, " {}#{} {model} ", r.thread_id, r.turn);
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
        let _ = write!(out, " | {} in", Tokens(prompt));
        if let Some(ratio) = r.usage.hit_ratio() {
            let _ = write!(out, ", {}% read", (ratio * 100.0).round() as u64);
        }
        let written = r.usage.written().unwrap_or(0);
        if written > 0 {
            let _ = write!(out, ", {} written", Tokens(written));
        }
    }
    if let Some(output) = r.usage.output {
        let _ = write!(out, ", {} out", Tokens(output));
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
    let _ = write!(out, " | {}", Took(r.duration_us));
    if let Some(first) = r.first_token_us {
        let _ = write!(out, " (first token {})", Took(first));
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
        let _ = write!(out, ", {} lost", Tokens(lost));
    }
    if let Some(pico) = verdict.lost_pico {
        let _ = write!(out, " ({})", crate::usage::usd_short(pico));
    }
    Some(out)
}

/// A number of tokens, rounded for reading.
struct Tokens(u64);

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Floats take several times as long to write.
        let rounded = |unit: u64, parts: u64| {
            let part = unit / parts;
            let units = self.0.saturating_add(part / 2) / part;
            (units / parts, units % parts)
        };
        match self.0 {
            n @ 0..1_000 => n.fmt(f),
            1_000..1_000_000 => {
                let (whole, tenths) = rounded(1_000, 10);
                write!(f, "{whole}.{tenths}k")
            }
            _ => {
                let (whole, hundredths) = rounded(1_000_000, 100);
                write!(f, "{whole}.{hundredths:02}M")
            }
        }
    }
}

/// Microseconds, rounded for reading.
struct Took(u64);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us @ 0..1_000 => write!(f, "{us}us"),
            us @ 1_000..1_000_000 => write!(f, "{}ms", (us + 500) / 1_000),
            us => {
                let tenths = us.saturating_add(50_000) / 100_000;
                write!(f, "{}.{}s", tenths / 10, tenths % 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tokens, Took, broken, line, one_line};
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
        let said = |n| Tokens(n).to_string();
        let all = [0, 999, 1_049, 1_050, 999_949, 1_000_000, 12_345_678];
        let words = ["0", "999", "1.0k", "1.1k", "999.9k", "1.00M", "12.35M"];
        assert_eq!(all.map(said), words);
        assert!(said(u64::MAX).ends_with('M'));
        let took = |us| Took(us).to_string();
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
