//! What a request asks for, seen without changing or rebuilding a byte of it.

pub mod chat;
pub mod responses;
