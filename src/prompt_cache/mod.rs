//! The prompt-cache engine: pure values in, values out.

pub mod chain;
pub mod habits;
pub mod plan;
pub mod shadow;
pub mod splice;
pub mod trail;
pub mod verdict;
