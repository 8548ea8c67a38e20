//! What is remembered of the traffic: the records, and the way they travel to the stores.

mod record;

pub use record::{
    CallStatus, Inspection, Outcome, Placed, RequestKind, ToolCallRecord, TurnRecord,
};
