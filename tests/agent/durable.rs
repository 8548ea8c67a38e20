//! Journals: killed anywhere, resumed, forked.

mod damage;
mod fork;
mod journals;
mod resume;
mod runs;
mod settled;
mod world;
