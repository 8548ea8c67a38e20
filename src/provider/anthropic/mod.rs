//! The Anthropic Messages wire format.

pub mod diagnosis;
pub mod error;
pub mod request;
pub mod response;
mod stream;
mod usage;
mod wire;
