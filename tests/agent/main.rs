//! The loop client (`prefixgate::agent`) as its users see it: the library, and the command.

mod agents;
mod durable;
mod formats;
#[allow(unused_imports, reason = "each test uses a part of it")]
#[path = "../it/support/mod.rs"]
mod it_support;
mod tools;
mod whole;
