//! The prompt-cache engine: pure values in, values out.

pub mod advice;
mod by_hash;
pub mod chain;
pub mod change;
pub mod diagnosis;
pub mod engine;
pub mod habits;
pub mod helpers;
pub mod keep;
pub mod optimum;
pub mod plan;
pub mod shadow;
pub mod splice;
pub mod strategies;
pub mod trail;
pub mod verdict;
