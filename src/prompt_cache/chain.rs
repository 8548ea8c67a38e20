//! Block hashes and the chain that identifies a prefix.
