//! Normalised usage, price data and cost. Pure: no I/O, no clock, no wire names.
//!
//! Every wire format is turned into [`Usage`] by its provider module; nothing above this floor
//! knows whether a provider counts cached tokens inside or beside its input tokens.

mod tokens;

pub use tokens::{Iteration, Metered, PriceOverride, ServiceTier, Speed, Usage};
