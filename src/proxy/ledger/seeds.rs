//! What scopes have used before this process saw them: days of the calendar, and the trace database.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{Seed, Seeds};
use crate::guard::caps::Scope;
use crate::store::{Of, Sqlite, StoreError};

/// The credential of a request without one, in a [`Scope`].
pub const NO_CREDENTIAL: &str = "none";

/// The day of a moment (UTC milliseconds) in a zone, as `YYYY-MM-DD`.
#[must_use]
pub fn day(now_ms: i64, zone: &TimeZone) -> String {
    let moment = Timestamp::from_millisecond(now_ms).unwrap_or(if now_ms < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    });
    zone.to_datetime(moment).date().to_string()
}

/// From the beginning of a day to the beginning of the next, in UTC milliseconds.
fn range(day: &str, zone: &TimeZone) -> Result<(i64, i64), jiff::Error> {
    let day: Date = day.parse()?;
    let begin = day.to_zoned(zone.clone())?;
    let end = day.tomorrow()?.to_zoned(zone.clone())?;
    let ms = |moment: jiff::Zoned| moment.timestamp().as_millisecond();
    Ok((ms(begin), ms(end)))
}

/// Every scope begins at nothing: where no turns are recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSeeds;

impl Seeds for NoSeeds {
    fn seed(&self, _scope: &Scope) -> Result<Seed, String> {
        Ok(Seed::default())
    }
}

/// What the turns in the trace database add up to.
#[derive(Debug)]
pub struct StoreSeeds {
    data_dir: PathBuf,
    zone: TimeZone,
    /// A connection that nobody uses just now.
    idle: Mutex<Option<Sqlite>>,
}

impl StoreSeeds {
    /// Of the database in `data_dir`, which is opened when it is first needed. Days of scopes are
    /// those of `zone`.
    #[must_use]
    pub fn new(data_dir: PathBuf, zone: TimeZone) -> Self {
        Self {
            data_dir,
            zone,
            idle: Mutex::new(None),
        }
    }

    fn of<'a>(&self, scope: &'a Scope) -> Result<Of<'a>, String> {
        let (credential, day, unnamed_only) = match scope {
            Scope::Run(id) => return Ok(Of::Run(id)),
            Scope::Unnamed(credential, day) => (credential, day, true),
            Scope::Key(credential, day) => (credential, day, false),
        };
        let (since_ms, until_ms) =
            range(day, &self.zone).map_err(|error| format!("the day {day:?}: {error}"))?;
        Ok(Of::Credential {
            credential: (credential != NO_CREDENTIAL).then_some(credential),
            since_ms,
            until_ms,
            unnamed_only,
        })
    }

    fn ask(&self, of: Of<'_>) -> Result<Seed, StoreError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().take();
        let store = match kept {
            Some(store) => store,
            None => Sqlite::open_read(&self.data_dir)?,
        };
        // A connection that failed is not kept.
        let found = store.spent(of)?;
        *idle() = Some(store);
        Ok(Seed {
            spent: found.spent,
            first_ms: found.first_ms,
        })
    }
}

impl Seeds for StoreSeeds {
    fn seed(&self, scope: &Scope) -> Result<Seed, String> {
        let of = self.of(scope)?;
        self.ask(of).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
