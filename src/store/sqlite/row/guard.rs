//! What the guards say of a turn, both directions: one column, and nothing in it for most.

use super::{Binder, Reader, unknown};
use crate::trace::GuardRecord;

/// Binds a record's part about loops and caps.
pub(super) fn bind(to: &mut Binder<'_, '_>, guard: &GuardRecord) -> rusqlite::Result<()> {
    if guard.is_empty() {
        to.put(None::<&str>)?;
        return Ok(());
    }
    let text = serde_json::to_string(guard)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    to.put(text)?;
    Ok(())
}

impl Reader<'_, '_> {
    /// What [`bind`] has put.
    pub(super) fn guard(&mut self) -> rusqlite::Result<GuardRecord> {
        let Some(text) = self.take::<Option<String>>()? else {
            return Ok(GuardRecord::default());
        };
        serde_json::from_str(&text).map_err(|_| unknown("guard", text))
    }
}
