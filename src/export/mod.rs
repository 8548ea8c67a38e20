//! Where counters and spans go.

pub mod prometheus;
