//! Content of requests and answers, where it is asked for (`[capture]`): held while a turn passes,
//! redacted, and kept as files of their own beside the trace database.
//!
//! The request path holds references and copies the answer's bytes, bounded together; everything
//! else is done by one thread ([`Capture`]). What passes on to the client and the upstream is never
//! touched by any of it.

mod body;
mod hold;
mod json;
mod keep;
mod read;
mod retain;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use hold::Holding;
pub use json::redacted as redacted_json;
pub use keep::{About, Capture, CaptureHandle, Loss};
pub use read::{Content, DIRECTORY, Response, content};
