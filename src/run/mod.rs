//! Who is asking: run, thread, turn, attempt.
//!
//! [`identify`] reads what a client says about itself; [`Registry`] remembers the lineages of
//! growing requests and finds the place of a request among them. Both are pure: time is passed in.

pub mod identify;
pub mod parents;
mod registry;

pub use identify::{Identity, Labels};
pub use registry::{
    Answered, Arrival, AskedCall, MAX_THREADS, NoSearch, Registry, Rules, Search, Seat, Seed,
    SettledCall, UNPLACED,
};
