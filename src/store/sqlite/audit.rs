//! The answers about the prompt cache. What could grow beyond SQLite's integers is summed up here.

use jiff::tz::TimeZone;
use rusqlite::params_from_iter;
use uuid::Uuid;

use super::Sqlite;
use super::ask::Where;
use super::row::Reader;
use crate::prompt_cache::verdict::{Reason, Status, Verdict, What, Whose};
use crate::store::audit::{
    Agreement, BREAK, Collected, CulpritBy, Culprits, DIAGNOSED, Disagreement, Duplicate,
    Duplicates, Duplicating, Place, Unreading, Unreads, Verdicts, WRITES, Written, lifetime, wrote,
};
use crate::store::{Filter, StoreError, groups};

/// The columns that [`place`] reads.
const PLACE: &str = "t.id, t.run_id, t.thread_id, t.turn, t.started_ms, t.app, t.client";

impl Sqlite {
    /// Goes through the rows that `sql` selects.
    pub(super) fn each(
        &self,
        sql: &str,
        wanted: Where,
        mut row_of: impl FnMut(&mut Reader<'_, '_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        self.with(|c| {
            let mut statement = c.prepare(sql)?;
            let mut rows = statement.query(params_from_iter(wanted.values))?;
            while let Some(row) = rows.next()? {
                row_of(&mut Reader::new(row))?;
            }
            Ok(())
        })
    }

    pub(super) fn ask_culprits(
        &self,
        by: CulpritBy,
        filter: &Filter,
        zone: &TimeZone,
    ) -> Result<Culprits, StoreError> {
        let wanted = Where::turns().range(filter);
        let sql = format!(
            "SELECT {PLACE}, t.verdict, t.verdict_reason, t.lost_tokens, t.lost_pico, t.what, \
                t.whose, t.first_changed, t.first_changed_offset, t.verdict_detail \
            FROM turns t WHERE {BREAK} AND {} ORDER BY t.started_ms, t.id",
            wanted.sql
        );
        let mut collected = Collected::default();
        self.each(&sql, wanted, |from| {
            let place = place(from)?;
            let group = match by {
                CulpritBy::Culprit => None,
                CulpritBy::Run => Some(place.run_id.clone()),
                CulpritBy::App => place.app.clone(),
                CulpritBy::Day => groups::day(place.started_ms, zone),
                CulpritBy::Client => place.client.clone(),
            };
            let verdict = Verdict {
                status: from.word("verdict", Status::from_word)?,
                reason: from.word_or_null("verdict_reason", Reason::from_word)?,
                lost_tokens: from.known()?,
                lost_pico: from.known()?,
                what: from.word_or_null("what", What::from_word)?,
                whose: from.word_or_null("whose", Whose::from_word)?,
                first_changed: from.take()?,
                offset: from.take()?,
                detail: from.take::<Option<String>>()?.unwrap_or_default(),
                excerpt: None,
            };
            collected.add(group, place, verdict);
            Ok(())
        })?;
        Ok(collected.finish(filter.limit))
    }

    pub(super) fn ask_unread(&self, filter: &Filter, now_ms: i64) -> Result<Unreads, StoreError> {
        let wanted = Where::turns().range(filter);
        // A request of our own that kept the entry alive has moved the end of its life, and is not
        // the read it is for.
        let sql = format!(
            "WITH written AS ( \
                SELECT {PLACE}, COALESCE(t.model_served, t.model_requested) AS model, \
                    {}, t.premium_pico, {} AS ttl, \
                    MAX(t.started_ms, COALESCE((SELECT MAX(r.started_ms) FROM turns r \
                        WHERE r.read_of = t.id AND r.kind = 'keep_warm'), t.started_ms)) AS alive \
                FROM turns t WHERE {} AND {} \
                    AND NOT EXISTS (SELECT 1 FROM turns r \
                        WHERE r.read_of = t.id AND r.kind = 'turn')) \
            SELECT t.*, EXISTS (SELECT 1 FROM turns u \
                    WHERE u.run_id = t.run_id AND u.kind = 'turn' \
                        AND u.started_ms BETWEEN t.started_ms AND t.alive + t.ttl \
                        AND u.thread_id = t.thread_id AND u.id <> t.id \
                        AND u.read > 0 AND u.read_of IS NULL) \
            FROM written t",
            WRITES.map(|(column, _)| format!("t.{column}")).join(", "),
            lifetime(),
            wanted.sql,
            wrote(),
        );
        let mut unread = Unreading::at(now_ms, filter.limit);
        self.each(&sql, wanted, |from| {
            let (place, model) = (place(from)?, from.take()?);
            let mut tokens = [None; WRITES.len()];
            for kind in &mut tokens {
                *kind = from.known()?;
            }
            unread.add(Written {
                place,
                model,
                tokens,
                premium_pico: from.known()?,
                ttl_ms: from.take()?,
                alive_ms: from.take()?,
                perhaps_read: from.take()?,
            });
            Ok(())
        })?;
        Ok(unread.finish())
    }

    pub(super) fn ask_duplicates(&self, filter: &Filter) -> Result<Duplicates, StoreError> {
        let wanted = Where::turns().range(filter);
        let sql = format!(
            "SELECT {PLACE}, t.duplicate_of, t.duplicate_tokens, t.duplicate_pico \
            FROM turns t WHERE t.duplicate_of IS NOT NULL AND {}",
            wanted.sql
        );
        let mut duplicates = Duplicating::with_limit(filter.limit);
        self.each(&sql, wanted, |from| {
            duplicates.add(Duplicate {
                place: place(from)?,
                of: Uuid::from_bytes(from.take()?),
                tokens: from.known()?,
                pico: from.known()?,
            });
            Ok(())
        })?;
        Ok(duplicates.finish())
    }

    pub(super) fn ask_agreement(&self, filter: &Filter) -> Result<Agreement, StoreError> {
        let wanted = Where::turns().range(filter);
        let sql = format!(
            "SELECT {PLACE}, t.native_agrees, t.verdict, t.verdict_reason, t.native_diagnosis \
            FROM turns t WHERE {DIAGNOSED} AND {} ORDER BY t.started_ms DESC, t.id DESC",
            wanted.sql
        );
        let mut agreement = Agreement::default();
        self.each(&sql, wanted, |from| {
            let place = place(from)?;
            let agrees = from.take::<Option<bool>>()?;
            agreement.add(agrees, 1);
            if agrees == Some(false) && agreement.rows.len() < filter.limit {
                agreement.rows.push(Disagreement {
                    place,
                    status: from.word_or_null("verdict", Status::from_word)?,
                    reason: from.word_or_null("verdict_reason", Reason::from_word)?,
                    native: from.take()?,
                });
            }
            Ok(())
        })?;
        Ok(agreement)
    }

    pub(super) fn ask_verdicts(&self, filter: &Filter) -> Result<Verdicts, StoreError> {
        let wanted = Where::turns().range(filter);
        let sql = format!(
            "SELECT t.verdict, t.unjudged, COUNT(*) FROM turns t WHERE {} \
            GROUP BY t.verdict, t.unjudged",
            wanted.sql
        );
        let mut verdicts = Verdicts::default();
        self.each(&sql, wanted, |from| {
            let status = from.word_or_null("verdict", Status::from_word)?;
            verdicts.add(status, from.take()?, from.number()?);
            Ok(())
        })?;
        Ok(verdicts)
    }
}

/// Reads the columns of [`PLACE`].
fn place(from: &mut Reader<'_, '_>) -> rusqlite::Result<Place> {
    Ok(Place {
        id: Uuid::from_bytes(from.take()?),
        run_id: from.take()?,
        thread_id: from.take()?,
        turn: from.take()?,
        started_ms: from.take()?,
        app: from.take()?,
        client: from.take()?,
    })
}
