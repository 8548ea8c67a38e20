//! Token counts.
