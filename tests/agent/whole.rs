//! Whole runs: through the gateway, and at the command line.
