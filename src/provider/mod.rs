//! Wire formats. The only place where a provider's names and quirks are known.
//!
//! [`view`] is the one vocabulary that the cores see; each wire format is a module of its own
//! that turns bytes into it. [`json`] walks over their bytes.

pub mod anthropic;
pub mod json;
pub mod view;
