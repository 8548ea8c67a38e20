//! What the guards say of a turn, for people and for scripts.

use serde::Serialize;

use crate::guard::loops::Finding;
use crate::trace::GuardRecord;
use crate::usage::usd;

/// A guard's record as scripts have it.
#[derive(Serialize)]
pub(super) struct GuardJson<'a> {
    /// Loops that the newest results belong to.
    findings: Vec<FindingJson<'a>>,
    /// What was done about them.
    action: Option<&'a str>,
    /// What the loop had cost by then; `null` where some of it is not known.
    loop_cost_usd: Option<String>,
    /// The cap that refused the request.
    cap: Option<&'a str>,
    cap_scope: Option<&'a str>,
    /// What was booked where the cost is not known.
    booked_usd: Option<String>,
    /// The rules that bind the thread.
    policy: Option<&'a str>,
    /// Texts that were put into the history.
    hints: u32,
}

#[derive(Serialize)]
struct FindingJson<'a> {
    detector: &'a str,
    tools: &'a [String],
    count: u32,
    /// Calls of a round of a cycle; 1 for others.
    period: u32,
    /// Answers of the model in it.
    turns: u32,
    /// What the rules ask for at this count.
    action: &'a str,
    /// Whether this turn brought it to a next step.
    fresh: bool,
}

impl<'a> From<&'a Finding> for FindingJson<'a> {
    fn from(found: &'a Finding) -> Self {
        Self {
            detector: &found.detector,
            tools: &found.tools,
            count: found.count,
            period: found.period,
            turns: found.turns,
            action: &found.action,
            fresh: found.fresh,
        }
    }
}

impl<'a> GuardJson<'a> {
    /// `None` when there is nothing to say.
    pub(super) fn new(guard: &'a GuardRecord) -> Option<Self> {
        (!guard.is_empty()).then(|| Self {
            findings: guard.findings.iter().map(FindingJson::from).collect(),
            action: guard.action.as_deref(),
            loop_cost_usd: guard.loop_pico.map(usd),
            cap: guard.cap.as_deref(),
            cap_scope: guard.cap_scope.as_deref(),
            booked_usd: guard.booked_pico.map(usd),
            policy: guard.policy.as_deref(),
            hints: guard.hints,
        })
    }
}

/// Why a request was refused: `cap usd`, `loop same_call`.
pub(super) fn refusal(guard: &GuardRecord) -> Option<String> {
    let found = || guard.findings.first();
    match &guard.cap {
        Some(cap) => Some(format!("cap {cap}")),
        None => found().map(|found| format!("loop {}", found.detector)),
    }
}

/// The loops of a turn: `loop:same_call:3`.
pub(super) fn remarks(guard: &GuardRecord) -> Vec<String> {
    let loops = guard.findings.iter();
    loops
        .map(|found| format!("loop:{}:{}", found.detector, found.count))
        .collect()
}
