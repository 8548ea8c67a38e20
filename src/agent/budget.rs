//! What all agents of a run have used together, and whether a cap on it can be kept.

use std::sync::{Arc, Mutex, PoisonError};

use super::machine::{Limits, Spent};
use crate::usage::PriceBook;

/// The books of a run; clones are the same books.
#[derive(Debug, Clone)]
pub struct Budget {
    /// The whole run first, then what is shared out of it, down to the holder.
    levels: Vec<Arc<Mutex<Spent>>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            levels: vec![Arc::default()],
        }
    }
}

impl Budget {
    /// What the whole run has used so far.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.levels.first().map_or_else(Spent::default, read)
    }

    /// What was added here, and by what was shared out from here.
    #[must_use]
    pub fn own(&self) -> Spent {
        self.levels.last().map_or_else(Spent::default, read)
    }

    /// Adds to it.
    pub fn add(&self, spent: &Spent) {
        for level in &self.levels {
            level
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(spent);
        }
    }

    /// The same books of the run with a page of their own, for a sub-agent.
    #[must_use]
    pub fn share(&self) -> Self {
        let mut levels = self.levels.clone();
        levels.push(Arc::default());
        Self { levels }
    }
}

fn read(level: &Arc<Mutex<Spent>>) -> Spent {
    level.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A cap on money that could not be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no price is known for the model {model} ({provider}), so a cap on money could not be kept: \
     give it a price, or cap tokens instead"
)]
pub struct Unpriced {
    /// The provider's id in the price data.
    pub provider: String,
    /// The model.
    pub model: String,
}

/// Whether the limits can be kept with this model; to be asked before a run begins or another model
/// is switched to. An unknown price is no price of nothing.
///
/// # Errors
/// There is a cap on money, and no price.
pub fn check_price(
    prices: &PriceBook,
    provider: &str,
    model: &str,
    limits: &Limits,
    at_ms: i64,
) -> Result<(), Unpriced> {
    if limits.pico.is_none() || prices.model(provider, model, at_ms).rates.is_some() {
        return Ok(());
    }
    Err(Unpriced {
        provider: provider.to_owned(),
        model: model.to_owned(),
    })
}
