//! What counts as a loop, rule by rule, with bodies as clients send them.

mod corpus;
mod holding;
mod properties;
mod rules;
mod script;
mod wires;
