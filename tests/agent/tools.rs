//! Tools: checks, isolation, time limits, what comes built in, MCP.
