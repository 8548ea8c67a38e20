//! The Anthropic Messages wire format.

pub mod request;
