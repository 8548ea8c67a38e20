//! The answer about what broke the cache.

use clickhouse::Row;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::audit::{PLACE, PlaceTold, place};
use super::spend::{DAY_MS, number};
use super::wanted::Where;
use super::{ClickHouseAnswers, ORDER};
use crate::prompt_cache::verdict::{Reason, Status, Verdict, What, Whose};
use crate::store::audit::{BREAK, Culprit, CulpritBy, Culprits, Loss, Sum};
use crate::store::clickhouse::row::{word, word_or_none};
use crate::store::totals::signed;
use crate::store::{Filter, StoreError, groups};

/// In SQL what [`generalised`](crate::store::generalised) makes of the first changed place.
const PATH: &str = "if(startsWith(t.first_changed, 'messages['), \
    replaceRegexpAll(t.first_changed, '\\\\[[0-9]+\\\\]', '[*]'), t.first_changed)";

/// Turns, those whose loss of tokens and of money is known, and both sums.
type Losses = (u64, u64, u64, u128, u128);

const LOSSES: &str = "(count(), count(t.lost_tokens), count(t.lost_pico), \
    sum(toUInt128(ifNull(t.lost_tokens, 0))), sum(toUInt128(ifNull(t.lost_pico, 0))))";

/// What the verdict says of the newest turn: status, tokens, money, whose, place, offset, detail.
type Newest = (
    Option<String>,
    Option<u64>,
    Option<u64>,
    Option<String>,
    Option<String>,
    Option<u32>,
    Option<String>,
);

const NEWEST: &str = "(t.verdict, t.lost_tokens, t.lost_pico, t.whose, t.first_changed, \
    t.first_changed_offset, t.verdict_detail)";

#[derive(Row, Deserialize)]
struct CulpritRow {
    grouping: Option<String>,
    reason: Option<String>,
    what: Option<String>,
    changed: Option<String>,
    losses: Losses,
    runs: u64,
    newest: (PlaceTold, Newest),
}

#[derive(Row, Deserialize)]
struct LossRow {
    reason: Option<String>,
    whose: Option<String>,
    losses: Losses,
}

/// Number of turns, lost tokens, lost money.
fn sums((count, tokens_known, pico_known, tokens, pico): Losses) -> (u64, Sum, Sum) {
    let sum = |known, parts: u64| Sum::of(signed(known), parts, count.saturating_sub(parts));
    (count, sum(tokens, tokens_known), sum(pico, pico_known))
}

fn reason(told: Option<&str>) -> Result<Option<Reason>, StoreError> {
    word_or_none("verdict_reason", told, Reason::from_word)
}

fn whose(told: Option<&str>) -> Result<Option<Whose>, StoreError> {
    word_or_none("whose", told, Whose::from_word)
}

impl ClickHouseAnswers {
    pub(super) fn ask_culprits(
        &self,
        by: CulpritBy,
        filter: &Filter,
        zone: &TimeZone,
    ) -> Result<Culprits, StoreError> {
        let wanted = Where::turns().range(filter).and(BREAK);
        let turns = self.rows_of("turns");
        let group = match by {
            CulpritBy::Culprit => "NULL".to_owned(),
            CulpritBy::Run => "t.run_id".to_owned(),
            CulpritBy::App => "t.app".to_owned(),
            CulpritBy::Client => "t.client".to_owned(),
            CulpritBy::Day => match self.local(DAY_MS, &wanted, zone)? {
                Some(day) => day,
                None => return Ok(Culprits::default()),
            },
        };
        let sql = format!(
            "SELECT CAST({group} AS Nullable(String)) AS grouping, t.verdict_reason AS reason, \
                t.what AS what, {PATH} AS changed, {LOSSES} AS losses, uniqExact(t.run_id) AS runs, \
                argMax(({PLACE}, {NEWEST}), {ORDER}) AS newest \
            FROM {turns} WHERE {wanted} GROUP BY grouping, t.verdict_reason, t.what, changed"
        );
        let mut rows = Vec::new();
        self.each(&sql, |row: CulpritRow| {
            let (count, tokens, pico) = sums(row.losses);
            let (last, newest) = row.newest;
            let (status, lost_tokens, lost_pico, of, first_changed, offset, detail) = newest;
            let verdict = Verdict {
                status: word("verdict", &status.unwrap_or_default(), Status::from_word)?,
                reason: reason(row.reason.as_deref())?,
                first_changed,
                offset,
                what: word_or_none("what", row.what.as_deref(), What::from_word)?,
                detail: detail.unwrap_or_default(),
                whose: whose(of.as_deref())?,
                lost_tokens,
                lost_pico,
                excerpt: None,
            };
            let group = match by {
                CulpritBy::Day => groups::local_day(number(row.grouping.as_deref())?),
                _ => row.grouping,
            };
            rows.push(Culprit {
                group,
                reason: verdict.reason,
                what: verdict.what,
                path: row.changed,
                count,
                runs: row.runs,
                tokens,
                pico,
                last: place(last)?,
                verdict,
            });
            Ok(())
        })?;
        let sql = format!(
            "SELECT t.verdict_reason AS reason, argMax(t.whose, {ORDER}) AS whose, \
                {LOSSES} AS losses \
            FROM {turns} WHERE {wanted} GROUP BY t.verdict_reason"
        );
        let mut losses = Vec::new();
        self.each(&sql, |row: LossRow| {
            let (count, tokens, pico) = sums(row.losses);
            losses.push(Loss {
                reason: reason(row.reason.as_deref())?,
                whose: whose(row.whose.as_deref())?,
                count,
                tokens,
                pico,
            });
            Ok(())
        })?;
        Ok(Culprits::sorted(rows, losses, filter.limit))
    }
}
