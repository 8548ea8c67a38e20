//! What all agents of a run have used together.

use std::sync::{Arc, Mutex, PoisonError};

use super::machine::Spent;

/// The books of a run; clones are the same books.
#[derive(Debug, Clone, Default)]
pub struct Budget(Arc<Mutex<Spent>>);

impl Budget {
    /// What was used so far.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds to it.
    pub fn add(&self, spent: &Spent) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(spent);
    }
}
