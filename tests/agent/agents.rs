//! Sub-agents, memory, compaction, patterns.
