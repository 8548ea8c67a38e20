//! Wire formats. The only place where a provider's names and quirks are known.
//!
//! [`view`] is the one vocabulary that the cores see; each wire format is a module of its own
//! that turns bytes into it, and [`wire::Wire`] picks it. [`reader`] reads answers. [`json`] walks over their bytes, [`decode`] undoes content encodings
//! of copies, for looking.

pub mod anthropic;
mod api_error;
pub mod assembled;
pub mod decode;
pub mod dialect;
pub mod json;
pub mod lenient;
pub mod openai;
pub mod reader;
pub mod view;
pub mod wire;
