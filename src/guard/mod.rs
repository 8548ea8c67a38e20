//! Guards: what warns of, steers or stops a run that goes wrong.
//!
//! [`loops`] reads the history in a request and finds calls that repeat without getting anywhere;
//! [`schema`] tells calls that cannot succeed, as the request declares no such tool or no such input;
//! [`reminder`] is how a client tells its model of that without hiding it from anybody;
//! [`caps`] keeps the books of runs and keys and decides what may still be spent. All are pure:
//! values in, values out, time passed in. [`crate::proxy`] acts on what they say.

pub mod calls;
pub mod caps;
mod failure;
pub mod loops;
pub mod reminder;
pub mod schema;
