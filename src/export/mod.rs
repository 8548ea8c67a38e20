//! Where counters, spans and alerts go.

pub mod alerts;
pub mod otlp;
pub mod prometheus;
