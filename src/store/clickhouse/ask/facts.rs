//! Requests that count alike, summed up by the server.

use crate::prompt_cache::verdict::Status;
use crate::store::StoreError;
use crate::store::clickhouse::row::{word, word_or_none};
use crate::store::totals::{Fact, Judged, KIND_COLUMNS, KINDS, prompt_sql};
use crate::trace::{Outcome, RequestKind};
use crate::usage::Usage;

/// Where the sums have the prompt, and what is beside the tokens.
const PROMPT: usize = KINDS;
const COST: usize = KINDS + 1;
const COST_NO_CACHE: usize = KINDS + 2;
const LOST_TOKENS: usize = KINDS + 3;
const LOST_PICO: usize = KINDS + 4;
/// The bit beyond those of the amounts that are known: whether tokens were lost.
const LOST: usize = KINDS + 5;

/// Kind, retry, outcome, error status, final usage seen, usage estimated, verdict, the bits of the
/// amounts that are known, number of requests, sums of the amounts.
pub(super) type Alike = (
    String,
    bool,
    String,
    bool,
    bool,
    bool,
    Option<String>,
    u32,
    u64,
    Vec<u128>,
);

/// What [`Fact`] says has to be the same.
const CLASS: &str =
    "t.kind, retried, t.outcome, failed, t.usage_complete, t.usage_estimated, t.verdict, known";

/// Amounts in SQL, each of which may be unknown.
fn amounts() -> Vec<String> {
    let kinds = KIND_COLUMNS.iter().map(|kind| format!("t.{kind}"));
    let others = [
        "prompt",
        "t.cost_pico",
        "t.cost_no_cache_pico",
        "t.lost_tokens",
        "t.lost_pico",
    ];
    kinds.chain(others.map(str::to_owned)).collect()
}

/// The names that [`alike`] uses, to stand behind WITH.
pub(super) fn names() -> String {
    let mut known: Vec<_> = (amounts().iter().enumerate())
        .map(|(bit, amount)| format!("{} * isNotNull({amount})", 1_u32 << bit))
        .collect();
    known.push(format!("{} * ifNull(t.lost_tokens > 0, 0)", 1_u32 << LOST));
    // A prompt beyond the largest integer is as good as unknown to `Usage::prompt`.
    format!(
        "{whole} AS whole, if(whole <= {most}, whole, NULL) AS prompt, \
        toBool(t.attempt > 1) AS retried, toBool(ifNull(t.status >= 400, 0)) AS failed, \
        toUInt32({known}) AS known",
        whole = prompt_sql(|kind| format!("toUInt128(t.{kind})")),
        most = u64::MAX,
        known = known.join(" + "),
    )
}

/// An [`Alike`] of each group, where rows are grouped by what [`grouped`] says.
pub(super) fn alike() -> String {
    let sums: Vec<_> = (amounts().iter())
        .map(|amount| format!("sum(toUInt128(ifNull({amount}, 0)))"))
        .collect();
    format!("tuple({CLASS}, count(), [{}])", sums.join(", "))
}

/// What follows GROUP BY, beside the groups themselves.
pub(super) fn grouped() -> &'static str {
    CLASS
}

/// In SQL whether a request `t` is a turn of its own, see [`Fact::is_turn`].
pub(super) fn is_turn() -> String {
    let stopped: Vec<_> = (Outcome::ALL.iter())
        .filter(|outcome| !outcome.forwarded())
        .map(|outcome| format!("'{}'", outcome.as_str()))
        .collect();
    format!(
        "t.kind = 'turn' AND t.attempt <= 1 AND t.outcome NOT IN ({})",
        stopped.join(", ")
    )
}

/// What the server has told.
pub(super) fn fact(alike: Alike) -> Result<Fact, StoreError> {
    let (kind, retried, outcome, failed, complete, estimated, verdict, known, count, sums) = alike;
    let sum = |amount: usize| {
        let is_known = known & (1 << amount) != 0;
        is_known.then(|| sums.get(amount).copied().unwrap_or(0))
    };
    let status = word_or_none("verdict", verdict.as_deref(), Status::from_word)?;
    Ok(Fact {
        count,
        tokens: std::array::from_fn(sum),
        prompt: sum(PROMPT),
        usage_complete: complete,
        usage_estimated: estimated,
        cost_pico: sum(COST),
        cost_no_cache_pico: sum(COST_NO_CACHE),
        judged: status.map(|status| Judged {
            status,
            lost_tokens: sum(LOST_TOKENS),
            lost_pico: sum(LOST_PICO),
        }),
        ..Fact::one(
            word("kind", &kind, RequestKind::from_word)?,
            1 + u32::from(retried),
            word("outcome", &outcome, Outcome::from_word)?,
            failed.then_some(400),
            &Usage::default(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_amount_has_its_place() {
        let amounts = amounts();
        assert_eq!(amounts.len(), LOST);
        assert_eq!(amounts[PROMPT], "prompt");
        assert_eq!(amounts[COST], "t.cost_pico");
        assert_eq!(amounts[COST_NO_CACHE], "t.cost_no_cache_pico");
        assert_eq!(amounts[LOST_TOKENS], "t.lost_tokens");
        assert_eq!(amounts[LOST_PICO], "t.lost_pico");
    }
}
