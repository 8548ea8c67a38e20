//! What is remembered of the traffic: the records, and the way they travel to the stores.
//!
//! A record is built on the request path, handed to the [`Recorder`], and written by one thread
//! behind a bounded queue. The request path never waits for a store: what does not fit is dropped
//! and counted.

mod alert;
pub mod capture;
mod code;
pub mod ids;
pub mod metrics;
mod record;
mod recorder;
mod words;
mod writer;

pub use alert::{AlertSender, Digest, Notice, Standing};
pub use record::{
    CacheRecord, CallResult, CallStatus, EventKind, EventRecord, GuardRecord, Inspection, Outcome,
    Placed, RequestKind, ToolCallRecord, TurnRecord,
};
pub use recorder::{DropReason, Recorder, RecorderHandle, start};
pub use words::intern;
pub use writer::{Entry, Outlet, Retention, Sink, WriteError};
