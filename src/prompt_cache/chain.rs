//! Block hashes and the chain that identifies a prefix.

/// A keyed hash, cut to 128 bits.
pub type Hash = [u8; 16];
