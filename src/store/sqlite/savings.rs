//! The answer about savings.

use rusqlite::params_from_iter;

use super::Sqlite;
use super::ask::{FACT_COLUMNS, FACTS, Where, fact};
use crate::store::savings::{Collected, SavingFact, Savings};
use crate::store::{Filter, StoreError};

impl Sqlite {
    pub(super) fn ask_savings(&self, filter: &Filter) -> Result<Savings, StoreError> {
        let wanted = Where::costly().range(filter);
        let sql = format!(
            "SELECT {FACTS}, t.run_id, t.app, COALESCE(t.model_served, t.model_requested), \
                t.policy, t.helper, t.helper_tokens, t.helper_pico, \
                CASE WHEN t.dry_run THEN json_array_length(t.markers_added) ELSE 0 END \
            FROM turns t WHERE {}",
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
                let tokens: Option<i64> = row.get(FACT_COLUMNS + 5)?;
                collected.add(&SavingFact {
                    fact: fact(row)?,
                    run_id: text(0)?.unwrap_or_default(),
                    app: text(1)?,
                    model: text(2)?,
                    policy: text(3)?,
                    helper: text(4)?,
                    helper_tokens: tokens.and_then(|n| u64::try_from(n).ok()),
                    helper_pico: row.get(FACT_COLUMNS + 6)?,
                    planned: row.get::<_, i64>(FACT_COLUMNS + 7)?.unsigned_abs(),
                });
            }
            Ok(collected.finish())
        })
    }
}
