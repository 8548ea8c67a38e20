//! What an audit of the prompt cache answers: culprits, writes for nothing, writes twice, and
//! whether the provider says the same. Values and their sums; no store.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::totals::signed;
use crate::prompt_cache::verdict::{Reason, Status, Verdict, What, Whose};
use crate::provider::view::Ttl;

/// In SQL whether a turn `t` is a break: what [`Judged`](super::totals::Judged) says of it. Word for
/// word the condition of SQLite's index `turns_by_break`.
pub(super) const BREAK: &str = "(t.verdict IN ('partial', 'miss') OR t.lost_tokens > 0)";
/// In SQL whether the provider says something of a turn `t`. Word for word the condition of SQLite's
/// index `turns_by_diagnosis`.
pub(super) const DIAGNOSED: &str =
    "(t.native_diagnosis IS NOT NULL OR t.native_agrees IS NOT NULL)";
/// The columns with what a turn wrote to the cache, with the lifetime of each kind in milliseconds,
/// the shortest first.
pub(super) const WRITES: [(&str, i64); 4] = [
    ("write_5m", Ttl::M5.ms()),
    ("write_30m", Ttl::M30.ms()),
    ("write_1h", Ttl::H1.ms()),
    ("write_12h", Ttl::H12.ms()),
];

/// In SQL whether a turn `t` wrote what could be read: with nothing paid for it, nothing is wasted.
/// Rows from before the engine (no policy, no verdict) cannot be judged.
pub(super) fn wrote() -> String {
    let wrote = WRITES.map(|(column, _)| format!("t.{column} > 0"));
    format!(
        "({}) AND (t.premium_pico IS NULL OR t.premium_pico > 0) \
        AND (t.policy IS NOT NULL OR t.verdict IS NOT NULL OR t.unjudged IS NOT NULL)",
        wrote.join(" OR ")
    )
}

/// In SQL the lifetime of the longest-lived entry that a turn `t` wrote, in milliseconds.
pub(super) fn lifetime() -> String {
    let mut cases = String::new();
    for (column, ms) in WRITES.iter().rev() {
        cases += &format!("WHEN t.{column} > 0 THEN {ms} ");
    }
    format!("CASE {cases}ELSE 0 END")
}

/// A sum some of whose parts may be unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Sum of the known parts.
    known: i128,
    /// Number of known parts.
    parts: u64,
    /// Number of unknown parts.
    pub unknown: u64,
}

impl Sum {
    /// Adds a part.
    pub fn add(&mut self, part: Option<impl Into<i128>>) {
        match part {
            Some(part) => {
                self.known = self.known.saturating_add(part.into());
                self.parts += 1;
            }
            None => self.unknown += 1,
        }
    }

    /// Adds `count` parts, all known or all unknown, by their sum.
    pub(super) fn add_alike(&mut self, parts: Option<u128>, count: u64) {
        match parts {
            Some(parts) => self.merge(&Self::of(signed(parts), count, 0)),
            None => self.unknown += count,
        }
    }

    /// The sum of `parts` that are known, beside `unknown` ones.
    pub(super) fn of(known: i128, parts: u64, unknown: u64) -> Self {
        Self {
            known,
            parts,
            unknown,
        }
    }

    /// Adds another sum, of other parts.
    pub(super) fn merge(&mut self, other: &Self) {
        self.known = self.known.saturating_add(other.known);
        self.parts += other.parts;
        self.unknown += other.unknown;
    }

    /// The sum of what is known: zero of no parts, `None` when every part is unknown.
    #[must_use]
    pub fn total(&self) -> Option<i128> {
        (self.parts > 0 || self.unknown == 0).then_some(self.known)
    }

    /// Whether [`Sum::total`] is all there is.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.unknown == 0
    }
}

/// Which turn is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Id of the record.
    pub id: Uuid,
    /// Run.
    pub run_id: String,
    /// Thread.
    pub thread_id: String,
    /// 1-based number in the thread.
    pub turn: u32,
    /// Start, UTC milliseconds.
    pub started_ms: i64,
    /// Application.
    pub app: Option<String>,
    /// Client program and version.
    pub client: Option<String>,
}

/// What culprits are told apart by, beside what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CulpritBy {
    /// By nothing else.
    Culprit,
    /// By the run.
    Run,
    /// By the application.
    App,
    /// By the day of the turn's start in the zone that is asked for.
    Day,
    /// By the client program and its version.
    Client,
}

/// One cause of breaks: the same reason, happening and place.
#[derive(Debug, Clone, PartialEq)]
pub struct Culprit {
    /// The run, application, day or client; `None` where the turns told none, or by
    /// [`CulpritBy::Culprit`].
    pub group: Option<String>,
    /// Why less was read.
    pub reason: Option<Reason>,
    /// What happened at the place.
    pub what: Option<What>,
    /// The first changed place, see [`generalised`].
    pub path: Option<String>,
    /// Turns it broke.
    pub count: u64,
    /// Runs in which it struck.
    pub runs: u64,
    /// Tokens that were there and were not read.
    pub tokens: Sum,
    /// What that cost, in pico-USD.
    pub pico: Sum,
    /// The newest turn it broke.
    pub last: Place,
    /// What the verdict says there.
    pub verdict: Verdict,
}

/// The losses of one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Why less was read.
    pub reason: Option<Reason>,
    /// Whose doing it is, from the newest of them.
    pub whose: Option<Whose>,
    /// Turns.
    pub count: u64,
    /// Tokens that were there and were not read.
    pub tokens: Sum,
    /// What that cost, in pico-USD.
    pub pico: Sum,
}

/// All culprits of a range, and the same losses by reason. Dearest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Culprits {
    /// The culprits; at most as many as the filter's limit.
    pub rows: Vec<Culprit>,
    /// How many there are.
    pub all: usize,
    /// Losses by reason: all of them, whatever the limit.
    pub losses: Vec<Loss>,
}

/// A turn that wrote what nobody read while it lived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// The turn.
    pub place: Place,
    /// Model that answered, or was asked for.
    pub model: Option<String>,
    /// Tokens written.
    pub tokens: Option<u64>,
    /// Lifetime of the longest-lived entry in milliseconds.
    pub ttl_ms: i64,
    /// What the writes cost more than plain input would have, in pico-USD.
    pub premium_pico: Option<u64>,
}

/// Writes that were never read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreads {
    /// The turns, dearest first; at most as many as the filter's limit.
    pub rows: Vec<Unread>,
    /// How many there are.
    pub turns: u64,
    /// Tokens written.
    pub tokens: Sum,
    /// The premium, in pico-USD.
    pub wasted: Sum,
    /// Turns whose writes nobody has read yet, and whose lifetime is not over.
    pub pending: u64,
    /// Turns of which it is not known: a later turn of their thread read something in time that
    /// cannot be told apart.
    pub unattributed: u64,
}

/// A turn that paid for a prefix which another one was writing at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The turn.
    pub place: Place,
    /// The turn that wrote the same.
    pub of: Uuid,
    /// Tokens of that prefix.
    pub tokens: Option<u64>,
    /// What reading them would have saved, in pico-USD.
    pub pico: Option<u64>,
}

/// Writes of the same prefix by parallel siblings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// The turns, dearest first; at most as many as the filter's limit.
    pub rows: Vec<Duplicate>,
    /// How many there are.
    pub turns: u64,
    /// Tokens.
    pub tokens: Sum,
    /// What reading them would have saved, in pico-USD.
    pub pico: Sum,
}

/// A turn of which the provider says something else than we do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// The turn.
    pub place: Place,
    /// Our status.
    pub status: Option<Status>,
    /// Our reason.
    pub reason: Option<Reason>,
    /// The provider's word.
    pub native: Option<String>,
}

/// How our verdicts compare with the provider's own diagnosis.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Turns on which both say the same.
    pub agree: u64,
    /// Turns on which they do not.
    pub disagree: u64,
    /// Turns whose diagnosis says nothing that can be compared.
    pub not_comparable: u64,
    /// The turns on which they do not agree, the newest first; at most as many as the filter's
    /// limit.
    pub rows: Vec<Disagreement>,
}

/// How many turns have which verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Turns by status.
    pub by_status: BTreeMap<&'static str, u64>,
    /// Turns without a verdict by the word that says why; `None` where nothing says so, as in
    /// records of a gateway that did not judge yet.
    pub unjudged: BTreeMap<Option<String>, u64>,
}

/// A path in which places of the growing conversation are all one: `messages[7].content[2]` is
/// `messages[*].content[*]`. Tools and system blocks keep their index, as they stay where they are.
#[must_use]
pub fn generalised(path: &str) -> Cow<'_, str> {
    if !path.starts_with("messages[") {
        return path.into();
    }
    let mut general = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('[') {
        general.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let (index, behind) = after.split_at(digits);
        if !index.is_empty() && behind.starts_with(']') {
            general.push_str("[*");
        } else {
            general.push('[');
            general.push_str(index);
        }
        rest = behind;
    }
    general.push_str(rest);
    general.into()
}

/// What makes two breaks the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cause {
    reason: Option<Reason>,
    what: Option<What>,
    path: Option<String>,
}

impl From<&Verdict> for Cause {
    fn from(verdict: &Verdict) -> Self {
        Self {
            reason: verdict.reason,
            what: verdict.what,
            path: verdict
                .first_changed
                .as_deref()
                .map(|path| generalised(path).into_owned()),
        }
    }
}

/// Collects culprits.
#[derive(Debug, Default)]
pub(super) struct Collected {
    culprits: HashMap<(Option<String>, Cause), (Culprit, HashSet<String>)>,
    losses: HashMap<Option<Reason>, Loss>,
}

impl Collected {
    /// Breaks come in the order of their start.
    pub(super) fn add(&mut self, group: Option<String>, place: Place, verdict: Verdict) {
        let loss = self.losses.entry(verdict.reason).or_insert_with(|| Loss {
            reason: verdict.reason,
            whose: None,
            count: 0,
            tokens: Sum::default(),
            pico: Sum::default(),
        });
        loss.whose = verdict.whose.or(loss.whose);
        loss.count += 1;
        loss.tokens.add(verdict.lost_tokens);
        loss.pico.add(verdict.lost_pico);

        let cause = Cause::from(&verdict);
        let (culprit, runs) = self
            .culprits
            .entry((group.clone(), cause.clone()))
            .or_insert_with(|| {
                let culprit = Culprit {
                    group,
                    reason: cause.reason,
                    what: cause.what,
                    path: cause.path,
                    count: 0,
                    runs: 0,
                    tokens: Sum::default(),
                    pico: Sum::default(),
                    last: place.clone(),
                    verdict: verdict.clone(),
                };
                (culprit, HashSet::new())
            });
        culprit.count += 1;
        culprit.tokens.add(verdict.lost_tokens);
        culprit.pico.add(verdict.lost_pico);
        if !runs.contains(&place.run_id) {
            runs.insert(place.run_id.clone());
            culprit.runs += 1;
        }
        (culprit.last, culprit.verdict) = (place, verdict);
    }

    pub(super) fn finish(self, limit: usize) -> Culprits {
        let rows = self.culprits.into_values().map(|(c, _)| c).collect();
        Culprits::sorted(rows, self.losses.into_values().collect(), limit)
    }
}

/// A turn that wrote what no turn has read.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) place: Place,
    pub(super) model: Option<String>,
    /// Tokens by their lifetime, as in [`WRITES`].
    pub(super) tokens: [Option<u64>; WRITES.len()],
    pub(super) premium_pico: Option<u64>,
    pub(super) ttl_ms: i64,
    /// When the entry was last kept alive, UTC milliseconds.
    pub(super) alive_ms: i64,
    /// A turn of its thread read in time what cannot be told apart.
    pub(super) perhaps_read: bool,
}

/// Rows by what they cost: the first `limit` of any number of them.
#[derive(Debug)]
struct Dearest<T> {
    limit: usize,
    rows: Vec<T>,
}

impl<T> Dearest<T> {
    /// Room beyond the limit, so that not each row is a sort.
    const ROOM: usize = 1_000;

    fn of(limit: usize) -> Self {
        Self {
            limit,
            rows: Vec::new(),
        }
    }

    fn add(&mut self, row: T, key: impl Fn(&T) -> (Option<u64>, i64, Uuid)) {
        self.rows.push(row);
        if self.rows.len() >= self.limit.saturating_mul(2).saturating_add(Self::ROOM) {
            self.cut(key);
        }
    }

    /// Dearest first, then by start and id; what is unknown comes last.
    fn cut(&mut self, key: impl Fn(&T) -> (Option<u64>, i64, Uuid)) {
        self.rows.sort_by_key(|row| {
            let (pico, started_ms, id) = key(row);
            (Reverse(pico), started_ms, id)
        });
        self.rows.truncate(self.limit);
    }
}

/// Collects writes that no turn has read, in any order.
#[derive(Debug)]
pub(super) struct Unreading {
    now_ms: i64,
    sums: Unreads,
    rows: Dearest<Unread>,
}

impl Unreading {
    pub(super) fn at(now_ms: i64, limit: usize) -> Self {
        Self {
            now_ms,
            sums: Unreads::default(),
            rows: Dearest::of(limit),
        }
    }

    fn key(row: &Unread) -> (Option<u64>, i64, Uuid) {
        (row.premium_pico, row.place.started_ms, row.place.id)
    }

    pub(super) fn add(&mut self, written: Written) {
        if written.perhaps_read {
            self.sums.unattributed += 1;
        } else if self.now_ms.saturating_sub(written.alive_ms) < written.ttl_ms {
            self.sums.pending += 1;
        } else {
            // Unknown where none is known, or the sum is beyond all reason.
            let known = written.tokens.into_iter().flatten();
            let tokens = known
                .map(Some)
                .reduce(|sum, more| sum?.checked_add(more?))
                .flatten();
            self.sums.turns += 1;
            self.sums.tokens.add(tokens);
            self.sums.wasted.add(written.premium_pico);
            let row = Unread {
                place: written.place,
                model: written.model,
                tokens,
                ttl_ms: written.ttl_ms,
                premium_pico: written.premium_pico,
            };
            self.rows.add(row, Self::key);
        }
    }

    pub(super) fn finish(mut self) -> Unreads {
        self.rows.cut(Self::key);
        Unreads {
            rows: self.rows.rows,
            ..self.sums
        }
    }
}

/// Collects writes of what a sibling was writing, in any order.
#[derive(Debug)]
pub(super) struct Duplicating {
    sums: Duplicates,
    rows: Dearest<Duplicate>,
}

impl Duplicating {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self {
            sums: Duplicates::default(),
            rows: Dearest::of(limit),
        }
    }

    fn key(row: &Duplicate) -> (Option<u64>, i64, Uuid) {
        (row.pico, row.place.started_ms, row.place.id)
    }

    pub(super) fn add(&mut self, row: Duplicate) {
        self.sums.turns += 1;
        self.sums.tokens.add(row.tokens);
        self.sums.pico.add(row.pico);
        self.rows.add(row, Self::key);
    }

    pub(super) fn finish(mut self) -> Duplicates {
        self.rows.cut(Self::key);
        Duplicates {
            rows: self.rows.rows,
            ..self.sums
        }
    }
}

impl Verdicts {
    /// Adds turns with a verdict, or without one and the word that says why.
    pub(super) fn add(&mut self, status: Option<Status>, unjudged: Option<String>, count: u64) {
        *match status {
            Some(status) => self.by_status.entry(status.as_str()).or_default(),
            None => self.unjudged.entry(unjudged).or_default(),
        } += count;
    }
}

impl Agreement {
    /// Adds turns of which the comparison says the same.
    pub(super) fn add(&mut self, agrees: Option<bool>, count: u64) {
        *match agrees {
            Some(true) => &mut self.agree,
            Some(false) => &mut self.disagree,
            None => &mut self.not_comparable,
        } += count;
    }
}

impl Culprits {
    /// In their order. Everything that can be told of a culprit takes part, so that it is always the
    /// same.
    pub(super) fn sorted(mut rows: Vec<Culprit>, mut losses: Vec<Loss>, limit: usize) -> Self {
        let all = rows.len();
        rows.sort_by_cached_key(|c| {
            let place = (c.group.clone(), c.path.clone(), c.last.id);
            (Reverse((c.pico.total(), c.tokens.total(), c.count)), place)
        });
        rows.truncate(limit);
        losses.sort_by_key(|l| {
            let word = l.reason.map(Reason::as_str);
            (Reverse((l.pico.total(), l.tokens.total(), l.count)), word)
        });
        Self { rows, all, losses }
    }
}

/// Counts how often the same cause has struck; for the turns of one run, in their order.
#[derive(Debug, Default)]
pub struct Strikes(HashMap<Cause, u64>);

impl Strikes {
    /// The number of this strike, 1 for the first; `None` for a verdict that is no break.
    pub fn count(&mut self, verdict: &Verdict) -> Option<u64> {
        super::totals::Judged::from(verdict).is_break().then(|| {
            let strikes = self.0.entry(Cause::from(verdict)).or_default();
            *strikes += 1;
            *strikes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_conversation_are_all_one() {
        for (path, general) in [
            ("messages[7].content[2]", "messages[*].content[*]"),
            (
                "messages[0].content[1].content[12].text",
                "messages[*].content[*].content[*].text",
            ),
            ("messages[3].content", "messages[*].content"),
            ("messages[3].x[y].z[", "messages[*].x[y].z["),
            ("messages[3].x[4", "messages[*].x[4"),
            ("tools[3]", "tools[3]"),
            ("system[0].text", "system[0].text"),
            ("tool_choice", "tool_choice"),
            ("", ""),
        ] {
            assert_eq!(generalised(path), general);
        }
    }

    #[test]
    fn a_sum_of_nothing_is_zero_and_of_unknown_parts_unknown() {
        let mut sum = Sum::default();
        assert_eq!((sum.total(), sum.complete()), (Some(0), true));
        sum.add(None::<u64>);
        assert_eq!((sum.total(), sum.complete()), (None, false));
        sum.add(Some(5_u64));
        assert_eq!((sum.total(), sum.complete()), (Some(5), false));
    }
}
