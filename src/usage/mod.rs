//! Normalised usage, price data and cost. Pure: no I/O, no clock, no wire names.
//!
//! Every wire format is turned into [`Usage`] by its provider module; nothing above this floor
//! knows whether a provider counts cached tokens inside or beside its input tokens.

mod book;
mod bundled;
mod money;
mod names;
mod overlay;
pub mod price;
mod sheet;
#[cfg(test)]
mod tests;
mod tokens;

pub use book::{ModelFacts, PriceBook, PriceError, Rates};
pub use money::{
    DecimalError, pico_from_decimal_usd, pico_from_decimal_usd_per_mtok, pico_from_json_usd, usd,
    usd_short,
};
pub use price::Priced;
pub use tokens::{Iteration, Metered, PriceOverride, ServiceTier, Speed, Usage};
