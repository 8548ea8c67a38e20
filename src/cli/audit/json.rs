//! The JSON shape that scripts rely on. Fields are added, never renamed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Audit, advice_on, word};
use crate::cli::report::json::{TotalsJson, object, time};
use crate::prompt_cache::verdict::{Reason, Status, What, Whose};
use crate::store::{Culprit, Disagreement, Duplicate, Loss, Place, Sum, Unread};
use crate::usage::usd;

/// The key of turns that say neither a verdict nor why there is none.
const NOT_RECORDED: &str = "not_recorded";

#[derive(Serialize)]
struct AuditJson<'a> {
    range: RangeJson<'a>,
    /// Sums over the range; `breaks` and the `lost_` fields are those of `losses`.
    totals: TotalsJson,
    verdicts: VerdictsJson<'a>,
    /// What the culprits are listed by.
    by: &'static str,
    /// Dearest first.
    culprits: Vec<CulpritJson<'a>>,
    /// How many culprits there are beyond those that are listed, too.
    culprits_in_all: usize,
    losses: Vec<LossJson>,
    written_never_read: UnreadsJson<'a>,
    duplicates: DuplicatesJson<'a>,
    agreement: AgreementJson<'a>,
}

#[derive(Serialize)]
struct RangeJson<'a> {
    since: Option<String>,
    until: Option<String>,
    app: Option<&'a str>,
    run: Option<&'a str>,
    zone: Option<&'a str>,
    /// The moment at which lifetimes were looked at.
    now: Option<String>,
}

#[derive(Serialize)]
struct VerdictsJson<'a> {
    /// Turns by status.
    judged: &'a BTreeMap<&'static str, u64>,
    /// Turns without a verdict by reason.
    unjudged: BTreeMap<&'a str, u64>,
}

/// A turn, wherever one is named.
#[derive(Serialize)]
struct PlaceJson<'a> {
    id: String,
    run: &'a str,
    thread: &'a str,
    turn: u32,
    started: Option<String>,
    app: Option<&'a str>,
    client: Option<&'a str>,
}

impl<'a> From<&'a Place> for PlaceJson<'a> {
    fn from(place: &'a Place) -> Self {
        Self {
            id: place.id.to_string(),
            run: &place.run_id,
            thread: &place.thread_id,
            turn: place.turn,
            started: time(place.started_ms),
            app: place.app.as_deref(),
            client: place.client.as_deref(),
        }
    }
}

/// A loss; what is not known is counted.
#[derive(Serialize)]
struct LostJson {
    lost_tokens: Option<i128>,
    /// Turns whose lost tokens are not known, which are not in the sum.
    lost_tokens_unknown: u64,
    lost_usd: Option<String>,
    lost_usd_unknown: u64,
}

impl LostJson {
    fn new(tokens: Sum, pico: Sum) -> Self {
        Self {
            lost_tokens: tokens.total(),
            lost_tokens_unknown: tokens.unknown,
            lost_usd: pico.total().map(usd),
            lost_usd_unknown: pico.unknown,
        }
    }
}

#[derive(Serialize)]
struct CulpritJson<'a> {
    /// The run, application, day or client; `null` by culprit, or where the turns told none.
    group: Option<&'a str>,
    reason: Option<&'static str>,
    what: Option<&'static str>,
    /// With `*` for indices of the conversation.
    path: Option<&'a str>,
    whose: Option<&'static str>,
    turns: u64,
    runs: u64,
    #[serde(flatten)]
    lost: LostJson,
    last_seen: Option<String>,
    /// The newest turn it broke.
    example: ExampleJson<'a>,
    advice: Option<String>,
}

#[derive(Serialize)]
struct ExampleJson<'a> {
    #[serde(flatten)]
    place: PlaceJson<'a>,
    status: &'static str,
    first_changed: Option<&'a str>,
    offset: Option<u32>,
    detail: &'a str,
}

impl<'a> From<&'a Culprit> for CulpritJson<'a> {
    fn from(of: &'a Culprit) -> Self {
        Self {
            group: of.group.as_deref(),
            reason: of.reason.map(Reason::as_str),
            what: of.what.map(What::as_str),
            path: of.path.as_deref(),
            whose: of.verdict.whose.map(Whose::as_str),
            turns: of.count,
            runs: of.runs,
            lost: LostJson::new(of.tokens, of.pico),
            last_seen: time(of.last.started_ms),
            example: ExampleJson {
                place: PlaceJson::from(&of.last),
                status: of.verdict.status.as_str(),
                first_changed: of.verdict.first_changed.as_deref(),
                offset: of.verdict.offset,
                detail: &of.verdict.detail,
            },
            advice: advice_on(of),
        }
    }
}

#[derive(Serialize)]
struct LossJson {
    reason: Option<&'static str>,
    whose: Option<&'static str>,
    turns: u64,
    #[serde(flatten)]
    lost: LostJson,
}

impl From<&Loss> for LossJson {
    fn from(of: &Loss) -> Self {
        Self {
            reason: of.reason.map(Reason::as_str),
            whose: of.whose.map(Whose::as_str),
            turns: of.count,
            lost: LostJson::new(of.tokens, of.pico),
        }
    }
}

#[derive(Serialize)]
struct UnreadsJson<'a> {
    turns: u64,
    tokens: Option<i128>,
    /// What the writes cost more than plain input would have.
    wasted_usd: Option<String>,
    /// Turns whose premium is not known, which are not in the sum.
    wasted_usd_unknown: u64,
    /// Turns whose writes nobody has read yet, and whose lifetime is not over.
    pending_turns: u64,
    /// Turns of which it cannot be known.
    unknown_turns: u64,
    rows: Vec<UnreadJson<'a>>,
}

#[derive(Serialize)]
struct UnreadJson<'a> {
    #[serde(flatten)]
    place: PlaceJson<'a>,
    model: Option<&'a str>,
    tokens: Option<u64>,
    lifetime_seconds: i64,
    wasted_usd: Option<String>,
}

impl<'a> From<&'a Unread> for UnreadJson<'a> {
    fn from(of: &'a Unread) -> Self {
        Self {
            place: PlaceJson::from(&of.place),
            model: of.model.as_deref(),
            tokens: of.tokens,
            lifetime_seconds: of.ttl_ms / 1_000,
            wasted_usd: of.premium_pico.map(usd),
        }
    }
}

#[derive(Serialize)]
struct DuplicatesJson<'a> {
    turns: u64,
    #[serde(flatten)]
    lost: LostJson,
    rows: Vec<DuplicateJson<'a>>,
}

#[derive(Serialize)]
struct DuplicateJson<'a> {
    #[serde(flatten)]
    place: PlaceJson<'a>,
    /// Id of the turn that wrote the same.
    duplicate_of: String,
    lost_tokens: Option<u64>,
    lost_usd: Option<String>,
}

impl<'a> From<&'a Duplicate> for DuplicateJson<'a> {
    fn from(of: &'a Duplicate) -> Self {
        Self {
            place: PlaceJson::from(&of.place),
            duplicate_of: of.of.to_string(),
            lost_tokens: of.tokens,
            lost_usd: of.pico.map(usd),
        }
    }
}

#[derive(Serialize)]
struct AgreementJson<'a> {
    agree: u64,
    disagree: u64,
    not_comparable: u64,
    /// The turns on which they do not agree, the newest first.
    rows: Vec<DisagreementJson<'a>>,
}

#[derive(Serialize)]
struct DisagreementJson<'a> {
    #[serde(flatten)]
    place: PlaceJson<'a>,
    status: Option<&'static str>,
    reason: Option<&'static str>,
    native_diagnosis: Option<&'a str>,
}

impl<'a> From<&'a Disagreement> for DisagreementJson<'a> {
    fn from(of: &'a Disagreement) -> Self {
        Self {
            place: PlaceJson::from(&of.place),
            status: of.status.map(Status::as_str),
            reason: of.reason.map(Reason::as_str),
            native_diagnosis: of.native.as_deref(),
        }
    }
}

/// The object.
pub(super) fn audit(audit: &Audit) -> anyhow::Result<String> {
    let filter = &audit.filter;
    let (unread, duplicates) = (&audit.unread, &audit.duplicates);
    let unjudged = audit.verdicts.unjudged.iter();
    object(&AuditJson {
        range: RangeJson {
            since: filter.since_ms.and_then(time),
            until: filter.until_ms.and_then(time),
            app: filter.app.as_deref(),
            run: filter.run.as_deref(),
            zone: audit.zone.iana_name(),
            now: time(audit.now_ms),
        },
        totals: TotalsJson::from(&audit.totals),
        verdicts: VerdictsJson {
            judged: &audit.verdicts.by_status,
            unjudged: unjudged
                .map(|(why, count)| (why.as_deref().unwrap_or(NOT_RECORDED), *count))
                .collect(),
        },
        by: word(audit.by),
        culprits: audit.culprits.rows.iter().map(Into::into).collect(),
        culprits_in_all: audit.culprits.all,
        losses: audit.culprits.losses.iter().map(Into::into).collect(),
        written_never_read: UnreadsJson {
            turns: unread.turns,
            tokens: unread.tokens.total(),
            wasted_usd: unread.wasted.total().map(usd),
            wasted_usd_unknown: unread.wasted.unknown,
            pending_turns: unread.pending,
            unknown_turns: unread.unattributed,
            rows: unread.rows.iter().map(Into::into).collect(),
        },
        duplicates: DuplicatesJson {
            turns: duplicates.turns,
            lost: LostJson::new(duplicates.tokens, duplicates.pico),
            rows: duplicates.rows.iter().map(Into::into).collect(),
        },
        agreement: AgreementJson {
            agree: audit.agreement.agree,
            disagree: audit.agreement.disagree,
            not_comparable: audit.agreement.not_comparable,
            rows: audit.agreement.rows.iter().map(Into::into).collect(),
        },
    })
}
