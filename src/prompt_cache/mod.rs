//! The prompt-cache engine: pure values in, values out.

pub mod chain;
pub mod plan;
pub mod splice;
