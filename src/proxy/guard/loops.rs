//! What becomes of a request because of what its history shows.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};

use super::{events, hint};
use crate::guard::loops::{Action, Detector, Finding, Hint, Policy, look};
use crate::provider::view::{History, RequestView};
use crate::proxy::Shared;
use crate::proxy::account::Account;
use crate::run::Rules;

/// Tells a client that its agent is in a loop.
static LOOP_HEADER: HeaderName = HeaderName::from_static("x-prefixgate-loop");

/// A request that goes no further.
#[derive(Debug)]
pub enum Stop {
    /// It is refused; why.
    Refuse(String),
    /// It is answered in the model's place; with what text.
    Answer(String),
}

/// Looks at the history of a request. Gives the texts that belong into it, or an end.
pub(in crate::proxy) fn judge(
    shared: &Shared,
    account: &mut Account,
    body: &[u8],
    view: &RequestView,
) -> Result<Vec<Hint>, Stop> {
    let Some(seat) = account.seat().cloned() else {
        return Ok(Vec::new());
    };
    let app = account.record().and_then(|record| record.app.clone());
    let current = shared.config.loops_for(app.as_deref());
    let policy = match &seat.rules {
        Rules::Current => Cow::Borrowed(current),
        Rules::WithoutHints if current.hints() => Cow::Owned(current.without_hints()),
        Rules::WithoutHints => Cow::Borrowed(current),
        Rules::Kept(policy) => Cow::Borrowed(&**policy),
    };
    if policy.is_off() {
        return Ok(Vec::new());
    }
    let before = shared.guards.before(view);
    let seen = look(body, view, &policy, &shared.guards.memo, before.as_deref());
    if view.history != History::Whole {
        account.carry(seen.history);
    }
    let can_hint = hint::possible(view);
    let hints = if can_hint { seen.hints } else { Vec::new() };
    if let Some(record) = account.record() {
        record.guard.hints = u32::try_from(hints.len()).unwrap_or(u32::MAX);
        if policy.hints() {
            record.guard.policy = Some(policy.code());
        }
    }
    if let Some(first) = seen.findings.first() {
        // Rules that a thread has kept say nothing of where they stood.
        let own = app.filter(|app| {
            shared
                .config
                .apps
                .get(app)
                .is_some_and(|a| a.loops.is_some())
        });
        let setting = own.map_or_else(
            || "loops.action".to_owned(),
            |app| format!("app.{app}.loops"),
        );
        let strictest = note(shared, account, &policy, &seen.findings, can_hint);
        match strictest {
            Action::Block => return Err(Stop::Refuse(refused(first, &setting))),
            Action::Answer => return Err(Stop::Answer(answered(first, &setting))),
            Action::Off | Action::Warn | Action::Hint => account.tell(&LOOP_HEADER, header(first)),
        }
    }
    Ok(hints)
}

/// Writes the findings down; gives the strictest action that can be taken.
fn note(
    shared: &Shared,
    account: &mut Account,
    policy: &Policy,
    findings: &[Finding],
    can_hint: bool,
) -> Action {
    let mut strictest = Action::Warn;
    let Some(seat) = account.seat().cloned() else {
        return strictest;
    };
    for finding in findings {
        let action = match Action::from_word(&finding.action).unwrap_or(Action::Warn) {
            Action::Hint if !can_hint => Action::Warn,
            action => action,
        };
        strictest = strictest.max(action);
        let pico = shared.registry.cost_of(&seat, finding.turns as usize);
        let Some(record) = account.record() else {
            continue;
        };
        record.guard.loop_pico = record.guard.loop_pico.or(pico);
        // A client that sends the same once more has not gone on.
        if seat.attempt == 1 {
            let detector = Detector::from_word(&finding.detector);
            let threshold = detector.map_or(0, |detector| policy.rule(detector).threshold);
            let word = action.as_str();
            if finding.fresh {
                events::loop_found(shared, record, finding, word, pico, threshold);
            } else if doubled(finding.count, threshold) {
                events::loop_went_on(shared, record, finding, word, pico, threshold);
            }
        }
        if action == Action::Hint {
            shared.metrics.hints(1);
        }
    }
    if let Some(record) = account.record() {
        record.guard.findings = findings.to_vec();
        record.guard.action = Some(strictest.as_str().to_owned());
    }
    strictest
}

/// Whether a count is the threshold times a power of two: often enough to see that a loop goes on at the
/// last step of its ladder, and seldom enough for one that goes on for ever.
fn doubled(count: u32, threshold: u32) -> bool {
    let times = count.checked_div(threshold);
    times.is_some_and(|times| times.is_power_of_two() && times * threshold == count)
}

/// What happened, in one sentence without an end.
fn told(finding: &Finding) -> String {
    let Finding { count, tools, .. } = finding;
    let names = || {
        let quoted: Vec<String> = tools.iter().map(|tool| format!("`{tool}`")).collect();
        quoted.join(", ")
    };
    match finding.detector.as_str() {
        "same_call" => format!(
            "the same call of {} failed {count} times with the same error",
            names()
        ),
        "same_error" => format!("{} failed {count} times with the same error", names()),
        "cycle" => format!(
            "the calls {} went round {count} times with the same results",
            names()
        ),
        _ => format!(
            "the same call of {} gave the same result {count} times",
            names()
        ),
    }
}

fn refused(finding: &Finding, setting: &str) -> String {
    format!(
        "prefixgate: loop stopped: {} since the last user message. Nothing was sent to the model; a \
         new user message starts the count anew (setting {setting}, detector {})",
        told(finding),
        finding.detector
    )
}

fn answered(finding: &Finding, setting: &str) -> String {
    format!(
        "[prefixgate] This turn was ended by the gateway because {} since the last user message. The \
         model was not asked. Say how to go on to start the count anew (setting {setting}, \
         detector {}).",
        told(finding),
        finding.detector
    )
}

/// `same_call; tools=read_file; count=3`
fn header(finding: &Finding) -> Option<HeaderValue> {
    let visible = |c: &char| c.is_ascii_graphic() && !matches!(c, ';' | ',');
    let tools: Vec<String> = finding
        .tools
        .iter()
        .map(|tool| tool.chars().filter(visible).collect())
        .collect();
    let value = format!(
        "{}; tools={}; count={}",
        finding.detector,
        tools.join(","),
        finding.count
    );
    HeaderValue::from_str(&value).ok()
}

#[cfg(test)]
mod tests {
    use super::doubled;

    #[test]
    fn a_loop_is_told_again_each_time_it_has_doubled() {
        let told: Vec<u32> = (0..100).filter(|count| doubled(*count, 3)).collect();
        assert_eq!(told, [3, 6, 12, 24, 48, 96]);
        assert!(!doubled(5, 0) && doubled(u32::MAX, u32::MAX));
    }
}
