//! Who is asking: run, thread, turn, attempt.
