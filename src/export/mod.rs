//! Where counters, spans and alerts go.

pub mod alerts;
pub mod prometheus;
