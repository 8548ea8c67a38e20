//! What an answer says, put together event by event.

pub(in crate::provider) mod chat;
pub(in crate::provider) mod responses;
