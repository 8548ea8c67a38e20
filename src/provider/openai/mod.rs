//! The OpenAI wire formats: Chat Completions, and whatever speaks like it, and Responses.

pub mod answer;
pub mod assembled;
pub mod caching;
pub mod claude;
pub mod diagnosis;
pub mod error;
pub mod models;
pub mod request;
pub mod socket;
pub(super) mod stream;
pub mod swallow;
pub mod tools;
mod usage;
