//! The answer about savings.

use rusqlite::params_from_iter;

use super::Sqlite;
use super::ask::{FACT_COLUMNS, Where, fact, facts};
use crate::store::audit::Sum;
use crate::store::savings::{Collected, Of, SavingFact, Savings};
use crate::store::{Filter, StoreError};

impl Sqlite {
    pub(super) fn ask_savings(&self, filter: &Filter) -> Result<Savings, StoreError> {
        let wanted = Where::costly().range(filter);
        let sql = format!(
            "SELECT {}, t.run_id, t.app, COALESCE(t.model_served, t.model_requested), \
                t.policy, t.helper, t.helper_tokens, t.helper_pico, \
                CASE WHEN t.dry_run THEN json_array_length(t.markers_added) ELSE 0 END \
            FROM turns t WHERE {}",
            facts(),
            wanted.sql
        );
        self.with(|c| {
            let mut statement = c.prepare(&sql)?;
            let mut rows = statement.query(params_from_iter(wanted.values))?;
            let mut collected = Collected::default();
            while let Some(row) = rows.next()? {
                let text = |column: usize| -> rusqlite::Result<Option<&str>> {
                    Ok(row.get_ref(FACT_COLUMNS + column)?.as_str_or_null()?)
                };
                let fact = fact(row)?;
                let (mut tokens, mut pico) = (Sum::default(), Sum::default());
                let known: Option<i64> = row.get(FACT_COLUMNS + 5)?;
                tokens.add(known.and_then(|n| u64::try_from(n).ok()));
                pico.add(row.get::<_, Option<i64>>(FACT_COLUMNS + 6)?);
                let planned = row.get::<_, i64>(FACT_COLUMNS + 7)?.unsigned_abs();
                let of = Of {
                    app: text(1)?,
                    model: text(2)?,
                    policy: text(3)?,
                };
                collected.add(&SavingFact {
                    helper: text(4)?,
                    helper_tokens: tokens,
                    helper_pico: pico,
                    planned: u64::from(planned > 0),
                    markers: planned,
                    of,
                    fact,
                });
                if fact.is_turn() {
                    collected.add_run(of, text(0)?.unwrap_or_default());
                }
            }
            Ok(collected.finish())
        })
    }
}
