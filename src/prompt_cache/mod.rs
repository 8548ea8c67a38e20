//! The prompt-cache engine: pure values in, values out.

pub mod chain;
pub mod optimum;
pub mod plan;
pub mod shadow;
pub mod splice;
pub mod strategies;
pub mod trail;
pub mod verdict;
