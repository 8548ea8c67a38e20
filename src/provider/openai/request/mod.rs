//! What a request asks for, seen without changing or rebuilding a byte of it.
//!
//! One forward walk over the body: `top` reads its members, [`chat`] and [`responses`] what stands
//! in the conversation, `part` the pieces of a message's content. Unknown members, parts, items and
//! roles are fine. Facts about the API are from its documentation and SDK types as of November 2026
//! unless another source is named.

pub mod chat;
mod part;
mod reader;
pub mod responses;
mod tools;
mod top;

#[cfg(test)]
pub(crate) mod tests;
