//! What an answer says, put together event by event.

pub(in crate::provider) mod chat;
mod items;
pub(in crate::provider) mod responses;
mod shared;
mod wire;
