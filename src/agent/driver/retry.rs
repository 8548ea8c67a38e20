//! What follows from an attempt that gave no whole answer: wait and ask again, make room, or end.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Agent;
use crate::agent::journal::JournalError;
use crate::agent::machine::{Event, Outcome};
use crate::agent::model::{Attempt, Failure};
use crate::agent::notice::Notice;

/// First and longest wait before another attempt.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

impl Agent {
    /// An attempt at the answer that is asked for has failed.
    pub(super) async fn failed(
        &mut self,
        attempt: Attempt,
        max_tokens: u32,
    ) -> Result<(), JournalError> {
        let started = self.batch.take().is_some();
        self.live.clear();
        let wait = match attempt.failure {
            Failure::Again(after) if !started && self.attempts < self.parts.options.attempts => {
                Some(after.unwrap_or_else(|| backoff(self.attempts)))
            }
            _ => None,
        };
        self.abandoned(&attempt, wait)?;
        if self.parts.cancelled.is_cancelled() {
            return Ok(());
        }
        if let Some(wait) = wait {
            pause(&self.parts.cancelled, wait).await;
            return Ok(());
        }
        self.attempts = 0;
        let raised = max_tokens > self.run.setup().max_tokens;
        self.record(match attempt.failure {
            Failure::TooLong => Event::TooLong,
            // The model has no room for twice the limit.
            Failure::Final if raised && attempt.reason.contains("_tokens") => {
                Event::Ended(Outcome::Truncated)
            }
            _ => Event::Ended(Outcome::ProviderError(attempt.reason)),
        })
    }

    /// Tells and books an attempt that is given up; `wait` is what passes before the next.
    pub(super) fn abandoned(
        &mut self,
        attempt: &Attempt,
        wait: Option<Duration>,
    ) -> Result<(), JournalError> {
        self.tell(Notice::Reset {
            reason: &attempt.reason,
            bill: &attempt.bill,
            wait,
        });
        self.record(Event::Abandoned {
            reason: attempt.reason.clone(),
            bill: (*attempt.bill).clone(),
        })
    }
}

/// Waits, unless the run is cancelled.
pub async fn pause(cancelled: &CancellationToken, wait: Duration) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        () = cancelled.cancelled() => {}
    }
}

/// Doubles from attempt to attempt, less up to a quarter, so that clients do not come back together.
pub fn backoff(attempts: u32) -> Duration {
    let full = FIRST_WAIT.saturating_mul(1 << attempts.saturating_sub(1).min(8));
    let full = full.min(LONGEST_WAIT);
    let mut random = [0u8; 1];
    // Without randomness it only comes back a little later.
    let _ = getrandom::fill(&mut random);
    full - full * u32::from(random[0]) / 1024
}
