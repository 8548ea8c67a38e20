//! Reading a request body: bounded for itself, and together with all others.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Budget is counted in units of this many bytes.
const UNIT_BYTES: usize = 1024;
/// A client that sends nothing of its body for this long is given up.
pub const MAX_SILENCE: Duration = Duration::from_secs(60);

/// Memory for bodies of all requests together.
#[derive(Debug, Clone)]
pub struct Budget {
    units: Arc<Semaphore>,
    max_body: usize,
    patience: Duration,
}

/// A body that was read, and its share of the budget. Dropping the share returns it.
#[derive(Debug)]
pub struct Taken {
    /// All of it.
    pub bytes: Bytes,
    /// Its share of the budget.
    pub share: OwnedSemaphorePermit,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// Larger than the limit.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
    /// The client broke off, or framed it wrongly.
    #[error("the client's body ended early: {0}")]
    Client(hyper::Error),
    /// The client sent nothing of the rest for too long. A share that waits for it is missing to others.
    #[error("the client sent nothing of its body for {} s", .0.as_secs())]
    Stalled(Duration),
    /// The gateway is shutting down.
    #[error("shutting down")]
    Closed,
}

impl Budget {
    /// `max_body` bytes for one body, `total` bytes for all; at least one largest body fits. A client
    /// may be silent inside a body for `idle`, but no longer than [`MAX_SILENCE`].
    #[must_use]
    pub fn new(max_body: usize, total: usize, idle: Duration) -> Self {
        let units = units(total.max(max_body)).min(Semaphore::MAX_PERMITS);
        Self {
            units: Arc::new(Semaphore::new(units)),
            max_body,
            patience: idle.min(MAX_SILENCE),
        }
    }

    /// Reads a body. Waits while the bodies of other requests fill the budget. The share is taken
    /// in one piece before the first byte, so that two half-read bodies never wait for each other.
    ///
    /// # Errors
    /// [`IntakeError`], as soon as it is known. The rest of the body is the connection's concern.
    pub async fn read(&self, mut body: Incoming) -> Result<Taken, IntakeError> {
        let known = body
            .size_hint()
            .exact()
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        if known.is_some_and(|n| n > self.max_body) {
            return Err(IntakeError::TooLarge(self.max_body));
        }
        let mut share = self.share(known).await?;

        let mut first = Bytes::new();
        let mut rest: Option<BytesMut> = None;
        let mut length = 0_usize;
        while let Some(frame) = tokio::time::timeout(self.patience, body.frame())
            .await
            .map_err(|_elapsed| IntakeError::Stalled(self.patience))?
        {
            let Ok(data) = frame.map_err(IntakeError::Client)?.into_data() else {
                continue;
            };
            length += data.len();
            if length > self.max_body {
                return Err(IntakeError::TooLarge(self.max_body));
            }
            match &mut rest {
                Some(buffer) => buffer.extend_from_slice(&data),
                None if first.is_empty() => first = data,
                None => {
                    let room = known.unwrap_or(length * 2).max(length);
                    let mut buffer = BytesMut::with_capacity(room);
                    buffer.extend_from_slice(&first);
                    buffer.extend_from_slice(&data);
                    first = Bytes::new();
                    rest = Some(buffer);
                }
            }
        }
        let bytes = rest.map_or(first, BytesMut::freeze);
        shrink(&mut share, bytes.len());
        Ok(Taken { bytes, share })
    }

    /// Takes a share for so many bytes, or for a largest body where their number is not known. Waits
    /// while others fill the budget.
    ///
    /// # Errors
    /// [`IntakeError::TooLarge`] and [`IntakeError::Closed`].
    pub async fn share(&self, bytes: Option<usize>) -> Result<OwnedSemaphorePermit, IntakeError> {
        let bytes = bytes.unwrap_or(self.max_body);
        if bytes > self.max_body {
            return Err(IntakeError::TooLarge(self.max_body));
        }
        let wanted = u32::try_from(units(bytes)).unwrap_or(u32::MAX);
        let acquired = self.units.clone().acquire_many_owned(wanted).await;
        acquired.map_err(|_closed| IntakeError::Closed)
    }

    /// Most bytes of one body.
    #[must_use]
    pub fn max_body(&self) -> usize {
        self.max_body
    }

    /// How long a client may be silent inside a body.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }
}

/// Gives back what is not needed for so many bytes.
pub fn shrink(share: &mut OwnedSemaphorePermit, bytes: usize) {
    let unused = share.num_permits().saturating_sub(units(bytes));
    drop(share.split(unused));
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).max(1)
}
