//! Wire formats. The only place where a provider's names and quirks are known.
//!
//! [`view`] is the one vocabulary that the cores see; each wire format is a module of its own
//! that turns bytes into it. [`json`] walks over their bytes, [`decode`] undoes content encodings
//! of copies, for looking.

pub mod anthropic;
pub mod decode;
pub mod json;
pub mod lenient;
pub mod openai_error;
pub mod view;
