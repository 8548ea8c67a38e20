//! A bounded incremental reader of server-sent events that never fails.
