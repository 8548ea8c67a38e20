//! What a call is told beside its input.

use tokio_util::sync::CancellationToken;

use super::ToolError;
use super::presence::Presence;

/// What a call is told beside its input.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Its idempotency key: the same for the same call, also after a crash.
    pub key: String,
    /// The provider's id of the call.
    pub call: String,
    /// Cancelled when the result is not wanted any more. The call is dropped soon after.
    pub cancelled: CancellationToken,
    presence: Presence,
}

impl CallContext {
    /// The context of a call outside of a batch.
    #[must_use]
    pub fn new(key: &str, call: &str, cancelled: CancellationToken) -> Self {
        Self::with(
            key.to_owned(),
            call.to_owned(),
            cancelled,
            Presence::default(),
        )
    }

    pub(super) fn with(
        key: String,
        call: String,
        cancelled: CancellationToken,
        presence: Presence,
    ) -> Self {
        Self {
            key,
            call,
            cancelled,
            presence,
        }
    }

    /// Does work that blocks its thread, on a thread that may block.
    ///
    /// Such work cannot be ended from outside: it should look at [`CallContext::cancelled`] now and
    /// then. While it goes on it counts as a call of its tool that has not come back.
    ///
    /// # Errors
    /// What the work says, and `panic` where it broke down.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let presence = self.presence.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _presence = presence;
            work()
        });
        done.await
            .unwrap_or_else(|_| Err(ToolError::failed("panic", "the tool broke down")))
    }
}
