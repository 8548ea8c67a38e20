//! Scripted agents.
