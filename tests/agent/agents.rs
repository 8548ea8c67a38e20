//! The machine, sub-agents, memory, compaction, patterns.

mod children;
mod compaction;
mod legal;
mod machine;
mod memory;
mod patterns;
mod play;
mod properties;
mod repetition;
mod scripted;
mod site;
