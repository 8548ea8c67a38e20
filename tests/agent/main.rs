//! The loop client (`prefixgate::agent`) as its users see it: the library, and the command.

mod agents;
mod durable;
mod formats;
mod tools;
mod whole;
